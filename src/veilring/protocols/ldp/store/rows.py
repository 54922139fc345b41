"""What a store tells its database and hears from it: many rows in one blob, whichever database."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import StoreFailed
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.randomiser import Sums
from veilring.protocols.ldp.messages import ID_BYTES
from veilring.protocols.ldp.store.base import OTHER, PIECE_REPORTS_MAX, SAME, Found, Kept, Some
from veilring.protocols.ldp.store.senders import NUMBER_BYTES, number_blob

# Reports that are read at once, however wide they are.
PIECE_BYTES_MAX: Final = 16 << 20
DIGEST_END: Final = 1 << 64

_SUM: Final = np.dtype("<i8")
_HEAD_BYTES: Final = ID_BYTES + 2 * NUMBER_BYTES  # an id, a member and a question
_GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: its multiples are spread evenly


def values_of(question: int, some: Some) -> dict[str, int | bytes]:
    """Return what a statement cuts into rows."""
    return {
        "question": question,
        "size": ID_BYTES,
        "ids": some.ids.tobytes(),
        "reports": some.reports.tobytes(),
        "width": some.reports.shape[1],
        "members": number_blob(some.members).tobytes(),
        "number": NUMBER_BYTES,
        "count": len(some),
    }


def found_in(listed: str | None, count: int) -> Found:
    """Return what was found of so many ids.

    Args:
        listed: For each that is there, `2 * place`, and one more if its report is the same; in
            decimal, with commas between.
        count: How many were looked for.
    """
    found = np.zeros(count, dtype=np.uint8)
    if listed:
        places, same = np.divmod(np.array(listed.split(","), dtype=np.int64), 2)
        found[places] = np.where(same, SAME, OTHER)
    return found


def as_blob(sums: Sums) -> bytes:
    """Return what is stored of running sums."""
    return sums.astype(_SUM).tobytes()


def kept_in(reports: int, blob: bytes, cells: int) -> Kept:
    """Return running sums that were stored.

    Raises:
        StoreFailed: If there are not so many.
    """
    if len(blob) != cells * _SUM.itemsize:
        raise StoreFailed("running sums are stored that have another length")
    return Kept(reports, np.frombuffer(blob, _SUM).astype(np.int64))


def some_in(rows: Sequence[tuple[bytes, bytes, bytes]], width: int) -> Some:
    """Return reports that were stored, from rows of id, member and report.

    Raises:
        StoreFailed: If a report is not so wide, or an id or a member's number.
    """
    widths = (ID_BYTES, NUMBER_BYTES, width)
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    for column, size in zip(columns, widths, strict=True):
        if set(map(len, column)) - {size}:
            raise StoreFailed("a report is stored that has another length")
    ids, numbers, reports = (
        np.frombuffer(b"".join(column), np.uint8).reshape(-1, size)
        for column, size in zip(columns, widths, strict=True)
    )
    members = np.ascontiguousarray(numbers).view("<u4").reshape(-1).astype(np.int64)
    return Some(ids, reports, members)


def piece_rows(width: int) -> int:
    """Return how many reports of so many bytes are read at once."""
    return max(1, min(PIECE_REPORTS_MAX, PIECE_BYTES_MAX // (ID_BYTES + NUMBER_BYTES + width)))


def digest_of(question: int, some: Some) -> int:
    """Return the sum of a hash of each report with its id, its member and its question.

    It is for accidents: a row in which one bit has flipped has another hash for certain, and rows
    that were added or lost, or that have exchanged their reports, have another sum by all odds.
    Each word of a row is mixed by its place, and then the sum of the words is.

    Returns:
        A number below 2^64; digests of several parts are added modulo 2^64.
    """
    width = some.reports.shape[1]
    total = 0
    for chunk in chunks(len(some), 2 * (_HEAD_BYTES + width + 8)):
        part = some.at(chunk)
        row = np.zeros((len(part), _HEAD_BYTES + -(-width // 8) * 8), dtype=np.uint8)
        row[:, :ID_BYTES] = part.ids
        row[:, ID_BYTES : ID_BYTES + NUMBER_BYTES] = number_blob(part.members)
        row[:, ID_BYTES + NUMBER_BYTES : _HEAD_BYTES] = number_blob(np.array([question]))
        row[:, _HEAD_BYTES : _HEAD_BYTES + width] = part.reports
        words = row.view("<u8")
        by_word = _mixed(words ^ _places(words.shape[1]))
        by_row = _mixed(by_word.sum(axis=1, dtype=np.uint64))
        total += int(by_row.sum(dtype=np.uint64))
    return total % DIGEST_END


@lru_cache(maxsize=64)
def _places(count: int) -> NDArray[np.uint64]:
    """Return a number for each place of a word, so that two words that change places are seen."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Permute the 64-bit words: variant 13 of MurmurHash3's finaliser (Stafford 2011)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
