"""Noisy votes by a data owner, r-N and k-N, as scikit-learn estimators."""

from abc import abstractmethod
from typing import Any, Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.estimators.base import BatchClassifier, RangesLike, Seed, number, whole
from veilring.estimators.privacy import Privacy
from veilring.estimators.session import Answered
from veilring.privacy.checks import require
from veilring.protocols.radius.algorithm.balls import BATCH_MAX
from veilring.protocols.radius.messages import label_cost
from veilring.protocols.radius.rules import OwnerRules
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import Facts

Mode = Literal["default", "paper"]
"""Ours (each query pays for its largest clique, permute-and-flip), or the paper's solution (for the
largest one of its component, Laplace noise)."""

_MODES: Final = ("default", "paper")


class _OwnerClassifier(BatchClassifier):
    """What both have in common: an owner that answers a request for each batch."""

    epsilon: float
    mode: Mode
    rules_: OwnerRules

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        require(self.mode in _MODES, "mode", self.mode, " or ".join(_MODES))
        paper = self.mode == "paper"
        system = DataOwner(
            epsilon=number("epsilon", self.epsilon),
            allocation="component" if paper else "clique",
            mechanism="laplace" if paper else "permute-and-flip",
            conversion="paper" if paper else "auto",
            batch=BATCH_MAX,
            **self._voters(),
        )
        facts = Facts(1, rows.features.shape[1], len(self.classes_), len(rows))
        self._setup = system.setup({"client": rows}, facts)
        self._promise, self.rules_ = system.promise(), self._setup.rules
        self._wanted = system.k

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        count, features = queries.shape
        cost = label_cost(count, features, self._wanted)
        return Answered(self._setup.label(queries, rng), cost)

    @override
    def _spent(self) -> Privacy:
        promise = self._promise
        return Privacy(
            protects=promise.protects,
            against=promise.against,
            trusts=promise.threat_model,
            epsilon=self._setup.spent(len(self._session)).epsilon,
            delta=promise.delta,
            unit=promise.adjacency,
            measure=promise.measure,
            note=promise.note,
        )

    @abstractmethod
    def _voters(self) -> dict[str, Any]:
        """Return the parameters of `DataOwner` that say which rows vote."""


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
    def _voters(self) -> dict[str, Any]:
        return {"radius": number("r", self.r)}


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
    def _voters(self) -> dict[str, Any]:
        k = whole("k", self.k)
        require(k >= 1, "k", k, "a whole number of at least 1")
        return {"k": k, "public_rows": self.mode == "paper"}
