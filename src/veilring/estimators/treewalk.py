"""A seeker that hides its query from a server of public places, as a scikit-learn estimator."""

from math import inf
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.estimators.base import BatchClassifier, RangesLike, Seed, number, whole
from veilring.estimators.privacy import Privacy
from veilring.estimators.seeking import LookupMechanism, Responding, Walking
from veilring.estimators.session import Answered, blocks, in_all, names_of
from veilring.privacy.checks import require
from veilring.protocols.treewalk import BUCKET_SPLITS, Places, Variant

WalkKind = Literal["basic", "parallel", "early", "greedy"]
"""How a walk splits: see `Variant`."""
WalkUtility = Literal["comparison", "distance", "response"]
"""What a step asks: see `Comparison` and `Distance`. `response` walks not at all: it names one
bucket of places, in one message."""


class TreeWalkClassifier(BatchClassifier):
    """The labels of public places near a query that its seeker hides from the server of the places.

    The rows are public: the server's places, with their labels. A seeker asks for each query of a
    `predict` with noise of its own, and the nearest of the places that it finds vote. A query that
    was asked before, in whatever batch, is answered as it was and spends nothing.

    There are at most 16 features: with more, every half of a tree is nearly all of it.

    Args:
        epsilon: What a query may spend, with δ = 0; for `distance` with a radius, what two queries
            as far apart as the radius are told apart by.
        utility: `response` names one bucket of places in one message. `comparison` and `distance`
            walk down the server's tree, and find less for the same ε.
        variant: How a walk splits: `basic`, `parallel`, `early` or `greedy`.
        splits: How often, for `parallel` and `early`; a `response` names a bucket of up to
            2**splits places. By default 5 for a response, or fewer where that leaves one bucket,
            and 0 for a walk.
        neighbours: How many true neighbours of each place are found with it, for nothing.
        k: How many of the places that were found vote, the nearest ones.
        r: For `distance`: the radius, among features in [0, 1], within which a query is hidden. By
            default the diagonal, which hides it wherever it is.
        ranges: The range of each feature, or one for all. By default that of the rows, which are
            public here. A query outside is moved to its ends.
        random_state: A seed for experiments, under which no ε holds. By default the seeker's
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted.
        places_: The server's.
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
        self._voters = whole("k", self.k)
        require(self._voters >= 1, "k", self.k, "a whole number of at least 1")
        self.places_, self._labels = Places.of(rows.features), rows.labels
        self._way = self._chosen_way()
        self._way.check(self.places_)
        self._known: dict[bytes, int] = {}

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        names, is_first = names_of(queries), not self._known
        fresh = {name: row for row, name in enumerate(names) if name not in self._known}
        asked = queries[list(fresh.values())]
        if len(asked):
            self._known.update(zip(fresh, self._vote(asked, rng).tolist(), strict=True))
        tree = self.places_.tree
        parts = enumerate(blocks(asked, self._way.at_once(tree)))
        costs = [
            self._way.cost(tree, len(part), is_first=is_first and turn == 0) for turn, part in parts
        ]
        return Answered(np.array([self._known[name] for name in names]), in_all(*costs))

    def _vote(self, queries: NDArray[np.float64], rng: Generator) -> NDArray[np.int64]:
        """Return the labels for which the nearest places vote, of those that were found."""
        tree = self.places_.tree
        found = np.sort(self._way.find(self.places_, queries, rng), axis=1)
        away = np.sqrt(np.square(tree.points[found] - queries[:, None]).sum(axis=2))
        # A place that was found twice votes once.
        away[:, 1:][found[:, 1:] == found[:, :-1]] = inf
        nearest = np.argsort(away, axis=1, kind="stable")[:, : self._voters]
        labels = self._labels[tree.order[np.take_along_axis(found, nearest, axis=1)]]
        counts = np.isfinite(np.take_along_axis(away, nearest, axis=1))
        ballots = np.eye(len(self.classes_), dtype=np.int64)[labels] * counts[:, :, None]
        return np.asarray(ballots.sum(axis=1).argmax(axis=1))

    def _chosen_way(self) -> LookupMechanism:
        epsilon = number("epsilon", self.epsilon)
        neighbours, depth = whole("neighbours", self.neighbours), self.places_.tree.depth
        if self.splits is not None:
            splits = whole("splits", self.splits)
        else:
            splits = min(BUCKET_SPLITS, depth - 1) if self.utility == "response" else 0
        radius = None if self.r is None else number("r", self.r)
        is_local = self.utility == "distance" or radius is None
        require(is_local, "r", radius, "none, unless the utility is distance")
        if self.utility == "response":
            require(self.variant == "basic", "variant", self.variant, "basic: nobody walks")
            return Responding(epsilon, splits, neighbours)
        return Walking(epsilon, self.utility, Variant(self.variant, splits), neighbours, radius)

    @override
    def _spent(self) -> Privacy:
        return self._way.privacy(self.places_.tree)
