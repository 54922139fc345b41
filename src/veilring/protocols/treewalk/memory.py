"""A client's memory and budget: a query is asked, drawn and paid for once.

Asking the same query again with new coins tells a server more each time. So answers are remembered,
in the client's own ledger, beside what they cost. A query is paid for before its first private bit
leaves, and each bit is written down before it leaves. A client that was interrupted and asks again
says the very same bits to the same questions, and pays nothing more; if the server now shows other
nodes than before, nothing is said, since equal coins over two questions would cancel out.

Blur, and walks by distance with a radius, do not hide which of two far places a query is near. A
memory for them has a radius. A question then costs its loss between two queries that are at most a
radius apart. The budget bounds how well two histories of questions are told apart that differ
nowhere by more than the radius; for n radii the bound is n times the budget.

The ledger's file holds what was found near the queries, and its reader can test guesses of them. It
is as secret as the queries are.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.privacy.budgets import ANSWER_BYTES_MAX, Charge
from veilring.privacy.ledger import Ledger
from veilring.protocols.treewalk.algorithm.tree import nearest_found
from veilring.protocols.treewalk.roles import Keeper, NearestPlaces

_NUMBER_BYTES: Final = 8
_PAID: Final = b"paid"
# What is spent is rounded up, by less than this.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RememberedAnswer:
    """What was found for one query.

    Attributes:
        found: The server's numbers of the places, shape (found,).
        points: Where they are, shape (found, dimensions).
    """

    found: NDArray[np.int64]
    points: NDArray[np.float64]

    def nearest_to(self, query: NDArray[np.float64]) -> tuple[int, float]:
        """Return the number of the nearest place to a point of shape (dimensions,), and how far."""
        which, distances = nearest_found(query[None], self.points[None])
        return int(self.found[which[0]]), float(distances[0])

    def to_bytes(self) -> bytes:
        """Return what the ledger keeps."""
        return self.found.astype("<i8").tobytes() + self.points.astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, kept: bytes, dimensions: int) -> "RememberedAnswer":
        """Return what the ledger kept of an answer in the given number of dimensions."""
        count = len(kept) // (_NUMBER_BYTES * (1 + dimensions))
        found = np.frombuffer(kept, "<i8", count).astype(np.int64)
        points = np.frombuffer(kept, "<f8", offset=_NUMBER_BYTES * count).astype(np.float64)
        return cls(found, points.reshape(count, dimensions))


@dataclass(frozen=True, slots=True)
class WalkMemory:
    """What a client remembers of one server and one way of asking it.

    Attributes:
        ledger: The client's own; its analysts are servers, and its unit is that of the radius.
        server: Whom the client asks.
        terms: All that is public about how it asks: the server's edition of its places, the plan
            and the noise. Other terms are another question, and are paid for.
        radius: How far apart two queries are at most that the budget is to hide from each other, in
            the unit of the coordinates; infinite, as it is by default, for any two.

    Raises:
        InputError: If the ledger counts in another unit, see `unit_within`.
    """

    ledger: Ledger
    server: str
    terms: bytes
    radius: float = inf

    def __post_init__(self) -> None:
        counted, unit = self.ledger.totals().unit, unit_within(self.radius)
        if counted != unit:
            raise InputError.because(
                f"the ledger counts in {counted}; one that counts in {unit} is needed",
                field="ledger",
            )

    def names(self, queries: NDArray[np.float64]) -> list[str]:
        """Return the ledger's name for each query: equal queries have equal names."""
        # Adding zero turns the negative zero, which equals it, into zero.
        rows = [row.tobytes() for row in (queries + 0.0).astype("<f8")]
        about = hashlib.sha256(self.terms).digest()
        return [hashlib.sha256(about + row).hexdigest() for row in rows]

    def recall(self, name: str, dimensions: int) -> RememberedAnswer | None:
        """Return what was found for a query, or nothing if it was never answered."""
        kept = self.ledger.find(self.server, f"{name} answer", b"")
        return None if kept is None else RememberedAnswer.from_bytes(kept, dimensions)

    def remember(self, name: str, answer: RememberedAnswer) -> None:
        """Keep what was found for a query."""
        self.ledger.charge(Charge(self.server, f"{name} answer", b"", answer.to_bytes()))


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Pays for a batch of queries and writes down what is said about each: see `Keeper`."""

    memory: WalkMemory
    names: tuple[str, ...]
    dimensions: int
    most: float

    @property
    def radius(self) -> float:
        return self.memory.radius

    def pay(self, epsilon: float, found: int) -> None:
        if epsilon == inf:
            allowed = "a memory with a radius, because these questions protect only nearby places"
            raise InputError("radius", self.radius, allowed)
        if epsilon > self.most * (1 + _ROUNDING):
            claims = f"announced a tree on which a walk costs {epsilon:.6g}, not {self.most:.6g}"
            raise ProtocolViolation(self.memory.server, claims)
        most = ANSWER_BYTES_MAX // (_NUMBER_BYTES * (1 + self.dimensions))
        if found > most:
            raise InputError.because(
                f"{found} places are too many to remember; the limit is {most}", field="found"
            )
        # What was paid for is part of it: a server that claims a deeper tree later gets no steps.
        what = repr((epsilon, found)).encode()
        self._charge([(f"{name} paid", what, _PAID) for name in self.names], epsilon)

    def settle(
        self, turn: int, shown: NDArray[np.float64], said: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        seen = [row.astype("<f8").tobytes() for row in shown]
        seen *= len(self.names) // len(seen)  # one object, if all were shown the same
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
    queries: NDArray[np.float64],
    ask: Callable[[NDArray[np.float64], Keeper], Awaitable[NearestPlaces]],
    *,
    most: float = inf,
) -> list[RememberedAnswer]:
    """Return what was found for each query, asking the server for what is new only.

    Args:
        memory: The memory of the server and the terms that `ask` asks by.
        queries: Shape (queries, dimensions); secret. Equal ones are asked once.
        ask: Asks the server for some of them, and has the keeper pay. It is not called if all are
            remembered; the server then does not even know that there was a question.
        most: What one query may cost: a server that claims a deeper tree is refused.

    Raises:
        BudgetExhausted: If the budget does not suffice for all that is new. What was paid for of
            the batch stays paid, and is not charged when it is asked again.
        ProtocolViolation: If the server shows other nodes than when an interrupted query was paid
            for, or a query would cost more than `most`.
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


def unit_within(radius: float) -> str:
    """Return the unit of the ledger of a memory: epsilon, and within which radius.

    Args:
        radius: Above 0; infinite for any two queries.

    Raises:
        InputError: If it is not above 0.
    """
    if not radius > 0:
        raise InputError("radius", radius, "a number above 0")
    return "epsilon" if radius == inf else f"epsilon within {radius!r}"


def snap(queries: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Move queries to a grid, so that a place has one name however it was measured: no privacy.

    Args:
        queries: The queries, of any shape.
        step: The step of the grid, above 0: what a satellite's or a map's place errs by anyway.
            Two queries may be brought further apart, by the diagonal of a cell: add it to the
            radius that a memory is to hide.
    """
    return np.asarray(np.rint(queries / step) * step)
