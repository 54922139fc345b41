"""The file of a server's rows, in fixed places that can be erased with zeros.

It is not a database, because a database moves rows: SQLite left fragments of deleted rows in its
pages, even with `secure_delete` on. In this file a row is stored in one place and nowhere else:
neither in a log, nor in an index, nor in a copy.

Each place has a checksum. Before places change, a mark lists them; afterwards another mark records
the number of rows. A crash therefore leaves only damage that the last mark explains, and opening
the file erases it. Any other damage is refused, and nothing is overwritten.
"""

import io
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, StoreFailed
from veilring.privacy.files import open_private, sync_folder
from veilring.privacy.statefile import another_format
from veilring.protocols.prediction.records import ID_BYTES_MAX, LabelledRecords

SCHEMA_BYTES: Final = 32
TIE_BYTES: Final = 16
# The size of one read on opening, so that memory contains the rows only about once.
_READ_BYTES_MAX: Final = 1 << 24
# The maximum number of records in one step, so that their places fit into one mark.
STEP_RECORDS_MAX: Final = 1000
REPAIR: Final = "veilring records repair"
"""The command that repairs files after a loss."""

_VERSION: Final = 2
_MAGIC: Final = b"veilring rows %d\n" % _VERSION
_ANY_MAGIC: Final = re.compile(rb"veilring rows ([1-9]\d*)\n")
_CHECK_BYTES: Final = 4
# The unit of a disk's writes, so that a torn write of one mark leaves the others intact.
_BLOCK_BYTES: Final = 4096
# The header, a mark of finished steps, and a mark of a step in progress.
_BLOCKS: Final = 3
_PLACES_FROM: Final = _BLOCKS * _BLOCK_BYTES
_HEAD: Final = struct.Struct(f"<{len(_MAGIC)}sI{SCHEMA_BYTES}s{TIE_BYTES}s")
_MARK: Final = struct.Struct("<QQQBI")
_IDLE, _ADDING, _FORGETTING = range(3)


class _Mark(NamedTuple):
    """The state of the file after its last step, and the step in progress.

    Attributes:
        number: The sequence number: even after a step, odd during one.
        end: The number of places.
        rows: The number of rows.
        step: The kind of the step in progress.
        places: The places that the step changes.
    """

    number: int = 0
    end: int = 0
    rows: int = 0
    step: int = _IDLE
    places: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        places = np.array(self.places, "<u4").tobytes()
        packed = _MARK.pack(self.number, self.end, self.rows, self.step, len(self.places)) + places
        return (packed + _crc(packed)).ljust(_BLOCK_BYTES, b"\0")

    @classmethod
    def parse(cls, block: bytes) -> "_Mark | None":
        """Return the mark of a block, or None if the block is damaged or incomplete."""
        number, end, rows, step, count = _MARK.unpack_from(block)
        last = _MARK.size + 4 * count
        if block[last : last + _CHECK_BYTES] != _crc(block[:last]):
            return None
        places = np.frombuffer(block[_MARK.size : last], "<u4")
        return cls(number, end, rows, step, tuple(places.tolist()))


@dataclass(frozen=True, slots=True, repr=False)
class Salvage:
    """The part of a damaged file of rows that can be read.

    Attributes:
        ids: The ids of the intact rows.
        damaged: The number of damaged places, or of missing rows.
        steps: The number of finished steps: see `RowFile`.
        tied: Whether the file belongs to the ledger next to it, as far as its header is readable.
    """

    ids: tuple[str, ...] = ()
    damaged: int = 0
    steps: int = 0
    tied: bool = True


def open_rows(
    path: Path | None,
    features: int,
    schema: bytes = bytes(SCHEMA_BYTES),
    tie: bytes = bytes(TIE_BYTES),
    *,
    begin: bool = True,
    finished: int = 0,
) -> "RowFile":
    """Open or create a file of rows. The caller holds the lock of the ledger next to it.

    Args:
        path: The path of the file; none for rows in memory.
        features: The number of features of a row.
        schema: A hash of the terms that convert a row into a direction.
        tie: The id of the ledger next to it.
        begin: Whether a missing file may be created.
        finished: The number of steps of the file that the ledger has recorded.

    Raises:
        InputError: If the file was created for other features or another schema.
        StoreFailed: If the file cannot be opened, is damaged, missing or older than the ledger, or
            belongs to another ledger.
    """
    head = _HEAD.pack(_MAGIC, features, schema, tie)
    if path is None:
        return RowFile(io.BytesIO(_begun(head)), features, None)  # no older content to check
    with ExitStack() as unless_failed:
        try:
            if not path.exists():
                if not begin:
                    raise _missing(path)
                _write_new(path, _begun(head))
            file = unless_failed.enter_context(path.open("r+b", buffering=0))
            _require_head(path, _read_all(file, _BLOCK_BYTES), head)
            rows = RowFile(file, features, path)
            rows.check(finished)
        except OSError as error:
            raise unreadable_rows(path, error) from error
        unless_failed.pop_all()
    return rows


def salvage(
    path: Path, features: int, schema: bytes, tie: bytes, *, overwrite: bool = False
) -> Salvage:
    """Find the intact rows of a damaged file, and optionally overwrite the damaged places.

    Args:
        path: The file; a missing file counts as empty.
        features: The number of features, as in `open_rows`.
        schema: The hash of the terms, as in `open_rows`.
        tie: The id of the ledger, as in `open_rows`.
        overwrite: Whether to repair the file so that it contains the intact rows only.

    Raises:
        InputError: As in `open_rows`.
        StoreFailed: If the file cannot be read or written.
    """
    head = _HEAD.pack(_MAGIC, features, schema, tie)
    try:
        if not path.exists():
            if overwrite:
                _write_new(path, _begun(head))
            return Salvage()
        with path.open("r+b" if overwrite else "rb", buffering=0) as file:
            block = _read_all(file, _BLOCK_BYTES)
            _require_format(path, block)
            kept = _head_of(block)
            if kept is not None:
                _require_terms(kept, head)
            found = RowFile(file, features, path).salvage(head if overwrite else None)
            return replace(found, tied=kept in {None, head})
    except OSError as error:
        raise unreadable_rows(path, error) from error


def unreadable_rows(path: Path, error: OSError) -> StoreFailed:
    """Return the error for a file of rows that cannot be opened or read."""
    return StoreFailed(
        f"{path}: {error.strerror}. Check the disk and its permissions. If the file is "
        f"damaged, restore your newest copy of it, or see `{REPAIR}`"
    )


class RowFile:
    """A file of rows in fixed places. Create it with `open_rows`, and call `load` first.

    Args:
        file: An unbuffered file with a header.
        features: The number of features of a row.
        path: The path of the file; none for rows in memory.

    Attributes:
        path: The path of the file; none for rows in memory.
    """

    def __init__(self, file: BinaryIO, features: int, path: Path | None) -> None:
        self._file, self.path = file, path
        self._place = np.dtype(
            [
                ("id", f"S{ID_BYTES_MAX}"),
                ("label", "<u2"),
                ("features", "<i2", (features,)),
                ("check", "<u4"),
            ]
        )
        self._mark = _Mark()
        self._places: dict[str, int] = {}
        self._free: list[int] = []

    @property
    def ids(self) -> Iterable[str]:
        """The ids of all rows, once they have been loaded."""
        return self._places.keys()

    @property
    def steps(self) -> int:
        """The number of finished steps since the file was created; each step changes some rows."""
        return self._mark.number // 2

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def check(self, finished: int = 0) -> None:
        """Check the whole file, and then finish a step that a crash interrupted.

        Args:
            finished: The number of steps in the ledger, as in `open_rows`. A step in progress with
                a recorded number shows that the file is an older copy.

        Raises:
            StoreFailed: If an interrupted step does not explain the damage, or the file is an older
                copy. Nothing has been overwritten.
        """
        self._mark = self._last_mark()
        if self.steps < finished:
            raise StoreFailed(
                f"{self.path} is older than the ledger next to it: {finished - self.steps} changes "
                "of records are missing, and records that were forgotten later are present again. "
                f"Restore your newest copy. Without one, see `{REPAIR}`"
            )
        self._require_size()
        sound, damaged = self._survey()
        mark, changing = self._mark, set(self._mark.places)
        unexplained = [place for place in damaged if place not in changing]
        if unexplained:
            raise self._damaged(f"{len(unexplained)} of {mark.end} places are damaged")
        kept = [place for place in sound.tolist() if place not in changing]
        expected = mark.rows - (len(changing) if mark.step == _FORGETTING else 0)
        if len(kept) != expected:
            raise self._damaged(f"it has {len(kept)} rows instead of {expected}")
        if mark.step == _ADDING:
            kept += [place for place in sound.tolist() if place in changing]
        if mark.step != _IDLE:
            self._zero(sorted(changing.difference(kept)))
            self._end_step(self._whole_places(), len(kept))

    def load(self) -> Iterator[LabelledRecords]:
        """Read the rows of the file, once, from its beginning.

        Raises:
            StoreFailed: If an id has two rows.
        """
        for first, some in self._blocks():
            free = _are_free(some)
            found, where = _records(some[~free]), first + np.flatnonzero(~free)
            self._free += (first + np.flatnonzero(free)).tolist()
            self._places.update(zip(found.ids, where.tolist(), strict=True))
            yield found
        if len(self._places) != self._mark.rows:
            raise self._damaged("an id has two rows")

    def differing(self, records: LabelledRecords) -> int | None:
        """Return the position of the first record that exists with another row, or None."""
        for number, name in enumerate(records.ids):
            if name in self._places:
                kept = self._read(self._places[name], 1)
                given = records.take([number])
                if kept.tobytes() != self._written(given).tobytes():
                    return number
        return None

    def add(self, records: LabelledRecords) -> None:
        """Write at most `STEP_RECORDS_MAX` new records; they are durable when this returns."""
        if not len(records):
            return
        places = self._free_places(len(records))
        self._begin_step(_ADDING, places)
        for name, place, written in zip(records.ids, places, self._written(records), strict=True):
            self._write(place, written.tobytes())
            self._places[name] = place
        self._sync()
        self._end_step(max(self._mark.end, max(places) + 1), len(self))

    def forget(self, ids: Sequence[str]) -> None:
        """Overwrite at most `STEP_RECORDS_MAX` rows with zeros, durably when this returns."""
        if not ids:
            return
        places = [self._places[name] for name in ids]
        self._begin_step(_FORGETTING, places)
        self._zero(places)
        for name in ids:
            del self._places[name]
        self._free += places
        self._end_step(self._mark.end, len(self))

    def salvage(self, head: bytes | None) -> Salvage:
        """Find the intact rows; given a header, write it and overwrite damaged places with zeros.

        Args:
            head: The new header of the file.
        """
        last = max((mark for mark in self._marks() if mark is not None), default=_Mark())
        self._mark = last._replace(end=self._whole_places(), places=())
        sound, damaged = self._survey()
        ids = tuple(name for place in sound.tolist() for name in _records(self._read(place, 1)).ids)
        if head is not None:
            self._zero(damaged)
            self._file.truncate(self._offset(self._mark.end))  # extends a file that was cut off
            self._file.seek(0)
            _write_all(self._file, _block_of(head))
            self._mark = self._mark._replace(
                number=last.number | 1
            )  # within a step, which ends here
            self._end_step(self._mark.end, len(ids))
        return Salvage(ids, max(len(damaged), last.rows - len(ids)), self.steps)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _last_mark(self) -> _Mark:
        """Return the newest valid mark; the other one may be incomplete."""
        marks = [mark for mark in self._marks() if mark is not None]
        if not marks:
            raise self._damaged("both marks of its steps are damaged")
        return max(marks)

    def _marks(self) -> tuple[_Mark | None, _Mark | None]:
        self._file.seek(_BLOCK_BYTES)
        blocks = _read_all(self._file, 2 * _BLOCK_BYTES).ljust(2 * _BLOCK_BYTES, b"\0")
        return _Mark.parse(blocks[:_BLOCK_BYTES]), _Mark.parse(blocks[_BLOCK_BYTES:])

    def _survey(self) -> tuple[NDArray[np.int64], list[int]]:
        """Return the places with an intact row, and the damaged places; all others are free."""
        sound: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        damaged: list[int] = []
        for first, some in self._blocks():
            good = np.array([_is_sound(place) for place in some], np.bool_)
            sound.append(first + np.flatnonzero(good))
            damaged += (first + np.flatnonzero(~good & ~_are_free(some))).tolist()
        return np.concatenate(sound), damaged

    def _require_size(self) -> None:
        """Refuse a file of the wrong size, unless an interrupted addition explains it."""
        end = max(self._mark.end, *(1 + place for place in self._mark.places), 0)
        size = self._size()
        if size < self._offset(self._mark.end):
            raise self._damaged("its end is missing")
        if size > self._offset(end):
            raise self._damaged("it is longer than before")

    def _blocks(self) -> Iterator[tuple[int, NDArray[np.void]]]:
        """Yield all places in blocks, each with its first number; a partial place is zeroed."""
        at_once = max(1, _READ_BYTES_MAX // self._place.itemsize)
        end = self._whole_places()
        for first in range(0, end, at_once):
            yield first, self._read(first, min(at_once, end - first))

    def _whole_places(self) -> int:
        """Return the number of places, including one that was cut off."""
        return max(0, -(-(self._size() - _PLACES_FROM) // self._place.itemsize))

    def _free_places(self, count: int) -> list[int]:
        """Return free places, followed by new ones at the end."""
        old = [self._free.pop() for _ in range(min(count, len(self._free)))]
        return old + list(range(self._mark.end, self._mark.end + count - len(old)))

    def _begin_step(self, step: int, places: Sequence[int]) -> None:
        if len(places) > STEP_RECORDS_MAX:
            raise InputError("records", len(places), f"at most {STEP_RECORDS_MAX} at once")
        number = self._mark.number + 1
        self._put(self._mark._replace(number=number, step=step, places=tuple(places)))

    def _end_step(self, end: int, rows: int) -> None:
        self._put(_Mark(self._mark.number + 1, end, rows))

    def _put(self, mark: _Mark) -> None:
        """Durably write a mark over the older of the two."""
        self._file.seek(_BLOCK_BYTES * (1 + mark.number % 2))
        _write_all(self._file, mark.to_bytes())
        self._sync()
        self._mark = mark

    def _size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def _offset(self, place: int) -> int:
        return _PLACES_FROM + place * self._place.itemsize

    def _read(self, first: int, count: int) -> NDArray[np.void]:
        self._file.seek(self._offset(first))
        size = count * self._place.itemsize
        return np.frombuffer(_read_all(self._file, size).ljust(size, b"\0"), self._place)

    def _write(self, where: int, place: bytes) -> None:
        self._file.seek(self._offset(where))
        _write_all(self._file, place)

    def _zero(self, places: Sequence[int]) -> None:
        for where in places:
            self._write(where, bytes(self._place.itemsize))
        if places:
            self._sync()

    def _sync(self) -> None:
        if not isinstance(self._file, io.BytesIO):
            os.fsync(self._file.fileno())

    def _written(self, records: LabelledRecords) -> NDArray[np.void]:
        written = np.zeros(len(records), self._place)
        written["id"] = [name.encode() for name in records.ids]
        written["label"], written["features"] = records.labels, records.features
        written["check"] = [_checksum(place) for place in written]
        return written

    def _damaged(self, what: str) -> StoreFailed:
        return _damaged_rows(self.path, what)


def _checksum(place: np.void) -> int:
    return zlib.crc32(place.tobytes()[:-_CHECK_BYTES])


def _is_sound(place: Any) -> bool:  # noqa: ANN401  (NumPy types no fields)
    return bool(_checksum(place) == place["check"])


def _are_free(places: NDArray[np.void]) -> NDArray[np.bool_]:
    held = places.view(np.uint8).reshape(len(places), -1)
    return np.asarray(~held.any(axis=1), np.bool_)


def _records(places: NDArray[Any]) -> LabelledRecords:
    ids = tuple(name.decode() for name in places["id"].tolist())
    return LabelledRecords(ids, places["features"], places["label"])


def _begun(head: bytes) -> bytes:
    """Return an empty file, in which the second mark counts as the older one."""
    return _block_of(head) + _Mark().to_bytes() + bytes(_BLOCK_BYTES)


def _block_of(head: bytes) -> bytes:
    return (head + _crc(head)).ljust(_BLOCK_BYTES, b"\0")


def _head_of(block: bytes) -> bytes | None:
    """Return the header in the first block, or None if it is damaged."""
    given = _checked_head(block)
    return given if given is not None and given.startswith(_MAGIC) else None


def _checked_head(block: bytes) -> bytes | None:
    given, check = block[: _HEAD.size], block[_HEAD.size : _HEAD.size + _CHECK_BYTES]
    return given if check == _crc(given) else None


def _require_format(path: Path, block: bytes) -> None:
    """Refuse a file of another version, which is not damaged and must not be repaired."""
    found = _ANY_MAGIC.match(block)
    version = int(found[1]) if found else _VERSION
    # A flipped bit may make a higher number of ours; format 1 had no checksum.
    if version < _VERSION or (version > _VERSION and _checked_head(block) is not None):
        raise another_format(
            path, "file of rows", version, _VERSION, "records and their labels are lost"
        )


def _require_head(path: Path, block: bytes, head: bytes) -> None:
    _require_format(path, block)
    kept = _head_of(block)
    if kept is None:
        raise _damaged_rows(path, "its header is damaged, or it is another program's file")
    _require_terms(kept, head)
    if kept != head:
        raise StoreFailed(
            f"{path} does not belong to the ledger next to it. Restore two files that "
            f"belong together. Without the ledger, the charges of its records are lost: see "
            f"`{REPAIR}`"
        )


def _require_terms(kept: bytes, head: bytes) -> None:
    """Refuse a header for other features or another schema."""
    if kept[:-TIE_BYTES] != head[:-TIE_BYTES]:
        raise InputError.because(
            "the file of rows was made for other features or columns", field="rows"
        )


def _missing(path: Path) -> StoreFailed:
    return StoreFailed(
        f"{path} is missing, although the ledger next to it has records. Restore it. Without "
        f"it, see `{REPAIR}`: records that you add again keep their remaining budgets"
    )


def _damaged_rows(path: Path | None, what: str) -> StoreFailed:
    return StoreFailed(
        f"{path or 'the file of rows'}: {what}. Nothing was overwritten. Restore your newest copy "
        f"of it. Without one, see `{REPAIR}`: missing records that you add again "
        "keep their remaining budgets"
    )


def _crc(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECK_BYTES, "little")


def _write_new(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with open_private(draft, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.resolve().parent)


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
