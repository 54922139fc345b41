"""Commands of `veilring` in separate processes, which tests may kill.

Each is forked from a server that has imported everything: it starts in milliseconds, where a new
interpreter takes a second.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer.main
from benchmarks.ports import reserve_ports
from tests.deployment.trails import entries_of, verified
from typer.testing import CliRunner, Result

from veilring.cli.app import app
from veilring.deployment.gate import USAGE
from veilring.nodes.runtimes.processes import warm_up
from veilring.privacy.budgets import UNITS
from veilring.privacy.ledger import Totals, read_totals
from veilring.privacy.statefile import read_state_file
from veilring.transport.roster import Roster

# The timeout for a process to reach a state. On an idle machine this takes a second or two; a busy
# machine gets a hundred times that.
SECONDS: Final = 200.0
PARTIES: Final = ("party-0", "party-1", "party-2")
_THREE: Final = f"--set=parties.count={len(PARTIES)}"
_PLACES: Final = "places.csv"
DEPLOYED: Final = {
    "ring": ("peers", "wine", _THREE),
    "rank-search": ("peers", "wine", _THREE, "--protocol=rank-search"),
    "release": ("peers", "iris", _THREE, "--protocol=release"),
    "votes": ("peers", "iris", _THREE, "--protocol=noisy-votes", "--set=protocol.radius=0.3"),
    "owner": ("owner", "iris", "--radius=0.2"),
    "prediction": ("prediction", "wine"),
    "survey": ("survey", "iris", "--reports=2000", "--survey-clients=1"),
    "places": ("places", _PLACES),
    "sum": ("verified-sum", "iris", "--minimum=20"),
}
"""The words of `veilring deploy` for a small deployment of each system."""

Body = Callable[[Path, tuple[str, ...], Path], None]
"""The code of a process: its arguments are the folder, the command's words and the output file."""

_FORK = multiprocessing.get_context("forkserver")
_COMMAND: Final[Callable[[list[str]], None]] = typer.main.get_command(app)
"""All commands, which the server from which processes are forked has built once."""


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
        warm_up()
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


class Deployment:
    """A folder that `veilring deploy` wrote, and the processes of its parties.

    Args:
        folder: The folder, which is written if a system is given.
        system: One of `DEPLOYED`.
        options: Further options of `veilring deploy`.

    Attributes:
        running: The processes that were started, by the names of their configurations.
    """

    def __init__(self, folder: Path, system: str = "", *options: object) -> None:
        self.folder, self.running = folder, dict[str, Command]()
        if system:
            deploy(folder, system, *options)

    def command(self, *words: str, log: str = "", body: Body | None = None) -> Command:
        """Start a command in the folder, with its output in `log`, by default named like it."""
        output = self.folder / f"{log or words[0]}.log"
        return Command(self.folder, *words, output=output, body=body)

    def ended(self, *words: str, code: int = 0) -> str:
        """Run a command in a process to its end; require its exit code and no traceback."""
        command = self.command(*words)
        assert command.wait(2 * SECONDS) == code, command.output
        assert "Traceback" not in command.output
        return command.output

    def call(self, *words: object, code: int = 0, given: str | None = None) -> Result:
        """Run a command in this process, in the folder: see `call`."""
        with contextlib.chdir(self.folder):
            return call(*words, code=code, given=given)

    def start(self, *names: str, body: Body | None = None) -> None:
        """Start parties."""
        for name in names:
            self.running[name] = self.command("serve", f"{name}.toml", log=name, body=body)

    def serve(self, *names: str, body: Body | None = None) -> None:
        """Start parties, and wait until all are ready."""
        self.start(*names, body=body)
        for name in names:
            self.wait_for(name, "is ready")

    def wait_for(self, name: str, text: str) -> str:
        """Wait until a party has logged a text, and return the log."""

        def printed() -> bool:
            found = text in self.log(name)
            assert found or self.running[name].poll() is None, self.log(name)
            return found

        wait_until(printed)
        return self.log(name)

    def log(self, name: str) -> str:
        """Return the log of a party."""
        return (self.folder / f"{name}.log").read_text()

    def kill(self, *names: str) -> None:
        """Kill parties, by default all, as a loss of power would."""
        for name in names or tuple(self.running):
            self.running.pop(name).kill()

    def end_in_order(self, *names: str) -> None:
        """Ask parties to end, by default all, and require success."""
        for name in names or tuple(self.running):
            self.running[name].terminate()
            assert self.running.pop(name).wait(SECONDS) == 0
            assert "is shutting down" in self.log(name)
            assert "Traceback" not in self.log(name)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text of a file by another."""
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new, 1))

    def configure(self, name: str, *lines: str) -> None:
        """Add keys to the configuration of a party."""
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join([*lines, path.read_text()]))

    def let_all(self, *names: str) -> None:
        """Take the limits of queries out of the policies of parties, which still count them."""
        for name in names:
            path = self.folder / f"{name}.policy.toml"
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if not line.startswith("queries")))

    def usage(self, name: str) -> tuple[int, float]:
        """Return the queries and the ε that a party's policy has counted."""
        with read_state_file(self.folder / f"{name}.db", USAGE) as connection:
            found = connection.execute("SELECT total(queries), total(units) FROM usage")
            queries, units = found.fetchone()
        return int(queries), units / UNITS

    def trail(self, name: str, kind: str) -> list[dict[str, Any]]:
        """Verify the trail of a party, and return its entries of a kind."""
        path, roster = self.folder / f"{name}.db", Roster.load(self.folder / "roster.toml")
        assert verified(path, roster).party == name
        return [entry for entry in entries_of(path) if entry["kind"] == kind]

    def totals(self, name: str) -> Totals:
        """Return the totals of a party's ledger."""
        return read_totals(self.folder / f"{name}.db")


Deploy = Callable[..., Deployment]
"""Writes a deployment, whose processes are killed at the end of the test: see `Deployment`."""


def deploy(folder: Path, system: str, *options: object) -> Path:
    """Write the deployment of a system at reserved ports, and return its folder."""
    kind, source, *chosen = DEPLOYED[system]
    if source == _PLACES:
        source = str(folder.with_suffix(".csv"))
        rows = (f"{37.7 + n / 1000},{-122.4 + n / 700}" for n in range(99))
        Path(source).write_text("\n".join(["lat,lon", *rows, ""]))
    port = reserve_ports({"peers": len(PARTIES), "verified-sum": 4}.get(kind, 1))
    call("deploy", kind, source, *chosen, *options, "--port", port, "--out", folder)
    return folder


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
    _COMMAND(list(words))
