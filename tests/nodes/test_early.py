"""Frames that arrive before their session: kept as bytes, within limits, for a limited time."""

import pytest

from veilring.nodes.node import (
    DROPPED,
    EARLY_BYTES_MAX,
    EARLY_DROPPED_MAX,
    EARLY_FRAMES_MAX,
    EARLY_SECONDS,
    EARLY_TOTAL_BYTES_MAX,
    EarlyFrames,
)
from veilring.transport.frames import FRAME_BYTES_MAX

FIRST, SECOND = bytes(16), bytes(15) + b"\x01"


def test_early_frames_are_returned_in_order_and_once() -> None:
    """The frames of one session are returned in order of arrival, and the others are kept."""
    early = EarlyFrames(lambda: 0.0)
    for number in range(4):
        early.keep("ada", (FIRST, SECOND)[number % 2], bytes([number]))
        early.keep("bob", FIRST, bytes([10 + number]))
    taken = list(early.take(FIRST))
    assert [frame for sender, frame in taken if sender == "ada"] == [b"\x00", b"\x02"]
    assert [frame[0] for sender, frame in taken if sender == "bob"] == [10, 11, 12, 13]
    assert list(early.take(FIRST)) == []
    assert len(list(early.take(SECOND))) == 2


@pytest.mark.parametrize(
    ("frame", "most"),
    [(b"x", EARLY_FRAMES_MAX), (bytes(FRAME_BYTES_MAX), EARLY_BYTES_MAX // FRAME_BYTES_MAX)],
)
def test_a_peer_that_sends_too_much_loses_its_oldest_frames(frame: bytes, most: int) -> None:
    """At a limit in frames or bytes nobody is accused; newer sessions and other peers keep all."""
    early = EarlyFrames(lambda: 0.0)
    early.keep("bob", FIRST, b"of bob")
    assert all(early.keep("ada", FIRST, frame) for _ in range(most))
    assert not early.keep("ada", SECOND, b"next")
    assert not early.keep("ada", FIRST, frame)
    assert list(early.take(FIRST)) == [("bob", b"of bob"), ("ada", DROPPED)]
    assert list(early.take(SECOND)) == [("ada", b"next")]


MIB = bytes(1 << 20)


def test_many_peers_together_are_bounded_without_blame(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest session of the peer with the most messages is dropped, and logged once."""
    early = EarlyFrames(lambda: 0.0)
    sessions = [number.to_bytes(16, "big") for number in range(100)]
    for number in range(EARLY_TOTAL_BYTES_MAX // EARLY_BYTES_MAX):
        for session in sessions[: EARLY_BYTES_MAX // FRAME_BYTES_MAX]:
            early.keep(f"peer {number}", session, bytes(FRAME_BYTES_MAX))
    for session in sessions:
        early.keep("bob", session, b"of bob")
    early.keep("peer 0", sessions[0], b"more")
    assert [frame for name, frame in early.take(sessions[0]) if name == "peer 0"] == [DROPPED]
    assert all(("bob", b"of bob") in early.take(session) for session in sessions[1:])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("dropped frames of peer 0, sent before their session")


def test_colluding_peers_cause_no_blame_and_no_misread_session() -> None:
    """An honest peer with the most messages loses whole sessions, and their later messages."""
    early = EarlyFrames(lambda: 0.0)
    early.keep("ada", FIRST, MIB)
    early.keep("ada", FIRST, b"second")
    for number in range(2 * EARLY_TOTAL_BYTES_MAX // len(MIB)):
        early.keep(f"peer {number}", SECOND, MIB[:-1])
    early.keep("ada", FIRST, b"third")
    assert list(early.take(FIRST)) == [("ada", DROPPED)]
    kept = [len(frame) for _, frame in early.take(SECOND)]
    assert sum(kept) <= EARLY_TOTAL_BYTES_MAX
    early.keep("ada", FIRST, b"again")
    assert list(early.take(FIRST)) == [("ada", b"again")]


def test_old_frames_are_no_attack() -> None:
    """Remaining frames of sessions that never began do not accumulate to a limit."""
    now = 0.0
    early = EarlyFrames(lambda: now)
    for number in range(10 * EARLY_FRAMES_MAX):
        now += 2 * EARLY_SECONDS / EARLY_FRAMES_MAX
        early.keep("ada", number.to_bytes(16, "big"), b"x")
    assert list(early.take(bytes(16))) == []


def test_dropped_sessions_are_remembered_up_to_a_limit() -> None:
    """A flood of new sessions leaves a bounded number of names, those of the newest."""
    early = EarlyFrames(lambda: 0.0)
    names = [number.to_bytes(16, "big") for number in range(2 * EARLY_DROPPED_MAX)]
    for name in names:
        early.keep("ada", name, b"x")
    dropped = [name for name in names if list(early.take(name)) == [("ada", DROPPED)]]
    assert dropped == names[-EARLY_FRAMES_MAX - EARLY_DROPPED_MAX : -EARLY_FRAMES_MAX]


def test_forgotten_and_dropped_frames_are_not_counted() -> None:
    """A lost peer and a refused session leave nothing behind."""
    early = EarlyFrames(lambda: 0.0)
    for number in range(10 * EARLY_FRAMES_MAX):
        early.keep("ada", number.to_bytes(16, "big"), b"x")
        early.drop(number.to_bytes(16, "big"))
    for _ in range(EARLY_FRAMES_MAX):
        early.keep("ada", FIRST, b"x")
    early.forget("ada")
    for _ in range(EARLY_FRAMES_MAX):
        early.keep("ada", FIRST, b"x")
