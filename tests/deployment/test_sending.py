"""How a submitter divides what it sends among sessions."""

import numpy as np
import pytest

from veilring.deployment import sending
from veilring.deployment.sending import for_one_session
from veilring.protocols.ldp.pool import Batch


def batch(number: int, reports: int) -> Batch:
    """Return a batch of reports of four bytes."""
    ids, bytes_ = np.zeros((reports, 16), dtype=np.uint8), np.zeros((reports, 4), dtype=np.uint8)
    return Batch(0, ids, bytes_, np.full(reports, number))


@pytest.mark.parametrize(
    ("messages", "size", "expected"),
    [(3, 1 << 20, [3, 3, 1]), (100, 50, [3, 3, 1]), (100, 1, [1] * 7), (7, 1 << 20, [7])],
)
def test_sessions_take_all_batches_in_order_and_no_more_than_they_should(
    monkeypatch: pytest.MonkeyPatch, messages: int, size: int, expected: list[int]
) -> None:
    """A session ends with the batch that reaches either limit, and the next goes on from there."""
    monkeypatch.setattr(sending, "SESSION_MESSAGES_MAX", messages)
    monkeypatch.setattr(sending, "SESSION_BYTES_MAX", size)
    batches = iter([batch(number, 1) for number in range(7)])
    sessions = []
    while session := list(for_one_session(batches)):
        sessions.append(session)
    assert [len(session) for session in sessions] == expected
    assert [int(b.clients[0]) for session in sessions for b in session] == list(range(7))
