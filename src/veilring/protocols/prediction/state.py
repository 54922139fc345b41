"""The durable state of a prediction server: rows, their budgets and the answers so far.

All of it is in one ledger; a predictor has a copy. After a crash at any step, a server can continue
from the file:

- a record has a budget before its row is written, so that no row is without a budget;
- a record is forgotten before its row is erased, so that no traces outlive the row; if power fails
  in between, the record remains, and no receipt has been sent.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError, StoreFailed
from veilring.privacy.budgets import Charge
from veilring.privacy.checks import require_that
from veilring.privacy.ledger import Ledger, Totals, ledger_unreadable, open_ledger
from veilring.privacy.statefile import StateFile
from veilring.protocols.admission import Admitted, pack_labels
from veilring.protocols.prediction.messages import (
    RECORDS_MAX,
    PredictionAnswer,
    PredictionRequest,
    ServerRules,
    StreamStatus,
)
from veilring.protocols.prediction.records import (
    ID_BYTES_MAX,
    Accounts,
    LabelledRecords,
    require_ids,
)
from veilring.protocols.requests import RequestRefusal, RequestVerdict, answer_once

_SCHEMA_BYTES: Final = 32
_READ_ROWS: Final = 4096  # at once, so that memory contains the rows only about once
_ON_DISK: Final = np.dtype("<u2")  # labels


class ChangeRefused(InputError):
    """Raised when records cannot be added or forgotten; nothing has been changed."""

    def __init__(self, place: int, value: str, allowed: str) -> None:
        super().__init__("ids", value, allowed)
        self.place = place
        self.args = (place, value, allowed)


def open_state(
    rules: ServerRules,
    path: Path | None,
    schema: bytes = bytes(_SCHEMA_BYTES),
    *,
    new: bool = False,
    copy: bool = False,
) -> "ServerState":
    """Open a server's ledger, or create it if asked, without records.

    Args:
        path: The file of the ledger; none for a server in memory.
        copy: Whether to open a copy of the file in memory.

    Raises:
        StoreFailed: If it cannot be opened or read, or is damaged. The error gives the remedy.
    """
    with ExitStack() as unless_failed:
        ledger = unless_failed.enter_context(open_ledger(path, rules.budgets, new=new, copy=copy))
        try:
            state = ServerState(rules, ledger, RowTable(ledger, rules.facts.features, schema))
        except sqlite3.Error as error:
            raise ledger_unreadable(path, error) from error
        unless_failed.pop_all()
    return state


class ServerState:
    """The server's durable state. Create it with `open_state`.

    Use it in a `with` block, one call at a time.

    Args:
        ledger: The secret ledger, which the state closes.
        rows: The secret rows, not yet loaded.
    """

    def __init__(self, rules: ServerRules, ledger: Ledger, rows: "RowTable") -> None:
        self.rules = rules
        self._ledger, self._rows, self._sound = ledger, rows, True
        self._accounts = Accounts(ledger, rules.system.clients)
        self._predictor = rules.predictor()
        self._numbers: dict[str, int] = {}
        self._next = 0
        for records in rows.load():
            self._require_labels(records)
            self._join(records)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def file(self) -> StateFile:
        """The state file that all of it is in."""
        return self._ledger.file

    @property
    def answered(self) -> int:
        """The total number of answered queries, which is public."""
        return round(self.totals().spent)

    def totals(self) -> Totals:
        """Return the number of answered queries in total and of each client."""
        return self._ledger.totals()

    def has(self, client: str, request: PredictionRequest) -> bool:
        """Return whether a request was answered earlier."""
        with self._changing():
            return self._ledger.has(client, request.key.hex())

    def answer(
        self,
        client: str,
        request: PredictionRequest,
        rng: Generator,
        admitted: Admitted | None = None,
    ) -> PredictionAnswer:
        """Return the answer to a request, after it was charged and durably stored.

        Args:
            rng: The secret source of randomness, fresh for each call.
            admitted: The request, which is counted in the transaction of the charge.

        Raises:
            StoreFailed: If the disk fails, or failed earlier.
        """
        count, admitted = len(request.queries), admitted or Admitted()

        def pay() -> bytes:
            charge = self._answered(client, request, rng)
            answer = pack_labels(np.frombuffer(charge.answer, _ON_DISK))
            return self._ledger.charge(charge, partial(admitted.count, answer=answer))

        with self._changing():
            settled = answer_once(
                self._ledger, client, request.key, request.content, amount=count, pay=pay
            )
        if isinstance(settled, RequestRefusal):
            admitted.refuse(settled.rule)
            nothing = np.zeros(count, np.uint16)
            return PredictionAnswer(verdict=settled.verdict, left=settled.left, labels=nothing)
        labels = np.frombuffer(settled, _ON_DISK).astype(np.uint16)
        admitted.answer(pack_labels(labels))
        return PredictionAnswer(verdict=RequestVerdict.ANSWERED, left=0.0, labels=labels)

    def status(self, client: str, keys: Sequence[bytes]) -> StreamStatus:
        """Return the number of queries that a client has left, and the status of its requests.

        Raises:
            StoreFailed: If the disk fails, or failed earlier.
        """
        with self._changing():
            answered = bytes(self._ledger.has(client, key.hex()) for key in keys)
            return StreamStatus(left=self._ledger.remaining(client), answered=answered)

    def add(self, records: LabelledRecords) -> int:
        """Add records, which take part from the next request on.

        Returns:
            The number of new records. Existing records with the same row stay.

        Raises:
            ChangeRefused: If a record exists with another row.
            StoreFailed: If the disk fails, or failed earlier.
        """
        width = records.features.shape[1]
        require_that(
            width == self.rules.facts.features,
            "features",
            f"the records have {width} features; the rules have {self.rules.facts.features}",
        )
        self._require_labels(records)
        fits = len(self) + len(records) <= RECORDS_MAX
        require_that(
            fits, "records", f"the number of records would exceed the limit of {RECORDS_MAX:,}"
        )
        with self._changing():
            differing = self._rows.differing(records)
            if differing is None:
                new = [at for at, name in enumerate(records.ids) if name not in self._numbers]
                if new:
                    added = records.take(new)
                    self._join(added)
                    self._rows.add(added)
                return len(new)
        raise ChangeRefused(
            differing, "already present with another row", "new ones; forget it first"
        )

    def forget(self, ids: Sequence[str]) -> int:
        """Forget records immediately: in memory, on disk, and in the ledger's links to answers.

        Returns:
            The number of records that existed. Records that were forgotten before stay forgotten.

        Raises:
            ChangeRefused: If a record never existed.
            StoreFailed: If the disk fails, or failed earlier.
        """
        require_ids(ids)
        with self._changing():
            unknown = self._accounts.unknown(ids)
            if unknown is not None:
                raise ChangeRefused(unknown, "never added", "ids that were added")
            here = [name for name in ids if name in self._numbers]
            self._accounts.forget(ids, here)
            self._rows.forget(here)
            gone = [self._numbers.pop(name) for name in here]
            self._predictor.forget(np.array(gone, np.int64))
        return len(here)

    def close(self) -> None:
        """Close the ledger. Closing it again has no effect."""
        self._sound = False
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answered(self, client: str, request: PredictionRequest, rng: Generator) -> Charge:
        """Draw labels, and return the charge that contains them and their price."""
        self._accounts.open(client, self._numbers)
        numbers = self._predictor.ids
        left = self._accounts.remaining(client, numbers)
        self._predictor.restock(left)
        answers = self._predictor.answer_block(request.queries.astype(np.float32), rng)
        return Charge(
            client,
            request.key.hex(),
            request.content,
            np.array([answer.label for answer in answers], _ON_DISK).tobytes(),
            float(len(answers)),
            self._accounts.charge(client, numbers, left - self._predictor.remaining),
        )

    def _join(self, records: LabelledRecords) -> None:
        """Register rows with the ledger and the predictor."""
        numbers = np.arange(self._next, self._next + len(records))
        self._next += len(records)
        self._accounts.add(records.ids, numbers)
        self._numbers.update(zip(records.ids, numbers.tolist(), strict=True))
        labels, nothing = records.labels.astype(np.int64), np.zeros(len(records), np.int64)
        # The remaining budgets are read from the ledger before each request.
        self._predictor.add(numbers, records.directions, labels, nothing)

    def _require_labels(self, records: LabelledRecords) -> None:
        most = int(records.labels.max(initial=0))
        fits = most < self.rules.facts.classes
        require_that(fits, "labels", f"labels must be from 0 to {self.rules.facts.classes - 1}")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Close everything if a step fails halfway: reopening the files shows its outcome."""
        if not self._sound:
            raise StoreFailed("the server's files are closed; start it again")
        try:
            yield
        except ChangeRefused:
            raise
        except (sqlite3.Error, OSError, InputError) as error:
            self.close()
            raise StoreFailed(f"the server's files: {error}") from error
        except BaseException:
            self.close()
            raise


class RowTable:
    """The rows in the places of a ledger. Call `load` first."""

    def __init__(self, ledger: Ledger, features: int, schema: bytes) -> None:
        self._places, self._features = ledger.places, features
        self._row = np.dtype(
            [("id", f"S{ID_BYTES_MAX}"), ("label", "<u2"), ("features", "<i2", (features,))]
        )
        kept, made_for = ledger.recall("rows"), f"{features} {schema.hex()}"
        if kept not in {None, made_for}:
            raise InputError.because(
                "the rows were made for other features or columns", field="rows"
            )
        if kept is None:
            ledger.keep("rows", made_for)
        self._numbers: dict[str, int] = {}
        self._free: list[int] = []

    @property
    def ids(self) -> Iterable[str]:
        """The ids of all rows, once they have been loaded."""
        return self._numbers.keys()

    def load(self) -> Iterator[LabelledRecords]:
        """Read all rows, once.

        Raises:
            StoreFailed: If the file has fewer or other rows than this server wrote.
        """
        places = iter(self._places)
        while some := list(islice(places, _READ_ROWS)):
            numbers, contents = zip(*some, strict=True)
            if {len(content) for content in contents} != {self._row.itemsize}:
                raise StoreFailed("a row has the wrong length")
            rows = np.frombuffer(b"".join(contents), self._row)
            is_free = rows["id"] == b""
            self._free += np.array(numbers)[is_free].tolist()
            records = _records(rows[~is_free])
            self._numbers.update(
                zip(records.ids, np.array(numbers)[~is_free].tolist(), strict=True)
            )
            yield records

    def differing(self, records: LabelledRecords) -> int | None:
        """Return the position of the first record that exists with another row, or None."""
        for at, (name, row) in enumerate(zip(records.ids, self._written(records), strict=True)):
            number = self._numbers.get(name)
            if number is not None and self._places.get(number) != row.tobytes():
                return at
        return None

    def add(self, records: LabelledRecords) -> None:
        """Write new records; they are durable when this returns."""
        end = 1 + len(self._numbers) + len(self._free)  # places are numbered from 1, without gaps
        self._free += range(end, end + len(records) - len(self._free))
        new, self._free = self._free[: len(records)], self._free[len(records) :]
        written = (row.tobytes() for row in self._written(records))
        self._places.put(dict(zip(new, written, strict=True)))
        self._numbers.update(zip(records.ids, new, strict=True))

    def forget(self, ids: Sequence[str]) -> None:
        """Overwrite rows with zeros: when this returns, no file contains them."""
        gone = [self._numbers.pop(name) for name in ids]
        self._places.erase(gone)
        self._free += gone

    def _written(self, records: LabelledRecords) -> NDArray[np.void]:
        written = np.zeros(len(records), self._row)
        written["id"] = [name.encode() for name in records.ids]
        written["label"], written["features"] = records.labels, records.features
        return written


def _records(rows: NDArray[np.void]) -> LabelledRecords:
    ids = tuple(name.decode() for name in rows["id"].tolist())
    return LabelledRecords(ids, rows["features"], rows["label"])
