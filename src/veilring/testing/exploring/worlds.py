"""Worlds: links, faults and an order of tasks, in which a subject's runs are played and judged.

A world is drawn from a seed, or written out. While faults strike, runs follow each other. Each run
has a start and a number that seeds all its randomness. A world written out with fewer faults or
runs is otherwise unchanged, which is how a failing world is shrunk.
"""

import asyncio
import gc
import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from numpy.random import Generator

from veilring import simulation
from veilring.errors import Deadlock, EndlessStep, SessionTimeout, SimulationError, VeilringError
from veilring.nodes.cluster import Cluster, lost_parties
from veilring.nodes.journal import Journal, transcript_hash
from veilring.nodes.run import Outcome, forget_frames
from veilring.nodes.runtimes import Simulated
from veilring.randomness import Streams
from veilring.reached import count_marks, sometimes
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    LoopTrace,
    Order,
    Topology,
    Uniform,
)
from veilring.simulation.faults import Fault, draw_faults
from veilring.simulation.loop import complete

_T = TypeVar("_T")
# Long enough for several runs under several simultaneous faults.
FAULT_SECONDS: Final = 20.0
# The time in which everything ends after the faults have stopped and the last run has started.
CALM_SECONDS: Final = 30.0
# The limit on each run, which ends within CALM_SECONDS even on a clock that is four times too slow.
EXPLORED_SECONDS: Final = 6.0
# Half of the limit: all losses are announced by then. A role that is still busy at the limit and
# waits for no message retries for ever.
QUIET_SECONDS: Final = 3.0
# The processor time of one step, which takes a few milliseconds in most systems. Longer than the
# step of any role that can be explored in a hundred worlds.
EXPLORED_STEP_SECONDS: Final = 10.0
_PAUSE_MAX_SECONDS: Final = 2.0  # so that some faults strike between runs
_PERMUTED_SHARE: Final = 0.5  # the other worlds keep the order in which tasks became ready

_node_log = logging.getLogger("veilring.node")


class Start(NamedTuple):
    """The start of a run in a world."""

    number: int
    seconds: float
    """The earliest start; the run starts later if the previous one has not ended."""


@dataclass(frozen=True, slots=True)
class World:
    """The events of all runs of a subject.

    Attributes:
        seed: The seed of all randomness: of the parties, of each run, and of the jitter of links.
        order: The seed of the order in which ready tasks take turns; with None, they keep the order
            in which they became ready.
        runs: The runs; with None, runs follow each other while faults strike, and one more
            afterwards.
    """

    seed: int
    links: LinkModel
    faults: tuple[Fault, ...] = ()
    order: int | None = None
    runs: tuple[Start, ...] | None = None

    @property
    def calm_from(self) -> float:
        """The time after which no fault strikes, in simulated seconds."""
        ends = (fault.end if fault.end < math.inf else fault.start for fault in self.faults)
        return max(ends, default=0.0)

    @property
    def over_by(self) -> float:
        """The time by which everything has ended, in simulated seconds."""
        last = FAULT_SECONDS if self.runs is None else max(start for _, start in self.runs)
        return max(self.calm_from, last) + CALM_SECONDS


class Played(NamedTuple):
    """A run that was played."""

    outcomes: Sequence[Outcome]
    wrong: Sequence[str]
    """The violations of the invariants, one sentence each."""
    compare: "Callable[[World], Iterable[str]] | None" = None
    """Returns more of them, given a world without faults that has this run alone."""


class Subject(ABC):
    """The subject of an exploration: parties with data, and a run that can be judged."""

    parties: tuple[str, ...]

    @property
    def marks(self) -> frozenset[str]:
        """The marks that a campaign must reach: see `veilring.reached.sometimes`."""
        return frozenset()

    @property
    def knows_results(self) -> bool:
        """Whether results are compared with the right ones, and not only with each other."""
        return True

    def can_do_with(self, parties: Sequence[str]) -> bool:
        """Return whether the given parties are enough for a run, after others were lost."""
        return len(parties) > 1

    @abstractmethod
    def own(self) -> Sequence[object]:
        """Return each party's input at the start of a world, in the order of `parties`."""

    @abstractmethod
    async def play(
        self,
        cluster: Cluster,
        among: tuple[str, ...],
        make_rng: Callable[[], Generator],
        **options: Any,
    ) -> Played:
        """Play a run on a cluster of all parties, and judge it.

        Args:
            make_rng: A function that makes the randomness of the run.
            **options: Options of `Cluster.play`, such as `run_number`, `seconds` and `adversaries`.
        """

    def smaller(self, parties: int) -> "Iterable[Subject]":  # noqa: ARG002  (a subclass's own)
        """Return versions of the subject with fewer parties; empty if it needs all of them."""
        return ()

    def simpler(self) -> "Iterable[Subject]":
        """Return simpler versions of the subject, in the order to try; empty if none exists."""
        return ()


@dataclass(slots=True)
class Explored:
    """The findings of one world.

    Attributes:
        marks: The number of times that each mark was reached; 0 if it was only passed.
        digest: The hash of all steps of the loop and all messages, if they were recorded.
        is_endless: Whether a role computed or yielded without end, so that the world took long.
    """

    seed: int
    struck: Counter[str] = field(default_factory=Counter)
    succeeded: int = 0
    failed: int = 0
    wrong: list[str] = field(default_factory=list)
    runs: list[Start] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    is_endless: bool = False


def draw_world(seed: int, parties: Sequence[str]) -> World:
    """Draw the world of a seed for some parties.

    In half of all worlds, ready tasks take turns in another order. In half of these, links have a
    constant delay, so that many messages arrive at one instant.
    """
    streams = Streams(seed)
    rng = streams.generator("world")
    latency = float(rng.uniform(0.001, 0.1))
    jitter, bandwidth = float(rng.uniform(0.0001, 0.02)), float(rng.uniform(1e5, 1e8))
    links = LinkModel(Uniform(0.0, latency), Exponential(jitter), bandwidth)
    order = None
    if rng.random() < _PERMUTED_SHARE:
        order = seed
        if rng.random() < _PERMUTED_SHARE:
            links = LinkModel(Constant(latency))
    faults = draw_faults(parties, FAULT_SECONDS, streams.generator("faults"))
    return World(seed, links, faults, order)


def play_world(
    subject: Subject,
    world: World,
    *,
    trace: LoopTrace | None = None,
    journal: Journal | None = None,
) -> Explored:
    """Play a subject's runs in a world and judge them.

    The checks are: every result of every party is right, even if others failed; every failure is a
    named error; everything ends within `CALM_SECONDS` after the faults; no task is left over. No
    role is busy without end, `QUIET_SECONDS` or more after the last fault.
    """
    explored, streams = Explored(world.seed), Streams(world.seed)
    order = None if world.order is None else Order(Streams(world.order).generator("order"))
    played = _World(subject, world, explored, streams, trace, journal)
    with count_marks() as explored.marks, _undisturbed():
        try:
            complete(played.live, partial(simulate_explored, trace=trace, order=order))
        except VeilringError as error:
            explored.is_endless = isinstance(error, EndlessStep | SimulationError)
            explored.wrong.append(f"the run ended unexpectedly: {type(error).__name__}: {error}")
    for compare in () if explored.is_endless else played.comparisons:
        explored.wrong += compare()
    return explored


def simulate_explored(main: Coroutine[Any, Any, _T], **options: Any) -> _T:
    """Run a coroutine in the simulation, in which a step may take `EXPLORED_STEP_SECONDS`."""
    return simulation.simulate(main, step_seconds=EXPLORED_STEP_SECONDS, **options)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Silence the nodes' warnings, and pause garbage collection, while a world is played.

    Thousands of faults strike here, and they are counted. A world is small compared with the
    objects of a pass, and no destructor runs in the middle of it.
    """
    was, collects = _node_log.disabled, gc.isenabled()
    _node_log.disabled = True
    gc.disable()
    try:
        yield
    finally:
        _node_log.disabled = was
        if collects:
            gc.enable()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error in a callback, but no task whose error the role never asked for.

    A run that a fault stops leaves many of these.
    """
    if not isinstance(context.get("future"), asyncio.Future):
        loop.default_exception_handler(context)


@dataclass(frozen=True, slots=True)
class _World:
    """A world while it is played."""

    subject: Subject
    world: World
    explored: Explored
    streams: Streams
    trace: LoopTrace | None
    journal: Journal | None
    comparisons: list[Callable[[], Iterable[str]]] = field(default_factory=list)
    """What is left to judge when the world is over, because it needs another world."""

    async def live(self) -> None:
        subject, world, explored = self.subject, self.world, self.explored
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_report)
        clock = loop.time
        runtime = Simulated(Topology(world.links), world.faults)
        parties = subject.parties
        async with (
            Cluster(parties, runtime=runtime, own=subject.own(), seed=world.seed) as cluster,
            aclosing(self._numbers()) as numbers,
        ):
            alive, calm_from = parties, world.calm_from
            async for number in numbers:
                if clock() >= calm_from:
                    alive = tuple(name for name in parties if name not in runtime.crashed)
                if subject.can_do_with(alive):
                    explored.runs.append(Start(number, clock()))
                    alive = await self._run_once(cluster, number, alive)
                    if explored.wrong:
                        break  # later runs would add nothing but time
            if clock() > world.over_by:
                explored.wrong.append(f"not finished after {clock():.1f} s")
        explored.struck.update(fault.kind for fault in runtime.struck)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            explored.wrong.append(f"{len(left)} tasks are left over")
        # Afterwards, asyncio closes generators that the garbage collector has not reached.
        explored.digest = "" if self.trace is None else self.trace.digest

    async def _numbers(self) -> AsyncGenerator[int, None]:
        """Yield the number of each run at its start."""
        clock = asyncio.get_running_loop().time
        if self.world.runs is not None:
            for number, seconds in self.world.runs:
                await asyncio.sleep(max(0.0, seconds - clock()))
                yield number
            return
        pauses, number = self.streams.generator("pauses"), 0
        while clock() < FAULT_SECONDS:
            yield number
            await asyncio.sleep(float(pauses.uniform(0.0, _PAUSE_MAX_SECONDS)))
            number += 1
        yield number

    async def _run_once(
        self, cluster: Cluster, number: int, alive: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Play a run among the parties believed alive; return the parties for the next run."""
        explored, clock = self.explored, asyncio.get_running_loop().time
        started = clock()
        outcomes, wrong, compare = await self.subject.play(
            cluster,
            alive,
            partial(self.streams.generator, "run", number),
            run_number=number,
            seconds=EXPLORED_SECONDS,
            trace=self.journal or False,
            measured=self.trace is not None,  # only its digest contains the messages
        )
        errors = [outcome for outcome in outcomes if outcome.error is not None]
        explored.wrong += [*wrong, *self._endless(errors, started, clock())]
        if compare is not None:
            calm = World(self.world.seed, self.world.links, runs=(Start(number, 0.0),))
            self.comparisons.append(partial(compare, calm))
        for outcome in errors:
            if isinstance(outcome.error, EndlessStep):
                raise outcome.error  # each further run would take as long
            if not isinstance(outcome.error, VeilringError):
                explored.wrong.append(f"{outcome.party} failed with {outcome.error!r}")
        sometimes("a run has a result after a run that failed", not errors and explored.failed > 0)
        sometimes("a run failed at some parties only", 0 < len(errors) < len(outcomes))
        explored.failed += bool(errors)
        explored.succeeded += not errors
        self._record(outcomes)
        for each in errors:
            forget_frames(each.error)
        lost = lost_parties(errors)
        left = tuple(name for name in alive if name not in lost)
        # A lost party may be back: the run after the next tries all parties again.
        return left if lost and self.subject.can_do_with(left) else tuple(cluster.parties)

    def _endless(self, outcomes: Sequence[Outcome], start: float, end: float) -> Iterator[str]:
        """Yield a sentence for each party whose run could not end, although no fault struck.

        A wait for a message may end with the limit: a fault may have lost the message.
        """
        for party, standing, error in ((o.party, o.standing, o.error) for o in outcomes):
            is_working = standing is not None and standing.is_working
            if isinstance(error, Deadlock):
                yield f"{party} cannot end without any fault: {error}"
            elif isinstance(error, SessionTimeout) and is_working:
                faults = [fault for fault in self.world.faults if fault.start < end]
                ends = (fault.end if fault.end < math.inf else fault.start for fault in faults)
                quiet = end - max([start, *ends])
                if quiet >= QUIET_SECONDS:
                    yield (
                        f"{party} was still busy after {error.seconds:g} s, though it waited for no"
                        f" message and no fault struck in the last {quiet:.1f} s: it may retry for"
                        " ever"
                    )

    def _record(self, outcomes: Sequence[Outcome]) -> None:
        if self.trace is not None:
            now = asyncio.get_running_loop().time()
            for outcome in outcomes:
                if outcome.error is None:
                    self.trace.record(now, transcript_hash(outcome.channels))


def results_by_party(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the results of the parties that have one, by name."""
    return {outcome.party: outcome.result for outcome in outcomes if outcome.error is None}
