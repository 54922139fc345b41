"""A charge: an answer, and what it costs."""

import hashlib
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.checks import require
from veilring.privacy.ledger.units import to_units

# An answer is labels or counts of one batch; what is larger belongs into a file of its own.
ANSWER_BYTES_MAX: Final = 1 << 20
# Characters of a key or an analyst's name: both come from outside and stay in the file for good.
KEY_SIZE: Final = 256

# What one slot pays for one answer is a 64-bit number.
_UNITS_END: Final = 1 << 63

Outcome = bytes | BudgetExhausted | InputError
"""The answer that may leave, or why there is none."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RecordCharge:
    """What records pay for one answer, in whole units. Who pays, and how much, is secret.

    Make it with `of` from amounts. Whether it is refused depends on the largest payment and on how
    often a slot occurs, never on the number of payers: a server that names each slot once can
    charge any number of records, and a refusal tells nobody how many there are.

    Attributes:
        slots: Whole numbers that `Records.add` gave, of shape (m,); a slot may occur more often.
        units: What each pays, of shape (m,), at least 0; the largest, times the occurrences of the
            most frequent slot, is below 2**63.

    Raises:
        InputError: If the shapes differ, a slot is no whole number, or an amount is out of range.
    """

    slots: NDArray[np.int64]
    units: NDArray[np.int64]

    def __post_init__(self) -> None:
        slots, units = self.slots, self.units
        require(slots.ndim == 1, "slots", f"of shape {slots.shape}", "of shape (m,)")
        for field_name, numbers in (("slots", slots), ("units", units)):
            require(numbers.dtype == np.int64, field_name, numbers.dtype, "64-bit whole numbers")
        fits = units.shape == slots.shape
        require(fits, "amounts", f"of shape {units.shape}", "one for each slot, or one for all")
        least, most = int(units.min(initial=0)), int(units.max(initial=0))
        summable = least >= 0 and most * _occurrences_max(slots) < _UNITS_END
        require(
            summable, "amounts", "out of range", "at least 0, and fewer than 2**63 units a slot"
        )

    @classmethod
    def of(cls, slots: ArrayLike, amounts: ArrayLike) -> Self:
        """Return a charge in the ledger's unit.

        Args:
            slots: See above.
            amounts: What each pays, of shape (m,), or one number for all.
        """
        given, units = np.asarray(slots), to_units(amounts)
        # An empty list is of floats; and a fraction, made whole, would be another record's slot.
        where = given.astype(np.int64) if given.dtype.kind in "iu" or not given.size else given
        return cls(where, np.broadcast_to(units, where.shape) if not units.ndim else units)


@dataclass(frozen=True, slots=True)
class Charge:
    """An answer that was computed and has not left, and what it costs.

    Attributes:
        analyst: Who asked, as the transport authenticated it.
        key: The analyst's own name of this request. A request that is sent again has the same key.
        request: The request itself, or its hash. Only a hash of it is kept.
        answer: What will be sent. It is kept, so that a repeated request gets the same.
        amount: What it costs the analyst and the total, in the ledger's unit.
        records: What it costs records, if they have filters.

    Raises:
        InputError: If a name is empty, too long or not printable, the answer too large, or the
            amount out of range.
    """

    analyst: str
    key: str
    request: bytes = field(repr=False)
    answer: bytes = field(repr=False)
    amount: float = 0.0
    records: RecordCharge | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_names(self.analyst, self.key)
        fits = len(self.answer) <= ANSWER_BYTES_MAX
        require(
            fits, "answer", f"{len(self.answer):,} bytes", f"at most {ANSWER_BYTES_MAX:,} bytes"
        )
        to_units(self.amount, field="amount")


def require_names(analyst: str, key: str) -> None:
    """Refuse names that are empty, too long, or hold what no file can."""
    for field_name, text in (("analyst", analyst), ("key", key)):
        fits = 0 < len(text) <= KEY_SIZE and text.isprintable()
        shown = f"{len(text)} characters"
        require(fits, field_name, shown, f"1 to {KEY_SIZE} characters that can be printed")


def digest_of(request: bytes) -> bytes:
    """Return what is kept of a request."""
    return hashlib.sha256(request).digest()


def _occurrences_max(slots: NDArray[np.int64]) -> int:
    """Return how often the most frequent slot occurs."""
    if not slots.size:
        return 0
    _, counts = np.unique(slots, return_counts=True)
    return int(counts.max())


def merged(
    slots: NDArray[np.int64], units: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each slot once, sorted, with the sum of its units."""
    if not len(slots):
        return slots, units
    order = np.argsort(slots, kind="stable")
    ranked = slots[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=ranked[0] - 1))
    return ranked[starts], np.add.reduceat(units[order], starts)
