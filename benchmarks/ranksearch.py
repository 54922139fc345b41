"""Rank search beside PP-kNN: rounds, bytes and seconds."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from benchmarks.measurement import Bound, Measurement, Timed, pairs, ratios
from veilring import simulation
from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import Setup, System
from veilring.scenarios.network import make_topology
from veilring.scenarios.schema import NetworkSection

PARTIES: Final = 8
CLASSES: Final = 3
FEATURES: Final = 8
ROWS: Final = 500  # of each party; more of them cost its CPU, but no bytes
LEVELS: Final = 3  # among 3^8 points nearly nine queries of ten have ties at the fifth place
LATENCIES: Final = (0.001, 0.02, 0.05)
"""Seconds one way, on links of 100 Mbit/s each."""
MIDDLE: Final = 0.02
BANDWIDTH: Final = 12.5e6
"""Bytes a second over a link: 100 Mbit/s."""
SESSION_SECONDS: Final = 600.0

_MB: Final = 1e6
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to label a batch, and what 1,000 queries among eight parties are held to.

    Attributes:
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


def simulate(system: System, dealt: Dealt, *, latency: float) -> Run[Any]:
    """Label a batch on the simulated clock, with this latency one way; computing takes no time."""
    names, runs = tuple(dealt.parts), list[Run[Any]]()
    links = {"latency": {"distribution": "constant", "seconds": latency}}
    network = NetworkSection.model_validate(links | {"bandwidth_bytes_per_second": BANDWIDTH})
    topology = make_topology(network, names)

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


def _by_latency(seconds: Sequence[float]) -> str:
    each = " / ".join(f"{value:.2f}" for value in seconds)
    return f"{each} s at {' / '.join(f'{1e3 * latency:g}' for latency in LATENCIES)} ms"
