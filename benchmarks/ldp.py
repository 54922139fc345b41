"""Frequency oracles, from the clients' values to estimates, compared with two libraries.

A million clients of ours, and of theirs the number that takes about a second: their time grows with
the number of clients, and a million of their reports would not fit in memory. All times are scaled
to a million clients. The reference of a repetition is the faster of the two libraries.

Each library runs as a process in an environment of its own. Neither declares all its dependencies,
and neither runs with the newest versions, so the missing requirements are listed here.
"""

import functools
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
import venv
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from benchmarks.measurement import Bound, Measurement, Skipped, Timed, ratios
from veilring.protocols.ldp.algorithm.oracles import ORACLES
from veilring.randomness import Streams

_SCRIPT = Path(__file__).with_name("ldp_library.py")


@dataclass(frozen=True, slots=True)
class _Known:
    """The requirements of a library, and its oracles."""

    packages: tuple[str, ...]
    oracles: frozenset[str]


LIBRARIES = {
    "pure-ldp": _Known(
        # xxhash 4 refuses the text that both libraries hash.
        ("pure-ldp==1.2.0", "xxhash<4", "scikit-learn", "statsmodels"),
        frozenset({"de", "oue", "olh", "hr"}),
    ),
    "multi-freq-ldpy": _Known(
        ("multi-freq-ldpy==0.2.5", "xxhash<4", "numba"), frozenset({"de", "oue", "olh"})
    ),
}
"""By name on PyPI."""


class Library:
    """A context manager over a process that runs a library's oracles.

    Args:
        name: Of `LIBRARIES`.

    Raises:
        Skipped: If it cannot be installed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            home = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            python = _installed(home, LIBRARIES[self.name].packages)
            self._process = self._stack.enter_context(
                subprocess.Popen(
                    [python, str(_SCRIPT), self.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()  # which ends the process; Popen waits for it
        self._stack.close()

    def has(self, oracle: str) -> bool:
        """Say whether the library has an oracle."""
        return oracle in LIBRARIES[self.name].oracles

    def seconds(self, oracle: str, domain: int, epsilon: float, clients: int) -> float:
        """Return the seconds that a number of clients takes, scaled from fewer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the library's process has no pipes")
        fewer = _clients(oracle, domain)
        asked = {"oracle": oracle, "domain": domain, "epsilon": epsilon, "clients": fewer}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended: see its error above")
        return float(line) * clients / fewer


def _clients(oracle: str, domain: int) -> int:
    """Return how many clients take about a second."""
    counts = {"de": 200_000, "oue": 10_000, "hr": 50_000, "olh": min(20_000, 500 * 1024 // domain)}
    return counts[oracle]


def _installed(home: Path, packages: tuple[str, ...]) -> str:
    """Make an environment that holds the packages, and return its interpreter."""
    venv.create(home, with_pip=True)
    python = str(home / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    command = [python, "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"{packages[0]} cannot be installed: {done.stderr.strip()[-200:]}")
    return python


EPSILON = 1.0
DOMAINS = (4, 32, 128, 1024)
MILLION = 1_000_000
# At least half of what a plain NumPy trial reached, at the largest domain.
TIMES_FASTER = {"de": 14.0, "oue": 14.0, "olh": 80.0, "hr": 80.0}
TIMES_FASTER_CRYPTOGRAPHIC = 5.0
# The packed reports of OUE with 1,024 values are 122 MiB; what else is needed does not grow.
PEAK_MIB = Bound("at most", 147.0)
_BYTES_IN_MIB = 1 << 20


def measure(*, quick: bool) -> list[Measurement]:
    """Compare four oracles for four domains, with both generators for the largest."""
    repetitions = 3 if quick else 5
    with ExitStack() as stack:
        libraries = [stack.enter_context(Library(name)) for name in LIBRARIES]
        found = [
            measurement
            for oracle in TIMES_FASTER
            for domain in DOMAINS
            for measurement in _compare(oracle, domain, libraries, repetitions)
        ]
    return [*found, *_peaks()]


def _compare(
    oracle: str, domain: int, libraries: list[Library], repetitions: int
) -> list[Measurement]:
    """Time all in turns: ours with either generator, and each library that has the oracle."""
    largest = domain == DOMAINS[-1]
    theirs: Mapping[str, Timed] = {
        library.name: functools.partial(library.seconds, oracle, domain, EPSILON, MILLION)
        for library in libraries
        if library.has(oracle)
    }
    ours: dict[str, Timed] = {"": functools.partial(_ours, oracle, domain, Streams(0))}
    if largest:
        ours[", ChaCha20"] = functools.partial(_ours, oracle, domain, Streams())
    everyone = {**ours, **theirs}
    turns = [{who: run() for who, run in everyone.items()} for _ in range(1 + repetitions)]
    bounds = {"": TIMES_FASTER[oracle], ", ChaCha20": TIMES_FASTER_CRYPTOGRAPHIC}
    return [
        ratios(
            f"{oracle}, d = {domain}{how}: times faster",
            [(turn[how], min(turn[who] for who in theirs)) for turn in turns[1:]],
            Bound("at least", bounds[how]) if largest else None,
            faster=True,
        )
        for how in ours
    ]


def _ours(name: str, domain: int, streams: Streams) -> float:
    oracle, rng = ORACLES[name](domain, EPSILON), streams.generator("clients")
    values = np.random.default_rng(0).integers(domain, size=MILLION)
    start = time.perf_counter()
    reports = oracle.perturb(values, rng)
    oracle.estimate(oracle.aggregate(reports), MILLION)
    return time.perf_counter() - start


def _peaks() -> list[Measurement]:
    """Return the most memory that a million clients take, apart from their values."""
    return [
        Measurement(
            f"{oracle}, d = {domain}: peak memory",
            "MiB",
            (_peak(oracle, domain),),
            PEAK_MIB if (oracle, domain) == ("oue", DOMAINS[-1]) else None,
        )
        for oracle in TIMES_FASTER
        for domain in DOMAINS
    ]


def _peak(name: str, domain: int) -> float:
    values = np.arange(MILLION) % domain
    oracle, rng = ORACLES[name](domain, EPSILON), Streams(0).generator("clients")
    tracemalloc.start()
    try:
        oracle.estimate(oracle.aggregate(oracle.perturb(values, rng)), MILLION)
        return tracemalloc.get_traced_memory()[1] / _BYTES_IN_MIB
    finally:
        tracemalloc.stop()
