"""Whose budgets a querier's answers come out of: one filter a record, or one for each querier."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.ledger import Ledger, RecordCharge
from veilring.protocols.prediction.rules import Queriers

# The name under which all queriers share; no member of a roster has it.
_ALL = ""


class Accounts:
    """The ledger's slots of each record, by the number that the predictor knows it by.

    Where queriers are apart each of them has slots of its own; and each record has one that nobody
    charges, by which the ledger knows whether it ever was here.

    Args:
        ledger: Where all is charged.
        queriers: Whom the promise is made to.
    """

    def __init__(self, ledger: Ledger, queriers: Queriers) -> None:
        self._ledger, self._apart = ledger, queriers == "apart"
        self._slots: dict[str, NDArray[np.int64]] = {_ALL: np.zeros(0, np.int64)}
        if self._apart:
            names = (each.name for each in ledger.totals().analysts)
            self._slots.update((name, np.zeros(0, np.int64)) for name in names)

    def open(self, querier: str, numbers: Mapping[str, int]) -> None:
        """See to it that a querier has slots of all records.

        Args:
            querier: Whose.
            numbers: Of the records that are here, by their ids.
        """
        if self._apart and querier not in self._slots:
            self._slots[querier] = np.zeros(0, np.int64)
            self._add(querier, tuple(numbers), np.fromiter(numbers.values(), np.int64))

    def add(self, ids: Sequence[str], numbers: NDArray[np.int64]) -> None:
        """Give records their slots; those that were here before have what they had left."""
        for holder in self._slots:
            self._add(holder, ids, numbers)

    def known(self, ids: Iterable[str]) -> NDArray[np.bool_]:
        """Return whether each was ever here, of shape (ids,)."""
        return self._ledger.records.known(_account(_ALL, name) for name in ids)

    def unknown(self, ids: Iterable[str]) -> int | None:
        """Return the place of the first that was never here; none if all were."""
        known = self.known(ids)
        return None if known.all() else int(known.argmin())

    def forget(self, known: Iterable[str], here: Iterable[str]) -> None:
        """Wipe what ties records to answers.

        Args:
            known: All that are to be forgotten, again or for the first time.
            here: Those of them that are here.

        Raises:
            InputError: If one was never here; nothing is forgotten then.
        """
        gone = tuple(here)
        holders = [holder for holder in self._slots if holder != _ALL]
        others = [_account(holder, name) for holder in holders for name in gone]
        self._ledger.records.forget([_account(_ALL, name) for name in known] + others)

    def remaining(self, querier: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the units that records have left for a querier: secret."""
        return self._ledger.records.remaining()[self._of(querier)[numbers]]

    def charge(
        self, querier: str, numbers: NDArray[np.int64], paid: NDArray[np.int64]
    ) -> RecordCharge:
        """Return what records pay for answers to a querier: those that pay anything."""
        payers = np.flatnonzero(paid)
        return RecordCharge(self._of(querier)[numbers[payers]], paid[payers])

    def _of(self, querier: str) -> NDArray[np.int64]:
        return self._slots[querier if self._apart else _ALL]

    def _add(self, holder: str, ids: Sequence[str], numbers: NDArray[np.int64]) -> None:
        added = self._ledger.records.add(_account(holder, name) for name in ids)
        more = max(0, int(numbers.max(initial=-1)) + 1 - len(self._slots[holder]))
        self._slots[holder] = np.concatenate([self._slots[holder], np.full(more, -1)])
        self._slots[holder][numbers] = added


def _account(holder: str, name: str) -> str:
    return f"{len(holder)}:{holder}:{name}"
