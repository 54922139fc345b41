"""How something is measured: beside a reference, or in a process apart.

Also the machine that numbers are of.
"""

import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

Timed = Callable[[], float]
"""Does something once and returns the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The limit on a number."""

    side: Literal["at least", "at most"]
    value: float

    def holds(self, value: float) -> bool:
        """Say whether a number is on the right side."""
        return value >= self.value if self.side == "at least" else value <= self.value


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number: the median of several.

    Attributes:
        unit: `x` for a ratio to the reference, otherwise a unit such as `s` or `MiB`.
        values: One for each repetition, in the order in which they were taken.
        detail: Its derivation, such as the two medians of a ratio.
        faster: Whether the ratio is that of a speed, not of a cost.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    bound: Bound | None = None
    detail: str = ""
    faster: bool = False

    @property
    def better(self) -> Literal["higher", "lower"]:
        """The better numbers: higher speeds, and otherwise lower costs."""
        is_speed = self.faster or self.unit.endswith("/s")
        rises = is_speed if self.bound is None else self.bound.side == "at least"
        return "higher" if rises else "lower"

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


def timed(act: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Timed:
    """Return what does something once, all of which counts."""

    def once() -> float:
        start = clock()
        act()
        return clock() - start

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
        faster: Whether to divide the reference by ours; by default ours by the reference.
        per: The number of hops, queries, ... in each time, for the detail.
    """
    mine, theirs = zip(*seconds, strict=True)
    values = [b / a if faster else a / b for a, b in zip(mine, theirs, strict=True)]
    ours, reference = (_microseconds(statistics.median(side) / per) for side in (mine, theirs))
    return Measurement(name, "x", tuple(values), bound, f"{ours} beside {reference}", faster)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us"


MIB: Final = 1 << 20
_KIB_IN_MIB: Final = 1024
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

T = TypeVar("T")


def describe_machine() -> str:
    """Return the conditions of a measurement in one line; none of them names the machine."""
    kind = f"{os.cpu_count()} cores ({_processor()})"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{kind}, {python}, {platform.system()}"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()


def peak_mib(process: int | None = None) -> float:
    """Return the most memory that a process had, in MiB; NaN if the system does not tell."""
    path = Path(f"/proc/{process or 'self'}/status")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / _KIB_IN_MIB
    if process is not None:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (MIB if sys.platform == "darwin" else _KIB_IN_MIB)


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a fresh process, and return its result.

    Its linear algebra uses one thread: numbers are those of a core, and other work on the
    machine disturbs less.
    """
    context = multiprocessing.get_context("spawn")
    with one_thread(), ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let processes that start meanwhile compute in one thread: they read it when they start."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
