"""Messages that differ only in the bytes of some fields are read as one."""

from collections.abc import Sequence
from typing import Annotated

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from veilring.errors import FrameError
from veilring.transport.messages import (
    JOINED_BYTES_MAX,
    SESSION_BYTES,
    Array,
    Message,
    encode,
    join_messages,
    open_frame,
)

SESSION = bytes(SESSION_BYTES)


class Parcel(Message, kind="test.parcel"):
    """A message with two fields that can be joined."""

    joins = "left", "right"
    left: bytes
    label: str
    right: bytes
    rest: Annotated[NDArray[np.uint8], Array("|u1", 1)]


def parcel(left: bytes, right: bytes, label: str = "x") -> bytes:
    """Return the frame of a message."""
    rest = np.arange(3, dtype=np.uint8)
    return encode(SESSION, Parcel(left=left, label=label, right=right, rest=rest))


def joined(frames: Sequence[bytes]) -> list[Parcel]:
    """Return the messages of frames, joined."""
    messages = join_messages([open_frame(frame) for frame in frames])
    assert all(isinstance(message, Parcel) for message in messages)
    return [message for message in messages if isinstance(message, Parcel)]


def test_messages_in_a_row_that_are_alike_become_one() -> None:
    """It has the fields of all in order, and a frame of another size begins another message."""
    frames = [parcel(bytes([n, n]), bytes([n])) for n in range(100)]
    frames += [parcel(b"abc", bytes([n])) for n in range(3)]
    first, second = joined(frames)
    assert first.left == bytes(np.repeat(np.arange(100), 2).astype(np.uint8))
    assert first.right == bytes(range(100))
    assert (first.label, first.rest.tolist()) == ("x", [0, 1, 2])
    assert (second.left, second.right) == (b"abc" * 3, bytes(range(3)))


def test_messages_that_differ_elsewhere_stay_apart() -> None:
    """Neither another label nor the same bytes in another division are joined."""
    frames = [parcel(b"a", b"bb", "x"), parcel(b"c", b"dd", "y"), parcel(b"ee", b"f", "y")]
    assert [(each.left, each.label, each.right) for each in joined(frames)] == [
        (b"a", "x", b"bb"),
        (b"c", "y", b"dd"),
        (b"ee", "y", b"f"),
    ]


def test_a_joined_message_is_bounded() -> None:
    """Its frames have at most `JOINED_BYTES_MAX` bytes, and a larger message stays alone."""
    frames = [parcel(bytes(1000), b"")] * 200
    found = joined([*frames, *[parcel(bytes(JOINED_BYTES_MAX), b"")] * 2])
    assert sum(len(each.left) for each in found) == 200_000 + 2 * JOINED_BYTES_MAX
    assert max(len(each.left) for each in found) == JOINED_BYTES_MAX
    assert len(found) == 200 // (JOINED_BYTES_MAX // len(frames[0])) + 1 + 2


def test_joined_messages_say_what_their_frames_say_one_by_one() -> None:
    """Frames with random faults have the same bytes joined and alone, or are refused in both."""
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(200):
        frames = [parcel(rng.bytes(4), rng.bytes(2)) for _ in range(6)]
        spoiled = bytearray(frames[int(rng.integers(6))])
        place = int(rng.integers(SESSION_BYTES + 16, len(spoiled)))
        spoiled[place] = rng.integers(256)
        frames.insert(int(rng.integers(6)), bytes(spoiled))
        try:
            alone = [message for frame in frames for message in joined([frame])]
        except FrameError:
            refused += 1
            with pytest.raises(FrameError):
                joined(frames)
            continue
        together = joined(frames)
        for name in Parcel.joins:
            parts = [b"".join(getattr(each, name) for each in some) for some in (alone, together)]
            assert parts[0] == parts[1]
        assert {each.label for each in together} == {each.label for each in alone}
    assert 20 < refused < 180


def test_another_encoding_of_the_same_size_stays_apart() -> None:
    """A field whose length is encoded in more bytes ends elsewhere, and is read alone."""
    kind, rest = Parcel.kind, np.arange(3, dtype=np.uint8)
    short = parcel(b"ab", b"c")
    long = bytearray(encode(SESSION, Parcel(left=b"a", label="x", right=b"c", rest=rest)))
    at = long.index(msgpack.packb(b"a"))
    long[at : at + 3] = b"\xc5\x00\x01a"  # a length of two bytes
    assert len(long) == len(short)
    assert open_frame(bytes(long)).kind == kind
    found = joined([short, short, bytes(long), short])
    assert [each.left for each in found] == [b"abab", b"a", b"ab"]
    assert [each.right for each in found] == [b"cc", b"c", b"c"]
