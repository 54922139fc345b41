"""A charge in one line, for the tests of the ledger."""

from numpy.typing import ArrayLike

from veilring.privacy.budgets import UNITS, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import Ledger

BUDGETS = Budgets(total=1.0, analyst=0.6, analysts={"eve": 0.1})
RECORD_BUDGETS = Budgets(unit="rho", record=1.0)


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
