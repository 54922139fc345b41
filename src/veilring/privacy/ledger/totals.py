"""The odometer: what was spent in total and by each analyst, and nothing finer."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from veilring.errors import InputError
from veilring.privacy.ledger.budgets import Limits
from veilring.privacy.ledger.store import read_store
from veilring.privacy.ledger.units import from_units


@dataclass(frozen=True, slots=True)
class AnalystTotal:
    """What one analyst spent.

    Attributes:
        name: Who.
        spent: In the ledger's unit.
        budget: What it may spend; none if that is not limited.
        answers: How many answers it got, repeated ones once.
    """

    name: str
    spent: float
    budget: float | None
    answers: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What was spent.

    Attributes:
        unit: What is counted.
        spent: By all analysts together.
        budget: What they may spend; none if that is not limited.
        answers: How many answers all got.
        analysts: Each who got an answer, by name.
    """

    unit: str
    spent: float
    budget: float | None
    answers: int
    analysts: tuple[AnalystTotal, ...]


def read_totals(path: Path) -> Totals:
    """Read the totals of a ledger, whether or not a process is writing it, which goes on.

    Raises:
        InputError: If there is no ledger at `path`, or it has no budgets yet.
        StoreFailed: If the disk failed, or the file is damaged.
    """
    with read_store(path) as connection:
        return totals_of(connection)


def totals_of(connection: sqlite3.Connection) -> Totals:
    """Return the totals that a ledger's file holds.

    Raises:
        InputError: If it has no budgets yet: it is being begun, or that was interrupted.
    """
    # One statement is one snapshot, even while another process writes.
    rows = connection.execute(
        "SELECT value, name, spent, answers FROM"
        " (SELECT CAST(value AS TEXT) AS value FROM settings WHERE name = 'budgets')"
        " LEFT JOIN (SELECT name, spent, answers FROM analysts) ON true ORDER BY name"
    ).fetchall()
    if not rows:
        raise InputError("ledger", "without budgets", "one that `open_ledger` has begun")
    limits = Limits.from_json(rows[0][0])
    each = [row[1:] for row in rows if row[1] is not None]
    return Totals(
        limits.unit,
        float(from_units(sum(spent for _, spent, _ in each))),
        _amount(limits.total),
        sum(answers for _, _, answers in each),
        tuple(
            AnalystTotal(name, float(from_units(spent)), _amount(limits.for_analyst(name)), answers)
            for name, spent, answers in each
        ),
    )


def _amount(units: int | None) -> float | None:
    return None if units is None else float(from_units(units))
