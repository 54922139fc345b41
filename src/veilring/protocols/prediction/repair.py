"""What a server's two files know of each other, and going on after one was damaged or lost.

Damage is refused when a server starts. Its operator puts copies back. If there are none, `repair`
takes the operator's word that the loss is accepted: of records, which may be added again, or of
what records have spent, and with it of the promise to them.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from veilring.errors import InputError
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.privacy.ledger.store import unreadable
from veilring.protocols.prediction.accounts import Accounts
from veilring.protocols.prediction.rowfile import TIE_BYTES, salvage
from veilring.protocols.prediction.rules import Rules

BUDGETS: Final = "budgets.sqlite"
ROWS: Final = "rows.bin"
_STEPS: Final = "steps of the file of rows"


@dataclass(frozen=True, slots=True)
class Damage:
    """What a server's files have lost.

    Attributes:
        records: The number of records that can be read.
        lost: The number of records that cannot, or of changes that an old copy lacks.
        refunded: The number of records that have spent more than the ledger knows, or may have.
    """

    records: int
    lost: int
    refunded: int

    def is_accepted(self, *, lose_records: bool, lose_budgets: bool) -> bool:
        """Return whether all of it is, as `repair` takes it."""
        return (lose_records or not self.lost) and (lose_budgets or not self.refunded)


def noted_steps(ledger: Ledger) -> int:
    """Return how many steps of the file of rows a ledger knows of."""
    return int(ledger.recall(_STEPS) or 0)


def note_steps(ledger: Ledger, steps: int) -> None:
    """Let a ledger know how many steps of the file of rows were finished."""
    ledger.keep(_STEPS, str(steps))


def repair(
    rules: Rules,
    folder: Path,
    schema: bytes,
    *,
    lose_records: bool = False,
    lose_budgets: bool = False,
) -> Damage:
    """Say what a server's files have lost, and make them fit again if all of that is accepted.

    Args:
        rules: Public.
        folder: Where the files are; no server has them open.
        schema: As `open_state` takes it.
        lose_records: Accept that records are lost. They have what they had left once they are
            added again.
        lose_budgets: Accept that what records have spent is forgotten, so that they spend again.

    Returns:
        What is lost. Nothing was changed unless all of it was accepted.

    Raises:
        InputError: If there are no such files, another process has the files open, or they were
            begun under other rules.
        StoreFailed: If a file cannot be read, or the ledger is damaged.
    """
    budgets, rows = folder / BUDGETS, folder / ROWS
    if not (budgets.exists() or rows.exists()):
        raise InputError("state", folder, f"a folder with {BUDGETS} or {ROWS}")
    if not budgets.exists():
        found = salvage(rows, rules.features, schema, bytes(TIE_BYTES))
        damage = Damage(len(found.ids), found.damaged, len(found.ids))
        if not damage.is_accepted(lose_records=lose_records, lose_budgets=lose_budgets):
            return damage
    try:
        with closing(open_ledger(budgets, rules.budgets)) as ledger:
            files = _Files(rules, ledger, rows, schema)
            damage = files.damage()
            if damage.is_accepted(lose_records=lose_records, lose_budgets=lose_budgets):
                files.repair()
            return damage
    except sqlite3.Error as error:
        raise unreadable(budgets, error) from error


class _Files:
    """A ledger that is open, and the file of rows beside it."""

    def __init__(self, rules: Rules, ledger: Ledger, rows: Path, schema: bytes) -> None:
        self._ledger, self._accounts = ledger, Accounts(ledger, rules.queriers)
        self._salvage = partial(salvage, rows, rules.features, schema, ledger.id)

    def damage(self) -> Damage:
        """Return the loss as a clause."""
        found, noted = self._salvage(), noted_steps(self._ledger)
        another = not found.tied or found.steps > noted + 1
        strangers = int((~self._accounts.known(found.ids)).sum())
        return Damage(
            len(found.ids),
            max(found.damaged, noted - found.steps, 0),
            len(found.ids) if another else strangers,
        )

    def repair(self) -> None:
        """Overwrite what is damaged, and let each file know the other."""
        found = self._salvage(overwrite=True)
        self._accounts.add(found.ids, np.arange(len(found.ids)))
        note_steps(self._ledger, found.steps)
