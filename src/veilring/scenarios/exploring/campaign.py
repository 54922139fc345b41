"""Many seeds, in parallel, and what they found."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veilring.errors import ScenarioError
from veilring.scenarios.exploring.seed import Explored, Subject, explore_seed
from veilring.simulation.faults import FAULT_CLASSES, FaultClass

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
    import joblib  # noqa: PLC0415  (for many workers only)

    parallel = joblib.Parallel(n_jobs=workers, return_as="generator")
    results: Iterable[list[Explored]] = parallel(
        joblib.delayed(_explore_chunk)(subject, chunk) for chunk in chunks
    )
    return results


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
