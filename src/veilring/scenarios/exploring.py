"""Exploring faults: many seeds, each a world with faults, checked for wrong results and hangs."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring import simulation
from veilring.errors import ScenarioError, VeilringError
from veilring.nodes.cluster import Cluster, lost_parties
from veilring.nodes.party import Party
from veilring.nodes.ring import draw_ring
from veilring.nodes.run import Outcome
from veilring.nodes.runtimes import Simulated
from veilring.protocols.ring import FixedPoint, SumMethod, secure_sum
from veilring.randomness import Streams
from veilring.scenarios.prepare import Prepared
from veilring.simulation import Exponential, LinkModel, Topology, Uniform
from veilring.simulation.faults import FAULT_CLASSES, FaultClass, draw_faults

# Long enough for several runs under several faults at once.
FAULT_SECONDS: Final = 20.0
# When the faults have stopped, everything has ended after this long.
CALM_SECONDS: Final = 30.0
# Of each run; with a clock that runs four times too slow it still ends within CALM_SECONDS.
EXPLORED_SECONDS: Final = 6.0
_PAUSE_MAX_SECONDS: Final = 2.0  # so that some faults strike where nothing runs

_node_log = logging.getLogger("veilring.node")

Sum = Callable[..., Awaitable[NDArray[np.float64]]]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is explored.

    Attributes:
        prepared: Parties with their rows, and queries.
        secure_sum: The sum under test; another than the real one only to see whether it is caught.
    """

    prepared: Prepared
    secure_sum: Sum = secure_sum


@dataclass(slots=True)
class Explored:
    """What came of a seed.

    Attributes:
        seed: Which.
        struck: How many faults of each class had an effect.
        succeeded: Runs with a result.
        failed: Runs that ended in named errors.
        wrong: What must never happen and did, one sentence each.
    """

    seed: int
    struck: Counter[FaultClass] = field(default_factory=Counter)
    succeeded: int = 0
    failed: int = 0
    wrong: list[str] = field(default_factory=list)


def explore_seed(seed: int, subject: Subject) -> Explored:
    """Run protocols in the world of a seed and check what comes of them.

    Several runs follow each other while faults strike, and at least one after they have stopped.
    Checked: every result of every party is right, even if others failed; every failure is a named
    error; all ends within `CALM_SECONDS` after the faults; no task is left.
    """
    explored = Explored(seed)
    try:
        with _faults_expected():
            simulation.simulate(_live(subject, Streams(seed), explored))
    except VeilringError as error:
        explored.wrong.append(f"the run broke down: {type(error).__name__}: {error}")
    return explored


@contextmanager
def _faults_expected() -> Iterator[None]:
    """Let no node warn of a fault: thousands strike here, and they are counted."""
    was, _node_log.disabled = _node_log.disabled, True
    try:
        yield
    finally:
        _node_log.disabled = was


async def _live(subject: Subject, streams: Streams, explored: Explored) -> None:
    rng = streams.generator("world")
    parties = subject.prepared.parties
    faults = draw_faults(parties, FAULT_SECONDS, streams.generator("faults"))
    runtime = Simulated(_topology(rng), faults)
    cluster = Cluster(
        parties, runtime=runtime, own=subject.prepared.setup.resident, seed=int(rng.integers(2**32))
    )
    clock = asyncio.get_running_loop().time
    async with cluster:
        alive = tuple(parties)
        while clock() < FAULT_SECONDS or not explored.succeeded + explored.failed:
            alive = await _run_once(cluster, subject, alive, rng, explored)
            await asyncio.sleep(float(rng.uniform(0.0, _PAUSE_MAX_SECONDS)))
        present = tuple(name for name in parties if name not in runtime.crashed)
        if subject.prepared.setup.can_do_with(present):
            await _run_once(cluster, subject, present, rng, explored)
        if clock() > FAULT_SECONDS + CALM_SECONDS:
            explored.wrong.append(f"not finished before {clock():.1f} s")
    explored.struck.update(fault.kind for fault in runtime.struck)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        explored.wrong.append(f"{len(left)} tasks are left")


def _topology(rng: Generator) -> Topology:
    latency = Uniform(0.0, float(rng.uniform(0.001, 0.1)))
    jitter = Exponential(float(rng.uniform(0.0001, 0.02)))
    return Topology(LinkModel(latency, jitter, float(rng.uniform(1e5, 1e8))))


async def _run_once(
    cluster: Cluster, subject: Subject, alive: tuple[str, ...], rng: Generator, explored: Explored
) -> tuple[str, ...]:
    """Run one protocol among those that are thought to be alive; return who is after it."""
    prepared = subject.prepared
    # In a ring the sum of the votes is explored as often by itself: there a wrong total shows all.
    sums = prepared.setup.system.draws_ring and rng.random() < 0.5  # noqa: PLR2004 (either as often)
    play = _play_sum if sums else _play_batch
    outcomes = await play(cluster, subject, alive, rng, explored)
    errors = [outcome for outcome in outcomes if outcome.error is not None]
    for outcome in errors:
        if not isinstance(outcome.error, VeilringError):
            explored.wrong.append(f"{outcome.party} failed with {outcome.error!r}")
    explored.failed += bool(errors)
    explored.succeeded += not errors
    lost = lost_parties(outcomes)
    left = tuple(name for name in alive if name not in lost)
    # A party that was lost may be back: the next run but one takes all of them again.
    return left if lost and prepared.setup.can_do_with(left) else tuple(cluster.parties)


async def _play_sum(
    cluster: Cluster, subject: Subject, alive: tuple[str, ...], rng: Generator, explored: Explored
) -> list[Outcome]:
    """Sum distinct powers of two: a wrong total shows exactly who was counted, and how often."""
    method = _method(rng, len(alive))
    own = [np.array([[float(2**place)]]) for place, _ in enumerate(cluster.parties)]
    outcomes = await cluster.play(
        _sum_on_a_drawn_ring,
        own=own,
        among=alive,
        seconds=EXPLORED_SECONDS,
        method=method,
        add=subject.secure_sum,
    )
    expected = sum(2**place for place, name in enumerate(cluster.parties) if name in alive)
    for outcome in outcomes:
        if outcome.error is None and outcome.result != expected:
            wrong = f"{outcome.party} has the sum {outcome.result}, not {expected} ({method.name})"
            explored.wrong.append(wrong)
    return outcomes


def _method(rng: Generator, parties: int) -> SumMethod:
    most = (parties - 1) // 2
    match int(rng.integers(4)):
        case 0 if most > 1:
            return SumMethod("cycles", int(rng.integers(2, most + 1)))
        case 1:
            return SumMethod("shares")
        case 2:
            return SumMethod("masks")
    return SumMethod()


async def _sum_on_a_drawn_ring(
    party: Party, own: NDArray[np.float64], *, method: SumMethod, add: Sum
) -> float:
    ring = await draw_ring(party)
    fixed = FixedPoint(0, len(ring))
    return float((await add(party, own, ring=ring, fixed=fixed, method=method))[0, 0])


async def _play_batch(
    cluster: Cluster, subject: Subject, alive: tuple[str, ...], rng: Generator, explored: Explored
) -> list[Outcome]:
    """Have all queries labelled, by a client that is drawn where any party can be one."""
    setup = subject.prepared.setup
    queries = subject.prepared.held_out.X[: setup.batch_max]
    if setup.system.draws_ring:
        client = alive[int(rng.integers(len(alive)))]
        alive = (client, *(name for name in alive if name != client))
    played = setup.play(queries, among=alive)
    outcomes = await cluster.play(
        setup.role, only=played.only, among=alive, seconds=EXPLORED_SECONDS, **played.public
    )
    labels = {
        outcome.party: played.labels(outcome.result)
        for outcome in outcomes
        if outcome.error is None and outcome.party in played.learners
    }
    explored.wrong += setup.find_wrong(queries, labels, alive)
    return outcomes


# A worker's task: long enough that handing it out does not count, short enough for a smooth bar.
_SEEDS_AT_ONCE: Final = 20


@dataclass(slots=True)
class Campaign:
    """What many seeds found.

    Attributes:
        seeds: How many were explored.
        struck: How many faults of each class had an effect.
        succeeded: Runs with a result.
        failed: Runs that ended in named errors.
        failures: The seeds in which something was wrong, in order, with what it was.
    """

    seeds: int = 0
    struck: Counter[FaultClass] = field(default_factory=Counter)
    succeeded: int = 0
    failed: int = 0
    failures: dict[int, list[str]] = field(default_factory=dict)

    def add(self, explored: Explored) -> None:
        """Take in what came of a seed."""
        self.seeds += 1
        self.struck += explored.struck
        self.succeeded += explored.succeeded
        self.failed += explored.failed
        if explored.wrong:
            self.failures = dict(sorted({**self.failures, explored.seed: explored.wrong}.items()))

    @property
    def missing(self) -> tuple[FaultClass, ...]:
        """The classes of fault that had no effect in any seed."""
        return tuple(kind for kind in FAULT_CLASSES if not self.struck[kind])


def explore(
    subject: Subject,
    seeds: Iterable[int],
    *,
    workers: int = 1,
    progress: Callable[[Campaign], None] | None = None,
) -> Campaign:
    """Explore seeds; the result does not depend on the number of workers.

    Args:
        subject: What is explored.
        seeds: Which.
        workers: How many processes share the work; one is this process.
        progress: Told how far it is.
    """
    campaign = Campaign()
    chunks = list(_chunks(list(seeds)))
    for explored in _results(subject, chunks, workers):
        for each in explored:
            campaign.add(each)
        if progress is not None:
            progress(campaign)
    return campaign


def _chunks(seeds: list[int]) -> Iterator[list[int]]:
    for first in range(0, len(seeds), _SEEDS_AT_ONCE):
        yield seeds[first : first + _SEEDS_AT_ONCE]


def _results(subject: Subject, chunks: list[list[int]], workers: int) -> Iterable[list[Explored]]:
    if workers == 1:
        return (_explore_chunk(subject, chunk) for chunk in chunks)
    from veilring.scenarios.sweep import engine  # noqa: PLC0415  (for many workers only)

    return engine.in_order(partial(_explore_chunk, subject), chunks, workers)


def _explore_chunk(subject: Subject, chunk: list[int]) -> list[Explored]:
    return [explore_seed(seed, subject) for seed in chunk]


def known_failures(path: Path) -> list[int]:
    """Read the seeds that failed once, from a file with one a line; `#` begins a comment.

    Raises:
        ScenarioError: If a line is no seed.
    """
    if not path.exists():
        return []
    seeds = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if text and not text.isdecimal():
            raise ScenarioError(f"{path}, line {number}", text, "a seed: a whole number")
        if text:
            seeds.append(int(text))
    return seeds


def remember_failures(path: Path, failures: Iterable[int]) -> None:
    """Add the seeds that the file does not have yet."""
    new = sorted(set(failures) - set(known_failures(path)))
    if new:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{seed}\n" for seed in new)
