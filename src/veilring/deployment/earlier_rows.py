"""The file of rows of a prediction server, which had a folder until format 4 of state files.

A header is followed by two marks, written in turns, and by the places of the rows. A mark has the
state after the last step, and the places that a step in progress changes.
"""

import sqlite3
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, Self

from veilring.errors import StoreFailed
from veilring.privacy.sections import state_of

_MAGIC: Final = b"veilring rows 2\n"
_BLOCK: Final = 4096  # the header, then two marks, in turns
_HEAD: Final = struct.Struct(f"<{len(_MAGIC)}sI32s16s")
_MARK: Final = struct.Struct("<QQQBI")
_CHECK_BYTES: Final = 4
_ID_LABEL_BYTES: Final = 64 + 2
_FORGETTING: Final = 2  # the kind of a step; another adds rows


class _Mark(NamedTuple):
    """The state of a file of rows after its last step, and a step in progress."""

    number: int  # even after a step, odd during one
    end: int
    rows: int
    step: int
    places: frozenset[int]

    @classmethod
    def parse(cls, block: bytes) -> Self | None:
        """Return the mark of a block, or none if the block was torn or cut off."""
        if len(block) < _MARK.size:
            return None
        number, all_places, rows, step, count = _MARK.unpack_from(block)
        end = _MARK.size + 4 * count
        if block[end : end + _CHECK_BYTES] != _crc(block[:end]):
            return None
        changing = frozenset(struct.unpack(f"<{count}I", block[_MARK.size : end]))
        return cls(number, all_places, rows, step, changing)


class EarlierRows(NamedTuple):
    """The content of a file of rows.

    Attributes:
        features: The number of features of a record.
        schema: The SHA-256 of the conversion from rows to records.
        places: The content of each place, zero if it is free.
    """

    features: int
    schema: bytes
    places: list[bytes]


def read_rows(connection: sqlite3.Connection, path: Path, noted: int) -> EarlierRows:
    """Read the rows of a prediction server, with the former checks.

    Args:
        connection: The ledger of the server.
        path: The file of rows.
        noted: The number of its steps that the ledger has noted.

    Raises:
        StoreFailed: If the file is missing, damaged or cut off, or does not belong to the ledger.
    """
    if not path.exists():
        raise _bad_rows(path, "is missing")
    content = path.read_bytes()
    head, marks = (
        content[: _HEAD.size],
        (content[_BLOCK : 2 * _BLOCK], content[2 * _BLOCK : 3 * _BLOCK]),
    )
    if content[_HEAD.size : _HEAD.size + _CHECK_BYTES] != _crc(head):
        raise _bad_rows(path, "is damaged in its header")
    magic, features, schema, tie = _HEAD.unpack(head)
    if magic != _MAGIC or tie != state_of(connection).id:
        raise _bad_rows(path, "belongs to another ledger")
    found = [mark for mark in map(_Mark.parse, marks) if mark is not None]
    if not found:
        raise _bad_rows(path, "is damaged in both of its marks")
    mark = max(found)
    if not (noted <= mark.number // 2 and (mark.number + 1) // 2 <= noted + 1):
        raise _bad_rows(path, "is older or newer than the ledger")
    places = _places(path, content[3 * _BLOCK :], features, mark)
    _require_budgets(connection, path, places)
    return EarlierRows(features, schema, places)


def _places(path: Path, content: bytes, features: int, mark: _Mark) -> list[bytes]:
    """Return the content of each place, zero if it is free, also after an interrupted step."""
    size = _ID_LABEL_BYTES + 2 * features + _CHECK_BYTES
    end = max((mark.end, *(1 + place for place in mark.places)))
    if not mark.end * size <= len(content) <= end * size:
        raise _bad_rows(path, "is cut off, or longer than before")
    places, rows = list[bytes](), 0
    for number, start in enumerate(range(0, len(content), size)):
        whole = content[start : start + size].ljust(size, b"\0")
        place, changing = whole[:-_CHECK_BYTES], number in mark.places
        is_sound = whole[-_CHECK_BYTES:] == _crc(place)
        if any(whole) and not is_sound and not changing:
            raise _bad_rows(path, "is damaged in a row")
        rows += is_sound and not changing
        keeps = is_sound and not (changing and mark.step == _FORGETTING)
        places.append(place if keeps else bytes(len(place)))
    if rows != mark.rows - (len(mark.places) if mark.step == _FORGETTING else 0):
        raise _bad_rows(path, "has another number of rows than were written")
    return places


def _require_budgets(connection: sqlite3.Connection, path: Path, places: Sequence[bytes]) -> None:
    """Refuse rows that the ledger does not know: no crash leaves a row without a budget."""
    ((key,),) = connection.execute("SELECT value FROM settings WHERE name = 'key'").fetchall()
    known = {digest for (digest,) in connection.execute("SELECT digest FROM records")}
    ids = (place[: _ID_LABEL_BYTES - 2].rstrip(b"\0") for place in places if any(place))
    if not all(blake2b(b"0::" + name, key=key, digest_size=16).digest() in known for name in ids):
        raise _bad_rows(path, "has rows that the ledger does not know")


def _bad_rows(path: Path, what: str) -> StoreFailed:
    return StoreFailed(
        f"{path} {what}. Nothing was converted. Restore your newest copies of the folder, or repair"
        " it with `veilring records repair` of the version that wrote it"
    )


def _crc(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECK_BYTES, "little")
