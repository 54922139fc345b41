"""Commands of `veilring` in separate processes, which tests may kill.

Each is forked from a server that has imported everything: it starts in milliseconds, where a new
interpreter takes a second.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from typer.testing import CliRunner, Result

from veilring.cli.app import app
from veilring.nodes.runtimes.processes import PRELOADED

# The timeout for a process to reach a state. On an idle machine this takes a second or two; a busy
# machine gets a hundred times that.
SECONDS: Final = 200.0
VOTES: Final = ("--protocol=noisy-votes", "--set=parties.count=3", "--set=protocol.radius=0.3")
"""The options with which `veilring deploy peers` writes a deployment of noisy votes."""

_IMPORTED: Final = (
    *PRELOADED,
    "veilring.cli.app",
    "veilring.cli.console",
    "veilring.deployment",
    "veilring.deployment.collector",
    "veilring.protocols.ldp.collector",
    "rich.progress",
    "rich.table",
)
Body = Callable[[Path, tuple[str, ...], Path], None]
"""The code of a process: its arguments are the folder, the command's words and the output file."""

_FORK = multiprocessing.get_context("forkserver")


def call(*words: object, code: int = 0, given: str | None = None) -> Result:
    """Run a command in this process, and require its exit code and no traceback.

    Args:
        given: Its standard input.
    """
    done = CliRunner().invoke(app, list(map(str, words)), input=given)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done


class Command:
    """A running command.

    Args:
        folder: The folder in which it runs.
        words: The words after `veilring` on its command line.
        output: The file for its output.
        body: The code of the process: the command or a variant of it.
    """

    def __init__(self, folder: Path, *words: str, output: Path, body: "Body | None" = None) -> None:
        self._file = output
        output.write_text("")
        _FORK.set_forkserver_preload(list(_IMPORTED))  # says nothing to a server that runs
        self._process = _FORK.Process(target=body or run, args=(folder, words, output), daemon=True)
        self._process.start()

    @property
    def output(self) -> str:
        """The output so far."""
        return self._file.read_text()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Wait for the end, and return the exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, self.output
        return code

    def freeze(self) -> None:
        """Stop the process like a machine that hangs; its connections stay open."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def terminate(self) -> None:
        """Ask the process to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End the party, as a power failure would."""
        self._process.kill()
        self._process.join()


class Server:
    """A party of a deployment that can be served, killed and served again.

    Args:
        folder: The folder that `veilring deploy` wrote.
        name: The name of the party's configuration, without its suffix.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self._name = folder, name
        self._command: Command | None = None

    @property
    def log(self) -> Path:
        """The text of its log."""
        return self.folder / f"{self._name}.log"

    def serve(self) -> None:
        """Start the party and wait until it is ready."""
        self.start()
        self.wait_until_ready()

    def start(self) -> None:
        """Start the party."""
        self._command = Command(self.folder, "serve", f"{self._name}.toml", output=self.log)

    def wait_until_ready(self) -> None:
        """Wait until the party answers; a member of a group is ready when all have started."""
        self.wait_for("is ready")

    def wait_for(self, text: str) -> None:
        """Wait until the party has logged a text."""
        assert self._command is not None
        wait_for(self._command, text)

    def kill(self) -> None:
        """End it as a loss of power would."""
        if self._command is not None:
            self._command.kill()
            self._command = None

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._command is not None
        return self._command.pid

    def fail(self) -> str:
        """Wait until the process exits with code 1, and return the last line of its output.

        The output contains an error message and no traceback.
        """
        assert self._command is not None
        assert self._command.wait(SECONDS) == 1, self.log.read_text()
        self._command = None
        said = self.log.read_text()
        assert "Traceback" not in said
        return said.splitlines()[-1]

    def end_in_order(self) -> None:
        """Ask the party to end, and require success."""
        assert self._command is not None
        self._command.terminate()
        assert self._command.wait(SECONDS) == 0
        self._command = None
        assert "Traceback" not in self.log.read_text()


def start_serving(folder: Path, name: str, *, output: Path) -> Command:
    """Start `veilring serve` and wait until it is ready."""
    command = Command(folder, "serve", f"{name}.toml", output=output)
    wait_for(command, "is ready")
    return command


def wait_for(command: Command, text: str) -> None:
    """Wait until a running command has printed a text."""

    def printed() -> bool:
        found = text in command.output
        assert found or command.poll() is None, command.output
        return found

    wait_until(printed)


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command in this process, and record everything it prints."""
    os.chdir(folder)
    with output.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    app(list(words))
