"""Subjects for the stores of this package: ledgers, collectors and records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from typing_extensions import override

from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.ldp.algorithm.encodings import DirectEncoding
from veilring.protocols.ldp.algorithm.survey import FrequencySurvey
from veilring.protocols.ldp.messages import ID_BYTES, Accepted, ReportVerdict
from veilring.protocols.ldp.store.base import Senders
from veilring.protocols.ldp.store.sqlite import SqliteStore, begin_sqlite
from veilring.protocols.ldp.task import Task
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.rules import ServerRules
from veilring.protocols.prediction.state import STATE, ServerState, begin_state, open_state
from veilring.testing.exploring.stores import StoreSubject

_AMOUNT: Final = 0.25
_FEATURES: Final = 3
_LARGEST: Final = 1000
_CLASSES: Final = 3
_VALUES: Final = 4
_AT_ONCE: Final = 5

_RULES: Final = ServerRules(_FEATURES, _CLASSES, queries=10, epsilon=5.0, sigma2=4.0)


class LedgerSubject(StoreSubject[Ledger]):
    """A ledger: each operation is a charge, which returns an answer."""

    name = "ledger"

    @override
    def open(self, folder: Path) -> Ledger:
        path = folder / "ledger"
        return open_ledger(path, Budgets(total=1000.0), new=not path.exists())

    @override
    def close(self, handle: Ledger) -> None:
        handle.close()

    @override
    def watch(self, handle: Ledger, moment: Callable[[], None]) -> None:
        _watch_statements(handle._store.connection, moment)  # noqa: SLF001  (a fault strikes inside)

    @override
    def use(self, handle: Ledger, number: int) -> None:
        handle.charge(_charge(number, b"answer"))

    @override
    def find_wrong(self, handle: Ledger, acknowledged: int, *, doubtful: bool) -> list[str]:
        totals = handle.totals()
        wrong = []
        if totals.answers - acknowledged not in range(1 + doubtful):
            wrong.append(f"{totals.answers} answers are stored, but {acknowledged} were given")
        if totals.spent != totals.answers * _AMOUNT:
            wrong.append(
                f"the ledger records a spending of {totals.spent} for {totals.answers} answers"
            )
        given = [handle.charge(_charge(number, b"another")) for number in range(acknowledged)]
        if given != [b"answer %d" % number for number in range(acknowledged)]:
            wrong.append("a repeated request gets another answer")
        return wrong


class CollectorSubject(StoreSubject[SqliteStore]):
    """A collector's store: each operation adds a group of reports."""

    name = "collector"

    @override
    def open(self, folder: Path) -> SqliteStore:
        path = folder / "reports"
        if not path.exists():
            begin_sqlite(path)
        return SqliteStore(path, _task())

    @override
    def close(self, handle: SqliteStore) -> None:
        handle.close()

    @override
    def watch(self, handle: SqliteStore, moment: Callable[[], None]) -> None:
        _watch_statements(handle._db, moment)  # noqa: SLF001  (a fault strikes inside)

    @override
    def use(self, handle: SqliteStore, number: int) -> None:
        handle.keep([_group(number)], _SENDERS)

    @override
    def find_wrong(self, handle: SqliteStore, acknowledged: int, *, doubtful: bool) -> list[str]:
        wrong, tally, counted = [], handle.tally(), handle.recount()
        if [sums.tolist() for sums in tally.sums] != [sums.tolist() for sums in counted.sums]:
            wrong.append("the running sums differ from those of the stored reports")
        groups, rest = divmod(tally.clients, _AT_ONCE)
        if rest or groups - acknowledged not in range(1 + doubtful):
            wrong.append(
                f"{tally.clients} reports are stored, but {acknowledged} groups were acknowledged"
            )
        for number in range(acknowledged):
            (verdicts,) = handle.keep([_group(number)], _SENDERS)
            if (verdicts != ReportVerdict.KNOWN).any():
                wrong.append(f"group {number} was acknowledged, but is not stored")
        return wrong


class StateSubject(StoreSubject[ServerState]):
    """A prediction server's ledger with its rows: operations add or forget records."""

    name = "state"

    @override
    def open(self, folder: Path) -> ServerState:
        state = folder / "state"
        if not (state / STATE).exists():
            begin_state(_RULES, state)
        return open_state(_RULES, state)

    @override
    def close(self, handle: ServerState) -> None:
        handle.close()

    @override
    def watch(self, handle: ServerState, moment: Callable[[], None]) -> None:
        ledger = handle._ledger  # noqa: SLF001  (a fault strikes inside)
        _watch_statements(ledger._store.connection, moment)  # noqa: SLF001  (likewise)

    @override
    def use(self, handle: ServerState, number: int) -> None:
        if _forgets(number):
            handle.forget(_records(number - 1).ids)
        else:
            handle.add(_records(number))

    @override
    def find_wrong(self, handle: ServerState, acknowledged: int, *, doubtful: bool) -> list[str]:
        rows = handle._rows  # noqa: SLF001  (what the server answers from)
        here, sure = set(rows.ids), _ids_after(acknowledged)
        then = _ids_after(acknowledged + 1) if doubtful else sure
        if not sure & then <= here <= sure | then:
            return [f"{len(here)} rows are stored, but {len(sure)} were acknowledged"]
        for number in range(acknowledged + 1):
            if rows.differing(_records(number)) is not None:
                return [f"a row of step {number} has changed"]
        return []


STORES: Final = (LedgerSubject(), CollectorSubject(), StateSubject())
"""All three subjects."""


def _watch_statements(connection: Any, moment: Callable[[], None]) -> None:  # noqa: ANN401  (of SQLite)
    connection.set_trace_callback(lambda _sql: moment())


def _charge(number: int, answer: bytes) -> Charge:
    return Charge("ann", str(number), b"request %d" % number, b"%s %d" % (answer, number), _AMOUNT)


_SENDERS: Final = Senders(("ada",), np.zeros(_AT_ONCE, np.int64))


def _task() -> Task:
    return Task({"columns": ["a"]}, FrequencySurvey(DirectEncoding(_VALUES, 1.0)))


def _group(number: int) -> Accepted:
    """Return the reports of a number, which are always the same."""
    rng = np.random.default_rng(number)
    ids = rng.integers(256, size=(_AT_ONCE, ID_BYTES), dtype=np.uint8)
    reports = rng.integers(_VALUES, size=(_AT_ONCE, 1), dtype=np.uint8)
    return Accepted(0, ids, reports, np.arange(_AT_ONCE))


def _records(number: int) -> LabelledRecords:
    """Return the records of a step, which are always the same."""
    rng = np.random.default_rng(number)
    features = rng.integers(1, _LARGEST, size=(_AT_ONCE, _FEATURES)).astype(np.float32)
    ids = [f"record-{number}-{place}" for place in range(_AT_ONCE)]
    return LabelledRecords.of(ids, features, rng.integers(_CLASSES, size=_AT_ONCE))


def _ids_after(operations: int) -> set[str]:
    """Return the records that are stored after some operations of `StateSubject.use`."""
    here: set[str] = set()
    for number in range(operations):
        if _forgets(number):
            here -= set(_records(number - 1).ids)
        else:
            here |= set(_records(number).ids)
    return here


def _forgets(number: int) -> bool:
    return number % 3 == 2  # noqa: PLR2004  (each third operation)
