"""Frames that receivers in the same process do not read again."""

import tracemalloc
from typing import Annotated

import numpy as np
import pytest
from pydantic import AfterValidator, Field, PrivateAttr

from veilring.errors import FrameError
from veilring.transport.frames import CONTENT_BYTES_MAX, FRAME_BYTES_MAX, pack
from veilring.transport.messages import (
    SESSION_BYTES,
    Envelope,
    KnownFrames,
    Message,
    decode,
    is_constant,
    open_frame,
)

SESSION = bytes(SESSION_BYTES)


class Plain(Message, kind="test.known.plain"):
    """A message of constants."""

    data: bytes
    number: float


class Bounded(Message, kind="test.known.bounded"):
    """A message of constants within bounds."""

    data: Annotated[bytes, Field(min_length=1, max_length=2)]
    number: Annotated[int, Field(ge=1, lt=9)]


class Shouting(Message, kind="test.known.shouting"):
    """A message with a value that its validation changes."""

    said: Annotated[str, AfterValidator(str.upper)]


class Doubling(Message, kind="test.known.doubling"):
    """A message whose construction changes its values."""

    number: int

    def __init__(self, number: int) -> None:
        super().__init__(number=2 * number)


class Pocketed(Message, kind="test.known.pocketed"):
    """A message with a list that no frame carries."""

    number: int
    _pocket: list[int] = PrivateAttr(default_factory=list)


class Open(Message, kind="test.known.open", extra="allow"):
    """A message with values of names that it does not declare, which no frame carries."""

    number: int


class Tagged(bytes):
    """Bytes that can have attributes."""


def altered(message: Message, **values: object) -> Message:
    """Set attributes of a frozen message, as a dishonest role can."""
    for name, value in values.items():
        object.__setattr__(message, name, value)
    return message


def said(envelope: Envelope) -> list[tuple[type[object], object]] | str:
    """Return the message that a receiver reads from a frame, or the reason for its failure."""
    try:
        return [(type(value), value) for value in envelope.message().fields()]
    except FrameError as error:
        return str(error)


@pytest.mark.parametrize(
    "sent", [Plain(data=b"a", number=1), Bounded(data=b"a", number=1)], ids=["plain", "bounded"]
)
def test_a_constant_message_is_handed_on(sent: Message) -> None:
    """Its receivers have the sender's own message, which equals the one in its frame."""
    frames = KnownFrames()
    frame = frames.encode(SESSION, sent)
    assert frames.open(frame).message() is sent
    assert decode(frame)[1].fields() == sent.fields()


@pytest.mark.parametrize(
    "sent",
    [
        Plain(data=Tagged(b"a"), number=1.0),
        Plain(data=np.bytes_(b"a"), number=1.0),
        altered(Plain(data=b"a", number=1.0), data=[b"a"]),
        altered(Plain(data=b"a", number=1.0), number="a"),
        altered(Bounded(data=b"a", number=1), data=b"abc"),
        altered(Bounded(data=b"a", number=1), more=1),
        Bounded(data=b"a", number=1).model_copy(update={"number": 9}),
        Shouting(said="a"),
        Doubling(1),
        Pocketed(number=1),
        Open(number=1, more=2),
    ],
    ids=[
        "subclass of bytes",
        "NumPy bytes",
        "altered",
        "altered to another constant",
        "altered beyond a bound",
        "altered to have more",
        "a copy beyond a bound",
        "a value that is changed",
        "own construction",
        "private attribute",
        "undeclared value",
    ],
)
def test_a_message_with_more_than_its_frame_is_read(sent: Message) -> None:
    """Receivers have what its frame says, and nothing that passed beside it."""
    assert not is_constant(sent)
    frames = KnownFrames()
    frame = frames.encode(SESSION, sent)
    assert said(frames.open(frame)) == said(open_frame(frame))


def test_large_frames_are_forgotten_sooner() -> None:
    """A few dozen of the largest frames are kept, however many pass."""
    frames = KnownFrames()
    tracemalloc.start()
    try:
        for number in range(100):
            frames.open(pack((SESSION, "test.known.rows", bytes([number]) * CONTENT_BYTES_MAX)))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert CONTENT_BYTES_MAX < kept < 34 * FRAME_BYTES_MAX
