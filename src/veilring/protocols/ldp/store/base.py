"""`Store`: reports that outlive their collector, each once, and running sums over them.

A report's id is the primary key. The sums are changed in the transaction that inserts the reports,
so that they are always those of exactly the reports that are there, whenever the power fails.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, StoreFailed
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.intake import Accepted, Verdicts
from veilring.protocols.ldp.store.repeats import Repeats, in_order_of_ids
from veilring.protocols.ldp.store.senders import Quotas, Room, Senders
from veilring.protocols.ldp.task import Task
from veilring.protocols.ldp.verdicts import Verdict

# One statement inserts so many; what a statement is given stays below a few MiB.
PIECE_REPORTS_MAX: Final = 1 << 16

NO_QUOTAS: Final = Quotas()

Found = NDArray[np.uint8]
"""For each report `ABSENT`, or whether the report that has its id is the `SAME` or an `OTHER`."""
ABSENT, SAME, OTHER = range(3)
_VERDICTS: Final = np.array([Verdict.COUNTED, Verdict.KNOWN, Verdict.REUSED_ID], dtype=np.uint8)


class Kept(NamedTuple):
    """The sum over all reports to one question, and their number."""

    reports: int
    sums: Sums


@dataclass(frozen=True, slots=True, eq=False)
class Some:
    """Some reports to one question, each with its id and with the number of its member.

    Attributes:
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).
        members: Shape (reports,).
    """

    ids: NDArray[np.uint8]
    reports: Reports
    members: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, places: NDArray[np.int64] | slice) -> "Some":
        """Return those at some places, in their order."""
        return Some(self.ids[places], self.reports[places], self.members[places])


class Store(ABC):
    """A database of the reports to one task. It is used by one thread at a time.

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
    def _insert(self, question: int, some: Some) -> int:
        """Insert the reports whose ids are new, and return how many these were."""

    @abstractmethod
    def _find(self, question: int, some: Some) -> Found:
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
    def _write(self, question: int, kept: Kept, fresh: Some) -> None:
        """Replace the running sums by others, which have some fresh reports in them."""

    @abstractmethod
    def _enrol(self, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of each member, and how many of its reports count.

        A member that is new gets a number. In a transaction, nobody else changes the counts of
        these members until its end.
        """

    @abstractmethod
    def _credit(self, numbers: NDArray[np.int64], more: NDArray[np.int64]) -> None:
        """Add to the counts of members, by their numbers."""

    @abstractmethod
    def _members(self) -> dict[int, tuple[str, int]]:
        """Return the name of each member and how many of its reports count, by its number."""

    @abstractmethod
    def _stored(self, question: int) -> Iterator[Some]:
        """Yield all reports to a question, some at a time; ids only where they are looked at."""

    def keep(
        self,
        arrived: Sequence[Accepted],
        senders: Senders,
        *,
        quotas: Quotas = NO_QUOTAS,
        closed: bool = False,
    ) -> list[Verdicts]:
        """Store what is new, in one transaction; when this returns, it is durable.

        Args:
            arrived: Reports that were accepted.
            senders: Who sent what came; the `places` of what arrived are places in it.
            quotas: How many reports of each member may count, over all that it ever sends.
            closed: Whether new ones come too late. What was stored before is acknowledged still.

        Returns:
            The verdicts of each: `COUNTED`, `KNOWN`, `REUSED_ID`, `CLOSED` or `OVER_QUOTA`.
        """
        with self.transaction():
            numbers, counts = self._enrol(senders.names)
            limits = [quotas.of(name) for name in senders.names]
            room = Room(np.array(limits, dtype=np.int64) - counts)
            verdicts = []
            for each in arrived:
                who = senders.of[each.places]
                verdicts.append(self._keep(each, who, numbers, room, closed=closed))
            self._credit(numbers, room.taken)
            return verdicts

    def tally(self) -> Tally:
        """Return the running sums of all questions, as of one moment."""
        with self.transaction():
            return self._as_tally(self._read)

    def members(self) -> dict[str, int]:
        """Return how many reports of each member count, by its name."""
        with self.transaction():
            return dict(sorted(self._members().values()))

    def recount(self, *, without: Collection[str] = ()) -> Tally:
        """Read all reports, judge each again, and return their tally, as of one moment.

        Args:
            without: The members whose reports are left out of what is returned.

        Raises:
            InputError: If one of these never sent a report.
            StoreFailed: If it is not `tally`, or a report is there that no client could have made:
                somebody has changed the database.
        """
        with self.transaction():
            members = self._members()
            left_out = _numbers_of(members, without)
            counts: Counter[int] = Counter()
            both = [
                self._recount(question, left_out, counts)
                for question in range(len(self.task.survey.questions))
            ]
            recounted, running = _as_tally([full for full, _ in both]), self._as_tally(self._read)
            counted = {number: count for number, (_, count) in members.items() if count}
        if recounted.counts != running.counts or not all(
            map(np.array_equal, recounted.sums, running.sums)
        ):
            raise StoreFailed("the running sums are not those of the reports")
        if counts != counted:
            raise StoreFailed("the members' counts are not those of the reports")
        return _as_tally([kept for _, kept in both])

    def stored(self, question: int, *, without: Collection[str] = ()) -> Iterator[Reports]:
        """Yield all reports to a question, some at a time; call it in a transaction.

        Args:
            question: The number of the question.
            without: The members whose reports are left out.

        Raises:
            InputError: If one of these never sent a report.
        """
        left_out = _numbers_of(self._members(), without)
        for some in self._stored(question):
            yield some.reports[~np.isin(some.members, left_out)]

    def _recount(
        self, question: int, left_out: Sequence[int], counts: "Counter[int]"
    ) -> tuple[Kept, Kept]:
        """Return the sums of all reports, and of those of all members but some."""
        randomiser = self.task.survey.questions[question]
        full = kept = Kept(0, np.zeros(randomiser.cells, dtype=np.int64))
        for some in self._stored(question):
            if not randomiser.accept(some.reports).all():
                raise StoreFailed("a report is stored that no client could have made")
            numbers, each = np.unique(some.members, return_counts=True)
            counts.update(dict(zip(numbers.tolist(), each.tolist(), strict=True)))
            sums = randomiser.aggregate(some.reports)
            full = Kept(full.reports + len(some), full.sums + sums)
            lost = np.isin(some.members, left_out)
            if lost.any():
                sums = randomiser.aggregate(some.reports[~lost])
            kept = Kept(kept.reports + int((~lost).sum()), kept.sums + sums)
        return full, kept

    def _as_tally(self, of: Callable[[int], Kept]) -> Tally:
        return _as_tally([of(question) for question in range(len(self.task.survey.questions))])

    def _keep(
        self,
        arrived: Accepted,
        who: NDArray[np.int64],
        numbers: NDArray[np.int64],
        room: Room,
        *,
        closed: bool,
    ) -> Verdicts:
        question = arrived.question
        order = in_order_of_ids(arrived.ids)
        sent = Some(arrived.ids, arrived.reports, numbers[who]).at(order)
        verdicts = None
        if not closed and room.has_for(who):
            verdicts = self._try_all_new(question, sent)
        if verdicts is None:
            fits = _Fits(who, order, room)
            verdicts = self._some_known(question, sent, fits, closed=closed)
        fresh = verdicts == Verdict.COUNTED
        room.take(who[order][fresh])
        self._count(question, sent.at(np.flatnonzero(fresh)))
        in_place = np.empty_like(verdicts)
        in_place[order] = verdicts
        return in_place

    def _try_all_new(self, question: int, sent: Some) -> Verdicts | None:
        """Insert all reports if each of their ids is new, as is usual, and otherwise nothing."""
        self._mark()
        if self._insert_all(question, sent) == len(sent):
            return np.full(len(sent), Verdict.COUNTED, dtype=np.uint8)
        self._undo()
        return None

    def _some_known(self, question: int, sent: Some, fits: "_Fits", *, closed: bool) -> Verdicts:
        repeats = Repeats(sent.ids, sent.reports)
        while True:
            found = self._find_all(question, sent.at(repeats.first))
            verdicts = _VERDICTS[found]
            absent = np.flatnonzero(found == ABSENT)
            if closed:
                verdicts[absent] = Verdict.CLOSED
                break
            fit = fits.first_of(repeats.first[absent])
            verdicts[absent[~fit]] = Verdict.OVER_QUOTA
            self._mark()
            new = sent.at(repeats.first[absent[fit]])
            if self._insert_all(question, new) == len(new):
                break
            self._undo()  # another collector was faster with one of them
        return repeats.spread(verdicts)

    def _insert_all(self, question: int, some: Some) -> int:
        return sum(self._insert(question, some.at(piece)) for piece in _pieces(len(some)))

    def _find_all(self, question: int, some: Some) -> Found:
        found = [self._find(question, some.at(piece)) for piece in _pieces(len(some))]
        return np.concatenate([np.zeros(0, dtype=np.uint8), *found])

    def _count(self, question: int, fresh: Some) -> None:
        if len(fresh):
            kept = self._read(question)
            more = self.task.survey.questions[question].aggregate(fresh.reports)
            self._write(question, Kept(kept.reports + len(fresh), kept.sums + more), fresh)


class _Fits(NamedTuple):
    """Which reports of a group there is room for: the first that came, of each member.

    Attributes:
        who: The member of each report, in the order in which they came.
        order: The places of the reports in that order, as they are worked on.
        room: What there is.
    """

    who: NDArray[np.int64]
    order: NDArray[np.int64]
    room: Room

    def first_of(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which of some reports there is room, by their places in the work."""
        came = np.argsort(self.order[places])
        fits = np.empty(len(places), dtype=np.bool_)
        fits[came] = self.room.first_of(self.who[self.order[places]][came])
        return fits


def _numbers_of(members: Mapping[int, tuple[str, int]], names: Collection[str]) -> list[int]:
    """Return the numbers of members.

    Raises:
        InputError: If one is not there.
    """
    numbers = {name: number for number, (name, _) in members.items()}
    for name in names:
        if name not in numbers:
            known = ", ".join(sorted(numbers)) or "nobody, as there are no reports"
            raise InputError("without", name, f"a member that has sent reports: {known}")
    return [numbers[name] for name in names]


def _as_tally(kept: Sequence[Kept]) -> Tally:
    return Tally(tuple(each.sums for each in kept), tuple(each.reports for each in kept))


def _pieces(count: int) -> list[slice]:
    return [
        slice(first, min(first + PIECE_REPORTS_MAX, count))
        for first in range(0, count, PIECE_REPORTS_MAX)
    ]
