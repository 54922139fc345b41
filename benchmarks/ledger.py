"""Blocks of queries charged to the filters of 50,000 records, and a lone query.

Beside the same on a plain SQLite table with a row a record, synced just as often. Each query
charges 300 records and keeps its answer.
"""

import itertools
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import Measurement, Timed, pairs, ratios
from veilring.privacy.ledger import Budgets, Charge, Ledger, RecordCharge, open_ledger

RECORDS = 50_000
NEIGHBOURS = 300
BLOCK = 128


def measure(*, quick: bool) -> list[Measurement]:
    """Charge in blocks, and one by one."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "plain")
        with (
            open_ledger(Path(folder, "ledger"), Budgets(unit="rho", record=1.0)) as ledger,
            closing(sqlite3.connect(plain, isolation_level=None)) as table,
        ):
            ledger.records.add(str(number) for number in range(RECORDS))
            _begin(table)
            return [
                _measured(ledger, table, block=block, repetitions=repetitions)
                for block, repetitions in ((1, 50), (BLOCK, 5 if quick else 20))
            ]


def _measured(
    ledger: Ledger, table: sqlite3.Connection, *, block: int, repetitions: int
) -> Measurement:
    timed = pairs(_ours(ledger, block), _plain(table, block), repetitions)
    name = f"charges of {NEIGHBOURS} records in blocks of {block}, times faster than rows"
    return ratios(name, timed, faster=True, per=block)


def _ours(ledger: Ledger, block: int) -> Timed:
    numbers, rng = itertools.count(), np.random.default_rng(1)

    def charge() -> float:
        wanted = _queries(rng, block)
        start = time.perf_counter()
        group = [
            Charge("ann", f"{block}:{next(numbers)}", b"query", b"class", 0.0, RecordCharge(*one))
            for one in wanted
        ]
        outcomes = ledger.charge_many(group)
        seconds = time.perf_counter() - start
        if not all(isinstance(outcome, bytes) for outcome in outcomes):
            raise RuntimeError("a charge was refused")
        return seconds

    return charge


def _plain(table: sqlite3.Connection, block: int) -> Timed:
    rng = np.random.default_rng(1)

    def charge() -> float:
        wanted = _queries(rng, block)
        start = time.perf_counter()
        table.execute("BEGIN IMMEDIATE")
        for slots, units in wanted:
            pays = zip(units.tolist(), slots.tolist(), strict=True)
            table.executemany("UPDATE records SET spent = spent + ? WHERE slot = ?", pays)
            table.execute("INSERT INTO answers (answer) VALUES (?)", (b"class",))
        table.execute("COMMIT")
        return time.perf_counter() - start

    return charge


def _queries(
    rng: np.random.Generator, block: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    slots = rng.integers(0, RECORDS, (block, NEIGHBOURS))
    return list(zip(slots, rng.integers(1, 10**5, slots.shape), strict=True))


def _begin(table: sqlite3.Connection) -> None:
    table.execute("PRAGMA journal_mode = WAL")
    table.execute("PRAGMA synchronous = FULL")
    table.execute("CREATE TABLE records (slot INTEGER PRIMARY KEY, spent INTEGER NOT NULL)")
    table.execute("CREATE TABLE answers (number INTEGER PRIMARY KEY, answer BLOB NOT NULL)")
    table.execute("BEGIN")
    rows = ((slot, 0) for slot in range(RECORDS))
    table.executemany("INSERT INTO records VALUES (?, ?)", rows)
    table.execute("COMMIT")
