"""A charge in one line, for the tests of the ledger."""

from veilring.privacy.ledger import Budgets, Charge

__all__ = ("BUDGETS", "charge")

BUDGETS = Budgets(total=1.0, analyst=0.6, analysts={"eve": 0.1})


def charge(
    analyst: str, key: str, amount: float, *, answer: bytes = b"yes", request: bytes = b"?"
) -> Charge:
    """Return what an analyst is charged for an answer."""
    return Charge(analyst, key, request, answer, amount)
