"""What a prediction server knows: rows, what they spent, and what was answered.

The ledger and the file of rows are the truth, and a predictor holds a copy of both. Each step
leaves the two such that whoever finds them after a crash goes on from there:

- a record is in the ledger before its row is on the disk, so that no row is without a budget;
- a record is forgotten in the ledger before its row is zeroed, so that no row is gone whose traces
  are left; if power fails in between, it is there as before, and nobody was told otherwise.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Self

import numpy as np
from numpy.random import Generator

from veilring.errors import InputError, StoreFailed
from veilring.privacy.checks import require
from veilring.privacy.ledger import Charge, Ledger, open_ledger
from veilring.privacy.ledger.store import unreadable
from veilring.protocols.prediction.accounts import Accounts
from veilring.protocols.prediction.messages import Answer, Request
from veilring.protocols.prediction.records import Records, require_ids
from veilring.protocols.prediction.rowfile import (
    SCHEMA_BYTES,
    RowFile,
    open_rows,
    unreadable_rows,
)
from veilring.protocols.prediction.rules import Rules
from veilring.protocols.verdicts import Refusal, Verdict, settle

__all__ = ("Refused", "State", "open_state")

_ON_DISK = np.dtype("<u2")


class Refused(InputError):
    """Raised when records cannot be added or forgotten; nothing was.

    Attributes:
        place: Of the first one that cannot, in the order given.
    """

    def __init__(self, place: int, value: str, allowed: str) -> None:
        super().__init__("ids", value, allowed)
        self.place = place
        self.args = (place, value, allowed)


def open_state(rules: Rules, folder: Path | None, schema: bytes = bytes(SCHEMA_BYTES)) -> "State":
    """Open a server's two files, or begin them.

    Args:
        rules: Public.
        folder: Where they are; none for a server in memory.
        schema: A hash of whatever makes a row a direction.

    Raises:
        InputError: If another process has them open, or they were begun under other rules.
        StoreFailed: If they cannot be opened or read: it names the file, and says what to do.
    """
    if folder is None:
        return _opened(rules, None, None, schema)
    budgets, rows = folder / "budgets.sqlite", folder / "rows.bin"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _opened(rules, budgets, rows, schema)
    except sqlite3.Error as error:
        raise unreadable(budgets, error) from error
    except OSError as error:
        raise unreadable_rows(Path(error.filename or rows), error) from error


def _opened(rules: Rules, budgets: Path | None, rows: Path | None, schema: bytes) -> "State":
    with ExitStack() as unless_failed:
        ledger = unless_failed.enter_context(closing(open_ledger(budgets, rules.budgets)))
        file = unless_failed.enter_context(closing(open_rows(rows, rules.features, schema)))
        state = State(rules, ledger, file)
        unless_failed.pop_all()
    return state


class State:
    """See above. Get it from `open_state`, and use it in a `with` block, one call at a time.

    Args:
        rules: Public.
        ledger: Secret, and closed by the state.
        rows: The same; not read yet.

    Raises:
        InputError: If a row does not fit the rules.
    """

    def __init__(self, rules: Rules, ledger: Ledger, rows: RowFile) -> None:
        self.rules = rules
        self._ledger, self._rows, self._sound = ledger, rows, True
        self._accounts = Accounts(ledger, rules.queriers)
        self._predictor = rules.predictor()
        self._numbers: dict[str, int] = {}
        self._next = 0
        for records in rows.load():
            self._require_labels(records)
            self._join(records)

    def __len__(self) -> int:
        return len(self._numbers)

    def answer(self, querier: str, request: Request, rng: Generator) -> Answer:
        """Return the answer that may leave: it is paid for, and on the disk.

        Args:
            querier: Who asks, as the transport authenticated it.
            request: One that the rules allow.
            rng: Secret, and fresh for each call.

        Raises:
            StoreFailed: If the disk failed, now or before.
        """
        count = len(request.queries)

        def pay() -> bytes:
            return self._ledger.charge(self._answered(querier, request, rng))

        with self._changing():
            settled = settle(
                self._ledger, querier, request.key, request.content, amount=count, pay=pay
            )
        if isinstance(settled, Refusal):
            nothing = np.zeros(count, np.uint16)
            return Answer(verdict=settled.verdict, left=settled.left, labels=nothing)
        labels = np.frombuffer(settled, _ON_DISK).astype(np.uint16)
        return Answer(verdict=Verdict.ANSWERED, left=0.0, labels=labels)

    def add(self, records: Records) -> int:
        """Add records; they take part from the next request on.

        Returns:
            How many were not here yet. Those that are, with the same row, stay as they are.

        Raises:
            Refused: If one is here with another row.
            InputError: If a row does not fit the rules.
            StoreFailed: If the disk failed, now or before.
        """
        width = records.features.shape[1]
        require(width == self.rules.features, "features", f"{width}", f"{self.rules.features}")
        self._require_labels(records)
        most = self.rules.records_max
        require(len(self) + len(records) <= most, "records", "too many", f"{most:,} in all")
        with self._changing():
            differing = self._rows.differing(records)
            if differing is None:
                new = [at for at, name in enumerate(records.ids) if name not in self._numbers]
                added = records.take(new)
                self._join(added)
                self._rows.add(added)
                return len(added)
        raise Refused(differing, "here with another row", "new ones; forget it first")

    def forget(self, ids: Sequence[str]) -> int:
        """Forget records at once: in memory, on the disk, and in what the ledger tells of answers.

        Returns:
            How many were here. Those that were forgotten before stay so.

        Raises:
            Refused: If one was never here.
            InputError: If an id is none, or given twice.
            StoreFailed: If the disk failed, now or before.
        """
        require_ids(ids)
        with self._changing():
            unknown = self._accounts.unknown(ids)
            if unknown is not None:
                raise Refused(unknown, "never here", "ids that were added")
            here = [name for name in ids if name in self._numbers]
            self._accounts.forget(ids, here)
            self._rows.forget(here)
            gone = [self._numbers.pop(name) for name in here]
            self._predictor.forget(np.array(gone, np.int64))
        return len(here)

    def close(self) -> None:
        """Let go of the files. Doing so again changes nothing."""
        self._sound = False
        self._rows.close()
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answered(self, querier: str, request: Request, rng: Generator) -> Charge:
        """Draw labels; return them with what they cost."""
        self._accounts.open(querier, self._numbers)
        numbers = self._predictor.ids
        left = self._accounts.remaining(querier, numbers)
        self._predictor.restock(left)
        answers = self._predictor.answer_block(request.queries.astype(np.float32), rng)
        return Charge(
            querier,
            request.key.hex(),
            request.content,
            np.array([answer.label for answer in answers], _ON_DISK).tobytes(),
            float(len(answers)),
            self._accounts.charge(querier, numbers, left - self._predictor.remaining),
        )

    def _join(self, records: Records) -> None:
        """Let the ledger and the predictor know of rows."""
        numbers = np.arange(self._next, self._next + len(records))
        self._next += len(records)
        self._accounts.add(records.ids, numbers)
        self._numbers.update(zip(records.ids, numbers.tolist(), strict=True))
        labels, nothing = records.labels.astype(np.int64), np.zeros(len(records), np.int64)
        # What each has left is read from the ledger before each request.
        self._predictor.add(numbers, records.directions, labels, nothing)

    def _require_labels(self, records: Records) -> None:
        most = int(records.labels.max(initial=0))
        fits = most < self.rules.classes
        require(fits, "labels", "with a class too high", f"0 to {self.rules.classes - 1}")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Close everything if a step fails half way: the files are opened again, and tell."""
        if not self._sound:
            raise StoreFailed("the server's files are closed; start it again")
        try:
            yield
        except Refused:
            raise
        except (sqlite3.Error, OSError, InputError) as error:
            self.close()
            raise StoreFailed(f"the server's files: {error}") from error
        except BaseException:
            self.close()
            raise
