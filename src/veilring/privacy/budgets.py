"""Budgets and charges of a ledger, in whole units, so that adding them up loses and wins nothing.

An amount such as an epsilon is counted in millionths of a millionth. A charge is rounded up to the
next whole unit and a budget down, except that the rounding of the float itself, a relative 2**-50,
is forgiven: 0.1 is a tenth, and ten of them fit into 1.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.checks import require, require_that

UNITS: Final = 10**12
"""Units of one whole: fine beside the smallest useful charge, and 64 bits hold nine million."""
# Sums of two amounts must fit into 64 bits, and an epsilon this large protects nobody.
AMOUNT_MAX: Final = 10**6
# An answer is labels or counts of one batch; what is larger belongs into a file of its own.
ANSWER_BYTES_MAX: Final = 1 << 20
# Characters of a key or an analyst's name: both come from outside and stay in the file for good.
KEY_SIZE: Final = 256
# Twice the rounding error of an amount that was computed, rounded, and multiplied by `UNITS`.
_FLOAT_ERROR: Final = 2.0**-50
# What one slot pays for one answer is a 64-bit number.
_UNITS_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a ledger. `None` sets none, and what is spent is counted all the same.

    Attributes:
        unit: What is counted, such as `"epsilon"` or `"rho"`: a name for people. Amounts in it must
            add up under composition.
        total: For all answers together. Analysts may show each other their answers; only this
            budget bounds what they learn then.
        analyst: For the answers to any one analyst.
        analysts: For those analysts who have a budget of their own.
        record: For each record, under an individual filter.

    Raises:
        InputError: If a budget is negative, too large or no number.
    """

    unit: str = "epsilon"
    total: float | None = None
    analyst: float | None = None
    analysts: Mapping[str, float] = field(default_factory=dict)
    record: float | None = None

    def __post_init__(self) -> None:
        Limits.of(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets in whole units, as the ledger's file has them."""

    unit: str
    total: int | None
    analyst: int | None
    analysts: dict[str, int]
    record: int | None

    @classmethod
    def of(cls, budgets: Budgets) -> Self:
        """Return budgets in units, rounded down."""
        require_that(bool(budgets.unit), "unit", "unit is empty; name what is counted")
        return cls(
            budgets.unit,
            _units("total", budgets.total),
            _units("analyst", budgets.analyst),
            {
                name: budget_units(amount, field=f"analysts.{name}")
                for name, amount in budgets.analysts.items()
            },
            _units("record", budgets.record),
        )

    def for_analyst(self, name: str) -> int | None:
        """Return what this analyst may spend."""
        return self.analysts.get(name, self.analyst)

    def to_json(self) -> str:
        """Return what the file holds."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what a file holds."""
        return cls(**json.loads(text))


def units_left(limit: int | None, spent: int) -> int:
    """Return how many units are left; where there is no limit, what 64 bits can still count."""
    return max(0, (AMOUNT_MAX * UNITS if limit is None else limit) - spent)


def _units(field_name: str, amount: float | None) -> int | None:
    return None if amount is None else budget_units(amount, field=field_name)


ChargeOutcome = bytes | BudgetExhausted | InputError
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
        require_that(
            slots.ndim == 1,
            "slots",
            f"slots has the shape {slots.shape}; it must be one-dimensional",
        )
        for field_name, numbers in (("slots", slots), ("units", units)):
            require(numbers.dtype == np.int64, field_name, numbers.dtype, "64-bit whole numbers")
        fits = units.shape == slots.shape
        require_that(
            fits,
            "amounts",
            f"amounts has the shape {units.shape}; give one for each of the {len(slots)} "
            "slots, or one for all",
        )
        least, most = int(units.min(initial=0)), int(units.max(initial=0))
        summable = least >= 0 and most * _occurrences_max(slots) < _UNITS_END
        require_that(
            summable,
            "amounts",
            "amounts must be at least 0, and add up to fewer than 2**63 units a slot",
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
        require_request_names(self.analyst, self.key)
        fits = len(self.answer) <= ANSWER_BYTES_MAX
        require_that(
            fits,
            "answer",
            f"the answer has {len(self.answer):,} bytes; the limit is {ANSWER_BYTES_MAX:,}",
        )
        to_units(self.amount, field="amount")


def require_request_names(analyst: str, key: str) -> None:
    """Refuse names that are empty, too long, or hold what no file can."""
    for field_name, text in (("analyst", analyst), ("key", key)):
        fits = 0 < len(text) <= KEY_SIZE and text.isprintable()
        require_that(
            fits,
            field_name,
            f"{field_name} has {len(text)} characters; it must be 1 to {KEY_SIZE} that can "
            "be printed",
        )


def digest_of(request: bytes) -> bytes:
    """Return what is kept of a request."""
    return hashlib.sha256(request).digest()


def _occurrences_max(slots: NDArray[np.int64]) -> int:
    """Return how often the most frequent slot occurs."""
    if not slots.size:
        return 0
    _, counts = np.unique(slots, return_counts=True)
    return int(counts.max())


def merge_slots(
    slots: NDArray[np.int64], units: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each slot once, sorted, with the sum of its units."""
    if not len(slots):
        return slots, units
    order = np.argsort(slots, kind="stable")
    ranked = slots[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=ranked[0] - 1))
    return ranked[starts], np.add.reduceat(units[order], starts)


def to_units(amounts: ArrayLike, *, field: str = "amounts") -> NDArray[np.int64]:
    """Return charges in units, rounded up.

    Args:
        amounts: Of any shape, each from 0 to `AMOUNT_MAX`.
        field: How an error calls them; it does not show their values, which may be secret.

    Raises:
        InputError: If an amount is negative, too large or no number.
    """
    return np.ceil(_scaled(amounts, field) * (1 - _FLOAT_ERROR)).astype(np.int64)


def budget_units(amount: float, *, field: str) -> int:
    """Return a budget in units, rounded down.

    Raises:
        InputError: If it is negative, too large or no number.
    """
    return int(np.floor(_scaled(amount, field) * (1 + _FLOAT_ERROR)))


def from_units(units: ArrayLike) -> NDArray[np.float64]:
    """Return the amounts that these units are."""
    return np.asarray(units, np.int64) / float(UNITS)


def _scaled(amounts: ArrayLike, field: str) -> NDArray[np.float64]:
    given = np.asarray(amounts, np.float64)
    valid = bool(np.all((given >= 0) & (given <= AMOUNT_MAX)))
    require_that(valid, field, f"{field} must be from 0 to {AMOUNT_MAX:,}")
    return given * UNITS
