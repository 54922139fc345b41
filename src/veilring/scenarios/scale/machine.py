"""The machine that numbers are of: its name, its clock, and fresh processes on one core of it."""

import multiprocessing
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

MIB: Final = 1 << 20
_KIB_IN_MIB: Final = 1024
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

T = TypeVar("T")


def describe_machine() -> str:
    """Return what numbers depend on, in one line; nothing that names the machine."""
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
    """Return the most memory that a process had, in MiB; NaN if the system does not tell.

    Args:
        process: Its number; this one unless given.
    """
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

    Its linear algebra takes one thread: so numbers are those of a core, and others' work on the
    machine disturbs less.

    Args:
        function: At the top level of a module.
        *arguments: What can be pickled.
    """
    context = multiprocessing.get_context("spawn")
    with _one_thread(), ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


@contextmanager
def _one_thread() -> Iterator[None]:
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


def least_seconds(act: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    """Return the fewest seconds that something took, after it was done once for nothing.

    What others do on the machine only adds to seconds, so that the fewest say most of the program.

    Args:
        act: What is done.
        times: How often it is measured.
        clock: Gives seconds.
    """
    act()
    taken = []
    for _ in range(times):
        start = clock()
        act()
        taken.append(clock() - start)
    return min(taken)
