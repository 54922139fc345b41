"""Campaigns: the exploration of many seeds in one process or several, and their joint findings."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from veilring.errors import InputError, ScenarioError
from veilring.simulation import LoopTrace
from veilring.simulation.faults import FAULT_CLASSES
from veilring.testing.exploring.shrinking import Shrunk, shrink
from veilring.testing.exploring.subjects import Invariant, Public, Role, RoleSubject
from veilring.testing.exploring.worlds import Explored, Subject, World, draw_world, play_world

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
        subject: The subject of the exploration, if it can be shrunk.
        worlds: A function that returns the world of a seed.
        classes: The classes of fault that must strike.
        marks: The marks that worlds must reach, in addition to those that they pass.
        seeds: The number of seeds that were explored.
        struck: The number of faults of each class that had an effect.
        succeeded: The number of runs with a result.
        failed: The number of runs that ended in named errors.
        reached: The number of times that each mark was reached; 0 if it was only passed.
        failures: The seeds of worlds that violated an invariant, in order, with the violations.
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

    def add(self, explored: Explored) -> None:
        """Add the findings of a seed."""
        self.seeds += 1
        self.struck += explored.struck
        self.succeeded += explored.succeeded
        self.failed += explored.failed
        self.reached.update(explored.marks)
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
        """Fail if a world failed, no run succeeded, or a mark was never reached.

        Raises:
            AssertionError: In any of these cases; the message names it.
        """
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
    invariant: Invariant,
    seeds: int | Iterable[int] = SEEDS,
    public: Mapping[str, object] | Public | None = None,
    least: int = 2,
    workers: int | None = 1,
    **constant: Any,
) -> Campaign:
    """Explore your own role: play it in many worlds with faults, and judge each run.

    Args:
        role: The role, as `Cluster.run` takes it.
        inputs: Each party's private input, by its name; a sequence belongs to `party-0`, `party-1`,
            ….
        invariant: A function that raises an `AssertionError` unless the results of a run are right.
            Its arguments are the inputs of the parties that took part and the results of those that
            have one, each by name.
        seeds: The number of seeds, or the seeds.
        public: Public arguments of the role, or a function that returns them, given the parties
            that take part and a generator.
        least: The smallest number of parties that the role needs after others were lost.
        workers: The number of processes that share the work; 1 is this process, and None is one
            per core.
        **constant: Public arguments of the role as keywords, instead of `public`.

    Raises:
        InputError: If there are fewer parties than `least`, or public arguments are given in both
            ways.
    """
    if public is not None and constant:
        raise InputError.because(
            f"give all public arguments in public=, or all as keywords: {', '.join(constant)}",
            field="public",
        )
    if not isinstance(inputs, Mapping):
        inputs = {f"party-{place}": own for place, own in enumerate(inputs)}
    if len(inputs) < max(2, least):
        raise InputError.because(
            f"give the inputs of at least {max(2, least)} parties, not {len(inputs)}",
            field="inputs",
        )
    subject = RoleSubject(role, inputs, invariant, public or constant, least)
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

    Args:
        workers: The number of processes that share the work; 1 is this process, and None is one
            per core.
        progress: A function that is called with the progress.
    """
    worlds = partial(draw_world, parties=subject.parties)
    campaign = Campaign(subject, worlds, marks=subject.marks)
    chunks = list(_chunks(list(seeds)))
    for explored in _results(subject, chunks, workers):
        for each in explored:
            campaign.add(each)
        if progress is not None:
            progress(campaign)
    return campaign


def explore_seed(subject: Subject, seed: int) -> Explored:
    """Explore the world of a seed; play some seeds twice, and check that both plays agree."""
    world = draw_world(seed, subject.parties)
    if seed % _REPEATED:
        return play_world(subject, world)
    explored = play_world(subject, world, trace=LoopTrace())
    if explored != play_world(subject, world, trace=LoopTrace()):
        explored.wrong.append("replayed, the same seed made another world")
    return explored


def _chunks(seeds: list[int]) -> Iterator[list[int]]:
    for first in range(0, len(seeds), _SEEDS_AT_ONCE):
        yield seeds[first : first + _SEEDS_AT_ONCE]


def _results(
    subject: Subject, chunks: list[list[int]], workers: int | None
) -> Iterable[list[Explored]]:
    if workers == 1 or len(chunks) == 1:
        return (_explore_chunk(subject, chunk) for chunk in chunks)
    from veilring.scenarios.sweep import engine  # noqa: PLC0415  (for many workers only)

    return engine.in_order(partial(_explore_chunk, subject), chunks, workers)


def _explore_chunk(subject: Subject, chunk: list[int]) -> list[Explored]:
    return [explore_seed(subject, seed) for seed in chunk]


def known_failures(path: Path) -> list[int]:
    """Read seeds that failed before from a file with one seed a line; `#` begins a comment.

    Raises:
        ScenarioError: If a line is not a seed.
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
    """Append the seeds that the file does not contain yet."""
    new = sorted(set(failures) - set(known_failures(path)))
    if new:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{seed}\n" for seed in new)
