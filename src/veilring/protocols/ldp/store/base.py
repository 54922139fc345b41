"""`Store`: durable reports, each stored once, and running sums over them.

A report's id is the primary key. The sums are changed in the transaction that inserts the reports,
so they always match the stored reports exactly, even after a power loss.

Many rows are sent to a database in one blob: `statement_values` builds it for any database, and
`parse_matches`, `parse_sums` and `parse_reports` read the answers.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Ints
from veilring.errors import InputError, StoreFailed
from veilring.privacy.checks import require
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    Accepted,
    ReportVerdict,
    Task,
    Verdicts,
    other_format,
)

# The number of reports in one statement, whose values stay below a few MiB.
PIECE_REPORTS_MAX: Final = 1 << 16
# Bytes of reports that are read at once, for reports of any width.
READ_BYTES_MAX: Final = 16 << 20
NUMBER_BYTES: Final = 4  # size of a member's number, stored with each report
_SUM: Final = np.dtype("<i8")
_ENDLESS: Final = int(np.iinfo(np.int64).max)
_NOT_TAKEN: Final = (ReportVerdict.CLOSED, ReportVerdict.OVER_QUOTA)
Matches = NDArray[np.uint8]
"""For each report `ABSENT`, or whether the stored report of that id is the `SAME` or an `OTHER`."""
ABSENT, SAME, OTHER = range(3)
_VERDICTS: Final = np.array(
    [ReportVerdict.COUNTED, ReportVerdict.KNOWN, ReportVerdict.REUSED_ID], dtype=np.uint8
)


class RunningSums(NamedTuple):
    """The sum over all reports to one question, and their number."""

    reports: int
    sums: Sums


@dataclass(frozen=True, slots=True, eq=False)
class StoredReports:
    """Reports to one question, each with its id and its member's number.

    Attributes:
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).
        members: Shape (reports,).
    """

    ids: NDArray[np.uint8]
    reports: Reports
    members: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, places: Ints | slice) -> "StoredReports":
        """Return the reports at `places`, in that order."""
        return StoredReports(self.ids[places], self.reports[places], self.members[places])


class Recount(NamedTuple):
    """The reports of one store, or of several stores.

    Attributes:
        members: The number of counted reports of each member, by name.
        repeated: The number of reports that an earlier store has, too.
        reused: The number of reports whose id belongs to another report of an earlier store.
    """

    tally: Tally
    members: Mapping[str, int]
    repeated: int = 0
    reused: int = 0


class Senders(NamedTuple):
    """The members that sent reports.

    Attributes:
        names: The members' names, each once.
    """

    names: tuple[str, ...]
    of: Ints


@dataclass(frozen=True, slots=True)
class Quotas:
    """The maximum number of counted reports of each member.

    Attributes:
        each: The limit for each member; None for no limit.
    """

    each: int | None = None
    own: Mapping[str, int] = field(default_factory=dict)

    def of(self, member: str) -> int:
        """Return a member's limit."""
        return self.own.get(member, _ENDLESS if self.each is None else self.each)


NO_QUOTAS: Final = Quotas()


def for_another_task(store: object, found: bytes | None, task: Task) -> InputError:
    """Return the error for a store that was not made for a task, with the task found in it."""
    if found and (version := other_format(found)):
        return InputError.because(
            f"{store} holds reports to a task of {version}, which this veilring cannot continue; "
            "continue the collection with that version, or use a new store for a new collection",
            field="store",
        )
    made_for = f"{hashlib.sha256(found).hexdigest()[:16]}…" if found else "none"
    return InputError.because(
        f"{store} is for the task {made_for}, but this task is {task.digest.hex()[:16]}…; restore "
        "the terms and the version of veilring with which the collection began, or use a new store "
        "for a new collection",
        field="store",
    )


class Store(ABC):
    """A database of reports to one task, used by one thread at a time.

    Raises:
        StoreFailed: If the database cannot be reached. All methods may raise this.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def close(self) -> None:
        """Release the database. Idempotent."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Return a context whose changes are all stored durably, or not at all."""

    @abstractmethod
    def _insert(self, question: int, some: StoredReports) -> int:
        """Insert the reports whose ids are new, and return their number."""

    @abstractmethod
    def _find(self, question: int, some: StoredReports) -> Matches:
        """Look up distinct ids."""

    @abstractmethod
    def _undo(self) -> None:
        """Undo the insertions since `_mark`."""

    @abstractmethod
    def _mark(self) -> None:
        """Set the point to which `_undo` returns."""

    @abstractmethod
    def _read(self, question: int) -> RunningSums:
        """Read the running sums; in a transaction, they are locked until its end."""

    @abstractmethod
    def _write(self, question: int, kept: RunningSums, fresh: StoredReports) -> None:
        """Replace the running sums by sums that include some fresh reports."""

    @abstractmethod
    def _enrol(self, names: Sequence[str]) -> tuple[Ints, Ints]:
        """Return each member's number, and the number of its counted reports.

        A new member gets a number. In a transaction, the counts of these members are locked until
        its end.
        """

    @abstractmethod
    def _credit(self, numbers: Ints, more: Ints) -> None:
        """Increase the counts of members, given by number."""

    @abstractmethod
    def _members(self) -> dict[int, tuple[str, int]]:
        """Return each member's name and number of counted reports, by member number."""

    @abstractmethod
    def _stored(self, question: int) -> Iterator[StoredReports]:
        """Yield all reports to a question, in pieces; with ids only if they are needed."""

    def keep(
        self,
        arrived: Sequence[Accepted],
        senders: Senders,
        *,
        quotas: Quotas = NO_QUOTAS,
        closed: bool = False,
    ) -> list[Verdicts]:
        """Store new reports in one transaction; when this returns, they are durable.

        Args:
            senders: The sender of each report; the `places` of the reports are positions in it.
            closed: Whether it is too late for new reports. Stored reports are still acknowledged.

        Returns:
            The verdict on each report: `COUNTED`, `KNOWN`, `REUSED_ID`, `CLOSED` or `OVER_QUOTA`.
        """
        with self.transaction():
            numbers, counts = self._enrol(senders.names)
            limits = [quotas.of(name) for name in senders.names]
            room = _Headroom(np.array(limits, dtype=np.int64) - counts)
            verdicts = []
            for each in arrived:
                who = senders.of[each.places]
                verdicts.append(self._keep(each, who, numbers, room, closed=closed))
            self._credit(numbers, room.taken)
            return verdicts

    def tally(self) -> Tally:
        """Return the running sums of all questions, at one point in time."""
        with self.transaction():
            return self._as_tally(self._read)

    def members(self) -> dict[str, int]:
        """Return the number of counted reports of each member, by name."""
        with self.transaction():
            return dict(sorted(self._members().values()))

    def recount(self, *, without: Collection[str] = ()) -> Tally:
        """Read all reports, check each again, and return their tally at one point in time.

        Raises:
            StoreFailed: If the result differs from `tally`, or no client could have made some
                report: another program changed the database.
        """
        return recount_all([self], without=without).tally

    def recount_after(self, earlier: Sequence["Store"], without: Collection[str]) -> Recount:
        """Do as `recount`, but count no report whose id an earlier store has.

        All stores must be in a transaction.
        """
        members, seen = self._members(), Counter[tuple[int, int]]()
        left_out = [number for number, (name, _) in members.items() if name in without]
        both = [
            self._recount(question, left_out, earlier, seen)
            for question in range(len(self.task.survey.questions))
        ]
        recounted, running = _as_tally([full for full, _ in both]), self._as_tally(self._read)
        if recounted.counts != running.counts or not all(
            map(np.array_equal, recounted.sums, running.sums)
        ):
            raise StoreFailed("the running sums do not match the reports")
        counts = Counter[int]()
        for (number, _), count in seen.items():
            counts[number] += count
        if counts != {number: count for number, (_, count) in members.items() if count}:
            raise StoreFailed("the members' counts do not match the reports")
        tally = _as_tally([kept for _, kept in both])
        own = {name: seen[number, ABSENT] for number, (name, _) in members.items()}
        repeated, reused = (sum(seen[n, match] for n in members) for match in (SAME, OTHER))
        return Recount(tally, own, repeated, reused)

    def stored(self, question: int, *, without: Collection[str] = ()) -> Iterator[Reports]:
        """Yield all reports to a question, in pieces; must be called in a transaction."""
        left_out = _numbers_of(self._members(), without)
        for some in self._stored(question):
            yield some.reports[~np.isin(some.members, left_out)]

    def _recount(
        self,
        question: int,
        left_out: Sequence[int],
        earlier: Sequence["Store"],
        seen: "Counter[tuple[int, int]]",
    ) -> tuple[RunningSums, RunningSums]:
        """Return the sums of all reports, and of those that are left in and in no earlier store.

        Args:
            seen: To which to add the number of reports of each member with each match.
        """
        randomiser = self.task.survey.questions[question]
        full = kept = RunningSums(0, np.zeros(randomiser.cells, dtype=np.int64))
        for some in self._stored(question):
            if not randomiser.accept(some.reports).all():
                raise StoreFailed("a stored report could not have been made by any client")
            found = np.full(len(some), ABSENT, dtype=np.uint8)
            for store in earlier:
                new = np.flatnonzero(found == ABSENT)
                found[new] = store.find_all(question, some.at(new))
            pairs, each = np.unique([some.members, found], axis=1, return_counts=True)
            seen.update(dict(zip(zip(*pairs.tolist(), strict=True), each.tolist(), strict=True)))
            sums = randomiser.aggregate(some.reports)
            full = RunningSums(full.reports + len(some), full.sums + sums)
            lost = np.isin(some.members, left_out) | (found != ABSENT)
            if lost.any():
                sums = randomiser.aggregate(some.reports[~lost])
            kept = RunningSums(kept.reports + int((~lost).sum()), kept.sums + sums)
        return full, kept

    def _as_tally(self, of: Callable[[int], RunningSums]) -> Tally:
        return _as_tally([of(question) for question in range(len(self.task.survey.questions))])

    def _keep(
        self, arrived: Accepted, who: Ints, numbers: Ints, room: "_Headroom", *, closed: bool
    ) -> Verdicts:
        question = arrived.question
        order = _order_by_ids(arrived.ids)
        sent = StoredReports(arrived.ids, arrived.reports, numbers[who]).at(order)
        verdicts = None
        if not closed and room.has_for(who):
            verdicts = self._try_all_new(question, sent)
        if verdicts is None:
            verdicts = self._some_known(
                question, sent, lambda some: room.first_of(who, order[some]), closed=closed
            )
        fresh = verdicts == ReportVerdict.COUNTED
        room.take(who[order][fresh])
        self._count(question, sent.at(np.flatnonzero(fresh)))
        in_place = np.empty_like(verdicts)
        in_place[order] = verdicts
        return in_place

    def _try_all_new(self, question: int, sent: StoredReports) -> Verdicts | None:
        """Insert all reports if each of their ids is new, the usual case; otherwise insert none."""
        self._mark()
        if self._insert_all(question, sent) == len(sent):
            return np.full(len(sent), ReportVerdict.COUNTED, dtype=np.uint8)
        self._undo()
        return None

    def _some_known(
        self, question: int, sent: StoredReports, fits: Callable[[Ints], Bools], *, closed: bool
    ) -> Verdicts:
        repeats, left = _Repeats(sent.ids, sent.reports), len(sent) + 1
        while True:
            found = self.find_all(question, sent.at(repeats.first))
            verdicts = _VERDICTS[found]
            absent = np.flatnonzero(found == ABSENT)
            if len(absent) >= left:  # otherwise this loop would not end
                raise StoreFailed("the database refused reports that it does not contain")
            left = len(absent)
            if closed:
                verdicts[absent] = ReportVerdict.CLOSED
                break
            fit = fits(repeats.first[absent])
            verdicts[absent[~fit]] = ReportVerdict.OVER_QUOTA
            self._mark()
            new = sent.at(repeats.first[absent[fit]])
            if self._insert_all(question, new) == len(new):
                break
            self._undo()  # another collector has inserted one of them
        return repeats.spread(verdicts)

    def _insert_all(self, question: int, some: StoredReports) -> int:
        return sum(self._insert(question, some.at(piece)) for piece in _pieces(len(some)))

    def find_all(self, question: int, some: StoredReports) -> Matches:
        """Look up any number of distinct ids; must be called in a transaction."""
        found = [self._find(question, some.at(piece)) for piece in _pieces(len(some))]
        return np.concatenate([np.zeros(0, dtype=np.uint8), *found])

    def _count(self, question: int, fresh: StoredReports) -> None:
        if len(fresh):
            kept = self._read(question)
            more = self.task.survey.questions[question].aggregate(fresh.reports)
            self._write(question, RunningSums(kept.reports + len(fresh), kept.sums + more), fresh)


def recount_all(stores: Sequence[Store], *, without: Collection[str] = ()) -> Recount:
    """Read all reports of several stores of one task, as if one store had them.

    A report counts for the first store that has its id.

    Args:
        without: The members whose reports are left out.

    Raises:
        StoreFailed: As in `Store.recount`.
    """
    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(store.transaction())
        parts = [store.recount_after(stores[:n], without) for n, store in enumerate(stores)]
    members = Counter[str]()
    for part in parts:
        members.update(part.members)
    _require_members(without, members)
    return Recount(
        sum((part.tally for part in parts[1:]), parts[0].tally),
        dict(sorted(members.items())),
        sum(part.repeated for part in parts),
        sum(part.reused for part in parts),
    )


def _require_members(names: Collection[str], members: Collection[str]) -> None:
    for name in names:
        known = ", ".join(sorted(members)) or "no name, because there are no reports"
        require(name in members, "without", name, f"a member that has sent reports: {known}")


def _numbers_of(members: Mapping[int, tuple[str, int]], names: Collection[str]) -> list[int]:
    """Return the numbers of members."""
    numbers = {name: number for number, (name, _) in members.items()}
    _require_members(names, numbers)
    return [numbers[name] for name in names]


def _as_tally(kept: Sequence[RunningSums]) -> Tally:
    return Tally(tuple(each.sums for each in kept), tuple(each.reports for each in kept))


def _pieces(count: int) -> list[slice]:
    starts = range(0, count, PIECE_REPORTS_MAX)
    return [slice(first, first + PIECE_REPORTS_MAX) for first in starts]


class _Repeats:
    """The first report with each id.

    Args:
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).
    """

    def __init__(self, ids: NDArray[np.uint8], reports: Reports) -> None:
        keys = np.ascontiguousarray(ids).view(f"V{ID_BYTES}").reshape(-1)
        _, self.first, self._number = np.unique(keys, return_index=True, return_inverse=True)
        self._is_first = np.zeros(len(ids), dtype=np.bool_)
        self._is_first[self.first] = True
        firsts = reports[self.first][self._number]
        self._is_same: Bools = (reports == firsts).all(axis=1)

    def spread(self, verdicts: Verdicts) -> Verdicts:
        """Return the verdicts on all reports, given those on the first reports."""
        each = verdicts[self._number]
        repeated = ~self._is_first & ~np.isin(each, _NOT_TAKEN)
        each[repeated & ~self._is_same] = ReportVerdict.REUSED_ID
        each[repeated & self._is_same & (each == ReportVerdict.COUNTED)] = ReportVerdict.KNOWN
        return each


def _order_by_ids(ids: NDArray[np.uint8]) -> Ints:
    """Return the order by the first half of the ids, in which a B-tree is fastest.

    Reports with equal ids keep their order of arrival.
    """
    halves = np.ascontiguousarray(ids[:, : ID_BYTES // 2]).view(">u8").reshape(-1)
    return np.argsort(halves, kind="stable")


class _Headroom:
    """The number of further reports allowed for each member while a group is stored.

    Args:
        left: The number of reports that may still be counted for each member; negative if a limit
            was lowered.
    """

    def __init__(self, left: Ints) -> None:
        self._left = left
        self.taken: Ints = np.zeros_like(left)
        """The number of reports counted for each member."""

    def has_for(self, who: Ints) -> bool:
        """Return whether one more report may be counted for each mention of a member."""
        return bool((self._counted(who) <= np.maximum(self._left, 0)).all())

    def first_of(self, who: Ints, places: Ints) -> Bools:
        """Return whether some reports are within their members' limits, earliest first.

        Args:
            who: The member of each report, in order of arrival.
            places: Which reports, as positions in that order.
        """
        order = np.lexsort((places, who[places]))
        members = who[places][order]
        starts = np.searchsorted(members, members, side="left")
        fits = np.empty(len(places), dtype=np.bool_)
        fits[order] = np.arange(len(places)) - starts < self._left[members]
        return fits

    def take(self, who: Ints) -> None:
        """Count a report for each mention of a member."""
        counted = self._counted(who)
        self._left = self._left - counted
        self.taken = self.taken + counted

    def _counted(self, who: Ints) -> Ints:
        return np.bincount(who, minlength=len(self._left)).astype(np.int64)


def statement_values(question: int, some: StoredReports) -> dict[str, int | bytes]:
    """Return the values for a statement that splits blobs into rows."""
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


def parse_matches(listed: str | None, count: int) -> Matches:
    """Return the matches of the ids that were looked up.

    Args:
        listed: `2 * place` of each stored id, plus one if its report is equal; in decimal,
            separated by commas.
    """
    found = np.zeros(count, dtype=np.uint8)
    if listed:
        places, same = np.divmod(np.array(listed.split(","), dtype=np.int64), 2)
        found[places] = np.where(same, SAME, OTHER)
    return found


def sums_blob(sums: Sums) -> bytes:
    """Return running sums as a blob."""
    return sums.astype(_SUM).tobytes()


def parse_sums(reports: int, blob: bytes, cells: int) -> RunningSums:
    """Return running sums from a stored blob.

    Raises:
        StoreFailed: If the number of sums is not `cells`.
    """
    if len(blob) != cells * _SUM.itemsize:
        raise StoreFailed("stored running sums have the wrong length")
    return RunningSums(reports, np.frombuffer(blob, _SUM).astype(np.int64))


def parse_reports(rows: Sequence[tuple[bytes, bytes, bytes]], width: int) -> StoredReports:
    """Return stored reports from rows of id, member and report.

    Raises:
        StoreFailed: If a report, an id or a member's number has the wrong length.
    """
    widths = (ID_BYTES, NUMBER_BYTES, width)
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    for column, size in zip(columns, widths, strict=True):
        if set(map(len, column)) - {size}:
            raise StoreFailed("a stored report has the wrong length")
    ids, numbers, reports = (
        np.frombuffer(b"".join(column), np.uint8).reshape(-1, size)
        for column, size in zip(columns, widths, strict=True)
    )
    members = np.ascontiguousarray(numbers).view("<u4").reshape(-1).astype(np.int64)
    return StoredReports(ids, reports, members)


def rows_at_once(width: int) -> int:
    """Return the number of reports of the given width to read at once."""
    return max(1, min(PIECE_REPORTS_MAX, READ_BYTES_MAX // (ID_BYTES + NUMBER_BYTES + width)))


def number_blob(numbers: Ints) -> NDArray[np.uint8]:
    """Return numbers, such as those of members, as bytes of shape (numbers, `NUMBER_BYTES`)."""
    return numbers.astype("<u4").view(np.uint8).reshape(-1, NUMBER_BYTES)
