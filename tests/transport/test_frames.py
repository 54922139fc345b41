"""Frames: limits, values and invalid bytes."""

import random
import struct
import tracemalloc
from collections.abc import Iterator

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from veilring.errors import FrameError
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
    check_frame,
    frame_size,
    on_stream,
    pack,
    read_head,
    unpack,
)

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
    """An array is restored with its dtype, shape and bits, read-only."""
    back = unpack(pack(array))
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert not back.flags.writeable


@given(arrays)
def test_byte_and_memory_order_do_not_matter(array: NDArray[np.generic]) -> None:
    """Big-endian and transposed arrays travel as their values."""
    swapped = array.astype(array.dtype.newbyteorder(">")).T
    back = unpack(pack(swapped))
    np.testing.assert_array_equal(back, array.T)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, 1 << 64, -(1 << 63) - 1, np.zeros(2, "<c16"), np.zeros(2, "<U3"),
     np.zeros((1,) * (ARRAY_DIMENSIONS_MAX + 1)), "\ud800"],
    ids=["object", "set", "too large", "too small", "complex", "text", "axes", "surrogate"],
)  # fmt: skip
def test_values_without_an_encoding_are_refused(value: WireValue) -> None:
    """Packing a value outside the whitelist raises `FrameError`."""
    with pytest.raises(FrameError, match="cannot be sent"):
        pack(value)


def test_nesting_is_limited_both_ways() -> None:
    """Endless nesting is refused when packed and when unpacked."""
    value: WireValue = None
    for _ in range(5_000):
        value = (value,)
    with pytest.raises(FrameError):
        pack(value)
    with pytest.raises(FrameError):
        unpack(b"\x91" * 5_000 + b"\xc0")


def extension(code: int, dtype: int, *shape: int, data: bytes = b"") -> bytes:
    """Encode an extension as an array would be."""
    header = struct.pack(f"<BB{len(shape)}I", dtype, len(shape), *shape)
    return msgpack.packb(msgpack.ExtType(code, header + data))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\x01\x02",
        b"\xa2\xff\xff",
        b"\x81\x01\x02",
        b"\xdd\xff\xff\xff\xff",
        b"\xc7\x0c\xff" + b"\xff" * 12,
        msgpack.packb(msgpack.ExtType(1, b"\x00")),
        extension(2, 1, 1, data=b"\x00"),
        extension(1, len(DTYPES), 1, data=bytes(8)),
        extension(1, 1, *(1,) * (ARRAY_DIMENSIONS_MAX + 1), data=b"\x00"),
        extension(1, 1, 2, data=b"\x00"),
        extension(1, 1, 1, data=b"\x00\x00"),
        extension(1, 0, 2, data=b"\x01\x02"),
        extension(1, 9, (1 << 32) - 1, (1 << 32) - 1, (1 << 32) - 1, 0),
    ],
    ids=["nothing", "reserved", "short list", "two values", "not UTF-8", "key", "length", "time",
         "no header", "code", "dtype", "axes", "short", "long", "boolean", "shape"],
)  # fmt: skip
def test_an_invalid_encoding_is_refused(body: bytes) -> None:
    """Bytes that are not exactly one value are a `FrameError`."""
    with pytest.raises(FrameError):
        unpack(body)


def listed(items: int, item: bytes = b"\xc0") -> bytes:
    """Encode a list of equal items."""
    return b"\xdd" + struct.pack(">I", items) + item * items


@pytest.mark.parametrize(
    "body",
    [
        listed(ITEMS_MAX + 1),
        listed(FRAME_BYTES_MAX - 5, b"\x80"),
        listed(CONTAINERS_MAX, b"\x90"),
        listed(2, listed(CONTAINERS_MAX // 2, b"\x90")),
        b"\xdf" + struct.pack(">I", ITEMS_MAX + 1) + b"".join(map(pack, range(2 * ITEMS_MAX + 2))),
        (b"\xdc" + struct.pack(">H", ITEMS_MAX)) * 500 + bytes(20_000),
    ],
    ids=["items", "empty maps", "empty lists", "lists of lists", "entries", "announced"],
)
def test_a_frame_cannot_take_more_memory_than_a_few_times_its_size(body: bytes) -> None:
    """Too many items or containers are refused before they are created."""
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            unpack(body)
        assert tracemalloc.get_traced_memory()[1] < 16 * FRAME_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("items", [ITEMS_MAX - 2, ITEMS_MAX])
def test_the_maximum_number_of_items_is_restored(items: int) -> None:
    """A list of maximum length, and the maximum number of lists, are valid."""
    assert unpack(listed(items)) == (None,) * items
    assert unpack(listed(CONTAINERS_MAX - 1, b"\x90")) == ((),) * (CONTAINERS_MAX - 1)


@pytest.mark.parametrize("rest", [b"", b"\xc1", b"\x80" * FRAME_BYTES_MAX])
def test_a_head_is_read_with_any_tail(rest: bytes) -> None:
    """The first two entries of a list cost the same for any further entries."""
    assert read_head(b"\x93" + pack(b"session") + pack("kind") + rest) == (b"session", "kind")


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x01\x02", b"\x91\x01", b"\x92\x01", b"\x92" + pack("x" * 200) * 2]
)
def test_bytes_without_a_pair_have_no_head(body: bytes) -> None:
    """Bytes that do not begin like a list with two short entries are a `FrameError`."""
    with pytest.raises(FrameError):
        read_head(body)


def test_a_timestamp_is_read_as_seconds() -> None:
    """MessagePack's own timestamp extension is decoded into a plain number of seconds."""
    assert unpack(msgpack.packb(msgpack.Timestamp(3, 500_000_000))) == 3.5


@pytest.mark.parametrize("size", [1, 2, FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX])
def test_sizes_up_to_the_limit_are_frames(size: int) -> None:
    """A frame has 1 to `FRAME_BYTES_MAX` bytes, and four more on a stream."""
    frame = bytes(size)
    check_frame(frame)
    assert frame_size(frame) == len(on_stream(frame)) == size + PREFIX_BYTES
    reader = FrameReader()
    assert list(reader.feed(on_stream(frame))) == [frame]


@pytest.mark.parametrize("size", [1_000, 4_097, 1 << 16, 1 << 18])
def test_a_large_frame_comes_in_pieces(size: int) -> None:
    """The largest frame survives being cut anywhere, between frames on either side of it."""
    frames = [b"before", bytes(range(256)) * (FRAME_BYTES_MAX // 256), b"after"]
    stream = b"".join(map(on_stream, frames))
    reader = FrameReader()
    pieces = (stream[start : start + size] for start in range(0, len(stream), size))
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


@pytest.mark.parametrize("size", [0, FRAME_BYTES_MAX + 1])
def test_sizes_beyond_the_limits_are_refused(size: int) -> None:
    """An empty frame and one byte too many are a `FrameError`."""
    for refuse in (check_frame, on_stream):
        with pytest.raises(FrameError, match=f"{size:,} bytes"):
            refuse(bytes(size))


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_a_length_is_checked_before_its_bytes_arrive(length: int) -> None:
    """The prefix alone suffices to refuse a frame that is too large."""
    with pytest.raises(FrameError, match=str(length)):
        list(FrameReader().feed(struct.pack(">I", length)))


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(1, 20), min_size=1))
def test_chunking_does_not_matter(frames: list[bytes], sizes: list[int]) -> None:
    """A stream cut into any pieces gives the same frames and the goodbye."""
    stream = b"".join(map(on_stream, frames)) + GOODBYE
    reader, got, start, turn = FrameReader(), list[bytes](), 0, 0
    while start < len(stream):
        end = start + sizes[turn % len(sizes)]
        got.extend(reader.feed(stream[start:end]))
        start, turn = end, turn + 1
    assert got == frames
    assert reader.finished


@pytest.mark.parametrize("together", [True, False])
def test_bytes_after_a_goodbye_are_refused(together: bool) -> None:
    """A stream that continues after its goodbye is invalid."""
    reader = FrameReader()
    first, last = (b"", GOODBYE + b"x") if together else (GOODBYE, b"x")
    assert list(reader.feed(first)) == []
    with pytest.raises(FrameError, match="after the goodbye"):
        list(reader.feed(last))


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


def read(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    """Return the frames of a stream, and whether it was finally refused."""
    reader, frames = FrameReader(), list[bytes]()
    try:
        for piece in pieces:
            for frame in reader.feed(piece):
                frames.append(frame)
    except FrameError:
        return frames, True
    return frames, False
