"""Reports that came twice among those that arrived together."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.intake import Verdicts
from veilring.protocols.ldp.messages import ID_BYTES
from veilring.protocols.ldp.verdicts import Verdict

_NOT_TAKEN: Final = (Verdict.CLOSED, Verdict.OVER_QUOTA)


def in_order_of_ids(ids: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the order by the first half of the ids, in which a B-tree takes them fastest.

    Reports with equal ids stay in the order in which they came.
    """
    halves = np.ascontiguousarray(ids[:, : ID_BYTES // 2]).view(">u8").reshape(-1)
    return np.argsort(halves, kind="stable")


class Repeats:
    """Which of some reports has each id first.

    Args:
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).

    Attributes:
        first: The places of the reports that are the first with their id, one an id.
    """

    def __init__(self, ids: NDArray[np.uint8], reports: Reports) -> None:
        keys = np.ascontiguousarray(ids).view(f"V{ID_BYTES}").reshape(-1)
        _, self.first, self._number = np.unique(keys, return_index=True, return_inverse=True)
        self._is_first = np.zeros(len(ids), dtype=np.bool_)
        self._is_first[self.first] = True
        firsts = reports[self.first][self._number]
        self._is_same: NDArray[np.bool_] = (reports == firsts).all(axis=1)

    def spread(self, verdicts: Verdicts) -> Verdicts:
        """Return the verdicts on all reports from those on the first ones."""
        each = verdicts[self._number]
        repeated = ~self._is_first & ~np.isin(each, _NOT_TAKEN)
        each[repeated & ~self._is_same] = Verdict.REUSED_ID
        each[repeated & self._is_same & (each == Verdict.COUNTED)] = Verdict.KNOWN
        return each
