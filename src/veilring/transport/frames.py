"""Frames: encoding of values as bytes, and of bytes as frames on a stream. No I/O.

On a stream a frame is a 4-byte big-endian length and a MessagePack body. Arrays are a MessagePack
extension of dtype, shape and raw little-endian bytes; nothing is ever unpickled. Any bytes either
parse or raise `FrameError`, never another error. A length is checked before the bytes that it
announces are stored, and decoded values take at most a few times the frame's own size.
"""

import math
import struct
import threading
from collections.abc import Iterator, Sequence
from operator import add
from typing import Final, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from veilring.errors import FrameError

# 1 MiB is enough for 26,000 queries' five nearest distances and is 64 times the largest TLS record.
# Senders must divide larger data; a larger limit would only let a peer fill our memory.
FRAME_BYTES_MAX: Final = 1 << 20
# The session, the kind, the round, a digest, small fields and the headers of arrays: under 200
# bytes in the messages of every protocol.
_ENVELOPE_BYTES: Final = 256
CONTENT_BYTES_MAX: Final = FRAME_BYTES_MAX - _ENVELOPE_BYTES
"""The size up to which the contents of a message's arrays fit a frame."""
PREFIX_BYTES: Final = 4
GOODBYE: Final = bytes(PREFIX_BYTES)
"""The last bytes of a stream that ends deliberately: the prefix of an empty frame, which no node
may send. A connection that breaks ends without it, which TLS alone would not reveal."""
# Runs, parties, rows, columns: no protocol sends more axes than these.
ARRAY_DIMENSIONS_MAX: Final = 4
# Entries of one list or map. A block of records names at most 15,900; numbers by the thousand are
# sent in arrays, which are not decoded item by item.
ITEMS_MAX: Final = 1 << 14
# Lists and maps of one frame: a message is a list whose fields contain at most one each. One byte
# can encode an empty map, which takes 64 bytes here.
CONTAINERS_MAX: Final = 1 << 10
# The bytes read from a frame to identify it: its session and the kind of its message.
HEAD_BYTES_MAX: Final = 128

DTYPES: Final = ("|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")
"""The dtypes of arrays on the wire; the position in this tuple is the code."""

_Scalar: TypeAlias = bool | int | float | str | bytes | NDArray[np.generic] | None
WireValue: TypeAlias = "_Scalar | tuple[WireValue, ...] | list[WireValue] | dict[str, WireValue]"
"""A value of a frame: a number, text, bytes, an array, or a list, tuple or map of these."""

_ARRAY_CODE: Final = 1  # our one MessagePack extension type
_PIECE_BYTES: Final = 1 << 16  # a piece of this size justifies an object of its own
_HARMLESS_BYTES: Final = CONTAINERS_MAX  # too small for more containers than are allowed
_TIMESTAMP_AS_FLOAT: Final = 1  # one of msgpack's four ways to read its own extension
_HEADERS: Final = tuple(struct.Struct(f"<BB{axes}I") for axes in range(ARRAY_DIMENSIONS_MAX + 1))
"""The headers of arrays, by their number of axes: the code of the dtype, that number, the shape."""
_PREFIX: Final = struct.Struct(">I")
_read_length: Final = _PREFIX.unpack_from
_CODES: Final = {np.dtype(name): code for code, name in enumerate(DTYPES)}
_BY_CODE: Final = tuple(np.dtype(name) for name in DTYPES)


def pack(value: WireValue) -> bytes:
    """Encode a value made of plain data and whitelisted arrays."""
    try:
        return _own.packer.pack(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise FrameError(f"this value cannot be sent: {error}") from error


def unpack(body: bytes) -> WireValue:
    """Decode the bytes of `pack`; lists come back as tuples, arrays as read-only arrays."""
    counted = None
    try:
        if len(body) > _HARMLESS_BYTES:
            _require_whole(body)
            counted = _Containers()
        items_max = min(ITEMS_MAX, len(body))
        # A timestamp (a built-in extension of msgpack) is read as a number of seconds, so the
        # result is always a `WireValue`.
        value: WireValue = msgpack.unpackb(
            body,
            use_list=False,
            ext_hook=_unpack_array,
            list_hook=counted,
            object_hook=counted,
            max_array_len=items_max,
            max_map_len=items_max,
            timestamp=_TIMESTAMP_AS_FLOAT,
        )
    except FrameError:
        raise
    except (ValueError, OverflowError, MemoryError, msgpack.UnpackException) as error:
        raise _no_body(error) from error
    return value


def read_head(body: bytes) -> tuple[WireValue, WireValue]:
    """Return the first two entries of a body's list, without decoding the others."""
    reader = _own.reader
    try:
        reader.feed(body[:HEAD_BYTES_MAX])
        reader.read_array_header()
        head = reader.unpack(), reader.unpack()
        reader.read_bytes(HEAD_BYTES_MAX)  # the rest, so that the next body comes first
    except (ValueError, msgpack.UnpackException) as error:
        _own.reader = _head_reader()
        raise _no_body(error) from error
    return head


def entry_ends(body: bytes) -> list[int]:
    """Return the position after each entry of the list that a valid body contains."""
    reader = msgpack.Unpacker(max_buffer_size=len(body))
    reader.feed(body)
    ends = []
    for _ in range(reader.read_array_header()):
        reader.skip()
        ends.append(reader.tell())
    return ends


def _head_reader() -> msgpack.Unpacker:
    return msgpack.Unpacker(max_buffer_size=HEAD_BYTES_MAX)


def _no_body(error: Exception) -> FrameError:
    return FrameError(f"not a MessagePack body: {type(error).__name__}")


def _require_whole(body: bytes) -> None:
    """Refuse a body that declares more than it contains, before anything is allocated.

    Nested lists that all declare the maximum length would take 128 MiB.
    """
    reader = msgpack.Unpacker(max_buffer_size=len(body))
    reader.feed(body)
    reader.skip()


class _Containers:
    """Counts the lists and maps of a body while it is decoded."""

    def __init__(self) -> None:
        self._left = CONTAINERS_MAX

    def __call__(self, container: WireValue) -> WireValue:
        self._left -= 1
        if self._left < 0:
            raise FrameError(f"more than {CONTAINERS_MAX} lists and maps in one frame")
        return container


def _pack_array(value: object) -> msgpack.ExtType:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} is not a data type")
    array, code = value, _CODES.get(value.dtype)
    if code is None:
        array = value.astype(value.dtype.newbyteorder("<"), copy=False)
        code = _CODES.get(array.dtype)
    axes = array.ndim
    if code is None or axes > ARRAY_DIMENSIONS_MAX:
        raise TypeError(f"an array of {value.dtype} with {axes} axes is not allowed")
    return msgpack.ExtType(
        _ARRAY_CODE, _HEADERS[axes].pack(code, axes, *array.shape) + array.tobytes()
    )


def _unpack_array(extension: int, data: bytes) -> NDArray[np.generic]:
    if extension != _ARRAY_CODE or len(data) < _HEADERS[0].size:
        raise FrameError("an unknown or truncated extension")
    code, axes = data[0], data[1]
    if code >= len(_BY_CODE) or axes > ARRAY_DIMENSIONS_MAX or len(data) < _HEADERS[axes].size:
        raise FrameError("an array with an unknown dtype or too many axes")
    dtype, start = _BY_CODE[code], _HEADERS[axes].size
    shape = _HEADERS[axes].unpack_from(data)[2:]
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise FrameError("an array whose bytes do not fill its shape")
    if dtype.kind == "b" and np.frombuffer(data, "|u1", offset=start).max(initial=0) > 1:
        raise FrameError("a boolean that is neither true nor false")
    return np.ndarray(shape, dtype, data, start)


class _PerThread(threading.local):
    """A packer, and a reader of heads, by thread: each has 40 KiB to fill, and no lock."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(default=_pack_array)
        self.reader = _head_reader()


_own = _PerThread()


def check_frame(frame: bytes) -> None:
    """Refuse a frame that no transport may send."""
    if not 0 < len(frame) <= FRAME_BYTES_MAX:
        check_size(len(frame))


def check_size(size: int, kind: str = "") -> None:
    """Refuse a number of bytes that no frame has, or no message of a kind."""
    if not 0 < size <= FRAME_BYTES_MAX:
        what = f"a message {kind}" if kind else "a frame"
        allowed = f"1 to {FRAME_BYTES_MAX:,}; split a larger message into several"
        helper = "as `send_chunks` of veilring.protocols.chunks does"
        raise FrameError(f"{what} of {size:,} bytes; allowed: {allowed}, {helper}")


def frame_size(frame: bytes) -> int:
    """Return the size of a frame on a stream: its prefix and its body."""
    return PREFIX_BYTES + len(frame)


def on_stream(frame: bytes) -> bytes:
    """Return the frame as a stream carries it."""
    size = len(frame)
    if not 0 < size <= FRAME_BYTES_MAX:
        check_size(size)
    return _PREFIX.pack(size) + frame


def prefix(frame: bytes) -> bytes:
    """Return the prefix of a frame on a stream, which is not checked."""
    return _PREFIX.pack(len(frame))


def as_stream(frames: Sequence[bytes]) -> bytes:
    """Return frames as a stream carries them; they are not checked."""
    return b"".join(map(add, map(_PREFIX.pack, map(len, frames)), frames))


class FrameReader:
    """Cuts a stream of bytes, fed in pieces of any size, into frames.

    At most one frame of `FRAME_BYTES_MAX` bytes and one piece are held at a time. The pieces of a
    large frame are joined once, when the last one arrives: a growing buffer would copy them
    repeatedly.
    """

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []
        self._held = 0
        self._wanted = PREFIX_BYTES
        self.finished = False
        """Whether the stream contained `GOODBYE`: its end is deliberate, and no frame follows."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Read bytes from the stream and return an iterator over the complete frames.

        Exhaust it before the next bytes: they follow those that it has not reached yet.
        """
        size, is_between = len(data) - PREFIX_BYTES, not (self._held or self.finished)
        if is_between and 0 < size <= FRAME_BYTES_MAX and _read_length(data)[0] == size:
            return iter((data[PREFIX_BYTES:],))  # a frame that came alone, as most do
        return self._cut(data)

    def _cut(self, data: bytes) -> Iterator[bytes]:
        start = 0
        if self._held + len(data) < self._wanted and not self.finished:
            self._keep(data)
            return
        if self._held >= PREFIX_BYTES:
            start = self._wanted - self._held
            del self._pieces[0][:PREFIX_BYTES]
            yield self._release(data[:start])
        elif self._held:
            data = self._release(data)
        while len(data) - start >= PREFIX_BYTES and not self.finished:
            (length,) = _read_length(data, start)
            if length > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {length} bytes; allowed: 1 to {FRAME_BYTES_MAX}")
            end = start + PREFIX_BYTES + length
            if len(data) < end:
                self._wanted = end - start
                break
            if length:
                yield data[start + PREFIX_BYTES : end]
            else:
                self.finished = True
            start = end
        if start < len(data):
            if self.finished:
                raise FrameError("bytes after the goodbye")
            self._keep(data[start:])

    def _keep(self, data: bytes) -> None:
        """Store bytes, small ones in one piece, so that a trickle does not cost many objects."""
        self._held += len(data)
        if self._pieces and len(self._pieces[-1]) < _PIECE_BYTES:
            self._pieces[-1] += data
        elif data:
            self._pieces.append(bytearray(data))

    def _release(self, data: bytes) -> bytes:
        """Return all stored bytes, followed by these."""
        held = b"".join((*self._pieces, data))
        self._pieces.clear()
        self._held, self._wanted = 0, PREFIX_BYTES
        return held
