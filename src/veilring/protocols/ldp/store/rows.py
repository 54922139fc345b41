"""What a store tells its database and hears from it: many rows in one blob, whichever database."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import StoreFailed
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums
from veilring.protocols.ldp.messages import ID_BYTES
from veilring.protocols.ldp.store.base import OTHER, SAME, Found, Kept

__all__ = ("as_blob", "found_in", "kept_in", "reports_in", "values_of")

_SUM: Final = np.dtype("<i8")


def values_of(question: int, ids: NDArray[np.uint8], reports: Reports) -> dict[str, int | bytes]:
    """Return what a statement cuts into rows."""
    return {
        "question": question,
        "size": ID_BYTES,
        "ids": ids.tobytes(),
        "reports": reports.tobytes(),
        "width": reports.shape[1],
        "count": len(ids),
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


def reports_in(rows: Sequence[tuple[bytes]], width: int) -> Reports:
    """Return reports that were stored.

    Raises:
        StoreFailed: If one is not so wide.
    """
    if any(len(report) != width for (report,) in rows):
        raise StoreFailed("a report is stored that has another length")
    return np.frombuffer(b"".join([report for (report,) in rows]), np.uint8).reshape(-1, width)
