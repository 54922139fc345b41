"""Frames and typed messages: values, limits and invalid bytes."""

import io
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, takewhile
from traceback import format_exception
from typing import Annotated

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from pydantic import ValidationError

from veilring.arrays import Bools
from veilring.errors import FrameError, InputError
from veilring.transport import messages
from veilring.transport.frames import (
    ARRAY_DIMENSIONS_MAX,
    CONTAINERS_MAX,
    DTYPES,
    FRAME_BYTES_MAX,
    GOODBYE,
    ITEMS_MAX,
    PREFIX_BYTES,
    FrameReader,
    WireValue,
    frame_size,
    on_stream,
    pack,
    read_head,
    unpack,
)
from veilring.transport.messages import SESSION_BYTES, Array, Matrix, Message, decode, encode

FUZZED_FRAMES = 200_000
FUZZ_SEED = 20070311

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner).map(tuple), st.dictionaries(st.text(), inner, max_size=5)
    ),
    max_leaves=20,
)
arrays = hnp.arrays(
    st.sampled_from(DTYPES).map(np.dtype),
    hnp.array_shapes(min_dims=0, max_dims=ARRAY_DIMENSIONS_MAX, min_side=0, max_side=5),
)


@given(values)
def test_plain_values_come_back(value: WireValue) -> None:
    """Packed values are unpacked unchanged, with lists as tuples."""
    assert unpack(pack(value)) == value


@given(arrays)
def test_arrays_are_restored(array: NDArray[np.generic]) -> None:
    """Arrays keep dtype, shape and bits, read-only; big-endian and transposed ones their values."""
    back = unpack(pack(array))
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert not back.flags.writeable
    swapped = array.astype(array.dtype.newbyteorder(">")).T
    np.testing.assert_array_equal(unpack(pack(swapped)), array.T)


NESTED: WireValue = None
for _ in range(5_000):
    NESTED = (NESTED,)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, 1 << 64, -(1 << 63) - 1, np.zeros(2, "<c16"), np.zeros(2, "<U3"),
     np.zeros((1,) * (ARRAY_DIMENSIONS_MAX + 1)), "\ud800", NESTED],
    ids=["object", "set", "too large", "too small", "complex", "text", "axes", "surrogate",
         "nested"],
)  # fmt: skip
def test_values_without_an_encoding_are_refused(value: WireValue) -> None:
    """Packing a value outside the whitelist raises `FrameError`."""
    with pytest.raises(FrameError, match="cannot be sent"):
        pack(value)


def extension(code: int, dtype: int, *shape: int, data: bytes = b"") -> bytes:
    """Encode an extension as an array would be."""
    header = struct.pack(f"<BB{len(shape)}I", dtype, len(shape), *shape)
    return msgpack.packb(msgpack.ExtType(code, header + data))


INVALID = {
    "nothing": b"",
    "reserved": b"\xc1",
    "short list": b"\x92\x01",
    "two values": b"\x01\x02",
    "not UTF-8": b"\xa2\xff\xff",
    "key": b"\x81\x01\x02",
    "length": b"\xdd\xff\xff\xff\xff",
    "time": b"\xc7\x0c\xff" + b"\xff" * 12,
    "no header": msgpack.packb(msgpack.ExtType(1, b"\x00")),
    "code": extension(2, 1, 1, data=b"\x00"),
    "dtype": extension(1, len(DTYPES), 1, data=bytes(8)),
    "axes": extension(1, 1, *(1,) * (ARRAY_DIMENSIONS_MAX + 1), data=b"\x00"),
    "short": extension(1, 1, 2, data=b"\x00"),
    "long": extension(1, 1, 1, data=b"\x00\x00"),
    "boolean": extension(1, 0, 2, data=b"\x01\x02"),
    "shape": extension(1, 9, (1 << 32) - 1, (1 << 32) - 1, (1 << 32) - 1, 0),
    "nested": b"\x91" * 5_000 + b"\xc0",
}


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
def test_an_invalid_encoding_is_refused(body: bytes) -> None:
    """Bytes that are not exactly one value are a `FrameError`."""
    with pytest.raises(FrameError):
        unpack(body)


def listed(items: int, item: bytes = b"\xc0") -> bytes:
    """Encode a list of equal items."""
    return b"\xdd" + struct.pack(">I", items) + item * items


LARGE_VALUES = {
    "items": listed(ITEMS_MAX + 1),
    "empty maps": listed(FRAME_BYTES_MAX - 5, b"\x80"),
    "empty lists": listed(CONTAINERS_MAX, b"\x90"),
    "lists of lists": listed(2, listed(CONTAINERS_MAX // 2, b"\x90")),
    "entries": b"\xdf"
    + struct.pack(">I", ITEMS_MAX + 1)
    + b"".join(map(pack, range(2 * ITEMS_MAX + 2))),
    "announced": (b"\xdc" + struct.pack(">H", ITEMS_MAX)) * 500 + bytes(20_000),
}


@pytest.mark.parametrize("body", LARGE_VALUES.values(), ids=LARGE_VALUES)
def test_a_frame_cannot_take_more_memory_than_a_few_times_its_size(body: bytes) -> None:
    """Too many items or containers are refused before they are created."""
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            unpack(body)
        assert tracemalloc.get_traced_memory()[1] < 16 * FRAME_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_the_maximum_number_of_items_is_restored() -> None:
    """A list of maximum length, and the maximum number of lists, are valid."""
    for items in (ITEMS_MAX - 2, ITEMS_MAX):
        assert unpack(listed(items)) == (None,) * items
    assert unpack(listed(CONTAINERS_MAX - 1, b"\x90")) == ((),) * (CONTAINERS_MAX - 1)


def test_a_head_is_read_from_the_first_two_entries_only() -> None:
    """Any further entries cost the same; bytes without two short entries are a `FrameError`."""
    for rest in (b"", b"\xc1", b"\x80" * FRAME_BYTES_MAX):
        assert read_head(b"\x93" + pack(b"session") + pack("kind") + rest) == (b"session", "kind")
    two_long = b"\x92" + pack("x" * 200) * 2
    for body in (b"", b"\xc1", b"\x01\x02", b"\x91\x01", b"\x92\x01", two_long):
        with pytest.raises(FrameError):
            read_head(body)


def test_a_timestamp_is_read_as_seconds() -> None:
    """MessagePack's own timestamp extension is decoded into a plain number of seconds."""
    assert unpack(msgpack.packb(msgpack.Timestamp(3, 500_000_000))) == 3.5


def read(pieces: Iterable[bytes]) -> tuple[list[bytes], bool, str]:
    """Return the frames of a stream, whether it ended, and the reason if it was refused."""
    reader, frames = FrameReader(), list[bytes]()
    try:
        for piece in pieces:
            for frame in reader.feed(piece):
                frames.append(frame)
    except FrameError as error:
        return frames, reader.finished, str(error)
    return frames, reader.finished, ""


def test_a_frame_has_at_least_one_and_at_most_the_maximum_number_of_bytes() -> None:
    """Four more go on a stream, whose prefix alone suffices to refuse a frame that is too large."""
    for size in (1, 2, FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX):
        stream = on_stream(bytes(size))
        assert len(stream) == frame_size(bytes(size)) == size + PREFIX_BYTES
        assert read([stream]) == ([bytes(size)], False, "")
    for size in (0, FRAME_BYTES_MAX + 1):
        with pytest.raises(FrameError, match=f"{size:,} bytes"):
            on_stream(bytes(size))
    for length in (FRAME_BYTES_MAX + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1):
        assert str(length) in read([struct.pack(">I", length)])[2]
    whole = struct.pack(">I", FRAME_BYTES_MAX + 1) + bytes(FRAME_BYTES_MAX + 1)
    assert str(FRAME_BYTES_MAX + 1) in read([whole])[2]


LARGE = [b"before", bytes(range(256)) * (FRAME_BYTES_MAX // 256), b"after"]


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(1, 20), min_size=1))
@example(LARGE, [1_000])
@example(LARGE, [4_097])
@example(LARGE, [1 << 16])
@example(LARGE, [1 << 18])
def test_chunking_does_not_matter(frames: list[bytes], sizes: list[int]) -> None:
    """A stream cut into any pieces gives the same frames and the goodbye."""
    stream = io.BytesIO(b"".join(map(on_stream, frames)) + GOODBYE)
    pieces = takewhile(bool, map(stream.read, cycle(sizes)))
    assert read(pieces) == (frames, True, "")


def test_bytes_after_a_goodbye_are_refused() -> None:
    """A stream that continues after its goodbye is invalid."""
    for pieces in ([GOODBYE + b"x"], [GOODBYE, b"x"], [GOODBYE, on_stream(b"x")]):
        assert read(pieces) == ([], True, "bytes after the goodbye")


def bodies(rng: random.Random) -> Iterator[bytes]:
    """Yield random bodies: noise, mutated and truncated values, and arrays with false headers."""
    array = np.arange(6.0).reshape(2, 3)
    samples = [
        pack((b"s" * 16, "ring.vote", 1, 2.5, array)),
        pack({"a": (1, -2, None, True), "b": "text", "c": array.astype("<i4")}),
        pack((array > 2, "\u00e9" * 40, b"\x00" * 300, 1 << 63)),
    ]
    while True:
        yield rng.randbytes(rng.randrange(1, 40))
        mutated = bytearray(rng.choice(samples))
        for _ in range(rng.randrange(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        yield bytes(mutated)
        sample = rng.choice(samples)
        yield sample[: rng.randrange(1, len(sample))]
        shape = [rng.choice((0, 1, 2, 255, (1 << 32) - 1)) for _ in range(rng.randrange(6))]
        yield extension(1, rng.randrange(16), *shape, data=rng.randbytes(rng.randrange(20)))


def test_all_bytes_parse_or_raise_a_frame_error() -> None:
    """Of 200,000 seeded bodies each parses or raises `FrameError`; both happen often."""
    rng = random.Random(FUZZ_SEED)
    source = bodies(rng)
    parsed = 0
    for _ in range(FUZZED_FRAMES):
        try:
            pack(unpack(next(source)))
            parsed += 1
        except FrameError:
            continue
    assert FUZZED_FRAMES // 20 < parsed < FUZZED_FRAMES - FUZZED_FRAMES // 20


def test_all_streams_parse_or_raise_a_frame_error() -> None:
    """Valid, mutated and random streams, whole or byte by byte, are accepted or refused alike."""
    rng = random.Random(FUZZ_SEED)
    source = bodies(rng)
    for _ in range(5_000):
        stream = bytearray(b"".join(on_stream(next(source)) for _ in range(3)))
        if rng.random() < 0.5:
            stream[rng.randrange(len(stream))] = rng.randrange(256)
        whole = read([bytes(stream)])
        assert read([bytes([byte]) for byte in stream]) == whole


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


def test_a_message_is_a_value() -> None:
    """Messages are frozen; equal fields give equal messages and hashes, and others do not."""
    assert note() == note()
    assert hash(note()) == hash(note())
    assert note() != note(2)
    assert note() != "note"
    with pytest.raises(ValidationError, match="frozen"):
        setattr(note(), "number", 2)  # noqa: B010  (a plain assignment is a type error already)


@pytest.mark.parametrize(
    "changed",
    [{"number": "1"}, {"text": b"text"}, {"rows": np.ones(3)}, {"rows": np.ones((1, 1), "<f4")},
     {"flags": [True]}, {"other": 1}],
)  # fmt: skip
def test_an_invalid_message_cannot_be_constructed(changed: dict[str, object]) -> None:
    """A value of another type, dtype or number of axes is refused at construction."""
    with pytest.raises(InputError, match=f"test.note.{next(iter(changed))}: "):
        Note(**dict(note()) | changed)


@pytest.mark.parametrize("build", [lambda fields: Note(**fields), Note.model_validate])
def test_a_refused_value_is_not_shown(build: Callable[[dict[str, object]], Note]) -> None:
    """The error about a value says which type it has, but not what it is."""
    secret = f"{FUZZ_SEED:b}"
    with pytest.raises(ValueError, match="not a value of the type str") as refused:
        build(dict(note()) | {"number": secret})
    assert secret not in "".join(format_exception(refused.value))


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


def test_a_message_that_fits_no_frame_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error gives the limit and the remedy, and no time is spent on building the frame."""
    monkeypatch.setattr(messages, "pack", None)
    for data, rows in ((FRAME_BYTES_MAX, 1), (0, FRAME_BYTES_MAX // 8), (1 << 19, 1 << 16)):
        blob = Blob(data=bytes(data), array=np.zeros((rows, 1)))
        with pytest.raises(FrameError, match=r"1 to 1,048,576; split a larger message into"):
            encode(SESSION, blob)
