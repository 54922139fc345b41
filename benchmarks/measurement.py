"""What a benchmark hands in, and how two things are timed fairly."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Timed = Callable[[], float]
"""Does something once and returns the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a number is held to."""

    side: Literal["at least", "at most"]
    value: float

    def holds(self, value: float) -> bool:
        """Say whether a number is on the right side."""
        return value >= self.value if self.side == "at least" else value <= self.value


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number: the median of several.

    Attributes:
        name: What was measured.
        unit: `x` for a ratio to the reference, else a unit such as `s` or `MiB`.
        values: One for each repetition, in the order in which they were taken.
        bound: What the median is held to, if anything.
        detail: What stands behind it, such as the medians that a ratio was made of.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    bound: Bound | None = None
    detail: str = ""

    @property
    def median(self) -> float:
        """The number."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """`held`, `missed`, or nothing if the number is held to nothing."""
        if self.bound is None:
            return ""
        return "held" if self.bound.holds(self.median) else "missed"

    def as_json(self) -> dict[str, Any]:
        """Return everything, for a file."""
        summary = {"median": self.median, "min": min(self.values), "max": max(self.values)}
        return asdict(self) | summary | {"verdict": self.verdict}


class Skipped(Exception):
    """A benchmark that cannot run here, and why."""


def timed(act: Callable[[], object]) -> Timed:
    """Return what does something once, all of which counts."""

    def once() -> float:
        start = time.perf_counter()
        act()
        return time.perf_counter() - start

    return once


def pairs(ours: Timed, reference: Timed, repetitions: int) -> list[tuple[float, float]]:
    """Time two things in turns, so that whatever slows the machine slows both.

    Both run once before, unmeasured.

    Returns:
        The seconds of `ours` and of `reference`, once for each repetition.
    """
    ours(), reference()
    return [(ours(), reference()) for _ in range(repetitions)]


def ratios(
    name: str,
    seconds: Iterable[tuple[float, float]],
    bound: Bound | None = None,
    *,
    faster: bool = False,
    per: int = 1,
) -> Measurement:
    """Turn pairs of seconds into a measurement of their ratios.

    Args:
        name: What was measured.
        seconds: As `pairs` returns it.
        bound: What the median ratio is held to.
        faster: Whether to divide the reference by ours; by default ours by the reference.
        per: How many hops, queries, ... each time holds, for the detail.
    """
    mine, theirs = zip(*seconds, strict=True)
    values = [b / a if faster else a / b for a, b in zip(mine, theirs, strict=True)]
    ours, reference = (_microseconds(statistics.median(side) / per) for side in (mine, theirs))
    return Measurement(name, "x", tuple(values), bound, f"{ours} beside {reference}")


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us"
