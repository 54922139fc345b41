"""The ways in which a seeker asks a server of places, and what each costs and promises."""

from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.estimators.privacy import Privacy
from veilring.protocols.forecast import Forecast
from veilring.protocols.treewalk import (
    BucketPlan,
    Comparison,
    Distance,
    Places,
    Variant,
    WalkPlan,
    bucket_cost,
    spending,
    walk,
    walk_cost,
)
from veilring.protocols.treewalk.algorithm.one_message import bucket_law, points_of, respond
from veilring.protocols.treewalk.algorithm.tree import Tree
from veilring.protocols.treewalk.algorithm.walks import Utility

# What steps spend is rounded up, by less than this, and together they spend ε at most.
_SHORT_OF: Final = 1 - 2.0**-40


class LookupMechanism(Protocol):
    """How a seeker asks."""

    def check(self, places: Places) -> None:
        """Refuse what these places cannot serve."""

    def find(
        self, places: Places, queries: NDArray[np.float64], rng: Generator
    ) -> NDArray[np.int32]:
        """Return the positions of the places that are found, shape (queries, found)."""
        ...

    def at_once(self, tree: Tree) -> int:
        """Return how many queries fit a session."""
        ...

    def cost(self, tree: Tree, queries: int, *, is_first: bool) -> Forecast:
        """Forecast a session, the first one with this server or another."""
        ...

    def privacy(self, tree: Tree) -> Privacy:
        """Return what is promised to a query."""
        ...


@dataclass(frozen=True, slots=True)
class Walking(LookupMechanism):
    """Walks down the tree.

    Attributes:
        epsilon: What a walk may spend.
        utility: What makes a child useful.
        variant: How a walk splits.
        neighbours: How many true neighbours are found with each place.
        r: For distances, the radius within which a query is hidden; the diagonal if left out.
    """

    epsilon: float
    utility: Literal["comparison", "distance"]
    variant: Variant
    neighbours: int
    r: float | None

    @override
    def check(self, places: Places) -> None:
        places.check_neighbours(self.neighbours)
        self._plan(1).check(places.tree.depth, places.tree.dimensions)
        self._steps(places.tree)

    @override
    def find(
        self, places: Places, queries: NDArray[np.float64], rng: Generator
    ) -> NDArray[np.int32]:
        found = walk(places.tree, queries, self._steps(places.tree), self.variant, rng).found
        return places.with_neighbours(found, self.neighbours)

    @override
    def at_once(self, tree: Tree) -> int:
        return self._plan(1).walks_max(tree.depth, tree.dimensions)

    @override
    def cost(self, tree: Tree, queries: int, *, is_first: bool) -> Forecast:
        return walk_cost(self._plan(queries), len(tree), tree.dimensions)

    @override
    def privacy(self, tree: Tree) -> Privacy:
        steps = self._steps(tree)
        spent = spending(steps, self.variant, tree.depth, 0.0)
        if isinstance(steps, Distance) and not steps.is_local:
            said = f"ε is for two queries that are {steps.sensitivity:g} apart, among features in "
            epsilon = spent.loss(steps.sensitivity)
            return _seekers(epsilon, "geo-indistinguishability", f"{said}[0, 1].")
        return _seekers(spent.epsilon, "ε-LDP")

    def _plan(self, queries: int) -> WalkPlan:
        return WalkPlan(self.utility, self.variant, self.neighbours, queries)

    def _steps(self, tree: Tree) -> Utility:
        """Return the steps, which spend ε together."""
        each = self.epsilon * _SHORT_OF / max(1, self.variant.compositions(tree.depth))
        # A step that hides a query wherever it is spends half of its own ε.
        if self.utility == "comparison":
            return Comparison(2 * each)
        diagonal = sqrt(tree.dimensions)
        if self.r is not None and self.r < diagonal:
            return Distance.hiding(each, self.r, diagonal)
        return Distance(2 * each, diagonal if self.r is None else self.r, diagonal)


@dataclass(frozen=True, slots=True)
class Responding(LookupMechanism):
    """Names one bucket of places by randomised response.

    Attributes:
        epsilon: What a response spends.
        splits: A bucket has at most 2**splits places.
        neighbours: How many true neighbours are found with each place.
    """

    epsilon: float
    splits: int
    neighbours: int

    @override
    def check(self, places: Places) -> None:
        places.check_neighbours(self.neighbours)
        self._plan(1).check(places.tree.depth, places.tree.dimensions)
        bucket_law(places.tree.depth, self.splits, self.epsilon)

    @override
    def find(
        self, places: Places, queries: NDArray[np.float64], rng: Generator
    ) -> NDArray[np.int32]:
        tree, law = places.tree, bucket_law(places.tree.depth, self.splits, self.epsilon)
        named = respond(tree.splits, queries, law, rng)
        return places.with_neighbours(points_of(tree, self.splits, named), self.neighbours)

    @override
    def at_once(self, tree: Tree) -> int:
        return self._plan(1).queries_max(tree.dimensions)

    @override
    def cost(self, tree: Tree, queries: int, *, is_first: bool) -> Forecast:
        plan = self._plan(queries)
        return bucket_cost(plan, len(tree), tree.dimensions, is_known=not is_first)

    @override
    def privacy(self, tree: Tree) -> Privacy:
        return _seekers(bucket_law(tree.depth, self.splits, self.epsilon).epsilon, "ε-LDP")

    def _plan(self, queries: int) -> BucketPlan:
        return BucketPlan(self.splits, self.neighbours, queries)


def _seekers(epsilon: float, measure: str, note: str = "") -> Privacy:
    adds = "What several queries of one seeker tell together adds up."
    return Privacy(
        protects="the seeker's query",
        against="the server of the places, and everybody else",
        trusts="nobody: the noise is drawn where the query is",
        epsilon=epsilon,
        delta=0.0,
        unit="one query",
        measure=measure,
        note=f"{note} {adds}".strip(),
    )
