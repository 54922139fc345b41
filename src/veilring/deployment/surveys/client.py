"""The survey client, which makes one report for each client and sends it until acknowledged."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, Literal
from unicodedata import normalize

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from veilring.config import Section, require_key
from veilring.data.cells import Cells
from veilring.data.schema import check_ranges, matched, read_file
from veilring.deployment.asking import Client, ClientConnection
from veilring.deployment.config import ReadingConfig, StateConfig
from veilring.deployment.surveys.terms import SurveyTerms, former_digest, read_published
from veilring.errors import (
    InputError,
    ProtocolViolation,
    ScenarioError,
    SessionAborted,
    SessionTimeout,
    TransportError,
    VeilringError,
)
from veilring.nodes.service import opening
from veilring.protocols.ldp.collector import SUBMIT, read_task
from veilring.protocols.ldp.messages import ClientBatch, ReportVerdict, Task, Verdicts, format_terms
from veilring.protocols.ldp.outbox import ROW_NUMBER, Outbox
from veilring.protocols.ldp.roles import ClientPool, submit_reports
from veilring.randomness import Streams

# a collector that is restarting is back within seconds
COLLECTOR_CONNECT_SECONDS: Final = 30.0
# The pause between the first two attempts; the connection itself is restored in the background.
# Each attempt without a receipt doubles the pause, so that a collector that is down is not
# contacted, or logged, every second. It is at most a twentieth of the total waiting time.
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 15.0
# After this time without a single receipt the survey client gives up; its reports are kept, and
# repeating the command continues.
SUBMIT_PATIENCE_SECONDS: Final = 300.0
# A session has a limit of two minutes, which even a busy collector and a slow line should not
# reach: sending these in time needs 100 messages a second, or 1 Mbit/s.
SESSION_MESSAGES_MAX: Final = 10_000
SESSION_BYTES_MAX: Final = 8 << 20
# Receipts written to the outbox together: a commit costs as much as a thousand reports. Receipts
# lost in a crash are sent again.
SETTLED_BATCH: Final = 1000
# Clients whose reports are made and stored in one transaction: a second's work, which is all that a
# crash can cost.
CLIENTS_MAX: Final = 50_000
# The verdicts that the collector will never change.
_FINAL: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties"})
_Progress = Callable[[str, int, int], None]
"""A callback with the current step, the amount done, and the total amount."""
_log = logging.getLogger("veilring.survey_client")


class Sender:
    """Sends reports to a collector."""

    def __init__(self, connection: ClientConnection, collector: str) -> None:
        self._connection, self._collector = connection, collector

    async def read_task(self) -> SurveyTerms:
        """Fetch the task, and derive it again from its terms.

        Raises:
            HandshakeError: If the task has the format of another version of veilring.
            ProtocolViolation: If the task does not follow from its terms.
            VeilringError: If the task could not be fetched.
        """
        return read_published(await self._connection.run(read_task()), self._collector)

    async def send(
        self, task: Task, outbox: Outbox, *, at_once: int | None, progress: _Progress
    ) -> int:
        """Send the unanswered reports until all are answered.

        Each session begins with the newest acknowledged reports. If the collector does not know
        them, all reports are sent again.

        Returns:
            The number of reports sent, except those that the collector was only asked about.

        Raises:
            ProtocolViolation: If the collector lost acknowledged reports twice during the call.
            VeilringError: If it refuses, or sent no receipt for `SUBMIT_PATIENCE_SECONDS`.
        """
        clock = asyncio.get_running_loop().time
        book, heard, failures = _Book(outbox, task, progress, self._collector), clock(), 0
        while True:
            newest = book.doubt()
            before = book.waiting
            if not before:
                return book.sent
            try:
                await self._send_some(task, outbox, book, newest, at_once)
            except (TransportError, SessionAborted, SessionTimeout) as error:
                if book.waiting < before:
                    heard, failures = clock(), 0
                if _is_final(error) or clock() - heard > SUBMIT_PATIENCE_SECONDS:
                    raise
                pause = min(RETRY_SECONDS * 2**failures, RETRY_SECONDS_MAX)
                failures += 1
                _log.warning(
                    "%s; no receipt after attempt %d; %d reports will be sent again in %g s",
                    *(error, failures, book.waiting, pause),
                )
                await asyncio.sleep(pause)
            else:
                heard, failures = clock(), 0
                if not book.waiting:
                    return book.sent

    async def _send_some(
        self,
        task: Task,
        outbox: Outbox,
        book: "_Book",
        newest: Sequence[ClientBatch],
        at_once: int | None,
    ) -> None:
        role = opening(submit_reports, SUBMIT, task.digest)
        numbers = {int(batch.clients[0]) for batch in newest}
        others = outbox.waiting(task, at_once=at_once, without=numbers)
        batches = chain(newest, for_one_session(others))
        try:
            await self._connection.run(role, batches, task=task, settled=book.settle)
        finally:
            book.write()


class _Book:
    """Writes receipts to the outbox, several at a time."""

    def __init__(self, outbox: Outbox, task: Task, progress: _Progress, collector: str) -> None:
        self._outbox, self._task, self._progress = outbox, task, progress
        self._collector = collector
        self._settled: list[tuple[ClientBatch, Verdicts]] = []
        self._unwritten = 0
        self._newest: list[ClientBatch] = []
        self._is_again = False
        self.sent = 0
        self._count()

    def _count(self) -> None:
        counted = self._outbox.count(self._task)
        self.waiting, self._total = counted.get(None, 0), sum(counted.values())

    def doubt(self) -> list[ClientBatch]:
        """Return the newest acknowledged reports, which the next session sends first."""
        self._newest = self._outbox.doubt(self._task)
        self.waiting += len(self._newest)
        return self._newest

    def settle(self, batch: ClientBatch, verdicts: Verdicts) -> None:
        """Record the verdicts on a batch."""
        self._settled.append((batch, verdicts))
        self._unwritten += len(batch)
        self.waiting -= len(batch)
        if not any(batch is each for each in self._newest):
            self.sent += len(batch)
        elif verdicts[0] != ReportVerdict.KNOWN:
            self._send_all_again()
        if self._unwritten >= SETTLED_BATCH:
            self.write()

    def _send_all_again(self) -> None:
        if self._is_again:  # a collector that always denies receipts must not keep us busy
            reason = "lost reports twice that it had acknowledged"
            raise ProtocolViolation(self._collector, reason)
        self._is_again = True
        self.sent += 1
        self._newest = []
        self._outbox.wait_again(self._task, every=True)
        self.write()
        self._count()
        _log.warning(
            "%s lost reports that it had acknowledged: its store is new, or was restored from an "
            "older copy; all %d reports are sent again, unchanged",
            *(self._collector, self._total),
        )

    def write(self) -> None:
        """Write the recorded receipts."""
        self._outbox.settle(self._settled)
        self._settled, self._unwritten = [], 0
        self._progress("reports acknowledged", self._total - self.waiting, self._total)


def for_one_session(batches: Iterator[ClientBatch]) -> Iterator[ClientBatch]:
    """Yield batches until there are enough for one session."""
    sent = 0
    for number, batch in enumerate(batches, start=1):
        yield batch
        sent += batch.payload_bytes
        if number >= SESSION_MESSAGES_MAX or sent >= SESSION_BYTES_MAX:
            return


def _is_final(error: VeilringError) -> bool:
    """Return whether the collector's refusal is permanent."""
    return isinstance(error, SessionAborted) and error.reason in _FINAL


class SystemName(Section):
    """The system of a client without a file of terms.

    Attributes:
        name: `ldp-bayes`.
    """

    name: Literal["ldp-bayes"]


class SurveyClientConfig(StateConfig, ReadingConfig):
    """The configuration of a survey client, which makes its clients' reports and submits them.

    Attributes:
        role: `client`.
        protocol: The system, here because the terms come from the collector.
        collector: The collector, which publishes the task.
        budget: The total epsilon of all reports of one client.
        key: The column that identifies a row's client, never to be changed; or `row number`, if
            rows are only ever added at the end and never changed.
        amend: Whether to accept changed cells of known clients.
        task: The hash of the only task to answer; by default any task of the collector.
    """

    role: Literal["client"]
    protocol: SystemName
    collector: str = Field(description="the name of a party of the roster")
    budget: float = Field(gt=0)
    key: str = Field(min_length=1, description=f"the header of a column, or {ROW_NUMBER!r}")
    amend: bool = False
    task: str = Field(
        "", pattern="^([0-9a-f]{64})?$", description="64 hexadecimal digits, or nothing"
    )


@dataclass(frozen=True, slots=True)
class Submitted:
    """The results for the clients of a file."""

    task: bytes
    epsilon: float
    refused: int
    sent: int
    verdicts: dict[ReportVerdict | None, int]

    @property
    def kept(self) -> int:
        """The number of reports that are stored and counted."""
        return sum(self.verdicts.get(verdict, 0) for verdict in ReportVerdict if verdict.is_kept)

    @property
    def is_complete(self) -> bool:
        """Whether every client's report is counted."""
        return not self.refused and self.kept == sum(self.verdicts.values())


async def submit_rows(
    config: SurveyClientConfig,
    rows: Path,
    *,
    at_once: int | None = None,
    again: bool = False,
    progress: _Progress | None = None,
) -> Submitted:
    """Make a report for each row of a CSV file without one, and send all unanswered reports.

    After any interruption, repeating the call continues it. If the collector lost reports that it
    had acknowledged, all are sent again, unchanged; those that it has count once.

    Args:
        at_once: The number of reports in a message; by default up to its size limit.

    Raises:
        ProtocolViolation: If the collector's task does not follow from its terms.
        HandshakeError: If the collector cannot be reached, or its tasks have the format of another
            version of veilring; finished reports are kept, and nothing is charged.
        VeilringError: If the collector refused, or could not be reached for long.
    """
    client = Client(config, "collector")
    report = progress or (lambda _doing, _done, _total: None)
    with _open_outbox(config) as outbox:
        async with client.connect(format_terms(), seconds=COLLECTOR_CONNECT_SECONDS) as connection:
            sender = Sender(connection, config.collector)
            terms = await sender.read_task()
            _require_task(config, terms)
            outbox.rename(former_digest(terms.task), terms.task)
            outbox.wait_again(terms.task, every=again)
            refused = _make_reports(config, rows, terms, outbox, report)
            sent = await sender.send(terms.task, outbox, at_once=at_once, progress=report)
        verdicts = outbox.count(terms.task)
    return Submitted(terms.task.digest, terms.task.survey.exact_epsilon, refused, sent, verdicts)


def begin_outbox(config: SurveyClientConfig) -> bool:
    """Create the outbox of a survey client: see `begin_state` of `veilring.deployment.duties`."""
    with _open_outbox(config, new=True):
        return True


def _open_outbox(config: SurveyClientConfig, *, new: bool = False) -> Outbox:
    try:
        return Outbox(Path(config.state), new=new)
    except InputError as error:
        raise ScenarioError.of(error, "state") from error


def _require_task(config: SurveyClientConfig, terms: SurveyTerms) -> None:
    digest = terms.task.digest.hex()
    _log.info("task %s, epsilon %g", digest, terms.task.survey.exact_epsilon)
    if config.task and config.task != digest:
        raise ScenarioError.because(
            f"the collector's terms define the task {digest}, not {config.task}", field="task"
        )


def _make_reports(
    config: SurveyClientConfig, path: Path, terms: SurveyTerms, outbox: Outbox, progress: _Progress
) -> int:
    """Store reports of all clients with enough budget; return the number of the others."""
    cells = matched(read_file(path, config.particulars), terms.features)
    ranged = () if terms.is_of_words else terms.features
    check_ranges(ranged, cells, config.outside_max, _log)
    pool = terms.clients_of(cells)
    names = _names(config, path, cells, len(pool))
    oracle = terms.task.survey.memoised
    if oracle is not None and config.key == ROW_NUMBER:
        raise ScenarioError.because(
            "a survey with changes needs a key: the number of a row does not say whose answer"
            " changed; name a column that identifies clients",
            field="key",
        )
    try:
        compared = _compared(config, terms, cells)
        amend = config.amend or oracle is not None  # answers that may change
        rows = outbox.recognise(config.key, names, compared, amend=amend)
    except InputError as error:
        field = path.name if error.field == "rows" else error.field
        raise ScenarioError.of(error, field) from error
    new = np.flatnonzero(~outbox.reported(terms.task, names))
    rng = Streams().generator("clients")
    if oracle is None:
        epsilon = terms.task.survey.exact_epsilon
        can = outbox.can_afford([names[place] for place in new.tolist()], epsilon, config.budget)
    else:
        _draw_permanent(config, terms, outbox, [names[place] for place in new.tolist()], rng)
        kept = outbox.permanent(terms.series)
        can = np.array([names[place] in kept for place in new.tolist()], dtype=np.bool_)
    # The reports made together must not reveal the places of their rows in the file.
    chosen = rng.permutation(new[can])
    for first in range(0, len(chosen), CLIENTS_MAX):
        places = chosen[first : first + CLIENTS_MAX]
        some = ClientPool(pool.rows[places], pool.labels[places])
        if oracle is not None:
            memos = b"".join(kept[names[place]] for place in places.tolist())
            shape = len(places), oracle.memo_bytes
            some = replace(some, memos=np.frombuffer(memos, np.uint8).reshape(shape))
        outbox.add(terms.task, rows.at(places.tolist()), some.answer(terms.task, rng))
        progress("reports made", first + len(places), len(chosen))
    return int(len(new) - len(chosen))


def _draw_permanent(
    config: SurveyClientConfig,
    terms: SurveyTerms,
    outbox: Outbox,
    names: Sequence[str],
    rng: Generator,
) -> None:
    """Draw the permanent answers of clients that have none, and can pay for a whole series."""
    oracle = terms.task.survey.memoised
    if oracle is None:
        return
    kept = outbox.permanent(terms.series)
    new = [name for name in names if name not in kept]
    can = outbox.can_afford(new, oracle.lifetime_epsilon, config.budget)
    chosen = [name for name, affordable in zip(new, can.tolist(), strict=True) if affordable]
    memos = oracle.draw_permanent(len(chosen), rng)
    outbox.keep_permanent(terms.series, oracle.lifetime_epsilon, chosen, memos)


def _names(config: SurveyClientConfig, path: Path, cells: Cells, count: int) -> list[str]:
    """Return each client's name in the outbox, ignoring blanks around a key."""
    if config.key == ROW_NUMBER:
        if ROW_NUMBER in cells:
            raise ScenarioError.because(
                f"{path.name} has a column named {ROW_NUMBER!r}; rename it, or choose another key",
                field="key",
            )
        return [str(row) for row in range(1, count + 1)]
    allowed = f"a column of {path.name} ({', '.join(cells)}), or {ROW_NUMBER!r}"
    require_key(config.key in cells, "key", config.key, allowed)
    names = [normalize("NFC", cell).strip() for cell in cells[config.key].tolist()]
    if len(set(names)) != len(names):
        raise ScenarioError.because(
            f"some cells of the column {config.key!r} are equal; they must all be different",
            field="key",
        )
    return names


def _compared(
    config: SurveyClientConfig, terms: SurveyTerms, cells: Cells
) -> Mapping[str, NDArray[np.str_]]:
    """Return the cells of a known client that must not change.

    These are the cells that the task asks for if the rows have a key. Row numbers identify nobody,
    because another file has the same ones, so all cells of a row are compared.
    """
    if config.key == ROW_NUMBER:
        return cells
    asked = {feature.name for feature in terms.features}
    label = {list(cells)[-1]} if terms.classes else set[str]()
    return {header: column for header, column in cells.items() if header in asked | label}
