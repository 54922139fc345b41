"""The survey client, which makes one report for each client and sends it until acknowledged."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from unicodedata import normalize

import numpy as np
from pydantic import Field

from veilring.data.csv import read_cells
from veilring.data.schema import OUTSIDE_MAX, FileCells, OutsideMax, check_ranges
from veilring.deployment.config import Config, FilePath
from veilring.deployment.connecting import Client, ClientConnection
from veilring.deployment.survey import SurveyTerms, read_published
from veilring.errors import (
    InputError,
    ScenarioError,
    SessionAborted,
    SessionTimeout,
    TransportError,
    VeilringError,
)
from veilring.nodes.service import opening
from veilring.protocols.ldp.collector import SUBMIT, read_task
from veilring.protocols.ldp.messages import ClientBatch, ReportVerdict, Verdicts
from veilring.protocols.ldp.outbox import ROW_NUMBER, Outbox
from veilring.protocols.ldp.roles import ClientPool, submit_reports
from veilring.protocols.ldp.task import Task
from veilring.randomness import Streams

# A collector that is being started again is there within seconds.
COLLECTOR_CONNECT_SECONDS: Final = 30.0
# Between the first two attempts; the connection itself is made again in the background. Each
# attempt that brings no receipt doubles it, so that a collector that is down is not asked, nor
# named in the log, each second; at most it is a twentieth of what a survey client waits in all.
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 15.0
# Without a single receipt for this long the survey client gives up; its reports are kept, and the
# same command goes on.
SUBMIT_PATIENCE_SECONDS: Final = 300.0
# A session has a limit of two minutes, which a busy collector and a slow line should not meet: it
# takes 100 messages a second, or 1 Mbit/s, to send these in time.
SESSION_MESSAGES_MAX: Final = 10_000
SESSION_BYTES_MAX: Final = 8 << 20
# Receipts that are written into the outbox together: a commit costs what a thousand reports do.
# What is lost in a crash is sent again and known.
SETTLED_BATCH: Final = 1000
# Clients whose reports are made and kept in one transaction: a second's work, and what a crash
# before its end costs is nothing but that second.
CLIENTS_MAX: Final = 50_000
# With these the collector says that it never will.
_FINAL: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties"})
_Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""
_log = logging.getLogger("veilring.survey_client")


class Sender:
    """Sends reports to a collector.

    Args:
        connection: The connection with the collector.
        collector: The name of the collector.
    """

    def __init__(self, connection: ClientConnection, collector: str) -> None:
        self._connection, self._collector = connection, collector

    async def read_task(self) -> SurveyTerms:
        """Ask for the task, and make it again from its terms.

        Raises:
            ProtocolViolation: If it is not what it claims to be.
            VeilringError: If it could not be had.
        """
        return read_published(await self._connection.run(read_task()), self._collector)

    async def send(
        self,
        task: Task,
        outbox: Outbox,
        *,
        at_once: int | None,
        progress: _Progress,
    ) -> None:
        """Send what is unanswered until nothing is.

        Args:
            task: The collector's.
            outbox: What there is to send.
            at_once: How many reports a message may have.
            progress: Told how many reports are answered.

        Raises:
            VeilringError: If the collector refuses, or `PATIENCE_SECONDS` brought no receipt.
        """
        clock = asyncio.get_running_loop().time
        book, heard, failures = _Book(outbox, task, progress), clock(), 0
        while book.waiting:
            before = book.waiting
            try:
                await self._send_some(task, outbox, book, at_once)
            except (TransportError, SessionAborted, SessionTimeout) as error:
                if book.waiting < before:
                    heard, failures = clock(), 0
                if _is_final(error) or clock() - heard > SUBMIT_PATIENCE_SECONDS:
                    raise
                pause = min(RETRY_SECONDS * 2**failures, RETRY_SECONDS_MAX)
                failures += 1
                _log.warning(
                    "%s; attempt %d without a receipt; %d reports wait and are sent again in %g s",
                    *(error, failures, book.waiting, pause),
                )
                await asyncio.sleep(pause)
            else:
                heard, failures = clock(), 0

    async def _send_some(
        self, task: Task, outbox: Outbox, book: "_Book", at_once: int | None
    ) -> None:
        role = opening(submit_reports, SUBMIT, task.digest)
        batches = for_one_session(outbox.waiting(task, at_once=at_once))
        try:
            await self._connection.run(role, batches, task=task, settled=book.settle)
        finally:
            book.write()


class _Book:
    """Writes receipts into the outbox, some at a time."""

    def __init__(self, outbox: Outbox, task: Task, progress: _Progress) -> None:
        counted = outbox.count(task)
        self.waiting, self._total = counted.get(None, 0), sum(counted.values())
        self._outbox, self._progress = outbox, progress
        self._settled: list[tuple[ClientBatch, Verdicts]] = []
        self._unwritten = 0

    def settle(self, batch: ClientBatch, verdicts: Verdicts) -> None:
        """Take note of what became of a batch."""
        self._settled.append((batch, verdicts))
        self._unwritten += len(batch)
        self.waiting -= len(batch)
        if self._unwritten >= SETTLED_BATCH:
            self.write()

    def write(self) -> None:
        """Write what was noted."""
        self._outbox.settle(self._settled)
        self._settled, self._unwritten = [], 0
        self._progress("reports acknowledged", self._total - self.waiting, self._total)


def for_one_session(batches: Iterator[ClientBatch]) -> Iterator[ClientBatch]:
    """Yield batches until there are as many as a session should have."""
    sent = 0
    for number, batch in enumerate(batches, start=1):
        yield batch
        sent += batch.payload_bytes
        if number >= SESSION_MESSAGES_MAX or sent >= SESSION_BYTES_MAX:
            return


def _is_final(error: VeilringError) -> bool:
    """Say whether the collector refuses for good."""
    return isinstance(error, SessionAborted) and error.reason in _FINAL


class SurveyClientConfig(Config):
    """The configuration of a survey client, which makes its clients' reports and hands them in.

    Attributes:
        role: `survey-client`.
        collector: The collector, which publishes the task.
        budget: The epsilon that all reports of one client may spend together, for ever.
        key: The column that names a row's client, for ever; or `row number`, if rows are only ever
            added at the end and never changed.
        amend: Whether cells of known clients may differ from those that they reported.
        outbox: The file that keeps the reports, their receipts and each client's expenses.
        task: The hash of the only task that is answered; any task of the collector if left out.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the survey client does not report.
    """

    role: Literal["survey-client"] = Field(description="survey-client")
    collector: str = Field(description="the name of a party of the roster")
    budget: float = Field(gt=0, description="a number above 0")
    key: str = Field(min_length=1, description=f"the header of a column, or {ROW_NUMBER!r}")
    amend: bool = Field(default=False, description="true or false")
    outbox: FilePath = "outbox.sqlite"
    outside_max: OutsideMax = OUTSIDE_MAX
    task: str = Field(
        "", pattern="^([0-9a-f]{64})?$", description="64 hexadecimal digits, or nothing"
    )


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of the clients of a file.

    Attributes:
        task: The hash of the task.
        epsilon: The price of each report.
        refused: The number of clients without budget, for whom no report was made.
        verdicts: The number of the outbox's reports to this task by verdict.
    """

    task: bytes
    epsilon: float
    refused: int
    verdicts: dict[ReportVerdict | None, int]

    @property
    def kept(self) -> int:
        """How many reports are stored and count."""
        return sum(self.verdicts.get(verdict, 0) for verdict in ReportVerdict if verdict.is_kept)

    @property
    def is_complete(self) -> bool:
        """Whether every client's report counts."""
        return not self.refused and self.kept == sum(self.verdicts.values())


async def submit_rows(
    config: SurveyClientConfig,
    rows: Path,
    *,
    at_once: int | None = None,
    progress: _Progress | None = None,
) -> Submitted:
    """Make one report for each row of a CSV file that has none yet, and send what is unanswered.

    Interrupted at any point, by whatever, the same call goes on from there.

    Args:
        config: The survey client's configuration.
        rows: One row a client, with the columns of the task's terms.
        at_once: How many reports a message may have; as many as fit unless given.
        progress: Told how far it is.

    Raises:
        ScenarioError: If a file does not fit.
        ProtocolViolation: If the collector's task is not what it claims.
        HandshakeError: If the collector cannot be reached; what was made is kept.
        VeilringError: If it refused, or could not be reached for long.
    """
    client = Client(config, "collector")
    report = progress or (lambda _doing, _done, _total: None)
    with _open_outbox(config) as outbox:
        async with client.connect(seconds=COLLECTOR_CONNECT_SECONDS) as connection:
            sender = Sender(connection, config.collector)
            terms = await sender.read_task()
            _require_task(config, terms)
            outbox.wait_again(terms.task)
            refused = _make_reports(config, rows, terms, outbox, report)
            await sender.send(terms.task, outbox, at_once=at_once, progress=report)
        verdicts = outbox.count(terms.task)
    return Submitted(terms.task.digest, terms.task.survey.exact_epsilon, refused, verdicts)


def _open_outbox(config: SurveyClientConfig) -> Outbox:
    try:
        return Outbox(Path(config.outbox))
    except InputError as error:
        raise ScenarioError.of(error, "outbox") from error


def _require_task(config: SurveyClientConfig, terms: SurveyTerms) -> None:
    digest = terms.task.digest.hex()
    _log.info("task %s, epsilon %g", digest, terms.task.survey.exact_epsilon)
    if config.task and config.task != digest:
        raise ScenarioError.because(
            f"the collector's terms are for the task {digest}, not {config.task}", field="task"
        )


def _make_reports(
    config: SurveyClientConfig, path: Path, terms: SurveyTerms, outbox: Outbox, progress: _Progress
) -> int:
    """Make and keep the reports of all clients that can afford one, and return how many cannot."""
    cells = read_cells(path)
    check_ranges(path, terms.features, cells, config.outside_max, _log)
    pool = terms.clients_of(path, cells)
    names = _names(config, path, cells, len(pool))
    try:
        compared = _compared(config, terms, cells)
        rows = outbox.recognise(config.key, names, compared, amend=config.amend)
    except InputError as error:
        field = path.name if error.field == "rows" else error.field
        raise ScenarioError.of(error, field) from error
    new = np.flatnonzero(~outbox.reported(terms.task, names))
    epsilon = terms.task.survey.exact_epsilon
    can = outbox.can_afford([names[place] for place in new.tolist()], epsilon, config.budget)
    rng = Streams().generator("clients")
    # Which reports are made together must not show where in the file their rows are.
    chosen = rng.permutation(new[can])
    for first in range(0, len(chosen), CLIENTS_MAX):
        places = chosen[first : first + CLIENTS_MAX]
        some = ClientPool(pool.rows[places], pool.labels[places])
        outbox.add(terms.task, rows.at(places.tolist()), some.answer(terms.task, rng))
        progress("reports made", first + len(places), len(chosen))
    return int(len(new) - len(chosen))


def _names(config: SurveyClientConfig, path: Path, cells: FileCells, count: int) -> list[str]:
    """Return each client's name in the outbox; blanks around a key do not count."""
    if config.key == ROW_NUMBER:
        if ROW_NUMBER in cells:
            raise ScenarioError("key", ROW_NUMBER, f"a column of {path.name} with another name")
        return [str(row) for row in range(1, count + 1)]
    if config.key not in cells:
        allowed = f"a column of {path.name} ({', '.join(cells)}), or {ROW_NUMBER!r}"
        raise ScenarioError("key", config.key, allowed)
    names = [normalize("NFC", cell).strip() for cell in cells[config.key].tolist()]
    if len(set(names)) != len(names):
        raise ScenarioError.because(
            f"some cells of the column {config.key!r} are alike; they must all differ", field="key"
        )
    return names


def _compared(config: SurveyClientConfig, terms: SurveyTerms, cells: FileCells) -> FileCells:
    """Return the cells that a known client has to have still.

    Under a key these are the cells that the task asks for; under a number, which any row may have
    in another file, all cells of the row.
    """
    if config.key == ROW_NUMBER:
        return cells
    asked = {feature.name for feature in terms.features}
    label = {list(cells)[-1]} if terms.classes else set[str]()
    return {header: column for header, column in cells.items() if header in asked | label}
