"""A client's memory and budget: each query is asked, randomised and paid for once.

Asking the same query again with fresh coins would reveal more each time. Answers are therefore
kept in the client's own ledger, with their cost. A query is paid for before its first private bit
is sent, and each bit is recorded before it is sent. An interrupted client that asks again sends
identical bits in reply to identical nodes, and pays nothing more. If the server now shows different
nodes, the client sends nothing: with equal coins for two questions, the noise would cancel out.

The ledger file contains places near the queries, and lets a reader test guesses of them. Keep it as
secret as the queries.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.errors import InputError, ProtocolViolation
from veilring.privacy.budgets import ANSWER_BYTES_MAX, Charge
from veilring.privacy.ledger import Ledger
from veilring.protocols.treewalk.roles import Keeper, NearestPlaces

_NUMBER_BYTES: Final = 8
_PAID: Final = b"paid"
# Charges are rounded up by less than this.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RememberedAnswer:
    """The places found for one query.

    Attributes:
        found: The server's numbers of the places, shape (found,).
        points: The coordinates of the places, shape (found, dimensions).
    """

    found: Ints
    points: Floats

    def to_bytes(self) -> bytes:
        """Return the encoding that the ledger keeps."""
        return self.found.astype("<i8").tobytes() + self.points.astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, kept: bytes, dimensions: int) -> "RememberedAnswer":
        """Decode an answer in the given number of dimensions."""
        count = len(kept) // (_NUMBER_BYTES * (1 + dimensions))
        found = np.frombuffer(kept, "<i8", count).astype(np.int64)
        points = np.frombuffer(kept, "<f8", offset=_NUMBER_BYTES * count).astype(np.float64)
        return cls(found, points.reshape(count, dimensions))


@dataclass(frozen=True, slots=True)
class WalkMemory:
    """A client's memory of its queries to one server under fixed terms.

    Attributes:
        ledger: The client's own ledger, in units of epsilon. Its analysts are servers.
        terms: The public parameters of the queries: the server's edition of its places, the plan
            and the noise. The same query under other terms is a new query, with its own cost.
    """

    ledger: Ledger
    server: str
    terms: bytes

    def __post_init__(self) -> None:
        unit = self.ledger.totals().unit
        if unit != "epsilon":
            raise InputError.because(
                f"the ledger's unit is {unit}; use a ledger whose unit is epsilon", field="ledger"
            )

    def names(self, queries: Floats) -> list[str]:
        """Return the ledger's name of each query. Equal queries have equal names."""
        # Adding zero turns negative zero into zero: they are equal, but their bytes differ.
        rows = [row.tobytes() for row in (queries + 0.0).astype("<f8")]
        about = hashlib.sha256(self.terms).digest()
        return [hashlib.sha256(about + row).hexdigest() for row in rows]

    def recall(self, name: str, dimensions: int) -> RememberedAnswer | None:
        """Return the answer to a query, or None if it was never answered."""
        kept = self.ledger.find(self.server, f"{name} answer", b"")
        return None if kept is None else RememberedAnswer.from_bytes(kept, dimensions)

    def remember(self, name: str, answer: RememberedAnswer) -> None:
        """Store the answer to a query."""
        self.ledger.charge(Charge(self.server, f"{name} answer", b"", answer.to_bytes()))


@dataclass(frozen=True, slots=True)
class _Keeper:
    """A `Keeper` that charges a batch to a memory's ledger and records each reply there."""

    memory: WalkMemory
    names: tuple[str, ...]
    dimensions: int
    most: float

    def pay(self, epsilon: float, found: int) -> None:
        if epsilon > self.most * (1 + _ROUNDING):
            claims = f"announced a tree on which a walk costs {epsilon:.6g}, not {self.most:.6g}"
            raise ProtocolViolation(self.memory.server, claims)
        most = ANSWER_BYTES_MAX // (_NUMBER_BYTES * (1 + self.dimensions))
        if found > most:
            raise InputError.because(
                f"{found} places are too many to remember; the limit is {most}", field="found"
            )
        # The entry contains cost and size, so that a later claim of a deeper tree is refused.
        what = repr((epsilon, found)).encode()
        self._charge([(f"{name} paid", what, _PAID) for name in self.names], epsilon)

    def settle(self, turn: int, shown: Floats, said: NDArray[np.uint32]) -> NDArray[np.uint32]:
        seen = [row.astype("<f8").tobytes() for row in shown]
        seen *= len(self.names) // len(
            seen
        )  # one shared object if all queries were shown equal nodes
        rows = zip(self.names, seen, said.astype("<u4"), strict=True)
        entries = [(f"{name} {turn}", each, row.tobytes()) for name, each, row in rows]
        kept = self._charge(entries, 0.0)
        return np.stack([np.frombuffer(each, "<u4") for each in kept]).astype(np.uint32)

    def _charge(self, entries: Sequence[tuple[str, bytes, bytes]], amount: float) -> list[bytes]:
        server, kept = self.memory.server, list[bytes]()
        charges = [Charge(server, key, shown, said, amount) for key, shown, said in entries]
        for outcome in self.memory.ledger.charge_many(charges):
            if isinstance(outcome, InputError):
                raise ProtocolViolation(
                    server, "has a different tree than when this question was paid for"
                )
            if not isinstance(outcome, bytes):
                raise outcome
            kept.append(outcome)
        return kept


async def ask_once(
    memory: WalkMemory,
    queries: Floats,
    ask: Callable[[Floats, Keeper], Awaitable[NearestPlaces]],
    *,
    most: float = inf,
) -> list[RememberedAnswer]:
    """Return the answer to each query, and ask the server only about queries that are new.

    Args:
        ask: A function that sends queries to the server and charges them through the keeper. It is
            not called if all answers are remembered: the server then learns nothing, not even that
            there was a query.
        most: The greatest cost of one query: a server that claims a deeper tree is refused.

    Raises:
        BudgetExhausted: If the budget does not suffice for all new queries. Queries that were paid
            for earlier stay paid, and asking them again is free.
        ProtocolViolation: If the server shows other nodes than those that an interrupted query was
            paid for, or a query would cost more than `most`.
    """
    names, dimensions = memory.names(queries), queries.shape[1]
    answers: dict[str, RememberedAnswer] = {}
    new: dict[str, int] = {}
    for row, name in enumerate(names):
        kept = memory.recall(name, dimensions)
        if kept is None:
            new[name] = row
        else:
            answers[name] = kept
    if new:
        keeper = _Keeper(memory, tuple(new), dimensions, most)
        nearest = await ask(queries[list(new.values())], keeper)
        for name, found, points in zip(new, nearest.found, nearest.points, strict=True):
            answers[name] = RememberedAnswer(found, points)
            memory.remember(name, answers[name])
    return [answers[name] for name in names]


def snap(queries: Floats, step: float) -> Floats:
    """Round queries to a grid, so that repeated measurements of a place count as one query.

    This gives no privacy.

    Args:
        step: The step of the grid, above 0, such as the error of a GPS or map position.
    """
    return np.asarray(np.rint(queries / step) * step)
