"""The tree walk as a system: a client looks up public rows near a query that it does not reveal."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.data.table import Features, Rows
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring
from veilring.privacy.checks import require, require_that
from veilring.protocols.claims import Argument
from veilring.protocols.forecast import Forecast, in_batches
from veilring.protocols.system import (
    PARTIES,
    Facts,
    Play,
    Promise,
    ServerSetup,
    Spent,
    System,
    public_numbers,
    together,
)
from veilring.protocols.treewalk.algorithm.one_message import bucket_law, bucket_points, respond
from veilring.protocols.treewalk.algorithm.tree import DIMENSIONS_MAX, Places, depth_of
from veilring.protocols.treewalk.algorithm.walks import (
    STEP_EPSILON_MAX,
    WALK_SPLITS_MAX,
    Comparison,
    Distance,
    Utility,
    Variant,
    spending,
    walk,
)
from veilring.protocols.treewalk.plan import (
    BUCKET_SPLITS,
    BucketPlan,
    WalkPlan,
    bucket_cost,
    walk_cost,
)
from veilring.protocols.treewalk.roles import (
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)

_Floats = NDArray[np.float64]

# What steps spend is rounded up, by less than this, and together they spend ε at most.
_SHORT_OF: Final = 1 - 2.0**-40
_ROWS_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class BucketLookup:
    """Names one bucket of places by randomised response, in one message.

    Attributes:
        epsilon: The budget of a response, above 0 and at most 40.
        splits: A bucket has at most 2**splits places.
        neighbours: The number of true neighbours that are found with each place.
        points: The number of places.
        dimensions: The number of coordinates of a place.

    Raises:
        InputError: If there is no such lookup in a tree of this size.
    """

    epsilon: float
    splits: int
    neighbours: int
    points: int
    dimensions: int

    def __post_init__(self) -> None:
        _check_neighbours(self.neighbours, self.points)
        self._plan(1).check(depth_of(self.points), self.dimensions)
        _ = self.epsilon_spent

    @property
    def epsilon_spent(self) -> float:
        """What a query spends: a bound, rounded up."""
        return bucket_law(depth_of(self.points), self.splits, self.epsilon).epsilon

    @property
    def radius(self) -> float:
        """The distance of two queries that the bound is for; infinite for any two."""
        return inf

    @property
    def queries_max(self) -> int:
        """The number of queries that fit the frames of a session."""
        return self._plan(1).queries_max(self.dimensions)

    def cost(self, queries: int, *, is_known: bool = False) -> Forecast:
        """Forecast a session; `is_known` if the client has the tree's top splits from before."""
        return bucket_cost(self._plan(queries), self.points, self.dimensions, is_known=is_known)

    def find(self, places: Places, queries: _Floats, rng: Generator) -> NDArray[np.int32]:
        """Return the positions of the places that are found, shape (queries, found)."""
        law = bucket_law(places.tree.depth, self.splits, self.epsilon)
        named = respond(places.tree.splits, queries, law, rng)
        return places.with_neighbours(
            bucket_points(places.tree, self.splits, named), self.neighbours
        )

    async def ask(self, party: Party, queries: _Floats) -> NearestPlaces:
        """Play the client of a session."""
        plan = self._plan(len(queries))
        nearest, _ = await bucket_client(party, queries, plan=plan, epsilon=self.epsilon)
        return nearest

    async def serve(self, party: Party, places: Places) -> None:
        """Play the server of a session."""
        await bucket_server(party, places)

    def _plan(self, queries: int) -> BucketPlan:
        return BucketPlan(self.splits, self.neighbours, queries)


@dataclass(frozen=True, slots=True)
class WalkLookup:
    """Walks down the tree, one noisy step a level.

    Attributes:
        utility: What makes a child useful, and what a step spends.
        variant: How a walk splits into threads.
        neighbours: The number of true neighbours that are found with each place.
        points: The number of places.
        dimensions: The number of coordinates of a place.

    Raises:
        InputError: If there is no such lookup in a tree of this size.
    """

    utility: Utility
    variant: Variant
    neighbours: int
    points: int
    dimensions: int

    def __post_init__(self) -> None:
        _check_neighbours(self.neighbours, self.points)
        self._plan(1).check(depth_of(self.points), self.dimensions)

    @property
    def epsilon_spent(self) -> float:
        """What a query spends: a bound, rounded up."""
        return spending(self.utility, self.variant, depth_of(self.points), 0.0).loss(self.radius)

    @property
    def radius(self) -> float:
        """The distance of two queries that the bound is for; infinite for any two."""
        steps = self.utility
        return steps.sensitivity if isinstance(steps, Distance) and not steps.is_local else inf

    @property
    def queries_max(self) -> int:
        """The number of queries that fit the frames of a session."""
        return self._plan(1).walks_max(depth_of(self.points), self.dimensions)

    def cost(self, queries: int, *, is_known: bool = False) -> Forecast:  # noqa: ARG002  (as a bucket's)
        """Forecast a session, whether the client has asked before or not."""
        return walk_cost(self._plan(queries), self.points, self.dimensions)

    def find(self, places: Places, queries: _Floats, rng: Generator) -> NDArray[np.int32]:
        """Return the positions of the places that are found, shape (queries, found)."""
        found = walk(places.tree, queries, self.utility, self.variant, rng).found
        return places.with_neighbours(found, self.neighbours)

    async def ask(self, party: Party, queries: _Floats) -> NearestPlaces:
        """Play the client of a session."""
        plan = self._plan(len(queries))
        return await walk_client(party, queries, plan=plan, utility=self.utility)

    async def serve(self, party: Party, places: Places) -> None:
        """Play the server of a session."""
        await walk_server(party, places)

    def _plan(self, walks: int) -> WalkPlan:
        kind: Literal["comparison", "distance"] = (
            "distance" if isinstance(self.utility, Distance) else "comparison"
        )
        return WalkPlan(kind, self.variant, self.neighbours, walks)


Lookup = BucketLookup | WalkLookup
"""A way to ask that is bound to the public size of a server's tree."""


class TreeWalk(System):
    """A client finds public rows near a query that it hides from their server.

    The rows of all parties are public here. A server has them in a tree, and the nearest of those
    that the client finds vote. A batch asks equal queries once.

    Attributes:
        name: `treewalk`.
        epsilon: The most that a query may spend, at δ = 0: with `utility = "response"` at most 40.
            For `distance` with a radius: the bound for two queries that are as far apart.
        utility: `response` names one bucket of rows in one message. `comparison` and `distance`
            walk down the server's tree, and find less for the same ε.
        variant: How a walk splits into threads.
        splits: How often, for `parallel` and `early`; a `response` names a bucket of up to
            2**splits rows. `auto` is 5 for a response, or fewer where that leaves one bucket, and
            0 for a walk.
        neighbours: The number of true neighbours of each row that are found with it. They spend
            nothing.
        k: The number of rows that vote: the nearest of those that are found.
        radius: For `distance`: the distance between queries, among features in [0, 1], within
            which a query is hidden. `auto` hides it wherever it is.
        batch: The most queries that are asked at once.
    """

    hides_rows: ClassVar[bool] = False
    title: ClassVar[str] = "tree walk"
    summary: ClassVar[str] = "A client finds public rows near a query that it does not reveal."
    arguments: ClassVar[Mapping[str, Argument]] = MappingProxyType(
        {
            "budget": Argument(
                "What several queries reveal adds up, and equal queries are answered from memory.",
                "The client keeps its answers: tests/protocols/treewalk/test_memory.py.",
            ),
            "malicious server": Argument(
                "The guarantee also holds for a server that does anything.",
                "The client draws the noise whatever tree the server sends:"
                " tests/protocols/treewalk/test_privacy.py.",
            ),
        }
    )

    name: Literal["treewalk"] = Field("treewalk", description="treewalk")
    epsilon: float = Field(8.0, gt=0, description="a number above 0")
    utility: Literal["response", "comparison", "distance"] = Field(
        "response", description="response, comparison or distance"
    )
    variant: Literal["basic", "parallel", "early", "greedy"] = Field(
        "basic", description="basic, parallel, early or greedy"
    )
    splits: Annotated[int, Field(ge=0, le=WALK_SPLITS_MAX)] | Literal["auto"] = Field(
        "auto", description=f'a whole number from 0 to {WALK_SPLITS_MAX}, or "auto"'
    )
    neighbours: int = Field(0, ge=0, description="a whole number of at least 0")
    k: int = Field(5, ge=1, description="a whole number of at least 1")
    radius: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto", description='a number above 0, or "auto"'
    )
    batch: int = Field(1024, ge=1, description="a whole number of at least 1")

    @property
    @override
    def trust(self) -> str:
        return "nobody"

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        near = self.utility == "distance" and self.radius != "auto"
        return self.promise_within(self.epsilon, float(self.radius) if near else inf)

    def promise_within(self, epsilon: float, radius: float) -> Promise:
        """Return the promise of a lookup that spends epsilon.

        Args:
            epsilon: The bound.
            radius: The distance of two queries that it is for; infinite for any two.
        """
        near = radius < inf
        sees = "a bucket's number" if self.utility == "response" else "bits"
        return Promise(
            protects="the client's query",
            against="the server of the rows, and everyone else",
            threat_model="a malicious server; the client adds the noise itself",
            adjacency=f"two queries that are at most {radius:g} apart, with features in [0, 1]"
            if near
            else "any two queries",
            epsilon=epsilon,
            delta=0.0,
            unit="query",
            measure="geo-indistinguishability" if near else "ε-LDP",
            learned=f"the client: rows and their labels; the server: {sees}, with noise",
            note="The rows are public. The privacy loss of several queries of one client adds up.",
        )

    @override
    def forecast(
        self,
        *,
        parties: int = PARTIES,
        queries: int,
        features: int | Features,
        classes: int = 2,
        rows: int | None = None,
    ) -> Forecast:
        if rows is None:
            raise InputError.because(
                "the cost depends on the number of public rows; give `rows`", field="rows"
            )
        lookup = self.bind(rows, public_numbers(features, classes)[0])
        size = min(self.batch, lookup.queries_max)
        return in_batches(lookup.cost, queries, size)

    def bind(self, rows: int, features: int) -> Lookup:
        """Return the way to ask a server of the given number of rows.

        Raises:
            InputError: If a parameter does not go with another, or with rows of this shape.
        """
        allowed = f"1 to {DIMENSIONS_MAX}: with more, each half of a tree is nearly all of it"
        require(1 <= features <= DIMENSIONS_MAX, "features", features, allowed)
        allowed = f"at least {_ROWS_MIN}; with fewer there is nothing to hide"
        require(rows >= _ROWS_MIN, "rows", rows, allowed)
        near = self.utility == "distance" or self.radius == "auto"
        message = f'a radius needs utility = "distance"; it is "{self.utility}"'
        require_that(near, "radius", message)
        depth = depth_of(rows)
        if self.utility == "response":
            message = f'a response has no variant; leave out "{self.variant}", or choose a walk'
            require_that(self.variant == "basic", "variant", message)
            splits = min(BUCKET_SPLITS, depth - 1) if self.splits == "auto" else self.splits
            return BucketLookup(self.epsilon, splits, self.neighbours, rows, features)
        variant = Variant(self.variant, 0 if self.splits == "auto" else self.splits)
        variant.check(depth)
        utility = self._steps(max(1, variant.compositions(depth)), sqrt(features))
        return WalkLookup(utility, variant, self.neighbours, rows, features)

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "TreeWalkSetup":
        return TreeWalkSetup(self, parts, facts)

    def _steps(self, steps: int, diagonal: float) -> Utility:
        """Return what each of the given number of steps spends: together they spend epsilon."""
        each = self.epsilon * _SHORT_OF / steps
        # A step that hides a query wherever it is spends half of its own ε.
        fits = 2 * each <= STEP_EPSILON_MAX
        most = f"a number above 0 and up to {STEP_EPSILON_MAX / 2 * steps:g} for {steps} steps"
        require(fits, "epsilon", self.epsilon, most)
        if self.utility == "comparison":
            return Comparison(2 * each)
        if self.radius != "auto" and self.radius < diagonal:
            return Distance.hiding(each, self.radius, diagonal)
        return Distance(2 * each, diagonal if self.radius == "auto" else self.radius, diagonal)


class TreeWalkSetup(ServerSetup):
    """A server of all rows, and a client: the first of the parties that published them.

    Attributes:
        places: The server's rows, in their tree.
        lookup: How the client asks.
    """

    def __init__(self, system: TreeWalk, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        self._asked, rows = system, together(parts)
        self.lookup = system.bind(len(rows), facts.features)
        self.places, self._labels = Places.of(rows.features), rows.labels

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        return self.places, self._labels

    @property
    @override
    def role(self) -> Callable[..., Awaitable[NDArray[np.int64] | None]]:
        return play_lookup

    @property
    @override
    def batch_max(self) -> int:
        return min(self._asked.batch, self.lookup.queries_max)

    @override
    def play(
        self, queries: _Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        distinct, _ = _distinct(queries)
        ballots = {"k": self._asked.k, "classes": self.facts.classes}
        return Play(
            forecast=lambda _run: self.lookup.cost(len(distinct)),
            labels=lambda result: cast("NDArray[np.int64]", result),
            learners=(self.client,),
            public={"lookup": self.lookup},
            only={self.client: {"queries": queries, **ballots}},
        )

    @override
    def label(self, queries: _Floats, rng: Generator) -> NDArray[np.int64]:
        distinct, back = _distinct(queries)
        asked, tree = queries[distinct], self.places.tree
        found = self.lookup.find(self.places, asked, rng)
        away = _distances(asked, tree.points[found])
        voted = _vote(tree.order[found], away, self._labels, self._asked.k, self.facts.classes)
        return voted[back]

    @override
    def spent(self, batches: int) -> Spent:
        return Spent(self.lookup.epsilon_spent, 0.0, 1, "query")

    @override
    def reference(self, queries: _Floats, among: Sequence[str] | None = None) -> NDArray[np.int64]:
        tree, k = self.places.tree, min(self._asked.k, len(self.places.tree))
        found = self.places.nearest(queries, k)
        away = _distances(queries, tree.points[found])
        return _vote(tree.order[found], away, self._labels, k, self.facts.classes)

    @property
    def promise(self) -> Promise:
        """What this setup promises: exactly what its lookup spends."""
        return self._asked.promise_within(self.lookup.epsilon_spent, self.lookup.radius)


async def play_lookup(
    party: Party,
    own: Places | NDArray[np.int64] | None,
    *,
    lookup: Lookup,
    queries: _Floats | None = None,
    k: int = 1,
    classes: int = 1,
) -> NDArray[np.int64] | None:
    """Have a batch of queries answered, or serve one.

    Args:
        party: This participant: the server, or its client.
        own: The server's places; or the public labels of all places by their numbers, of the
            client. None after a restart.
        lookup: How the client asks.
        queries: The client's secret, shape (queries, features).
        k: The number of places that vote.
        classes: The number of classes.

    Returns:
        The labels that a client learns, shape (queries,).

    Raises:
        InputError: If this party was restarted and has lost its rows.
        ProtocolViolation: If another party sent what no honest party sends.
    """
    (other,) = party.peers
    if queries is None and isinstance(own, Places):
        await lookup.serve(party, own)
        return None
    if queries is None or not isinstance(own, np.ndarray):
        raise InputError.because(
            "the public rows are lost, which a restart does not bring back; fit again", field="rows"
        )
    distinct, back = _distinct(queries)
    asked = queries[distinct]
    nearest = await lookup.ask(party, asked)
    if nearest.found.max() >= len(own):
        raise ProtocolViolation(other, "sent a place that does not exist")
    return _vote(nearest.found, _distances(asked, nearest.points), own, k, classes)[back]


def _distinct(queries: _Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each different query stands first, and which of these each query is.

    They keep their order: an order by value would tell something about them.
    """
    first: dict[bytes, int] = {}
    # Adding zero turns the negative zero, which equals it, into zero.
    names = [row.tobytes() for row in queries + 0.0]
    for row, name in enumerate(names):
        first.setdefault(name, row)
    place = {name: at for at, name in enumerate(first)}
    return np.array(list(first.values())), np.array([place[name] for name in names])


def _distances(queries: _Floats, points: _Floats) -> _Floats:
    """Return how far points of shape (queries, found, features) are, shape (queries, found)."""
    with np.errstate(over="ignore"):  # a server may send points that are infinitely far
        return np.asarray(np.sqrt(np.square(points - queries[:, None]).sum(axis=2)))


def _vote(
    found: NDArray[np.int64], away: _Floats, labels: NDArray[np.int64], k: int, classes: int
) -> NDArray[np.int64]:
    """Return the labels for which the k nearest of the places that were found vote.

    Args:
        found: The numbers of the places, shape (queries, found).
        away: How far they are.
        labels: The label of each place, by its number.
        k: The number of places that vote.
        classes: The number of classes.
    """
    order = np.argsort(found, axis=1, kind="stable")
    found, away = np.take_along_axis(found, order, axis=1), np.take_along_axis(away, order, axis=1)
    # A place that was found twice votes once.
    away[:, 1:][found[:, 1:] == found[:, :-1]] = inf
    nearest = np.argsort(away, axis=1, kind="stable")[:, :k]
    counts = np.isfinite(np.take_along_axis(away, nearest, axis=1))
    chosen = labels[np.take_along_axis(found, nearest, axis=1)]
    ballots = np.eye(classes, dtype=np.int64)[chosen] * counts[:, :, None]
    return np.asarray(ballots.sum(axis=1).argmax(axis=1))


def _check_neighbours(neighbours: int, points: int) -> None:
    require(neighbours < points, "neighbours", neighbours, f"0 to {points - 1}, all other rows")
