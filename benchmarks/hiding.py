"""Audits of hiding at full size, and how many small worlds a second they rest on."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.measurement import Bound, Measurement, pairs, ratios, timed
from veilring import simulation
from veilring.data.table import Rows
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Parties
from veilring.nodes.ring import Ring
from veilring.protocols.masks import masked_sum
from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters, WithinRadius
from veilring.protocols.noisyvotes.roles import private_votes
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.leakage import open_totals
from veilring.protocols.ranksearch.memory import SearchedRows
from veilring.protocols.ranksearch.roles import rank_search
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.roles import pp_topk, secure_sum
from veilring.randomness import Streams
from veilring.testing.hiding import Audit, Permitted, assert_hides
from veilring.testing.hiding.features import Strip
from veilring.testing.hiding.worlds import Role, World, play_world, strip_masks

PARTIES: Final = ("ada", "ben", "cy")
QUICK_RUNS: Final = 2_000
FULL_RUNS: Final = 200_000
"""Half of them are held out: an advantage of 0.021 is found with 95 %."""
_QUERY: Final = np.array([[0.4]])
_SEARCH: Final = RankSearch(k=2, arity=4).bind(Facts(len(PARTIES), features=1, classes=2))
VOTES: Final = NoisyVotesParameters(
    features=1, classes=2, epsilon_vote=1.0, neighbours=WithinRadius(0.2)
)
_WORLDS: Final = 400


@dataclass(frozen=True, slots=True)
class Subject:
    """A protocol that hides which of two honest parties has which input.

    Attributes:
        own: The inputs of ada, ben and cy; in the other world the last two are exchanged.
        permitted: Everything that the protocol may reveal.
        strip: Computes further values from the members' views.
    """

    role: Role
    own: Sequence[Any]
    permitted: Permitted
    public: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    strip: Strip | None = None

    def audit(self, runs: int, seed: int = 0) -> Audit:
        """Compare the two worlds as ada sees them.

        Raises:
            AssertionError: If she can tell them apart.
        """
        ada, ben, cy = self.own
        return assert_hides(
            self.role,
            dict(zip(PARTIES, (ada, ben, cy), strict=True)),
            dict(zip(PARTIES, (ada, cy, ben), strict=True)),
            coalition=["ada"],
            permitted=self.permitted,
            strip=self.strip,
            only=self.only,
            runs=runs,
            seed=seed,
            **self.public,
        )


def _total(inputs: Mapping[str, Any]) -> object:
    return sum(inputs.values())


def _sums(method: str) -> Subject:
    public = {
        "ring": Ring(PARTIES),
        "fixed": FixedPoint(scale_bits=20, parties=3),
        "method": SumMethod(method),  # type: ignore[arg-type]  # one of its names
    }
    own = [np.array([[0.5, 1.0]]), np.array([[2.0, 0.25]]), np.array([[0.0, 7.0]])]
    return Subject(secure_sum, own, _total, public)


def _rows(*places: float) -> Rows:
    features = np.array(places)[:, None]
    return Rows(features, np.arange(len(places)) % 2)


_TABLES: Final = (_rows(0.1, 0.6), _rows(0.35, 0.9, 0.5), _rows(0.45, 0.2))


def _revealed_totals(inputs: Mapping[str, Any]) -> object:
    """Return the totals at the thresholds that are asked, and the total votes within the radius."""
    rows = [own.rows for own in inputs.values()]
    opened = open_totals(_QUERY, rows, _SEARCH.spacing, k=_SEARCH.system.k)
    radius = opened.found.radii[0]
    within = [own.labels[np.abs(own.features - _QUERY[0]).ravel() <= radius] for own in rows]
    return opened.totals, np.bincount(np.concatenate(within), minlength=2)


def _revealed_votes(inputs: Mapping[str, Any]) -> object:
    """Return the votes within the radius; the noisy total's distribution depends on them alone."""
    votes = [own.labels[np.abs(own.features - _QUERY[0]).ravel() <= 0.2] for own in inputs.values()]
    return np.bincount(np.concatenate(votes), minlength=2)


SUBJECTS: Final[Mapping[str, Subject]] = {
    "masked sums": Subject(
        masked_sum,
        [np.array(own, np.uint64) for own in ([5, 9], [1, 4], [3, 2])],
        _total,
        strip=strip_masks,
    ),
    "sums along a ring": _sums("ring"),
    "shares to all": _sums("shares"),
    "rank search": Subject(
        rank_search,
        [SearchedRows(rows) for rows in _TABLES],
        _revealed_totals,
        {"client": "ada", "parameters": _SEARCH},
        {"ada": {"queries": _QUERY}},
        strip_masks,
    ),
    "noisy votes": Subject(
        private_votes,
        _TABLES,
        _revealed_votes,
        {"client": "ada", "parameters": VOTES, "ring": Ring(PARTIES)},
        {"ada": {"queries": _QUERY}},
    ),
}
"""Protocols that must pass."""


def measure_power(*, quick: bool) -> list[Measurement]:
    """Audit protocols that hide their inputs: the least advantage that would have been found."""
    runs = QUICK_RUNS if quick else FULL_RUNS
    found = []
    for name, subject in SUBJECTS.items():
        start = time.perf_counter()
        audit = subject.audit(runs)
        seconds = time.perf_counter() - start
        learned = audit.verdict.classifier
        detail = (
            f"{audit.coordinates} coordinates, {audit.left_out} left out; classifier:"
            f" {learned.advantage:.4f}, p <= {learned.p:.2g}; {seconds:.0f} s"
        )
        found.append(Measurement(f"hides: {name}", "", (audit.least_advantage,), None, detail))
    return found


def _small_worlds() -> dict[str, World]:
    parties = Parties(PARTIES)
    public = {
        "ring": Ring(PARTIES),
        "parameters": TopKParameters(k=2, P0=1.0, d=0.5, rounds=2, delta=0.1, upper=1.0),
    }
    values = [np.random.default_rng(party).random((1, 5)) for party in range(3)]
    sums = SUBJECTS["masked sums"]
    return {
        "PP-TopK": World(pp_topk, values, parties, ("ada",), public),
        "masked sum": World(masked_sum, sums.own, parties, ("ada",)),
    }


def _play_all(world: World) -> None:
    for _ in play_world(world, _WORLDS, Streams(0)):
        pass


def _simulate_each(world: World, *, fresh: bool) -> None:
    options: dict[str, Any] = {"own": world.inputs, "watch": world.coalition, **world.public}

    async def run(seed: int, times: int) -> None:
        async with Cluster(list(world.parties), runtime="simulated", seed=seed) as cluster:
            for _ in range(times):
                await cluster.run(world.role, **options)

    for seed in range(_WORLDS if fresh else 1):
        simulation.simulate(run(seed, 1 if fresh else _WORLDS))


def measure_worlds(*, quick: bool) -> list[Measurement]:
    """Play small worlds for an audit, beside a simulated cluster for each, and one for all."""
    repetitions, found = 3 if quick else 7, []
    for name, world in _small_worlds().items():
        ours = timed(partial(_play_all, world))
        for beside, fresh in (("a cluster each", True), ("one cluster", False)):
            reference = timed(partial(_simulate_each, world, fresh=fresh))
            bound = Bound("at least", 2.0) if fresh else None
            seconds = pairs(ours, reference, repetitions)
            what = f"worlds/s of {name}, {beside}"
            found.append(ratios(what, seconds, bound, per=_WORLDS, faster=True))
    return found
