"""The file of a server's rows: fixed places that are written once and overwritten with zeros.

It is no database, because a database moves what it holds: SQLite was seen to leave pieces of
deleted rows in its pages, with `secure_delete` on. Here a row has one place, and nothing but that
place ever holds it: neither a log, nor an index, nor a copy.

A place that was half written when power failed is known by its checksum. It belongs to an addition
that nobody was told of, or to a row that was being forgotten. Opening the file zeroes it.
"""

import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, StoreFailed
from veilring.privacy.statefile import sync_folder
from veilring.protocols.prediction.records import ID_BYTES_MAX, Records

__all__ = ("READ_BYTES_MAX", "SCHEMA_BYTES", "RowFile", "open_rows", "unreadable_rows")

SCHEMA_BYTES: Final = 32
# Read at once when the file is opened, so that memory holds the rows about once.
READ_BYTES_MAX: Final = 1 << 24

_MAGIC: Final = b"veilring rows 1\n"
_CHECK_BYTES: Final = 4


def open_rows(path: Path | None, features: int, schema: bytes = bytes(SCHEMA_BYTES)) -> "RowFile":
    """Open a file of rows, or begin it. Whoever opens it holds the lock of the ledger beside it.

    Args:
        path: Where it is; none for rows in memory.
        features: Of a row.
        schema: A hash of whatever makes a row a direction: a file begun with another is refused.

    Raises:
        InputError: If it is no such file, or was begun with other features or another schema.
        StoreFailed: If it cannot be opened.
    """
    if path is None:
        return RowFile(io.BytesIO(), features, schema)
    with ExitStack() as unless_failed:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            file = unless_failed.enter_context(os.fdopen(handle, "r+b", buffering=0))
            rows = RowFile(file, features, schema)
            sync_folder(path.resolve().parent)
        except OSError as error:
            raise unreadable_rows(path, error) from error
        unless_failed.pop_all()
    return rows


def unreadable_rows(path: Path, error: OSError) -> StoreFailed:
    """Return what to say of a file of rows that cannot be opened or read."""
    return StoreFailed(
        f"{path}: {error.strerror}. Check the disk, and who may write there. If the file is "
        "damaged, move it away and add its records again: they have what they had left"
    )


class RowFile:
    """Rows in places. Get it from `open_rows`.

    Args:
        file: Unbuffered.
        features: Of a row.
        schema: See `open_rows`.
    """

    def __init__(self, file: BinaryIO, features: int, schema: bytes) -> None:
        self._file, self._head = file, _MAGIC + features.to_bytes(4, "little") + schema
        self._place = np.dtype(
            [
                ("id", f"S{ID_BYTES_MAX}"),
                ("label", "<u2"),
                ("features", "<i2", (features,)),
                ("check", "<u4"),
            ]
        )
        self._places: dict[str, int] = {}
        self._free: list[int] = []
        self._end = 0
        self._begin()

    @property
    def ids(self) -> Iterable[str]:
        """Whose rows there are, once they were read."""
        return self._places.keys()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def load(self) -> Iterator[Records]:
        """Read the file once, from its beginning, and zero what was half written."""
        at_once = max(1, READ_BYTES_MAX // self._place.itemsize)
        torn: list[int] = []
        self._end = self._whole_places()
        for first in range(0, self._end, at_once):
            some = self._read(first, min(at_once, self._end - first))
            good = np.array([_is_sound(place) for place in some], np.bool_)
            zero = ~some.view(np.uint8).reshape(len(some), -1).any(axis=1)
            self._free += (first + np.flatnonzero(~good)).tolist()
            torn += (first + np.flatnonzero(~good & ~zero)).tolist()
            found = _records(some[good])
            self._places.update(
                zip(found.ids, (first + np.flatnonzero(good)).tolist(), strict=True)
            )
            yield found
        self._zero(torn)

    def differing(self, records: Records) -> int | None:
        """Return which record is here with another row, or none."""
        for number, name in enumerate(records.ids):
            if name in self._places:
                kept = self._read(self._places[name], 1)
                given = records.take([number])
                if kept.tobytes() != self._written(given).tobytes():
                    return number
        return None

    def add(self, records: Records) -> None:
        """Write records that are not here; they are on the disk when this returns."""
        written = self._written(records)
        for name, place in zip(records.ids, written, strict=True):
            where = self._free.pop() if self._free else self._end
            self._end = max(self._end, where + 1)
            self._write(where, place.tobytes())
            self._places[name] = where
        self._sync()

    def forget(self, ids: Sequence[str]) -> None:
        """Overwrite rows with zeros, on the disk when this returns."""
        places = [self._places.pop(name) for name in ids]
        self._zero(places)
        self._free += places

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _begin(self) -> None:
        self._file.seek(0)
        head = self._file.read(len(self._head))
        if head == self._head:
            return
        # A file shorter than its head was begun, and power failed.
        if len(head) == len(self._head) or not self._head.startswith(head):
            allowed = "a file of rows for the same features and columns"
            raise InputError("rows", "another file", allowed)
        self._file.seek(0)
        _write_all(self._file, self._head)
        self._sync()

    def _whole_places(self) -> int:
        """Return how many places there are; one that was cut off is zeroed and made whole."""
        size = self._file.seek(0, os.SEEK_END) - len(self._head)
        places, rest = divmod(size, self._place.itemsize)
        if rest:
            self._write(places, bytes(self._place.itemsize))
            self._sync()
        return places + bool(rest)

    def _read(self, first: int, count: int) -> NDArray[np.void]:
        self._file.seek(len(self._head) + first * self._place.itemsize)
        return np.frombuffer(_read_all(self._file, count * self._place.itemsize), self._place)

    def _write(self, where: int, place: bytes) -> None:
        self._file.seek(len(self._head) + where * self._place.itemsize)
        _write_all(self._file, place)

    def _zero(self, places: Sequence[int]) -> None:
        for where in places:
            self._write(where, bytes(self._place.itemsize))
        if places:
            self._sync()

    def _sync(self) -> None:
        if not isinstance(self._file, io.BytesIO):
            os.fsync(self._file.fileno())

    def _written(self, records: Records) -> NDArray[np.void]:
        written = np.zeros(len(records), self._place)
        written["id"] = [name.encode() for name in records.ids]
        written["label"], written["features"] = records.labels, records.features
        written["check"] = [_checksum(place) for place in written]
        return written


def _checksum(place: np.void) -> int:
    return zlib.crc32(place.tobytes()[:-_CHECK_BYTES])


def _is_sound(place: Any) -> bool:  # noqa: ANN401  (NumPy types no fields)
    return bool(_checksum(place) == place["check"])


def _records(places: NDArray[Any]) -> Records:
    ids = tuple(name.decode() for name in places["id"].tolist())
    return Records(ids, places["features"], places["label"])


def _read_all(file: BinaryIO, size: int) -> bytes:
    parts: list[bytes] = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_all(file: BinaryIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
