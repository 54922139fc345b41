"""Typed messages: checked on construction and on decoding."""

from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from veilring.arrays import Bools
from veilring.errors import FrameError, InputError
from veilring.transport import messages
from veilring.transport.frames import FRAME_BYTES_MAX, WireValue, pack
from veilring.transport.messages import SESSION_BYTES, Array, Matrix, Message, decode, encode

SESSION = bytes(range(SESSION_BYTES))


class Note(Message, kind="test.note"):
    """A message with one field of each type."""

    number: int
    text: str
    rows: Matrix
    flags: Annotated[Bools, Array("|b1", 1)]


def note(number: int = 1, text: str = "text") -> Note:
    """Return a note."""
    return Note(number=number, text=text, rows=np.ones((2, 3)), flags=np.array([True, False]))


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text())
def test_messages_are_restored(number: int, text: str) -> None:
    """An encoded message is decoded unchanged, with its session."""
    message = note(number, text)
    assert decode(encode(SESSION, message)) == (SESSION, message)


def test_equality_is_by_bytes() -> None:
    """Equal fields give equal messages and hashes; one different field does not."""
    assert note() == note()
    assert hash(note()) == hash(note())
    assert note() != note(2)
    assert note() != "note"


@pytest.mark.parametrize(
    "changed",
    [{"number": "1"}, {"text": b"text"}, {"rows": np.ones(3)}, {"rows": np.ones((1, 1), "<f4")},
     {"flags": [True]}, {"other": 1}],
)  # fmt: skip
def test_an_invalid_message_cannot_be_constructed(changed: dict[str, object]) -> None:
    """A value of another type, dtype or number of axes is refused at construction."""
    with pytest.raises(ValidationError):
        Note.model_validate(dict(note()) | changed)


def test_a_message_cannot_be_changed() -> None:
    """Messages are frozen."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(note(), "number", 2)  # noqa: B010  (a plain assignment is a type error already)


ROWS, FLAGS = np.ones((2, 3)), np.array([True])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (1, "not a message"),
        ((SESSION,), "not a message"),
        ((SESSION[1:], "test.note", 1, "", ROWS, FLAGS), "not a message"),
        ((SESSION, 7, 1, "", ROWS, FLAGS), "not a message"),
        ((SESSION, "test.unheard", 1), "unknown kind of message: 'test.unheard'"),
        ((SESSION, "test.note", 1, "", ROWS), "has 4 fields, not 3"),
        ((SESSION, "test.note", 1, "", ROWS, FLAGS, 5), "has 4 fields, not 5"),
        ((SESSION, "test.note", 1.5, "", ROWS, FLAGS), "test.note.number"),
        ((SESSION, "test.note", 1, None, ROWS, FLAGS), "test.note.text"),
        ((SESSION, "test.note", 1, "", ROWS[0], FLAGS), "test.note.rows: an array of float64"),
    ],
)
def test_an_invalid_body_is_refused(said: WireValue, reason: str) -> None:
    """A body that is not a message of a known kind is a `FrameError` that names the fault."""
    with pytest.raises(FrameError, match=reason):
        decode(pack(said))


def test_a_kind_belongs_to_one_class() -> None:
    """Two message classes cannot share a kind."""
    with pytest.raises(InputError, match=r"test\.note"):
        type("Other", (Message,), {"__module__": __name__}, kind="test.note")


class Blob(Message, kind="test.messages.blob"):
    """Bytes and an array of any size."""

    data: bytes
    array: Matrix


@pytest.mark.parametrize(
    ("data", "rows"), [(FRAME_BYTES_MAX, 1), (0, FRAME_BYTES_MAX // 8), (1 << 19, 1 << 16)]
)
def test_a_message_that_fits_no_frame_is_refused_before_it_is_encoded(
    data: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error gives the limit and the remedy, and no time is spent on building the frame."""
    blob = Blob(data=bytes(data), array=np.zeros((rows, 1)))
    monkeypatch.setattr(messages, "pack", None)
    with pytest.raises(FrameError, match=r"1 to 1,048,576; split a larger message into several"):
        encode(bytes(SESSION_BYTES), blob)
