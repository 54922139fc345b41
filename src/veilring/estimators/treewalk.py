"""A client that hides its query from a server of public rows, as a scikit-learn estimator."""

from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.estimators.base import (
    Answered,
    BatchClassifier,
    RangesLike,
    Seed,
    blocks,
    names_of,
    number,
    whole,
)
from veilring.protocols.forecast import in_all
from veilring.protocols.system import Facts, Promise
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.system import TreeWalk

WalkKind = Literal["basic", "parallel", "early", "greedy"]
"""How a walk splits: see `Variant`."""
WalkUtility = Literal["comparison", "distance", "response"]
"""What a step asks: see `Comparison` and `Distance`. `response` names one bucket of rows, in
one message."""


class TreeWalkClassifier(BatchClassifier):
    """The labels of public rows near a query that a client hides from their server.

    The rows are public, with their labels. A client asks for each query of a `predict` with noise
    of its own, and the nearest of the rows that it finds vote. A query that was asked before, in
    whatever batch, is answered as it was and spends nothing.

    The parameters are those of `veilring.protocols.treewalk.system.TreeWalk`. There are at most 16
    features: with more, every half of a tree is nearly all of it.

    Args:
        epsilon: The most that a query may spend, with δ = 0; for `distance` with a radius, the
            bound for two queries that are as far apart as the radius.
        utility: `response` names one bucket of rows in one message. `comparison` and `distance`
            walk down the server's tree, and find less for the same ε.
        variant: How a walk splits: `basic`, `parallel`, `early` or `greedy`.
        splits: How often, for `parallel` and `early`; a `response` names a bucket of up to
            2**splits rows. By default 5 for a response, or fewer where that leaves one bucket,
            and 0 for a walk.
        neighbours: The number of true neighbours of each row that are found with it, for nothing.
        k: The number of rows that vote: the nearest of those that were found.
        r: For `distance`: the radius, among features in [0, 1], within which a query is hidden. By
            default the diagonal, which hides it wherever it is.
        ranges: The range of each feature, or one for all. By default that of the rows, which are
            public here. A query outside is moved to its ends.
        random_state: A seed for experiments, under which no ε holds. By default the client's
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted.
        places_: The server's rows, in their tree.
        ranges_origin_: Where the ranges came from.
    """

    places_: Places
    _rows_are_public: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913  (scikit-learn takes each parameter as an argument)
        self,
        epsilon: float = 8.0,
        utility: WalkUtility = "response",
        variant: WalkKind = "basic",
        *,
        splits: int | None = None,
        neighbours: int = 0,
        k: int = 5,
        r: float | None = None,
        ranges: RangesLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.utility = utility
        self.variant = variant
        self.splits = splits
        self.neighbours = neighbours
        self.k = k
        self.r = r
        self.ranges = ranges
        self.random_state = random_state

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        if len(rows) == 1:
            raise InputError("rows", "n_samples = 1", "at least 2, or there is nothing to hide")
        system = TreeWalk(
            epsilon=number("epsilon", self.epsilon),
            utility=self.utility,
            variant=self.variant,
            splits="auto" if self.splits is None else whole("splits", self.splits),
            neighbours=whole("neighbours", self.neighbours),
            k=whole("k", self.k),
            radius="auto" if self.r is None else number("r", self.r),
        )
        facts = Facts(1, rows.features.shape[1], len(self.classes_), len(rows))
        self._setup = system.setup({"client": rows}, facts)
        self.places_ = self._setup.places
        self._known: dict[bytes, int] = {}

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        names, is_first = names_of(queries), not self._known
        fresh = {name: row for row, name in enumerate(names) if name not in self._known}
        asked, setup = queries[list(fresh.values())], self._setup
        if len(asked):
            self._known.update(zip(fresh, setup.label(asked, rng).tolist(), strict=True))
        costs = [
            setup.lookup.cost(len(part), is_known=not is_first or turn > 0)
            for turn, part in enumerate(blocks(asked, setup.batch_max))
        ]
        return Answered(np.array([self._known[name] for name in names]), in_all(*costs))

    @override
    def _spent(self) -> Promise:
        return self._setup.promise
