"""The public rules of a data owner, and its messages: one request and one answer."""

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from veilring.arrays import Floats
from veilring.data.table import Rows, in_unit_cube
from veilring.privacy.checks import require, require_that, require_whole
from veilring.protocols.promise import Facts, Forecast, repeated
from veilring.protocols.radius.algorithm.allocation import WORK_MAX
from veilring.protocols.radius.algorithm.balls import FEATURES_MAX
from veilring.protocols.radius.algorithm.conversion import GRID_FEATURES_MAX, conversion_of
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    LabelledBatch,
    NearestParameters,
    label_nearest,
    label_within,
)
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import CONTENT_BYTES_MAX, pack
from veilring.transport.messages import Array, Matrix, Message

if TYPE_CHECKING:
    from veilring.protocols.radius.system import DataOwner

Numbers = Annotated[Floats, Array("<f8", 1)]
"""Real numbers of shape (queries,), or an empty array."""


class LabelRequest(Message, kind="radius.request"):
    """A batch of queries to label, by the rows within radii or by about k neighbours.

    Attributes:
        key: The analyst's name of this request. A repeated request has the same key, gets the same
            answer and is charged once.
        epsilon: The ε of the batch.
        k: The number of neighbours, or 0 for radii.
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
        verdict: The number of a `RequestVerdict`.
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
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class OwnerRules:
    """A data owner's system and the public facts that it is bound to, equal for all analysts.

    Attributes:
        facts: The facts, with `rows` if their number is public. It is stated there, never computed
            from the rows.
        work: The work of a search for cliques: see `largest_cliques`.
    """

    system: "DataOwner"
    facts: Facts
    work: int = WORK_MAX

    def __post_init__(self) -> None:
        features, rows = self.facts.features, self.facts.rows
        require_whole("features", features, FEATURES_MAX)
        require_whole("classes", self.facts.classes, _CLASSES_MAX)
        known = rows is None or 0 <= rows <= _ROWS_MAX
        require(known, "rows", rows, f"0 to {_ROWS_MAX:,}, or none")
        if self.system.conversion == "grid":
            coarse = features <= GRID_FEATURES_MAX
            allowed = f"at most {GRID_FEATURES_MAX} for a grid: convert by candidates"
            require(coarse, "features", features, allowed)
        require_that(
            self._fitting() >= 1,
            "features",
            f"a query with {features:,} features does not fit into one frame",
        )

    @property
    def radius_max(self) -> float:
        """The diagonal of the domain: a ball of this radius contains every row."""
        return sqrt(self.facts.features)

    @property
    def queries_max(self) -> int:
        """The maximum number of queries in a request."""
        return min(self.system.batch, self._fitting())

    def check(self, request: LabelRequest) -> None:
        """Check that a request obeys the rules."""
        count, features = request.queries.shape
        require_that(
            features == self.facts.features,
            "queries",
            f"the queries have {features} features; the rules have {self.facts.features}",
        )
        require_that(
            1 <= count <= self.queries_max,
            "queries",
            f"there are {count} queries; 1 to {self.queries_max} are possible at once",
        )
        require_that(
            in_unit_cube(request.queries), "queries", "queries must be numbers from 0 to 1"
        )
        most = self.system.epsilon
        good = REQUEST_EPSILON_MIN <= request.epsilon <= most
        allowed = f"a number from {REQUEST_EPSILON_MIN:g} to {most:g}"
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

    def label(self, request: LabelRequest, rows: Rows, rng: Generator) -> LabelledBatch:
        """Release the labels of a request, and the radii within which rows voted."""
        queries, epsilon, classes = request.queries, request.epsilon, self.facts.classes
        if request.k:
            return label_nearest(queries, rows, self.nearest(request.k, epsilon), rng)
        labels = label_within(
            queries, request.radii, rows, rng, epsilon=epsilon, classes=classes, work=self.work
        )
        return LabelledBatch(labels, request.radii)

    def nearest(self, k: int, epsilon: float) -> NearestParameters:
        """Return the parameters of a batch with k, whose parts cost at most `epsilon` together."""
        system, facts = self.system, self.facts
        counting = system.count_share if facts.rows is None else 0.0
        parts = BudgetParts.of(epsilon, counting, system.conversion_share)
        conversion = conversion_of(system.conversion, facts.features)
        return NearestParameters(k, facts.classes, parts, facts.rows, conversion, self.work)

    def _fitting(self) -> int:
        """Return the number of queries that fit a frame."""
        return CONTENT_BYTES_MAX // (_NUMBER_BYTES * (self.facts.features + 1))
