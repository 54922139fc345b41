"""Libraries of frequency oracles as processes, each in an environment of its own.

Neither names all that it imports, and neither runs with what is newest: what they lack stands here.
"""

import json
import subprocess
import sys
import tempfile
import venv
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.measurement import Skipped

_SCRIPT = Path(__file__).with_name("ldp_library.py")


@dataclass(frozen=True, slots=True)
class _Known:
    """What a library is installed with, and which oracles it has."""

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
                subprocess.Popen(  # noqa: S603  (our own script, in an environment of our own)
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
        """Return the seconds that so many clients take, scaled from fewer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the library's process has no pipes")
        fewer = _clients(oracle, domain)
        asked = {"oracle": oracle, "domain": domain, "epsilon": epsilon, "clients": fewer}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline()) * clients / fewer


def _clients(oracle: str, domain: int) -> int:
    """Return how many clients take about a second."""
    counts = {"de": 200_000, "oue": 10_000, "hr": 50_000, "olh": min(20_000, 500 * 1024 // domain)}
    return counts[oracle]


def _installed(home: Path, packages: tuple[str, ...]) -> str:
    """Make an environment that holds the packages, and return its interpreter."""
    venv.create(home, with_pip=True)
    python = str(home / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    command = [python, "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (pip)
    if done.returncode:
        raise Skipped(f"{packages[0]} cannot be installed: {done.stderr.strip()[-200:]}")
    return python
