"""The public rules of a data owner, and its messages: one request and one answer."""

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, sqrt
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.arrays import Floats
from veilring.data.table import in_unit_cube
from veilring.privacy.checks import require, require_that
from veilring.privacy.exact import float_ceil
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.radius.algorithm.allocation import WORK_MAX
from veilring.protocols.radius.algorithm.balls import BATCH_MAX, FEATURES_MAX
from veilring.protocols.radius.algorithm.conversion import (
    GRID_FEATURES_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
)
from veilring.protocols.radius.algorithm.nearest import NearestParameters, RNParameters
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import CONTENT_BYTES_MAX, pack
from veilring.transport.messages import Array, Matrix, Message

Numbers = Annotated[Floats, Array("<f8", 1)]
"""Real numbers of shape (queries,), or an empty array."""


class LabelRequest(Message, kind="radius.request"):
    """A batch of queries to label, by the rows within radii or by about k neighbours.

    Attributes:
        key: The analyst's name of this request, `KEY_BYTES` long. A repeated request has the same
            key, gets the same answer and is charged once.
        epsilon: The ε of the batch, or, if rows have their own budgets, the ε of each query for a
            row.
        k: The number of neighbours, or 0 for radii.
        queries: The queries, shape (queries, features), in [0, 1].
        radii: The radii, shape (queries,); empty if k is not 0.
    """

    key: RequestKey
    epsilon: float
    k: Annotated[int, Field(ge=0)]
    queries: Matrix
    radii: Numbers

    @property
    def content(self) -> bytes:
        """The encoding of all fields except the key."""
        return pack(self.fields()[1:])


class LabelAnswer(Message, kind="radius.answer"):
    """The data owner's answer, whose size does not depend on its content.

    Attributes:
        verdict: The number of a `Verdict`.
        left: The remainder of the budget that does not suffice; otherwise 0.
        labels: The labels, shape (queries,); all 0 unless the request is answered.
        radii: The radii within which rows voted, of the same shape, for a request with k.
    """

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: Annotated[NDArray[np.uint16], Array("<u2", 1)]
    radii: Numbers


def label_cost(queries: int, features: int, k: int = 0) -> Forecast:
    """Forecast a request: one message each way, in two rounds.

    The two messages take about 150 bytes, and `8 f + 10` bytes per query: its features, its radius
    (which is part of the answer if k is given) and 2 bytes for its label. A refusal is as large as
    an answer.

    Args:
        k: The number of neighbours, or 0 for radii.
    """
    radii, none = np.zeros(queries), np.zeros(0)
    request = LabelRequest(
        key=bytes(REQUEST_KEY_BYTES),
        epsilon=0.0,
        k=k,
        queries=np.zeros((queries, features)),
        radii=none if k else radii,
    )
    labels = np.zeros(queries, dtype=np.uint16)
    answer = LabelAnswer(verdict=0, left=0.0, labels=labels, radii=radii if k else none)
    return Forecast(2, repeated(1, request).plus(repeated(1, answer)))


DEFAULT_CONVERSION: Final = ByCandidates()
# Counts and scores of a full batch have one number per class and query: at this limit 32 MiB. A
# label has two bytes on the wire, which would allow more classes.
_CLASSES_MAX: Final = 1 << 10
# The ledger keeps every answer forever. At a thousandth each, a budget of 10 pays for 10,000.
REQUEST_EPSILON_MIN: Final = 1e-3
# An answer with a greater ε protects nobody.
REQUEST_EPSILON_MAX: Final = 10.0
# More rows than any owner has.
_ROWS_MAX: Final = 1_000_000_000
# A larger k is a mistake or an attack.
_K_MAX: Final = _ROWS_MAX
# A smaller share is useless: at the least epsilon, this one is a hundred-thousandth.
SHARE_MIN: Final = 0.01
SHARE_MAX: Final = 0.99
SHARE_ALLOWED: Final = f"a number from {SHARE_MIN:g} to {SHARE_MAX:g}"
COUNT_SHARE: Final = 0.1
"""The default share of a request with k that pays for counting the rows."""
CONVERSION_SHARE: Final = 0.1
"""The default share of the rest that pays for converting k into radii. Of 0.05 to 0.5, this share
gave the best accuracy on eleven tables at ε = 0.5 to 4, in batches of 100, for owners and peers."""
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class OwnerRules:
    """The public rules of a data owner, which analysts must know as well.

    Attributes:
        conversion: The conversion of k into radii.
        rows: The number of rows, if it is public. It is stated here, never computed from the rows.
        count_share: The share of a request with k that pays for counting the rows, if their number
            is not public; from `SHARE_MIN` to `SHARE_MAX`.
        conversion_share: The share of the rest that pays for converting k into radii, in the same
            range; the paper's w.
        epsilon_max: The greatest ε of a request; the least is `REQUEST_EPSILON_MIN`.
    """

    features: int
    classes: int
    conversion: Conversion = DEFAULT_CONVERSION
    rows: int | None = None
    count_share: float = COUNT_SHARE
    conversion_share: float = CONVERSION_SHARE
    epsilon_max: float = 1.0
    batch_max: int = 1000
    work: int = WORK_MAX

    def __post_init__(self) -> None:
        _require_whole("features", self.features, FEATURES_MAX)
        _require_whole("classes", self.classes, _CLASSES_MAX)
        _require_whole("batch_max", self.batch_max, BATCH_MAX)
        for name, share in (
            ("count_share", self.count_share),
            ("conversion_share", self.conversion_share),
        ):
            require(SHARE_MIN <= share <= SHARE_MAX, name, share, SHARE_ALLOWED)
        top = self.epsilon_max
        right = REQUEST_EPSILON_MIN <= top <= REQUEST_EPSILON_MAX
        require(right, "epsilon_max", top, f"{REQUEST_EPSILON_MIN:g} to {REQUEST_EPSILON_MAX:g}")
        known = self.rows is None or 0 <= self.rows <= _ROWS_MAX
        require(known, "rows", self.rows, f"0 to {_ROWS_MAX:,}, or none")
        require(self.work >= 0, "work", self.work, "a whole number of at least 0")
        if isinstance(self.conversion, ByGrid):
            coarse = self.features <= GRID_FEATURES_MAX
            allowed = f"at most {GRID_FEATURES_MAX} for a grid: convert by candidates"
            require(coarse, "features", self.features, allowed)
        require_that(
            self._fitting() >= 1,
            "features",
            f"a query with {self.features:,} features does not fit into one frame",
        )

    @property
    def radius_max(self) -> float:
        """The diagonal of the domain: a ball of this radius contains every row."""
        return sqrt(self.features)

    @property
    def queries_max(self) -> int:
        """The maximum number of queries in a request."""
        return min(self.batch_max, self._fitting())

    def check(self, request: LabelRequest) -> None:
        """Check that a request obeys the rules."""
        count, features = request.queries.shape
        require_that(
            features == self.features,
            "queries",
            f"the queries have {features} features; the rules have {self.features}",
        )
        most = self.queries_max
        require_that(
            1 <= count <= most,
            "queries",
            f"there are {count} queries; 1 to {most} are possible at once",
        )
        require_that(
            in_unit_cube(request.queries), "queries", "queries must be numbers from 0 to 1"
        )
        good = (
            isfinite(request.epsilon) and REQUEST_EPSILON_MIN <= request.epsilon <= self.epsilon_max
        )
        allowed = f"a number from {REQUEST_EPSILON_MIN:g} to {self.epsilon_max:g}"
        require(good, "epsilon", request.epsilon, allowed)
        if request.k:
            require(request.k <= _K_MAX, "k", request.k, f"1 to {_K_MAX:,}")
        shape = (0,) if request.k else (count,)
        require_that(
            request.radii.shape == shape,
            "radii",
            f"radii has the shape {request.radii.shape}; it must be {shape}",
        )
        inside = bool(np.all((request.radii >= 0) & (request.radii <= self.radius_max)))
        require_that(inside, "radii", f"radii must be from 0 to {self.radius_max:.6g}")

    def within(self, epsilon: float) -> RNParameters:
        """Return the parameters of a batch with radii."""
        return RNParameters(epsilon, self.classes, self.work)

    def nearest(self, k: int, epsilon: float) -> NearestParameters:
        """Return the parameters of a batch with k, whose parts cost at most `epsilon` together."""
        counting = 0.0 if self.rows is not None else epsilon * self.count_share
        converting = (epsilon - counting) * self.conversion_share
        # Rounded down, so that the parts together do not exceed the price of a batch.
        voting = -float_ceil(Fraction(counting) + Fraction(converting) - Fraction(epsilon))
        return NearestParameters(
            k, self.classes, converting, voting, self.rows, counting, self.conversion, self.work
        )

    def _fitting(self) -> int:
        """Return the number of queries that fit a frame."""
        return CONTENT_BYTES_MAX // (_NUMBER_BYTES * (self.features + 1))


def _require_whole(name: str, value: int, most: int) -> None:
    require(1 <= value <= most, name, value, f"a whole number from 1 to {most:,}")
