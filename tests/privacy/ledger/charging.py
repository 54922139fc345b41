"""A process that charges until it is killed: `python charging.py LEDGER FIRST [STATEMENT]`.

It prints a line for each answer that it gives: the number of the request and the answer, which is
random. With `STATEMENT` it kills itself just before that statement of a charge is executed.
"""

import itertools
import os
import secrets
import signal
import sys
from pathlib import Path

import numpy as np

from veilring.privacy.budgets import Budgets, Charge, RecordCharge
from veilring.privacy.ledger import Ledger, open_ledger

BUDGETS = Budgets(total=1000.0, record=100.0)
AMOUNT = 0.001
IDS = [f"record {number}" for number in range(1200)]


def charge_of(number: int, answer: bytes) -> Charge:
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
    with open_ledger(path, BUDGETS, new=not path.exists()) as ledger:
        ledger.records.add(IDS)
        print("ready", flush=True)
        if statement is not None:
            _kill_before(ledger, statement)
        for number in itertools.count(first):
            answer = ledger.charge(charge_of(number, secrets.token_bytes(8)))
            print(number, answer.hex(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
