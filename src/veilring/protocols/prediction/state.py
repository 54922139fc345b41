"""The durable state of a prediction server: rows, their budgets and the answers so far.

The ledger and the file of rows are authoritative; a predictor has a copy of both. After a crash at
any step, a server can continue from the two files:

- a record is in the ledger before its row is on the disk, so that no row is without a budget;
- a record is forgotten in the ledger before its row is erased, so that no traces outlive the row;
  if power fails in between, the record remains, and no receipt has been sent;
- the ledger records each finished step of the file of rows, so the file is at most one step ahead.

Any other difference means damage, a lost file or an old copy. The server then refuses to start and
overwrites nothing: with fewer rows, answers would be noise at the full price, and without a ledger
each record would get a fresh budget. The operator restores copies. Without copies, `repair_state`
continues if the operator accepts the loss: of records, which may be added again, or of their
charges, which breaks the promise to these records.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import numpy as np
from numpy.random import Generator

from veilring.errors import InputError, StoreFailed
from veilring.privacy.budgets import Charge
from veilring.privacy.checks import require_that
from veilring.privacy.ledger import Ledger, ledger_unreadable, open_ledger
from veilring.protocols.prediction.messages import PredictionAnswer, PredictionRequest, StreamStatus
from veilring.protocols.prediction.records import Accounts, LabelledRecords, require_ids
from veilring.protocols.prediction.rowfile import (
    REPAIR,
    SCHEMA_BYTES,
    STEP_RECORDS_MAX,
    TIE_BYTES,
    RowFile,
    open_rows,
    salvage,
    unreadable_rows,
)
from veilring.protocols.prediction.rules import RECORDS_MAX, ServerRules
from veilring.protocols.requests import RequestRefusal, RequestVerdict, answer_once

BUDGETS: Final = "budgets.sqlite"
"""The name of a server's ledger in its folder."""
ROWS: Final = "rows.bin"
"""The name of its file of rows."""
_STEPS: Final = "steps of the file of rows"  # the name of the ledger's note
_ON_DISK: Final = np.dtype("<u2")  # labels

_T = TypeVar("_T")


class ChangeRefused(InputError):
    """Raised when records cannot be added or forgotten; nothing has been changed.

    Attributes:
        place: The position of the first record that cannot be changed.
    """

    def __init__(self, place: int, value: str, allowed: str) -> None:
        super().__init__("ids", value, allowed)
        self.place = place
        self.args = (place, value, allowed)


def open_state(
    rules: ServerRules,
    folder: Path | None,
    schema: bytes = bytes(SCHEMA_BYTES),
) -> "ServerState":
    """Open a server's two files, whose folder `begin_state` has created.

    The file of rows is created with the first opening, and may be lost until it has rows.

    Args:
        rules: The public rules.
        folder: The folder of the files; none for a server in memory.
        schema: A hash of the terms that convert a row into a direction.

    Raises:
        InputError: If there is no ledger, another process has the files open, or they were created
            under other rules.
        StoreFailed: If the files cannot be opened or read, are damaged, or do not belong together.
            The error names the file and the remedy.
    """
    if folder is None:
        return _opened(rules, None, None, schema)
    budgets, rows = folder / BUDGETS, folder / ROWS
    try:
        if not budgets.exists():
            _require_no_rows(budgets, rows)
        return _opened(rules, budgets, rows, schema)
    except sqlite3.Error as error:
        raise ledger_unreadable(budgets, error) from error
    except OSError as error:
        raise unreadable_rows(Path(error.filename or rows), error) from error


def begin_state(rules: ServerRules, folder: Path) -> None:
    """Create the folder of a server and its ledger, without records.

    Raises:
        InputError: If the ledger exists.
        StoreFailed: If the ledger or rows existed, or the disk fails.
    """
    budgets, rows = folder / BUDGETS, folder / ROWS
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unreadable_rows(folder, error) from error
    if not budgets.exists():
        _require_no_rows(budgets, rows)
    open_ledger(budgets, rules.budgets, new=True).close()


def _require_no_rows(budgets: Path, rows: Path) -> None:
    if rows.exists():
        raise StoreFailed(
            f"{budgets} is missing, although {rows.name} next to it is in use: it contains all"
            f" charges of records. Restore it. Without it, see `{REPAIR}`"
        )


def _opened(
    rules: ServerRules,
    budgets: Path | None,
    rows: Path | None,
    schema: bytes,
) -> "ServerState":
    with ExitStack() as unless_failed:
        ledger = unless_failed.enter_context(closing(open_ledger(budgets, rules.budgets)))
        opened = open_rows(
            rows,
            rules.features,
            schema,
            ledger.id,
            begin=not len(ledger.records),
            finished=_noted_steps(ledger),
        )
        file = unless_failed.enter_context(closing(opened))
        state = ServerState(rules, ledger, file)
        unless_failed.pop_all()
    return state


class ServerState:
    """The server's durable state. Create it with `open_state`.

    Use it in a `with` block, one call at a time.

    Args:
        rules: The public rules.
        ledger: The secret ledger, which the state closes.
        rows: The secret rows, not yet loaded, which the state closes.

    Raises:
        InputError: If a row does not fit the rules.
        StoreFailed: If the two files do not belong together.
    """

    def __init__(self, rules: ServerRules, ledger: Ledger, rows: RowFile) -> None:
        self.rules = rules
        self._ledger, self._rows, self._sound = ledger, rows, True
        self._accounts = Accounts(ledger, rules.clients)
        self._predictor = rules.predictor()
        self._numbers: dict[str, int] = {}
        self._next = 0
        self._require_same_age()
        for records in rows.load():
            self._require_labels(records)
            self._require_budgets(records)
            self._join(records)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def answered(self) -> int:
        """The total number of answered queries, which is public."""
        return round(self._ledger.totals().spent)

    def answer(self, client: str, request: PredictionRequest, rng: Generator) -> PredictionAnswer:
        """Return the answer to a request, after it was charged and durably stored.

        Args:
            client: The name of the client, as the transport authenticated it.
            request: A request that obeys the rules.
            rng: The secret source of randomness, fresh for each call.

        Raises:
            StoreFailed: If the disk fails, or failed earlier.
        """
        count = len(request.queries)

        def pay() -> bytes:
            return self._ledger.charge(self._answered(client, request, rng))

        with self._changing():
            settled = answer_once(
                self._ledger, client, request.key, request.content, amount=count, pay=pay
            )
        if isinstance(settled, RequestRefusal):
            nothing = np.zeros(count, np.uint16)
            return PredictionAnswer(verdict=settled.verdict, left=settled.left, labels=nothing)
        labels = np.frombuffer(settled, _ON_DISK).astype(np.uint16)
        return PredictionAnswer(verdict=RequestVerdict.ANSWERED, left=0.0, labels=labels)

    def status(self, client: str, keys: Sequence[bytes]) -> StreamStatus:
        """Return the number of queries that a client has left, and the status of its requests.

        Args:
            client: The name of the client, as the transport authenticated it.
            keys: The keys of the client's requests.

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
            InputError: If a row does not fit the rules.
            StoreFailed: If the disk fails, or failed earlier.
        """
        width = records.features.shape[1]
        require_that(
            width == self.rules.features,
            "features",
            f"the records have {width} features; the rules have {self.rules.features}",
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
                for step in _steps(new):
                    added = records.take(step)
                    self._join(added)
                    self._rows.add(added)
                    _note_steps(self._ledger, self._rows.steps)
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
            InputError: If an id is invalid or occurs twice.
            StoreFailed: If the disk fails, or failed earlier.
        """
        require_ids(ids)
        with self._changing():
            unknown = self._accounts.unknown(ids)
            if unknown is not None:
                raise ChangeRefused(unknown, "never added", "ids that were added")
            here = [name for name in ids if name in self._numbers]
            self._accounts.forget(ids, here)
            for step in _steps(here):
                self._rows.forget(step)
                _note_steps(self._ledger, self._rows.steps)
            gone = [self._numbers.pop(name) for name in here]
            self._predictor.forget(np.array(gone, np.int64))
        return len(here)

    def close(self) -> None:
        """Close the files. Closing them again has no effect."""
        self._sound = False
        self._rows.close()
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

    def _require_same_age(self) -> None:
        """Refuse an old copy of the ledger: the file of rows is ahead by one step at most."""
        noted, steps = _noted_steps(self._ledger), self._rows.steps
        if steps > noted + 1:
            raise StoreFailed(
                f"The ledger next to {self._rows.path} is an older copy: later charges are "
                f"missing. Restore your newest copy. Without one, see `{REPAIR}`"
            )
        if steps != noted:
            _note_steps(self._ledger, steps)

    def _require_budgets(self, records: LabelledRecords) -> None:
        """Refuse rows that the ledger does not know: no crash leaves a row without a budget."""
        if self._accounts.unknown(records.ids) is not None:
            raise StoreFailed(
                f"The ledger next to {self._rows.path} does not contain all of its records: it is "
                "another ledger or an older copy. Restore your newest copy. Without one, see "
                f"`{REPAIR}`"
            )

    def _require_labels(self, records: LabelledRecords) -> None:
        most = int(records.labels.max(initial=0))
        fits = most < self.rules.classes
        require_that(fits, "labels", f"labels must be from 0 to {self.rules.classes - 1}")

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


@dataclass(frozen=True, slots=True)
class StateDamage:
    """The loss of a server's files.

    Attributes:
        records: The number of readable records.
        lost: The number of unreadable records, or of changes that are missing from an old copy.
        refunded: The number of records that have, or may have, spent more than the ledger shows.
    """

    records: int
    lost: int
    refunded: int

    def is_accepted(self, *, lose_records: bool, lose_budgets: bool) -> bool:
        """Return whether the whole loss is accepted; for the arguments see `repair_state`."""
        return (lose_records or not self.lost) and (lose_budgets or not self.refunded)


def repair_state(
    rules: ServerRules,
    folder: Path,
    schema: bytes,
    *,
    lose_records: bool = False,
    lose_budgets: bool = False,
) -> StateDamage:
    """Assess the loss of a server's files, and repair them if the whole loss is accepted.

    Args:
        rules: The public rules.
        folder: The folder of the files, which no server has open.
        schema: The hash of the terms, as in `open_state`.
        lose_records: Whether the loss of records is accepted. Records that are added again keep
            their remaining budgets.
        lose_budgets: Whether the loss of charges is accepted, so that records spend again.

    Returns:
        The loss. Nothing has been changed unless the whole loss was accepted.

    Raises:
        InputError: If the files do not exist, another process has them open, or they were created
            under other rules.
        StoreFailed: If a file cannot be read, or the ledger is damaged.
    """
    budgets, rows = folder / BUDGETS, folder / ROWS
    if not (budgets.exists() or rows.exists()):
        raise InputError("state", folder, f"a folder with {BUDGETS} or {ROWS}")
    if not budgets.exists():
        found = salvage(rows, rules.features, schema, bytes(TIE_BYTES))
        damage = StateDamage(len(found.ids), found.damaged, len(found.ids))
        if not damage.is_accepted(lose_records=lose_records, lose_budgets=lose_budgets):
            return damage
    try:
        lost = not budgets.exists()
        with closing(open_ledger(budgets, rules.budgets, new=lost)) as ledger:
            files = _Files(rules, ledger, rows, schema)
            damage = files.damage()
            if damage.is_accepted(lose_records=lose_records, lose_budgets=lose_budgets):
                files.repair()
            return damage
    except sqlite3.Error as error:
        raise ledger_unreadable(budgets, error) from error


class _Files:
    """An open ledger and the file of rows next to it."""

    def __init__(self, rules: ServerRules, ledger: Ledger, rows: Path, schema: bytes) -> None:
        self._ledger, self._accounts = ledger, Accounts(ledger, rules.clients)
        self._salvage = partial(salvage, rows, rules.features, schema, ledger.id)

    def damage(self) -> StateDamage:
        """Return the loss of the two files."""
        found, noted = self._salvage(), _noted_steps(self._ledger)
        another = not found.tied or found.steps > noted + 1
        strangers = int((~self._accounts.known(found.ids)).sum())
        return StateDamage(
            len(found.ids),
            max(found.damaged, noted - found.steps, 0),
            len(found.ids) if another else strangers,
        )

    def repair(self) -> None:
        """Overwrite the damaged places, and tie the two files together."""
        found = self._salvage(overwrite=True)
        self._accounts.add(found.ids, np.arange(len(found.ids)))
        _note_steps(self._ledger, found.steps)


def _noted_steps(ledger: Ledger) -> int:
    """Return the number of steps of the file of rows that a ledger has recorded."""
    return int(ledger.recall(_STEPS) or 0)


def _note_steps(ledger: Ledger, steps: int) -> None:
    """Record the number of finished steps of the file of rows in a ledger."""
    ledger.keep(_STEPS, str(steps))


def _steps(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Divide a change into steps of the file of rows."""
    size = STEP_RECORDS_MAX
    return (items[first : first + size] for first in range(0, len(items), size))
