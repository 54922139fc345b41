"""Fault exploration: many seeds, each a world with faults, checked for wrong results and hangs.

A campaign explores many seeds in one process or several, and joins their findings.

A world that fails is shrunk to the smallest one that still does, by delta debugging (Zeller and
Hildebrandt, IEEE TSE 28, 2002): parts are left out, large ones first, as long as the rest still
fails. Parties come first, because smaller worlds make all later steps faster. If the same world
with three parties does not fail, a few other worlds with three parties are tried before the next
number of parties. Faults, queries and runs follow, and then faults again.

In exhaustive worlds, each message of one run is struck by each class of fault. They cover with
certainty every single fault that a drawn world hits only by chance: a party that crashes between
any two of its messages, a connection that breaks while any message is under way.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

from veilring.errors import InputError, ScenarioError
from veilring.nodes.journal import Journal, TracedMessage
from veilring.nodes.party import by_party
from veilring.nodes.run import check_arguments
from veilring.scenarios.roles import Draw, Role
from veilring.simulation import LinkModel, LoopTrace, Uniform
from veilring.simulation.faults import FAULT_CLASSES, FAULT_KINDS, Fault, FaultClass
from veilring.testing.exploring.subjects import Invariant, RoleSubject, SystemSubject
from veilring.testing.exploring.worlds import (
    Explored,
    Start,
    Subject,
    World,
    draw_world,
    play_world,
)

__all__ = (
    "Campaign",
    "Explored",
    "RoleSubject",
    "Shrunk",
    "Subject",
    "SystemSubject",
    "World",
    "draw_world",
    "every_world",
    "explore",
    "explore_every_world",
    "explore_subject",
    "play_world",
    "shrink",
)

_T = TypeVar("_T")

# Other worlds per number of parties: a mistake in one world of five is missed once in 10,000.
_REDRAWN: Final = 40
# The limit on all plays. A world of three parties and one run takes a few milliseconds.
_PLAYS_MAX: Final = 2000
# The same for plays in which a role computes without end, which take `EXPLORED_STEP_SECONDS` each.
_ENDLESS_PLAYS_MAX: Final = 10


class Shrunk(NamedTuple):
    """A world that fails, and no longer fails if any part is left out.

    Attributes:
        world: The world; its runs are written out.
    """

    subject: Subject
    world: World
    wrong: tuple[str, ...]
    plays: int

    def __str__(self) -> str:
        world = self.world
        runs = len(world.runs or ())
        said = f"{len(self.subject.parties)} parties, {runs} run{'s' * (runs != 1)}"
        struck = (f"{f.kind} of {', '.join(f.parties)} from {f.start:.2f} s" for f in world.faults)
        faults = ", ".join(struck) or "no fault"
        order = "" if world.order is None else ", ready tasks in another order"
        return f"{said}, {faults}{order}: {'; '.join(self.wrong)}"


def shrink(subject: Subject, world: World) -> Shrunk | None:
    """Shrink a world that fails.

    Returns:
        The smallest world, or None if the given world does not fail when it is played again.
    """
    shrinker = _Shrinker(subject, world)
    if not shrinker.takes(subject, world):
        return None
    shrinker.leave_out_parties()
    shrinker.leave_out("faults")
    shrinker.keep_order()
    shrinker.leave_out_queries()
    shrinker.leave_out("runs")
    shrinker.leave_out("faults")
    return Shrunk(shrinker.subject, shrinker.world, shrinker.wrong, shrinker.plays)


@dataclass
class _Shrinker:
    """The search: holds the smallest world so far."""

    subject: Subject
    world: World
    wrong: tuple[str, ...] = ()
    plays: int = 0
    endless: int = 0

    def takes(self, subject: Subject, world: World) -> bool:
        """Keep a world if it fails, and still fails when its runs are written out."""
        explored = self._played(subject, world)
        if explored is None or not explored.wrong:
            return False
        written = replace(world, runs=tuple(explored.runs))
        if world.runs is None:
            again = self._played(subject, written)
            if again is None or not again.wrong:
                return False
            explored = again
        self.subject, self.world, self.wrong = subject, written, tuple(explored.wrong)
        return True

    def leave_out_parties(self) -> None:
        whole, world = self.subject, self.world
        for count in range(2, len(whole.parties)):
            for fewer in whole.smaller(count):
                if any(self.takes(fewer, each) for each in _worlds_among(fewer, world)):
                    return

    def leave_out(self, part: Literal["faults", "runs"]) -> None:
        def goes_wrong(some: Sequence[Fault | Start]) -> bool:
            world = replace(self.world, **{part: tuple(some)})  # type: ignore[arg-type]  # one of both
            return self.takes(self.subject, world)

        whole: Sequence[Fault | Start] = getattr(self.world, part) or ()
        if part == "runs" or (whole and not goes_wrong([])):
            _minimise(whole, goes_wrong)

    def keep_order(self) -> None:
        """Restore the default order of ready tasks, if the failure does not depend on another."""
        if self.world.order is not None:
            self.takes(self.subject, replace(self.world, order=None))

    def leave_out_queries(self) -> None:
        while any(self.takes(simpler, self.world) for simpler in self.subject.simpler()):
            pass

    def _played(self, subject: Subject, world: World) -> Explored | None:
        if self.plays >= _PLAYS_MAX or self.endless >= _ENDLESS_PLAYS_MAX:
            return None
        self.plays += 1
        explored = play_world(subject, world)
        self.endless += explored.is_endless
        return explored


def _worlds_among(subject: Subject, world: World) -> Iterator[World]:
    """Yield the world with only the faults among these parties, and then other worlds with them."""
    present = set(subject.parties)
    faults = tuple(fault for fault in world.faults if present.issuperset(fault.parties))
    redrawn = (draw_world(seed, subject.parties) for seed in range(_REDRAWN))
    return chain([replace(world, faults=faults)], redrawn)


def _minimise(whole: Sequence[_T], goes_wrong: Callable[[list[_T]], bool]) -> None:
    """Leave out parts of a sequence, halves first, while the rest still fails.

    At least one item is always kept.
    """
    left = list(whole)
    size = len(left) // 2
    while size:
        place = 0
        while place < len(left):
            rest = left[:place] + left[place + size :]
            if rest and len(rest) < len(left) and goes_wrong(rest):
                left = rest
            else:
                place += size
        size //= 2


SEEDS: Final = 100
"""The default number of worlds, enough for each class of fault to strike."""

# Seeds per worker task: enough to make overhead negligible, few enough for a smooth progress bar.
_SEEDS_AT_ONCE: Final = 20
# Each seed that this number divides is played twice, which makes a campaign 2 % longer.
_REPEATED: Final = 50


@dataclass(slots=True)
class Campaign:
    """The findings of many seeds.

    Attributes:
        classes: The classes of fault that must strike.
        marks: The marks that worlds must reach, in addition to those that they pass.
        reached: The number of times that each mark was reached; 0 if it was only passed.
        failures: The seeds of worlds that violated an invariant, in order, with the violations.
        is_endless: Whether a role computed or yielded without end in one of them.
    """

    subject: Subject | None = field(default=None, repr=False, compare=False)
    worlds: Callable[[int], World] | None = field(default=None, repr=False, compare=False)
    classes: tuple[str, ...] = FAULT_CLASSES
    marks: frozenset[str] = frozenset()
    seeds: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    succeeded: int = 0
    failed: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    failures: dict[int, list[str]] = field(default_factory=dict)
    is_endless: bool = False

    def add(self, explored: Explored) -> None:
        """Add the findings of a seed."""
        self.seeds += 1
        self.struck += explored.struck
        self.succeeded += explored.succeeded
        self.failed += explored.failed
        self.reached.update(explored.marks)
        self.is_endless = self.is_endless or explored.is_endless
        if explored.wrong:
            self.failures = dict(sorted({**self.failures, explored.seed: explored.wrong}.items()))

    @property
    def missing(self) -> tuple[str, ...]:
        """The classes of fault that had no effect in any seed."""
        return tuple(kind for kind in self.classes if not self.struck[kind])

    @property
    def unreached(self) -> tuple[str, ...]:
        """The marks that no seed has reached."""
        passed = self.marks | self.reached.keys()
        return tuple(sorted(mark for mark in passed if not self.reached[mark]))

    def smallest(self) -> Shrunk | None:
        """Return the first world that failed, shrunk as far as possible; None if none failed."""
        if self.subject is None or self.worlds is None or not self.failures:
            return None
        return shrink(self.subject, self.worlds(next(iter(self.failures))))

    def check(self) -> None:
        """Fail if a world failed, no run succeeded, or a mark was never reached."""
        __tracebackhide__ = True  # pytest points at the caller
        if self.failures:
            seed, wrong = next(iter(self.failures.items()))
            smallest = self.smallest()
            seen = "" if smallest is None else f". Shrunk: {smallest}"
            raise AssertionError(
                f"{len(self.failures)} of {self.seeds} seeds went wrong; in the world of seed "
                f"{seed}: {'; '.join(wrong)}{seen}"
            )
        if self.failed and not self.succeeded:
            raise AssertionError(f"none of {self.failed} runs in {self.seeds} seeds has a result")
        if self.unreached:
            raise AssertionError(
                f"these situations never occurred in {self.seeds} seeds: "
                f"{'; '.join(self.unreached)}"
            )


def explore(
    role: Role,
    inputs: Mapping[str, object] | Sequence[object],
    *,
    invariant: Invariant | None = None,
    seeds: int | Iterable[int] = SEEDS,
    draw: Draw | None = None,
    least: int = 2,
    workers: int | None = 1,
    **public: Any,
) -> Campaign:
    """Explore your own role: play it in many worlds with faults, and judge each run.

    Args:
        role: The role, as `Cluster.run` takes it.
        inputs: Each party's private input, by its name; a sequence belongs to `party-0`, `party-1`,
            ….
        invariant: A function that raises an `AssertionError` unless the results of a run are right.
            Its arguments are the inputs of the parties that took part and the results of those that
            have one, each by name. By default, a party that has lost no peer must have the result
            that it has without any fault: a role that continues without lost parties needs an
            invariant.
        seeds: The number of seeds, or the seeds.
        draw: A function that returns more public arguments for each run, given the parties that
            take part and a generator.
        least: The smallest number of parties that the role needs after others were lost.
        workers: The number of processes that share the work; 1 is this process, and None is one
            per core.
        **public: Public arguments of the role, as `Cluster.run` takes them.

    Raises:
        InputError: If there are fewer parties than `least`, or the role does not take the public
            arguments.
    """
    if draw is None:
        check_arguments(role, public, by=explore)
    inputs = by_party(inputs)
    if len(inputs) < max(2, least):
        raise InputError.because(
            f"give the inputs of at least {max(2, least)} parties, not {len(inputs)}",
            field="inputs",
        )
    subject = RoleSubject(role, inputs, invariant, public, least, draw)
    return explore_subject(
        subject, range(seeds) if isinstance(seeds, int) else seeds, workers=workers
    )


def explore_subject(
    subject: Subject,
    seeds: Iterable[int],
    *,
    workers: int | None = 1,
    progress: Callable[[Campaign], None] | None = None,
) -> Campaign:
    """Explore seeds; the result does not depend on the number of workers.

    A world in which a role computes or yields without end is the last one: all such worlds take
    long.

    Args:
        workers: The number of processes that share the work; 1 is this process, and None is one
            per core.
    """
    worlds = partial(draw_world, parties=subject.parties)
    campaign = Campaign(subject, worlds, marks=subject.marks)
    every = list(seeds)
    starts = range(0, len(every), _SEEDS_AT_ONCE)
    chunks = [every[first : first + _SEEDS_AT_ONCE] for first in starts]
    for explored in _results(subject, chunks, workers):
        for each in explored:
            campaign.add(each)
        if progress is not None:
            progress(campaign)
        if campaign.is_endless:
            break
    return campaign


def explore_seed(subject: Subject, seed: int) -> Explored:
    """Explore the world of a seed; play some seeds twice, and check that both plays agree."""
    world = draw_world(seed, subject.parties)
    if seed % _REPEATED:
        return play_world(subject, world)
    explored = play_world(subject, world, trace=LoopTrace())
    if explored.is_endless:
        return explored
    if explored != play_world(subject, world, trace=LoopTrace()):
        explored.wrong.append("replayed, the same seed made another world")
    return explored


def _results(
    subject: Subject, chunks: list[list[int]], workers: int | None
) -> Iterable[list[Explored]]:
    if workers == 1 or len(chunks) == 1:
        return (_explore_chunk(subject, chunk) for chunk in chunks)
    from veilring.scenarios.sweep import engine  # noqa: PLC0415  (for many workers only)

    return engine.in_order(partial(_explore_chunk, subject), chunks, workers)


def _explore_chunk(subject: Subject, chunk: list[int]) -> list[Explored]:
    explored = list[Explored]()
    for seed in chunk:
        explored.append(explore_seed(subject, seed))
        if explored[-1].is_endless:
            break
    return explored


def known_failures(path: Path) -> list[int]:
    """Read seeds that failed before from a file with one seed a line; `#` begins a comment."""
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
    """Append the seeds that the file does not contain yet."""
    new = sorted(set(failures) - set(known_failures(path)))
    if new:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{seed}\n" for seed in new)


_LINKS: Final = LinkModel(Uniform(0.01, 0.02))
"""Jitter, so that no two messages arrive at one instant and each can be struck alone."""
_BEFORE_SECONDS: Final = 1e-6
"""The time by which a fault strikes a party before it sends, and a link after it sends."""
_FAULT_SECONDS: Final = 3.0
_SLOW_SECONDS: Final = 1.0
"""The extra time of a slow party's messages: far more than the latency of `_LINKS`."""
_START_SECONDS: Final = 1.0
"""The start of the run, when all parties are connected, and of a second one after the fault."""


def every_world(
    subject: Subject, *, seed: int = 0, kinds: Iterable[FaultClass] = FAULT_CLASSES
) -> Iterator[World]:
    """Yield a world for each message of a run and each class of fault that strikes it.

    With resets, further worlds lose the later messages of a step, and no party: the connections of
    their sender break. After a crash of the sender (`mid-send`), its peers would go on without it.
    """
    calm = World(seed, _LINKS, runs=(Start(0, _START_SECONDS),))
    journal = Journal()
    explored = play_world(subject, calm, journal=journal)
    if explored.wrong or explored.failed:
        raise InputError.because(
            f"a run without any fault goes wrong: {'; '.join(explored.wrong) or 'it fails'}",
            field="subject",
        )
    chosen = tuple(kinds)
    struck = [(_strike(kind, each, journal),) for kind in chosen for each in journal.messages]
    divided = [_divide(each, journal) for each in journal.messages if "reset" in chosen]
    for faults in dict.fromkeys([*struck, *divided]):
        again = Start(1, max(fault.end for fault in faults) + 1.0)
        yield World(seed, _LINKS, faults, runs=(Start(0, _START_SECONDS), again))


def explore_every_world(subject: Subject, *, seed: int = 0) -> Campaign:
    """Play all worlds of `every_world`; the seed of a failure is the index of its world."""
    worlds = list(every_world(subject, seed=seed))
    campaign = Campaign(subject, worlds.__getitem__)
    for place, world in enumerate(worlds):
        explored = play_world(subject, world)
        explored.seed = place
        campaign.add(explored)
        if campaign.is_endless:
            break
    return campaign


def _strike(kind: FaultClass, message: TracedMessage, journal: Journal) -> Fault:
    """Return the fault for a message: on its link as it leaves, or at a party just before."""
    origin, sender, receiver = journal.origin or 0.0, message.sender, message.receiver
    sent = origin + message.seconds
    described = FAULT_KINDS[kind]
    parties = (sender, receiver)[: len(described.keys)]
    if kind == "skew":  # a clock has one constant speed in a run
        start = _START_SECONDS - _BEFORE_SECONDS
    else:
        start = sent + (_BEFORE_SECONDS if described.breaks_connection else -_BEFORE_SECONDS)
    strength = described.strength.tried if described.strength else 0.0
    if kind == "mid-send":
        strength = 1.0 + _step_of(message, journal).index(message)
    return Fault(kind, start, start + _FAULT_SECONDS, parties, strength)


def _divide(message: TracedMessage, journal: Journal) -> tuple[Fault, ...]:
    """Return faults by which a message, and those after it in a step, are lost, but no party is.

    The sender is slow, so what its peers send meanwhile arrives before the connections break.
    """
    step, sender = _step_of(message, journal), message.sender
    sent = (journal.origin or 0.0) + message.seconds - _BEFORE_SECONDS
    broken, end = sent + _SLOW_SECONDS / 2, sent + _FAULT_SECONDS
    lost = step[step.index(message) :]
    resets = (Fault("reset", broken, end, (sender, each.receiver)) for each in lost)
    return Fault("slow", sent, broken, (sender,), _SLOW_SECONDS), *resets


def _step_of(message: TracedMessage, journal: Journal) -> list[TracedMessage]:
    """Return the messages that its sender sent at the same time, in order."""
    same = (each for each in journal.messages if each.sender == message.sender)
    return [each for each in same if each.sent_seconds == message.sent_seconds]
