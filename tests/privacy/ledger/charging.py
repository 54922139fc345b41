"""Charges in one line, and a process of them: `python charging.py LEDGER FIRST [STATEMENT]`.

It charges until it is killed, and prints a line for each answer that it gives: the number of the
request and the answer, which is random. With `STATEMENT` it kills itself just before that statement
of a charge is executed.
"""

import itertools
import os
import secrets
import signal
import sys
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from veilring.privacy.budgets import UNITS, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import Ledger, open_ledger

PLENTY = Budgets(total=1000.0, record=100.0)
BUDGETS = Budgets(total=1.0, analyst=0.6, analysts={"eve": 0.1})
RECORD_BUDGETS = Budgets(unit="rho", record=1.0)
AMOUNT = 0.001
IDS = [f"record {number}" for number in range(1200)]


def charge(
    analyst: str, key: str, amount: float, *, answer: bytes = b"yes", request: bytes = b"?"
) -> Charge:
    """Return an analyst's charge for an answer."""
    return Charge(analyst, key, request, answer, amount)


def charge_records(key: object, slots: ArrayLike, amounts: ArrayLike) -> Charge:
    """Return the charge of records for an answer."""
    return charge_of(key, RecordCharge.of(slots, amounts))


def charge_of(key: object, records: RecordCharge) -> Charge:
    """Return the charge of an answer that only records pay for."""
    return Charge("ann", str(key), b"?", b"!", records=records)


def left(ledger: Ledger) -> list[float]:
    """Return the remaining budget of each record."""
    return [units / UNITS for units in ledger.records.remaining()]


def numbered(number: int, answer: bytes) -> Charge:
    """Return the charge of a request, which depends only on its number."""
    rng = np.random.default_rng(number)
    records = RecordCharge.of(rng.choice(len(IDS), 40, replace=False), rng.random(40) * 1e-3)
    return Charge("ann", str(number), b"request %d" % number, answer, AMOUNT, records)


def _kill_before(ledger: Ledger, statement: int) -> None:
    count = itertools.count()

    def traced(_sql: str) -> None:
        if next(count) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger._store.connection.set_trace_callback(traced)  # noqa: SLF001  (to die within a charge)


def main(path: Path, first: int, statement: int | None) -> None:
    """Charge request after request."""
    with open_ledger(path, PLENTY, new=not path.exists()) as ledger:
        ledger.records.add(IDS)
        print("ready", flush=True)
        if statement is not None:
            _kill_before(ledger, statement)
        for number in itertools.count(first):
            answer = ledger.charge(numbered(number, secrets.token_bytes(8)))
            print(number, answer.hex(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
