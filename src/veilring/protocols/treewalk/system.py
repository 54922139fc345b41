"""The tree walk as a system: look-ups of public rows near a private query."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, ClassVar, Final, Literal, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation
from veilring.measures import vote_shares
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring
from veilring.privacy.checks import require
from veilring.privacy.selection import ResponseDistribution
from veilring.protocols.claims import Argument
from veilring.protocols.promise import Facts, Forecast, Promise, Spent, in_batches
from veilring.protocols.system import PARTIES, Play, Scored, ServerSetup, System, together
from veilring.protocols.treewalk.algorithm.mechanisms import (
    SPLITS_MAX,
    STEP_EPSILON_MAX,
    Comparison,
    bucket_distribution,
    bucket_points,
    respond,
    walk,
    walk_loss,
)
from veilring.protocols.treewalk.algorithm.tree import DIMENSIONS_MAX, Places, depth_of
from veilring.protocols.treewalk.plan import BUCKET_SPLITS, LookupPlan, response_cost, walk_cost
from veilring.protocols.treewalk.roles import (
    Keeper,
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)

# The loss of a step is rounded up by less than this, and all steps together spend at most ε.
_SHORT_OF: Final = 1 - 2.0**-40
_ROWS_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class Lookup:
    """A tree walk and the public facts that it is bound to, for one server and its clients.

    Attributes:
        facts: The facts, with the public number of rows.
    """

    system: "TreeWalk"
    facts: Facts

    def __post_init__(self) -> None:
        features, rows, neighbours = self.facts.features, self.points, self.system.neighbours
        allowed = (
            f"1 to {DIMENSIONS_MAX}; with more, a tree cannot separate near rows from far ones"
        )
        require(1 <= features <= DIMENSIONS_MAX, "features", features, allowed)
        allowed = f"at least {_ROWS_MIN}; with fewer there is nothing to hide"
        require(rows >= _ROWS_MIN, "rows", rows, allowed)
        require(neighbours < rows, "neighbours", neighbours, f"0 to {rows - 1}, all other rows")
        if self.names_bucket:
            self._plan(1).check_response(self.depth, features)
            _ = self.distribution
        else:
            self._plan(1).check(self.depth, features)
            count, epsilon = max(1, self.depth - self.splits), self.system.epsilon
            most = f"a number above 0 and up to {STEP_EPSILON_MAX / 2 * count:g} for {count} steps"
            require(self._step_epsilon <= STEP_EPSILON_MAX, "epsilon", epsilon, most)

    @property
    def points(self) -> int:
        """The number of rows."""
        if self.facts.rows is None:
            raise InputError.because(
                "the cost depends on the number of public rows; give `rows`", field="rows"
            )
        return self.facts.rows

    @property
    def depth(self) -> int:
        """The depth of the server's tree."""
        return depth_of(self.points)

    @property
    def names_bucket(self) -> bool:
        """Whether one message names a bucket; otherwise, a walk takes one step per level."""
        return self.system.by == "response"

    @property
    def splits(self) -> int:
        """The bucket size: at most 2**splits places."""
        if self.system.splits != "auto":
            return self.system.splits
        return min(BUCKET_SPLITS, self.depth - 1) if self.names_bucket else 0

    @property
    def distribution(self) -> ResponseDistribution:
        """The distribution of a response."""
        return bucket_distribution(self.depth, self.splits, self.system.epsilon)

    @property
    def steps(self) -> Comparison:
        """The step of a walk."""
        return Comparison(self._step_epsilon)

    @property
    def epsilon_spent(self) -> float:
        """The ε of one query, rounded up."""
        if self.names_bucket:
            return self.distribution.epsilon
        return walk_loss(self.steps, self.depth - self.splits)

    @property
    def queries_max(self) -> int:
        """The number of queries that fit the frames of a session."""
        return self._plan(1).queries_max(self.facts.features)

    def cost(self, queries: int) -> Forecast:
        """Forecast a session."""
        plan, features = self._plan(queries), self.facts.features
        if self.names_bucket:
            return response_cost(plan, self.points, features)
        return walk_cost(plan, self.points, features)

    def find(self, places: Places, queries: Floats, rng: Generator) -> NDArray[np.int32]:
        """Return the positions of the places found, shape (queries, found)."""
        tree, splits = places.tree, self.splits
        if self.names_bucket:
            named = respond(tree.splits, queries, self.distribution, rng)
            found = bucket_points(tree, splits, named)
        else:
            found = walk(tree, queries, self.steps, splits, rng).found
        return places.with_neighbours(found, self.system.neighbours)

    async def ask(
        self, party: Party, queries: Floats, keeper: Keeper | None = None
    ) -> NearestPlaces:
        """Play the client of a session, whose messages the keeper pays for and remembers."""
        plan = self._plan(len(queries))
        if not self.names_bucket:
            return await walk_client(party, queries, plan=plan, steps=self.steps, keeper=keeper)
        epsilon = self.system.epsilon
        return await bucket_client(party, queries, plan=plan, epsilon=epsilon, keeper=keeper)

    async def serve(self, party: Party, places: Places) -> None:
        """Play the server of a session."""
        await (bucket_server if self.names_bucket else walk_server)(party, places)

    @property
    def _step_epsilon(self) -> float:
        # A step spends half of its own ε.
        return 2 * self.system.epsilon * _SHORT_OF / max(1, self.depth - self.splits)

    def _plan(self, queries: int) -> LookupPlan:
        return LookupPlan(self.splits, self.system.neighbours, queries)


class TreeWalk(System):
    """A client's look-ups of public rows near a query that it hides from their server.

    The rows of all parties are public here. A server keeps them in a tree, and the nearest of the
    rows that the client finds vote. Equal queries of a batch are asked once.

    Attributes:
        name: `tree-walk`.
        epsilon: The maximum ε of a query, at δ = 0; at most 40 with `by = "response"`.
        by: `response` names one bucket of rows in one message. `walk` takes one step per level of
            the server's tree, and finds fewer near rows for the same ε.
        splits: The size of a bucket: up to 2**splits rows are found. `auto` is 0 for a walk and 5
            for a response, or less if that leaves only one bucket.
        neighbours: The number of true neighbours that are returned with each row found. They cost
            no privacy.
        k: The number of nearest rows, of those found, that vote.
        batch: The maximum number of queries in one batch.
    """

    hides_rows: ClassVar[bool] = False
    trust: ClassVar[str] = "nobody"
    title: ClassVar[str] = "tree walk"
    messages_format: ClassVar[int] = 2
    summary: ClassVar[str] = "A client finds public rows near a query that it does not reveal."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "budget": Argument(
            "The losses of several queries add up, and equal queries are answered from memory.",
            "The client stores its answers and reuses them:"
            " tests/protocols/treewalk/test_memory.py.",
        ),
        "malicious server": Argument(
            "The guarantee also holds against a malicious server.",
            "The client draws the noise itself, for any tree that the server sends:"
            " tests/protocols/treewalk/test_mechanisms.py.",
        ),
    }

    deployment: ClassVar[str] = "veilring.deployment.places"
    name: Literal["tree-walk"] = "tree-walk"
    epsilon: float = Field(8.0, gt=0)
    by: Literal["response", "walk"] = "response"
    splits: Annotated[int, Field(ge=0, le=SPLITS_MAX)] | Literal["auto"] = "auto"
    neighbours: int = Field(0, ge=0)
    k: int = Field(5, ge=1)
    batch: int = Field(1024, ge=1)

    @property
    @override
    def reveals_scores(self) -> bool:
        return True

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        return self.promise_of(self.epsilon)

    def promise_of(self, epsilon: float) -> Promise:
        """Return the promise of a look-up that spends epsilon."""
        sees = "a noisy bucket number" if self.by == "response" else "noisy bits"
        return Promise(
            protects="the client's query",
            against="the server of the rows, and everyone else",
            threat_model="a malicious server; the client adds the noise itself",
            adjacency="any two queries",
            epsilon=epsilon,
            delta=0.0,
            unit="query",
            measure="ε-LDP",
            learned=f"the client: rows and their labels; the server: {sees}",
            note="The rows are public. The privacy loss of several queries of one client adds up.",
        )

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        lookup = self.bind(facts)
        return in_batches(lookup.cost, queries, min(self.batch, lookup.queries_max))

    def bind(self, facts: Facts) -> Lookup:
        """Return the look-up for a server; raise `InputError` if it does not fit the facts."""
        return Lookup(self, facts)

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "TreeWalkSetup":
        return TreeWalkSetup(self, parts, facts)


class TreeWalkSetup(ServerSetup):
    """A server of all rows and a client, which is the first of the parties that published them."""

    def __init__(self, system: TreeWalk, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        self._asked, rows = system, together(parts)
        self.lookup = system.bind(replace(facts, rows=len(rows)))
        self.places, self._labels = Places.of(rows.features), rows.labels

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        return self.places, self._labels

    @property
    @override
    def role(self) -> Callable[..., Awaitable[Floats | None]]:
        return play_lookup

    @property
    @override
    def batch_max(self) -> int:
        return min(self._asked.batch, self.lookup.queries_max)

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        distinct, _ = _distinct(queries)
        ballots = {"k": self._asked.k, "classes": self.facts.classes}
        return Play(
            forecast=lambda _run: self.lookup.cost(len(distinct)),
            labels=lambda votes: cast("Floats", votes).argmax(axis=1),
            learners=(self.client,),
            public={"lookup": self.lookup},
            only={self.client: {"queries": queries, **ballots}},
            scores=vote_shares,
        )

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        return self.score(queries, rng).labels

    @override
    def score(self, queries: Floats, rng: Generator) -> Scored:
        distinct, back = _distinct(queries)
        asked, tree = queries[distinct], self.places.tree
        found = self.lookup.find(self.places, asked, rng)
        away = _distances(asked, tree.points[found])
        votes = _vote(tree.order[found], away, self._labels, self._asked.k, self.facts.classes)
        return Scored(votes.argmax(axis=1)[back], vote_shares(votes)[back])

    @override
    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats:
        """Draw the places that the server finds for its client's noisy answers."""
        found = self.lookup.find(self.places, np.tile(queries, (runs, 1)), rng)
        return found.reshape(runs, -1).astype(np.float64)

    @override
    def spent(self, batches: int) -> Spent:
        return Spent(self.lookup.epsilon_spent, 0.0, 1, "query")

    @override
    def reference(self, queries: Floats, among: Sequence[str] | None = None) -> Ints:
        tree, k = self.places.tree, min(self._asked.k, len(self.places.tree))
        found = self.places.nearest(queries, k)
        away = _distances(queries, tree.points[found])
        votes = _vote(tree.order[found], away, self._labels, k, self.facts.classes)
        return np.asarray(votes.argmax(axis=1))

    @property
    def promise(self) -> Promise:
        """The promise of this set-up, with the exact ε of its look-up."""
        return self._asked.promise_of(self.lookup.epsilon_spent)


async def play_lookup(
    party: Party,
    own: Places | Ints | None,
    *,
    lookup: Lookup,
    queries: Floats | None = None,
    k: int = 1,
    classes: int = 1,
) -> Floats | None:
    """Look up a batch of queries as the client, or serve one as the server.

    The client learns the votes of the k nearest places on each query, shape (queries, classes).

    Args:
        own: The server's places, or for the client the public labels of all places, by number.
            None after a restart.
        queries: The client's secret, shape (queries, features).
    """
    (other,) = party.peers
    if queries is None and isinstance(own, Places):
        await lookup.serve(party, own)
        return None
    if queries is None or not isinstance(own, np.ndarray):
        raise InputError.because("the public rows were lost in a restart; fit again", field="rows")
    distinct, back = _distinct(queries)
    asked = queries[distinct]
    nearest = await lookup.ask(party, asked)
    if nearest.found.max() >= len(own):
        raise ProtocolViolation(other, "sent a place that does not exist")
    return _vote(nearest.found, _distances(asked, nearest.points), own, k, classes)[back]


def _distinct(queries: Floats) -> tuple[Ints, Ints]:
    """Return the index of the first occurrence of each distinct query, and the inverse index.

    Distinct queries keep their order: an order by value would reveal something about them.
    """
    first: dict[bytes, int] = {}
    # Adding zero turns negative zero into zero: they are equal, but their bytes differ.
    names = [row.tobytes() for row in queries + 0.0]
    for row, name in enumerate(names):
        first.setdefault(name, row)
    place = {name: at for at, name in enumerate(first)}
    return np.array(list(first.values())), np.array([place[name] for name in names])


def _distances(queries: Floats, points: Floats) -> Floats:
    """Return the distances of points, shape (queries, found, features), to their query."""
    with np.errstate(over="ignore"):  # a malicious server may send points whose distance overflows
        return np.asarray(np.sqrt(np.square(points - queries[:, None]).sum(axis=2)))


def _vote(found: Ints, away: Floats, labels: Ints, k: int, classes: int) -> Floats:
    """Return the votes of the k nearest places found for each query, shape (queries, classes).

    Args:
        found: The numbers of the places, shape (queries, found).
    """
    order = np.argsort(found, axis=1, kind="stable")
    found, away = np.take_along_axis(found, order, axis=1), np.take_along_axis(away, order, axis=1)
    # A place that was found twice votes once.
    away[:, 1:][found[:, 1:] == found[:, :-1]] = inf
    nearest = np.argsort(away, axis=1, kind="stable")[:, :k]
    counts = np.isfinite(np.take_along_axis(away, nearest, axis=1))
    chosen = labels[np.take_along_axis(found, nearest, axis=1)]
    ballots = np.eye(classes)[chosen] * counts[:, :, None]
    return np.asarray(ballots.sum(axis=1))
