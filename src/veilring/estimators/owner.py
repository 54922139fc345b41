"""Noisy votes by a data owner, r-N and k-N, as scikit-learn estimators."""

from abc import abstractmethod
from typing import Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.estimators.base import BatchClassifier, RangesLike, Seed, number, whole
from veilring.estimators.privacy import Privacy
from veilring.estimators.session import Answered
from veilring.privacy.accounting import PureDP
from veilring.privacy.checks import require
from veilring.protocols.radius.algorithm.balls import BATCH_MAX
from veilring.protocols.radius.algorithm.conversion import (
    GRID_FEATURES_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
)
from veilring.protocols.radius.algorithm.nearest import label_nearest
from veilring.protocols.radius.algorithm.voting import label_within
from veilring.protocols.radius.analyst import ask_nearest, ask_within
from veilring.protocols.radius.messages import LabelRequest, label_cost
from veilring.protocols.radius.rules import REQUEST_EPSILON_MAX, REQUEST_EPSILON_MIN, OwnerRules

Mode = Literal["default", "paper"]
"""Ours (each query pays for its largest clique, permute-and-flip), or the paper's solution (for the
largest one of its component, Laplace noise)."""

_MODES: Final = ("default", "paper")


class _OwnerClassifier(BatchClassifier):
    """What both have in common: rules, and a request for each batch."""

    epsilon: float
    mode: Mode
    rules_: OwnerRules

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        least, most = REQUEST_EPSILON_MIN, REQUEST_EPSILON_MAX
        epsilon, allowed = number("epsilon", self.epsilon), f"a number from {least:g} to {most:g}"
        require(least <= epsilon <= most, "epsilon", epsilon, allowed)
        require(self.mode in _MODES, "mode", self.mode, " or ".join(_MODES))
        paper = self.mode == "paper"
        self.rules_ = OwnerRules(
            features=rows.features.shape[1],
            classes=len(self.classes_),
            allocation="component" if paper else "clique",
            mechanism="laplace" if paper else "permute-and-flip",
            conversion=self._conversion(rows.features.shape[1]),
            rows=len(rows) if self._is_count_public() else None,
            epsilon_max=epsilon,
            batch_max=BATCH_MAX,
        )
        self.rules_.check(self._request(rows.features[:1] * 0.0))  # refuses now what it would later
        self._rows = rows

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        request = self._request(queries)
        self.rules_.check(request)
        count, features = queries.shape
        return Answered(self._label(request, rng), label_cost(count, features, request.k))

    @override
    def _spent(self) -> Privacy:
        counted = self.rules_.rows is not None
        return Privacy(
            protects="the data owner's rows",
            against="the analysts who ask",
            trusts="the data owner, with its rows",
            epsilon=PureDP(self.rules_.epsilon_max).repeat(len(self._session)).epsilon(),
            delta=0.0,
            unit="one row added or removed",
            measure="pure ε-DP",
            note="How many rows there are counts as public." if counted else "",
        )

    def _conversion(self, features: int) -> Conversion | None:  # noqa: ARG002  (the subclass's own)
        return None

    def _is_count_public(self) -> bool:
        return False

    @abstractmethod
    def _request(self, queries: NDArray[np.float64]) -> LabelRequest:
        """Return what an analyst sends."""

    @abstractmethod
    def _label(self, request: LabelRequest, rng: Generator) -> NDArray[np.int64]:
        """Return what an owner answers."""


class OwnerRadiusClassifier(_OwnerClassifier):
    """r-N: the rows within a radius of a query vote, and a data owner names a winner with noise.

    All queries of a `predict` are one batch under `epsilon`, which is shared out by how the balls
    around them overlap; another batch spends another `epsilon`. A batch has at most 4096 queries,
    and as many as fit a message.

    Args:
        epsilon: What a batch may spend, from 0.001 to 10.
        r: The radius, among features in [0, 1]: up to the square root of their number.
        mode: `default`, or `paper` for the paper's own solution.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds. What lies outside is moved
            to its ends.
        random_state: A seed for experiments, under which no ε holds. By default the owner's
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        rules_: What the owner answers, and how.
        ranges_origin_: Where the ranges came from.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        r: float = 0.2,
        *,
        mode: Mode = "default",
        ranges: RangesLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.r = r
        self.mode = mode
        self.ranges = ranges
        self.random_state = random_state

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        self._radius = number("r", self.r)
        super()._hold(rows, rng)

    @override
    def _request(self, queries: NDArray[np.float64]) -> LabelRequest:
        return ask_within(queries, np.full(len(queries), self._radius), self.rules_.epsilon_max)

    @override
    def _label(self, request: LabelRequest, rng: Generator) -> NDArray[np.int64]:
        within = self.rules_.within(request.epsilon)
        return label_within(request.queries, request.radii, self._rows, within, rng)


class OwnerKNNClassifier(_OwnerClassifier):
    """k-N: k is turned into a radius for each query first, and then the rows within it vote.

    A part of `epsilon` pays for the radii, and, unless `mode` is `paper`, another for the number of
    rows. All queries of a `predict` are one batch, as in `OwnerRadiusClassifier`.

    Args:
        epsilon: What a batch may spend, from 0.001 to 10.
        k: How many neighbours are wanted.
        mode: `default` reads radii off a noisy grid, or with more than 6 features chooses each
            among candidates; `paper` is the paper's own solution, for which the number of rows
            is public.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds. What lies outside is moved
            to its ends.
        random_state: A seed for experiments, under which no ε holds. By default the owner's
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        rules_: What the owner answers, and how.
        ranges_origin_: Where the ranges came from.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        k: int = 10,
        *,
        mode: Mode = "default",
        ranges: RangesLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.k = k
        self.mode = mode
        self.ranges = ranges
        self.random_state = random_state

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        self._wanted = whole("k", self.k)
        super()._hold(rows, rng)

    @override
    def _request(self, queries: NDArray[np.float64]) -> LabelRequest:
        return ask_nearest(queries, self._wanted, self.rules_.epsilon_max)

    @override
    def _label(self, request: LabelRequest, rng: Generator) -> NDArray[np.int64]:
        nearest = self.rules_.nearest(request.k, request.epsilon)
        return label_nearest(request.queries, self._rows, nearest, rng).labels

    @override
    def _conversion(self, features: int) -> Conversion:
        if self.mode == "paper":
            return ByCandidates.paper()
        return ByGrid() if features <= GRID_FEATURES_MAX else ByCandidates()

    @override
    def _is_count_public(self) -> bool:
        return self.mode == "paper"
