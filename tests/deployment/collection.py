"""The processes of a deployed collection, for tests that start and kill them."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.commands import SECONDS, Command, Deployment

from veilring.deployment import load_config_of
from veilring.deployment.surveys.collector import (
    CollectorConfig,
    open_configured_store,
    serve_collector,
)
from veilring.deployment.surveys.terms import SurveyTerms
from veilring.protocols.ldp.store.base import Store

COLLECTOR = "collector"


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


def store_of(folder: Path) -> Store:
    """Open the store of the collector in a folder, which is not served."""
    config = collector_of(folder)
    return open_configured_store(config, SurveyTerms.load(Path(config.terms)).task)


class Collection(Deployment):
    """A folder written by `veilring deploy survey`, and its processes."""

    def __init__(self, folder: Path, *, reports: int, survey_clients: int = 1) -> None:
        super().__init__(folder, "survey", "--reports", reports, "--survey-clients", survey_clients)

    def collect(self) -> None:
        """Start the collector and wait until it is ready."""
        self.serve(COLLECTOR)

    def submit(self, number: int, *options: str, rows: str = "") -> Command:
        """Start a survey client, by default with its own rows."""
        name = f"survey-client-{number}"
        words = ("submit", f"{name}.toml", rows or f"{name}.csv", *options)
        self.running[name] = self.command(*words, log=name)
        return self.running[name]

    def submitted(self, rows: str = "", *options: str, number: int = 0, code: int = 0) -> str:
        """Submit to the end, by default a survey client's own rows, and return the output."""
        return self.well_ended(self.submit(number, *options, rows=rows), code)

    @staticmethod
    def well_ended(command: Command, code: int = 0) -> str:
        """Wait for the end of a command, and return its output without a traceback."""
        assert command.wait(SECONDS) == code, command.output
        assert "Traceback" not in command.output
        return command.output

    def _rows(self, name: str, query: str) -> Sequence[Any]:
        with closing(sqlite3.connect(self.folder / name)) as database:
            return database.execute(query).fetchall()

    def stored(self) -> dict[bytes, bytes]:
        """Return the stored reports by their ids."""
        return dict(self._rows("collector.db", "SELECT id, report FROM reports"))

    def counted(self) -> int:
        """Return the number of reports in the running sums."""
        ((count,),) = self._rows("collector.db", "SELECT coalesce(sum(reports), 0) FROM tallies")
        return int(count)

    def outboxes(self) -> list[tuple[str, bytes, bytes, int | None]]:
        """Return the client, id, report and verdict of each report in the outboxes."""
        rows: list[tuple[str, bytes, bytes, int | None]] = []
        for path in sorted(self.folder.glob("survey-client-*.db")):
            if self._rows(path.name, "SELECT 1 FROM sqlite_master"):
                rows += self._rows(path.name, "SELECT client, id, report, verdict FROM outgoing")
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
        with closing(store_of(self.folder)) as store:
            assert store.recount().clients == len(stored)  # raises if the sums differ
        return len(stored)


Collect = Callable[..., Collection]
"""Serves a collection of some reports, whose processes are killed at the end of the test."""


def kept(output: str) -> int:
    """Return the number of reports that a survey client shows as stored."""
    found = re.search(r"^([\d,]+) reports are stored", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1].replace(",", ""))
