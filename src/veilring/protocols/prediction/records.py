"""Records of a prediction server (with id, direction and label) and their accounts.

An administrator sends `LabelledRecords`. `Accounts` maps each client and record to a privacy filter
in the ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Ints
from veilring.data.table import is_table
from veilring.errors import InputError
from veilring.privacy.budgets import RecordCharge
from veilring.privacy.checks import require_that
from veilring.privacy.ledger import Ledger
from veilring.protocols.prediction.algorithm.directions import require_quantised
from veilring.protocols.prediction.messages import Clients

# A hash in hexadecimal has 64 characters, and a UUID 36. Every record reserves this size.
ID_BYTES_MAX: Final = 64
# The holder of filters that all clients share; no member of a roster has this name.
_ALL: Final = ""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LabelledRecords:
    """A batch of records. Their values are never shown.

    Attributes:
        ids: The unique ids of the records, each 1 to `ID_BYTES_MAX` bytes of printable UTF-8.
        features: Quantised directions, shape (records, features).
        labels: Class numbers from 0, shape (records,).
    """

    ids: tuple[str, ...]
    features: NDArray[np.int16]
    labels: NDArray[np.uint16]

    def __post_init__(self) -> None:
        count = len(self.ids)
        fits = is_table(self.features) and len(self.features) == count
        require_that(
            fits,
            "features",
            f"features has the shape {self.features.shape}; it must be ({count}, features)",
        )
        shape = self.labels.shape
        require_that(
            shape == (count,), "labels", f"labels has the shape {shape}; it must be ({count},)"
        )
        require_ids(self.ids)
        require_quantised("features", self.directions, self.features.shape[1])

    @classmethod
    def of(cls, ids: Sequence[str], quantised: NDArray[np.float32], labels: Ints) -> Self:
        """Make records from a result of `quantise`."""
        fits = not labels.size or (labels.min() >= 0 and labels.max() <= np.iinfo(np.uint16).max)
        require_that(fits, "labels", "labels must be class numbers from 0")
        return cls(tuple(ids), quantised.astype(np.int16), labels.astype(np.uint16))

    @property
    def directions(self) -> NDArray[np.float32]:
        """The features in the type that a predictor needs."""
        return self.features.astype(np.float32)

    def take(self, places: Sequence[int]) -> "LabelledRecords":
        """Return the records at these positions."""
        ids = tuple(self.ids[place] for place in places)
        return LabelledRecords(ids, self.features[places], self.labels[places])

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"LabelledRecords({len(self)} of {self.features.shape[1]} features)"


def require_ids(ids: Sequence[str]) -> None:
    """Check that ids are valid and unique."""
    for place, name in enumerate(ids):
        if not (name.isprintable() and 0 < len(name.encode(errors="replace")) <= ID_BYTES_MAX):
            raise InputError.because(
                f"the id at place {place + 1} must have 1 to {ID_BYTES_MAX} bytes that are "
                "printable",
                field="ids",
            )
    require_that(len(set(ids)) >= len(ids), "ids", "an id occurs twice; each record needs its own")


class Accounts:
    """Maps each client and record to a privacy filter in the ledger.

    Records are identified by the numbers that the predictor assigns. If clients are apart, each
    client has its own filters; an additional filter of each record, which is never charged, shows
    that the record once existed.
    """

    def __init__(self, ledger: Ledger, clients: Clients) -> None:
        self._ledger, self._apart = ledger, clients == "apart"
        self._slots: dict[str, Ints] = {_ALL: np.zeros(0, np.int64)}
        if self._apart:
            names = (each.name for each in ledger.totals().analysts)
            self._slots.update((name, np.zeros(0, np.int64)) for name in names)

    def open(self, client: str, numbers: Mapping[str, int]) -> None:
        """Ensure that a filter exists for every record of this client."""
        if self._apart and client not in self._slots:
            self._slots[client] = np.zeros(0, np.int64)
            self._add(client, tuple(numbers), np.fromiter(numbers.values(), np.int64))

    def add(self, ids: Sequence[str], numbers: Ints) -> None:
        """Open filters for records; records that existed before keep their remaining budgets."""
        for holder in self._slots:
            self._add(holder, ids, numbers)

    def known(self, ids: Iterable[str]) -> Bools:
        """Return whether each record ever existed, shape (ids,)."""
        return self._ledger.records.known(_account(_ALL, name) for name in ids)

    def unknown(self, ids: Iterable[str]) -> int | None:
        """Return the position of the first record that never existed, or None if all did."""
        known = self.known(ids)
        return None if known.all() else int(known.argmin())

    def forget(self, known: Iterable[str], here: Iterable[str]) -> None:
        """Erase from the ledger the links between records and answers."""
        gone = tuple(here)
        holders = [holder for holder in self._slots if holder != _ALL]
        others = [_account(holder, name) for holder in holders for name in gone]
        self._ledger.records.forget([_account(_ALL, name) for name in known] + others)

    def remaining(self, client: str, numbers: Ints) -> Ints:
        """Return the secret number of units that records have left for a client."""
        return self._ledger.records.remaining()[self._of(client)[numbers]]

    def charge(self, client: str, numbers: Ints, paid: Ints) -> RecordCharge:
        """Return the charge to the records that pay for answers to a client."""
        payers = np.flatnonzero(paid)
        return RecordCharge(self._of(client)[numbers[payers]], paid[payers])

    def _of(self, client: str) -> Ints:
        return self._slots[client if self._apart else _ALL]

    def _add(self, holder: str, ids: Sequence[str], numbers: Ints) -> None:
        added = self._ledger.records.add(_account(holder, name) for name in ids)
        more = max(0, int(numbers.max(initial=-1)) + 1 - len(self._slots[holder]))
        self._slots[holder] = np.concatenate([self._slots[holder], np.full(more, -1)])
        self._slots[holder][numbers] = added


def _account(holder: str, name: str) -> str:
    return f"{len(holder)}:{holder}:{name}"
