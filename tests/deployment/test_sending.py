"""The division of a survey client's reports among sessions, and its retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.protocols.ldp.collecting import batches, make_task
from typing_extensions import override

from veilring import simulation
from veilring.deployment import survey_client as sending
from veilring.deployment.connecting import ClientConnection
from veilring.deployment.survey_client import (
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    SUBMIT_PATIENCE_SECONDS,
    Sender,
    for_one_session,
)
from veilring.errors import PeerLost, ProtocolViolation, SessionAborted, VeilringError
from veilring.protocols.ldp.messages import ClientBatch, ReportVerdict
from veilring.protocols.ldp.outbox import MarkedRows, Outbox

TASK, CLIENTS = make_task(), 12
SESSION_SECONDS = 100.0

R = TypeVar("R")


def batch(number: int, reports: int) -> ClientBatch:
    """Return a batch of reports of four bytes."""
    ids, bytes_ = np.zeros((reports, 16), dtype=np.uint8), np.zeros((reports, 4), dtype=np.uint8)
    return ClientBatch(0, ids, bytes_, np.full(reports, number))


@pytest.mark.parametrize(
    ("messages", "size", "expected"),
    [(3, 1 << 20, [3, 3, 1]), (100, 50, [3, 3, 1]), (100, 1, [1] * 7), (7, 1 << 20, [7])],
)
def test_sessions_take_all_batches_in_order_within_their_limits(
    monkeypatch: pytest.MonkeyPatch, messages: int, size: int, expected: list[int]
) -> None:
    """A session ends with the batch that reaches either limit, and the next session continues."""
    monkeypatch.setattr(sending, "SESSION_MESSAGES_MAX", messages)
    monkeypatch.setattr(sending, "SESSION_BYTES_MAX", size)
    waiting = iter([batch(number, 1) for number in range(7)])
    sessions = []
    while session := list(for_one_session(waiting)):
        sessions.append(session)
    assert [len(session) for session in sessions] == expected
    assert [int(b.clients[0]) for session in sessions for b in session] == list(range(7))


class _Collector(ClientConnection):
    """A connection to a collector that knows reports again, unless it forgets each session.

    Attributes:
        error: The error with which every session ends after a delay.
        receipts: The number of failing sessions with a receipt.
        sessions: The number of batches that each session sent.
    """

    def __init__(
        self, *, forgets: bool = False, error: VeilringError | None = None, receipts: int = 0
    ) -> None:
        self.forgets, self.error, self.receipts = forgets, error, receipts
        self.stored, self.sessions = set[bytes](), list[int]()

    @override
    async def run(self, role: Callable[..., Awaitable[R]], *given: Any, **public: Any) -> Any:
        if self.forgets:
            self.stored.clear()
        (waiting,) = given
        if self.error is not None:
            await asyncio.sleep(SESSION_SECONDS)
            waiting = islice(waiting, 1 if len(self.sessions) < self.receipts else 0)
        sent = list(waiting)
        self.sessions.append(len(sent))
        for each in sent:
            known = each.ids.tobytes() in self.stored
            verdict = ReportVerdict.KNOWN if known else ReportVerdict.COUNTED
            self.stored.add(each.ids.tobytes())
            public["settled"](each, np.full(len(each), verdict, dtype=np.uint8))
        if self.error is not None:
            raise self.error


async def _sent(path: Path, connection: _Collector) -> int:
    """Make reports and send them, and return how many were sent."""
    with Outbox(path, new=True) as outbox:
        rows = MarkedRows([str(n) for n in range(CLIENTS)], b"", [b""] * CLIENTS)
        outbox.add(TASK, rows, batches(TASK, CLIENTS))
        sender = Sender(connection, "census")
        return await sender.send(TASK, outbox, at_once=1, progress=lambda *_: None)


@pytest.mark.parametrize("forgets", [False, True])
def test_sessions_end_whatever_a_collector_says_of_receipts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> None:
    """Questions about receipts delay no report, and a collector that denies them is named."""
    monkeypatch.setattr(sending, "SESSION_MESSAGES_MAX", 1)
    connection = _Collector(forgets=forgets)
    sent = _sent(tmp_path / "outbox", connection)
    if forgets:
        with pytest.raises(ProtocolViolation, match=r"census .* lost reports twice"):
            asyncio.run(sent)
        assert connection.sessions == [1, 2, 2]
    else:
        assert asyncio.run(sent) == CLIENTS == len(connection.sessions)
        assert len(connection.stored) == CLIENTS


def _tried(outbox: Path, error: VeilringError, receipts: int) -> tuple[float, int]:
    """Send until it gives up, and return the simulated seconds and the number of attempts."""
    connection = _Collector(error=error, receipts=receipts)

    async def main() -> float:
        with pytest.raises(type(error)):
            await _sent(outbox, connection)
        return asyncio.get_running_loop().time()

    return simulation.simulate(main()), len(connection.sessions)


@pytest.mark.parametrize("receipts", [0, 1, 5])
def test_a_survey_client_waits_from_its_last_receipt(tmp_path: Path, receipts: int) -> None:
    """It gives up at the third failure in a row, the first one five minutes after the receipt."""
    seconds, sessions = _tried(tmp_path / "outbox", PeerLost("census"), receipts)
    pauses = RETRY_SECONDS * (1 + 2)
    assert 2 * SESSION_SECONDS + pauses < SUBMIT_PATIENCE_SECONDS < 3 * SESSION_SECONDS + pauses
    assert sessions == receipts + 3
    # A pause is twice the one before, and the first again after a receipt.
    pauses += (receipts + 3) * RETRY_SECONDS if receipts else 0
    assert seconds == sessions * SESSION_SECONDS + pauses


def test_an_unreachable_collector_is_retried_and_logged_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In five minutes there are about twenty attempts, counted in one log line."""
    monkeypatch.setattr("tests.deployment.test_sending.SESSION_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "veilring.survey_client"):
        seconds, sessions = _tried(tmp_path / "outbox", PeerLost("census"), 0)
    assert SUBMIT_PATIENCE_SECONDS < seconds <= SUBMIT_PATIENCE_SECONDS + RETRY_SECONDS_MAX
    assert sessions < 30
    assert len(caplog.messages) == sessions - 1
    assert "no receipt after attempt 5; 12 reports will be sent again" in caplog.messages[4]


@pytest.mark.parametrize("reason", ["NotOffered", "OtherTerms", "WrongParties"])
def test_a_permanent_refusal_is_not_retried(tmp_path: Path, reason: str) -> None:
    """A collector's permanent refusal ends the attempts at once."""
    assert _tried(tmp_path / "outbox", SessionAborted("census", reason), 0)[1] == 1
    assert _tried(tmp_path / "other", SessionAborted("census", "StoreFailed"), 0)[1] > 1
