"""`Store`: reports that outlive their collector, each once, and running sums over them.

A report's id is the primary key. The sums are changed in the transaction that inserts the reports,
so that they are always those of exactly the reports that are there, whenever the power fails.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import StoreFailed
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.intake import Accepted, Verdicts
from veilring.protocols.ldp.store.repeats import Repeats, in_order_of_ids
from veilring.protocols.ldp.task import Task
from veilring.protocols.ldp.verdicts import Verdict

__all__ = ("ABSENT", "OTHER", "PIECE_REPORTS_MAX", "SAME", "Found", "Kept", "Store")

# One statement inserts so many; what a statement is given stays below a few MiB.
PIECE_REPORTS_MAX: Final = 1 << 16

Found = NDArray[np.uint8]
"""For each report `ABSENT`, or whether the report that has its id is the `SAME` or an `OTHER`."""
ABSENT, SAME, OTHER = range(3)
_VERDICTS: Final = np.array([Verdict.COUNTED, Verdict.KNOWN, Verdict.REUSED_ID], dtype=np.uint8)


class Kept(NamedTuple):
    """The sum over all reports to one question, and their number."""

    reports: int
    sums: Sums


class Store(ABC):
    """A database of the reports to one task. It is used by one thread at a time.

    Two collectors may share one: each transaction sees what the others have committed.

    Args:
        task: What the reports answer.

    Raises:
        StoreFailed: If the database cannot be reached; so do all methods.
        InputError: If it holds reports to another task.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def close(self) -> None:
        """Let go of the database. Idempotent."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all that is done is done, durably, or not at all."""

    @abstractmethod
    def _insert(self, question: int, ids: NDArray[np.uint8], reports: Reports) -> int:
        """Insert the reports whose ids are new, and return how many these were."""

    @abstractmethod
    def _find(self, question: int, ids: NDArray[np.uint8], reports: Reports) -> Found:
        """Look different ids up."""

    @abstractmethod
    def _undo(self) -> None:
        """Take back what was inserted since `_mark`."""

    @abstractmethod
    def _mark(self) -> None:
        """Set the point to which `_undo` goes back."""

    @abstractmethod
    def _read(self, question: int) -> Kept:
        """Return the running sums; in a transaction, nobody else changes them until its end."""

    @abstractmethod
    def _write(self, question: int, kept: Kept) -> None:
        """Replace the running sums."""

    @abstractmethod
    def stored(self, question: int) -> Iterator[Reports]:
        """Yield all reports to a question, some at a time."""

    def keep(self, arrived: Sequence[Accepted], *, closed: bool = False) -> list[Verdicts]:
        """Store what is new, in one transaction; when this returns, it is durable.

        Args:
            arrived: Reports that were accepted.
            closed: Whether new ones come too late. What was stored before is acknowledged still.

        Returns:
            The verdicts of each: `COUNTED`, `KNOWN`, `REUSED_ID` or `CLOSED`.
        """
        with self.transaction():
            return [self._keep(each, closed=closed) for each in arrived]

    def tally(self) -> Tally:
        """Return the running sums of all questions, as of one moment."""
        with self.transaction():
            return self._as_tally(self._read)

    def recount(self) -> Tally:
        """Read all reports, judge each again, and return their tally, as of one moment.

        Raises:
            StoreFailed: If it is not `tally`, or a report is there that no client could have made:
                somebody has changed the database.
        """
        with self.transaction():
            recounted, running = self._as_tally(self._recount), self._as_tally(self._read)
        if recounted.counts != running.counts or not all(
            map(np.array_equal, recounted.sums, running.sums)
        ):
            raise StoreFailed("the running sums are not those of the reports")
        return recounted

    def _recount(self, question: int) -> Kept:
        randomiser = self.task.survey.questions[question]
        count, sums = 0, np.zeros(randomiser.cells, dtype=np.int64)
        for reports in self.stored(question):
            if not randomiser.accept(reports).all():
                raise StoreFailed("a report is stored that no client could have made")
            count += len(reports)
            sums += randomiser.aggregate(reports)
        return Kept(count, sums)

    def _as_tally(self, of: Callable[[int], Kept]) -> Tally:
        kept = [of(question) for question in range(len(self.task.survey.questions))]
        return Tally(tuple(each.sums for each in kept), tuple(each.reports for each in kept))

    def _keep(self, arrived: Accepted, *, closed: bool) -> Verdicts:
        question = arrived.question
        order = in_order_of_ids(arrived.ids)
        ids, reports = arrived.ids[order], arrived.reports[order]
        verdicts = self._try_all_new(question, ids, reports, closed=closed)
        if verdicts is None:
            verdicts = self._some_known(question, ids, reports, closed=closed)
        self._count(question, reports[verdicts == Verdict.COUNTED])
        in_place = np.empty_like(verdicts)
        in_place[order] = verdicts
        return in_place

    def _try_all_new(
        self, question: int, ids: NDArray[np.uint8], reports: Reports, *, closed: bool
    ) -> Verdicts | None:
        """Insert all reports if each of their ids is new, as is usual, and else nothing."""
        if closed:
            return None
        self._mark()
        if self._insert_all(question, ids, reports) == len(ids):
            return np.full(len(ids), Verdict.COUNTED, dtype=np.uint8)
        self._undo()
        return None

    def _some_known(
        self, question: int, ids: NDArray[np.uint8], reports: Reports, *, closed: bool
    ) -> Verdicts:
        repeats = Repeats(ids, reports)
        while True:
            found = self._find_all(question, ids[repeats.first], reports[repeats.first])
            verdicts = _VERDICTS[found]
            fresh = found == ABSENT
            if closed:
                verdicts[fresh] = Verdict.CLOSED
                break
            self._mark()
            new = repeats.first[fresh]
            if self._insert_all(question, ids[new], reports[new]) == len(new):
                break
            self._undo()  # another collector was faster with one of them
        return repeats.spread(verdicts)

    def _insert_all(self, question: int, ids: NDArray[np.uint8], reports: Reports) -> int:
        return sum(
            self._insert(question, ids[piece], reports[piece]) for piece in _pieces(len(ids))
        )

    def _find_all(self, question: int, ids: NDArray[np.uint8], reports: Reports) -> Found:
        found = [self._find(question, ids[piece], reports[piece]) for piece in _pieces(len(ids))]
        return np.concatenate([np.zeros(0, dtype=np.uint8), *found])

    def _count(self, question: int, fresh: Reports) -> None:
        if len(fresh):
            kept = self._read(question)
            more = self.task.survey.questions[question].aggregate(fresh)
            self._write(question, Kept(kept.reports + len(fresh), kept.sums + more))


def _pieces(count: int) -> list[slice]:
    return [
        slice(first, min(first + PIECE_REPORTS_MAX, count))
        for first in range(0, count, PIECE_REPORTS_MAX)
    ]
