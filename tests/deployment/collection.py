"""The processes of a deployed collection, for tests that start and kill them."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS, Command, call, start_serving

from veilring.deployment import load_config_of
from veilring.deployment.collector import CollectorConfig, open_configured_store, serve_collector
from veilring.deployment.survey import SurveyTerms
from veilring.testing.ports import reserve_ports


@asynccontextmanager
async def collecting(config: CollectorConfig) -> AsyncIterator[None]:
    """Serve a collector in this process."""
    ready = asyncio.Event()
    serving = asyncio.create_task(serve_collector(config, on_ready=lambda _: ready.set()))
    await ready.wait()
    yield
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


def collector_of(folder: Path) -> CollectorConfig:
    """Read the configuration of the collector in a folder."""
    return load_config_of(folder / "collector.toml", CollectorConfig, "veilring serve")


class Collection:
    """A folder written by `veilring deploy survey`, and its processes."""

    def __init__(self, folder: Path, *, reports: int, survey_clients: int = 2) -> None:
        self.folder = folder
        ports = ("--port", reserve_ports(), "--out", folder)
        options = ("--reports", reports, "--survey-clients", survey_clients, *ports)
        call("deploy", "survey", "iris", *map(str, options))
        self.collector: Command | None = None
        self.survey_clients: list[Command] = []

    @property
    def log(self) -> Path:
        """The log of the collector."""
        return self.folder / "collector.log"

    def serve(self) -> None:
        """Start the collector and wait until it is ready."""
        self.collector = start_serving(self.folder, "collector", output=self.log)

    def submit(self, number: int, *options: str, rows: str = "") -> Command:
        """Start a survey client, by default with its own rows."""
        name = f"survey-client-{number}"
        process = Command(
            self.folder,
            *("submit", f"{name}.toml", rows or f"{name}.csv", *options),
            output=self.folder / f"{name}.log",
        )
        self.survey_clients.append(process)
        return process

    def run(self, *words: str) -> Command:
        """Run a command to its end."""
        command = Command(self.folder, *words, output=self.folder / f"{words[0]}.log")
        command.wait(SECONDS)
        return command

    def kill_all(self) -> None:
        """End all processes, as a power failure would."""
        for process in (self.collector, *self.survey_clients):
            if process is not None:
                process.kill()
        self.collector = None
        self.survey_clients.clear()

    def stored(self) -> dict[bytes, bytes]:
        """Return the stored reports by their ids."""
        database = sqlite3.connect(self.folder / "collector.db")
        rows = dict(database.execute("SELECT id, report FROM reports"))
        database.close()
        return rows

    def outboxes(self) -> list[tuple[str, bytes, bytes, int | None]]:
        """Return the client, id, report and verdict of each report in the outboxes."""
        rows: list[tuple[str, bytes, bytes, int | None]] = []
        for path in sorted(self.folder.glob("survey-client-*.db")):
            database = sqlite3.connect(path)
            found = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if found[0]:
                rows += database.execute("SELECT client, id, report, verdict FROM outgoing")
            database.close()
        return rows

    def require_sound(self) -> int:
        """Check the invariants after everything was killed; return the number of stored reports.

        Acknowledged reports are stored exactly; each stored report was made once by one client; and
        the running sums are those of the stored reports.
        """
        stored, made = self.stored(), self.outboxes()
        assert len({client for client, *_ in made}) == len(made)
        reports = {name: report for _, name, report, _ in made}
        assert all(reports[name] == report for name, report in stored.items())
        acknowledged = [(name, report) for _, name, report, v in made if v is not None]
        assert all(stored.get(name) == report for name, report in acknowledged)
        config = collector_of(self.folder)
        task = SurveyTerms.load(Path(config.terms)).task
        store = open_configured_store(config, task)
        assert store.recount().clients == len(stored)  # raises if the sums differ
        store.close()
        return len(stored)

    def counted(self) -> int:
        """Return the number of reports in the running sums."""
        database = sqlite3.connect(self.folder / "collector.db")
        ((count,),) = database.execute("SELECT coalesce(sum(reports), 0) FROM tallies").fetchall()
        database.close()
        return int(count)

    @staticmethod
    def kept(output: str) -> int:
        """Return the number of reports that a survey client shows as stored."""
        found = re.search(r"^([\d,]+) reports are stored", output, re.MULTILINE)
        assert found is not None, output
        return int(found[1].replace(",", ""))
