"""Rank search beside PP-kNN: rounds, bytes, seconds and CPU; and how finely a step should cut."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from benchmarks.growth_ring import make_network
from benchmarks.measurement import Bound, Measurement, Timed, pairs, ratios
from veilring import simulation
from veilring.arrays import Floats, Ints
from veilring.data.sources import load
from veilring.data.table import Rows, partition, scale_to_unit
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.digests import DIGEST_BYTES
from veilring.protocols.masks import KEY_BYTES, PairwiseKeys
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.algorithm.search import Asked, clipped_counts, run_search
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import Setup, System
from veilring.scenarios.network import make_topology

PARTIES: Final = 8
CLASSES: Final = 3
FEATURES: Final = 8
ROWS: Final = 500  # of each party; more of them cost its CPU, but no bytes
LEVELS: Final = 3  # among 3^8 points nearly nine queries of ten have ties at the fifth place
LATENCIES: Final = (0.001, 0.02, 0.05)
"""Seconds one way, on links of 100 Mbit/s each."""
MIDDLE: Final = 0.02
SESSION_SECONDS: Final = 600.0

_MB: Final = 1e6
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to label a batch, and what 1,000 queries among eight parties are held to.

    Attributes:
        system: Its parameters.
        rounds: The most rounds without ties, and with ties; none if held to nothing.
        mb: The most megabytes without ties.
        seconds: The most simulated seconds without ties, on links of `MIDDLE`.
    """

    system: System
    rounds: tuple[int | None, int | None] = (None, None)
    mb: float | None = None
    seconds: float | None = None


REFERENCE: Final = "PP-kNN, ring"
WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        REFERENCE: Way(PrivateKNN(sum="ring")),
        "PP-kNN, shares": Way(PrivateKNN(sum="shares")),
        "rank search, totals": Way(RankSearch(), (9, 17), 3.5),
        "rank search, totals, star": Way(RankSearch(sum="star"), mb=1.0),
        "rank search, votes": Way(RankSearch(reveal="votes"), (30, None), 30.0),
        "rank search, label": Way(RankSearch(reveal="label"), seconds=3.0),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Rows of parties, queries about them, and how many classes there are."""

    parts: Mapping[str, Rows]
    queries: Floats
    classes: int = CLASSES

    @classmethod
    def draw(cls, parties: int, queries: int, *, ties: bool) -> Self:
        """Draw both uniformly: from the unit cube, or from a grid of `LEVELS` values a feature."""
        rng = np.random.default_rng(_SEED)

        def points(count: int) -> Floats:
            if ties:
                return rng.integers(LEVELS, size=(count, FEATURES)) / (LEVELS - 1)
            return rng.random((count, FEATURES))

        parts = {
            f"party-{n}": Rows(points(ROWS), rng.integers(CLASSES, size=ROWS))
            for n in range(parties)
        }
        return cls(parts, points(queries))

    def setup(self, system: System) -> Setup:
        """Return the parties of a system, ready to label."""
        features = self.queries.shape[1]
        return system.setup(self.parts, Facts(len(self.parts), features, self.classes))


def measure_batch(*, quick: bool) -> list[Measurement]:
    """Label a batch of 1,000 queries among eight parties in each way; 20 if it has to be quick.

    Without ties, and with ties at the fifth place of nearly nine queries of ten. Rounds, bytes and
    simulated seconds depend on rows alone, and are the same on any machine.
    """
    queries, repetitions = (20, 1) if quick else (1_000, 5)
    results: list[Measurement] = []
    for ties in (False, True):
        dealt = Dealt.draw(PARTIES, queries, ties=ties)
        for name, way in WAYS.items():
            if not ties or isinstance(way.system, RankSearch):
                results += _costs(name, way, dealt, ties=ties, held=not quick)
        results += _cpu(dealt, ties=ties, times=repetitions)
    dealt = Dealt.draw(PARTIES, queries, ties=False)
    for name, way in WAYS.items():
        if name != REFERENCE:
            with asked(dealt, way.system) as ours, asked(dealt, WAYS[REFERENCE].system) as theirs:
                timed = pairs(ours, theirs, repetitions)
            title = f"{name}, {PARTIES} processes: times faster than {REFERENCE}"
            results.append(ratios(title, timed, faster=True, per=queries))
    return results


def _costs(name: str, way: Way, dealt: Dealt, *, ties: bool, held: bool) -> Iterator[Measurement]:
    """Yield what a batch costs that runs on simulated links, each latency once."""
    runs = [simulate(way.system, dealt, latency=latency) for latency in LATENCIES]
    cost, most = runs[0].cost, way.rounds[ties]
    title = f"{name}, ties" if ties else name
    limits = most, *((None, None) if ties else (way.mb, way.seconds))
    rounds, mb, seconds = (Bound("at most", m) if held and m is not None else None for m in limits)
    yield Measurement(f"{title}: rounds", "", (cost.rounds,), rounds)
    sent = f"{cost.messages:,} messages"
    yield Measurement(f"{title}: payload", "MB", (cost.bytes / _MB,), mb, sent)
    waited = [run.seconds for run in runs]
    middle = (waited[LATENCIES.index(MIDDLE)],)
    yield Measurement(
        f"{title}: links of {1e3 * MIDDLE:g} ms", "s", middle, seconds, _by_latency(waited)
    )


def simulate(
    system: System, dealt: Dealt, *, latency: float, bandwidth: float | None = None
) -> Run[Any]:
    """Label a batch on the simulated clock; computing takes no time there.

    Args:
        system: How.
        dealt: What is asked of whom.
        latency: Of each message, in seconds one way.
        bandwidth: Of each link in bytes a second; 100 Mbit/s unless given.
    """
    names, runs = tuple(dealt.parts), list[Run[Any]]()
    topology = make_topology(make_network(None, latency=latency, bandwidth=bandwidth), names)

    async def main() -> None:
        setup, runtime = dealt.setup(system), Simulated(topology)
        async with Cluster(names, runtime=runtime, own=setup.resident, seed=_SEED) as cluster:
            runs.append(await _label(cluster, setup, dealt.queries))

    simulation.simulate(main())
    return runs[0]


async def _label(cluster: Cluster, setup: Setup, queries: Floats) -> Run[Any]:
    """Label one batch, and make sure that labels are the pooled classifier's."""
    play = setup.play(queries)
    run = await cluster.run(setup.role, only=play.only, seconds=SESSION_SECONDS, **play.public)
    labels = {name: play.labels(run.results[name]) for name in play.learners}
    for wrong in setup.find_wrong(queries, labels, play.learners):
        raise RuntimeError(wrong)
    return run


@contextmanager
def asked(dealt: Dealt, system: System) -> Iterator[Timed]:
    """Start a process for each party; what is given asks them once, over mutual TLS."""
    setup = dealt.setup(system)
    with asyncio.Runner() as runner:
        cluster = Cluster(setup.parties, runtime="processes", own=setup.resident)
        runner.run(cluster.__aenter__())
        yield lambda: runner.run(_label(cluster, setup, dealt.queries)).seconds
        runner.run(cluster.__aexit__(None, None, None))


def _cpu(dealt: Dealt, *, ties: bool, times: int) -> Iterator[Measurement]:
    """Yield the CPU seconds of all parties together in the counts and the masks of a search."""
    spent = [_counted_and_masked(dealt) for _ in range(times + 1)][1:]  # the first one warms up
    title = "rank search, totals, ties" if ties else "rank search, totals"
    for what, seconds in zip(("counts", "masks"), zip(*spent, strict=True), strict=True):
        yield Measurement(f"{title}: CPU of all {PARTIES} in {what}", "ms", seconds)


def _counted_and_masked(dealt: Dealt) -> tuple[float, float]:
    """Return milliseconds of CPU in counts and in masks, by the steps that parties run."""
    parts, queries = dealt.parts, dealt.queries
    system, parties = RankSearch(), len(parts)
    public = system.bind(Facts(parties, FEATURES, CLASSES))
    near = [nearest_rows(queries, rows, system.k).distances for rows in parts.values()]
    keys = [PairwiseKeys(me, {it: bytes(KEY_BYTES) for it in parts if it != me}) for me in parts]
    counting = masking = 0.0

    def count(asked: Asked) -> Ints:
        nonlocal counting, masking
        start = time.process_time()
        counts = [clipped_counts(smallest, asked) for smallest in near]
        counted = time.process_time()
        for own, shared in zip(counts, keys, strict=True):
            shared.mask((own.astype(public.count_word(parties)),), bytes(DIGEST_BYTES))
        counting += counted - start
        masking += time.process_time() - counted
        return np.asarray(np.add.reduce(counts))

    run_search(public.search(len(queries), parties), count)
    return 1e3 * counting, 1e3 * masking


ARITIES: Final = (4, 8, 16, 32, 64)
TABLES: Final = ("wine", "breast-cancer", "digits")
UPLINK: Final = 12.5e6
"""Bytes a second that a party can send to all others together: 100 Mbit/s."""


def measure_arity(*, quick: bool) -> list[Measurement]:
    """Divide intervals into 4 to 64 parts, among eight parties.

    Real tables, where few queries have ties, and rows and queries that are drawn. The seconds of a
    batch are simulated, with a party's bandwidth divided among its links, since all of them are
    busy at once. They are of links of 20 ms; those of shorter and longer ones stand behind them.
    """
    tables = {name: _dealt_table(name) for name in (TABLES[:1] if quick else TABLES)}
    if not quick:
        tables |= {
            "drawn": Dealt.draw(PARTIES, 1_000, ties=False),
            "drawn, ties": Dealt.draw(PARTIES, 1_000, ties=True),
        }
    return [
        _by_arity(f"{name}, {len(dealt.queries)} queries, m = {arity}", dealt, arity)
        for name, dealt in tables.items()
        for arity in ARITIES
    ]


def _by_arity(title: str, dealt: Dealt, arity: int) -> Measurement:
    system, link = RankSearch(arity=arity), UPLINK / (len(dealt.parts) - 1)
    runs = [simulate(system, dealt, latency=latency, bandwidth=link) for latency in LATENCIES]
    cost, seconds = runs[0].cost, [run.seconds for run in runs]
    detail = f"{cost.rounds} rounds, {cost.bytes / _MB:.2f} MB; {_by_latency(seconds)}"
    return Measurement(title, "s", (seconds[LATENCIES.index(MIDDLE)],), detail=detail)


def _dealt_table(name: str) -> Dealt:
    """Deal half of a table to the parties; the other half are queries, up to 1,000."""
    table, rng = scale_to_unit(load(name)), np.random.default_rng(_SEED)
    order = rng.permutation(len(table.y))
    held, others = np.array_split(order, 2)
    shares = partition(table.y[held], PARTIES, rng)
    parts = {
        f"party-{n}": Rows(table.X[held][share], table.y[held][share])
        for n, share in enumerate(shares)
    }
    return Dealt(parts, table.X[others[:1_000]], len(table.features.classes))


def _by_latency(seconds: Sequence[float]) -> str:
    each = " / ".join(f"{value:.2f}" for value in seconds)
    return f"{each} s at {' / '.join(f'{1e3 * latency:g}' for latency in LATENCIES)} ms"
