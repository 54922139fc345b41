"""How much may be spent: in total, by each analyst, and by each record."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from veilring.privacy.checks import require
from veilring.privacy.ledger.units import AMOUNT_MAX, UNITS, budget_units


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
        require(bool(budgets.unit), "unit", "empty", "the name of what is counted")
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


def left(limit: int | None, spent: int) -> int:
    """Return how many units are left; where there is no limit, what 64 bits can still count."""
    return max(0, (AMOUNT_MAX * UNITS if limit is None else limit) - spent)


def _units(field_name: str, amount: float | None) -> int | None:
    return None if amount is None else budget_units(amount, field=field_name)
