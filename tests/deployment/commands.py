"""Commands of `veilring` in processes of their own, which tests may kill.

Each is forked from a server that has imported everything: it starts in milliseconds, where a new
interpreter takes a second.
"""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Final

from veilring.cli.app import app
from veilring.nodes.runtimes.processes import PRELOADED

__all__ = ("Command",)

_IMPORTED: Final = (
    *PRELOADED,
    "veilring.cli.app",
    "veilring.cli.output",
    "veilring.deployment",
    "veilring.nodes.runtimes.loops",
    "veilring.deployment.estimating",
    "veilring.protocols.ldp.collector",
    "rich.progress",
    "rich.table",
)
_FORK = multiprocessing.get_context("forkserver")


class Command:
    """A command that runs.

    Args:
        folder: Where it runs.
        words: What would be typed after `veilring`.
        output: The file for all that it prints.
    """

    def __init__(self, folder: Path, *words: str, output: Path) -> None:
        self._file = output
        output.write_text("")
        _FORK.set_forkserver_preload(list(_IMPORTED))  # says nothing to a server that runs
        self._process = _FORK.Process(target=_run, args=(folder, words, output), daemon=True)
        self._process.start()

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._file.read_text()

    def poll(self) -> int | None:
        """Return the exit code, or nothing while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Wait for the end, and return the exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, self.output
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it as a loss of power would."""
        self._process.kill()
        self._process.join()


def _run(folder: Path, words: tuple[str, ...], output: Path) -> None:
    os.chdir(folder)
    with output.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    app(list(words))
