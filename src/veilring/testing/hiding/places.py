"""Places of numbers in a view, and their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = NDArray[np.float32]
Mask = NDArray[np.bool_]


class Coordinate(NamedTuple):
    """One number of a view."""

    message: str
    """The message, or the other object, that it belongs to."""
    field: str
    """The field of the message; empty if the number describes the whole message."""
    what: str
    """The name of the number."""
    is_combined: bool = False
    """Whether it is computed from several messages."""

    def __str__(self) -> str:
        field = f", {self.field}" if self.field else ""
        return f"{self.message}{field}: {self.what}"


class Slot(NamedTuple):
    """A message by its place."""

    member: str
    sent: bool
    peer: str
    number: int
    """The number of earlier messages of the channel."""
    kind: str

    def __str__(self) -> str:
        ends = (self.member, self.peer) if self.sent else (self.peer, self.member)
        return f"message {self.number + 1} from {ends[0]} to {ends[1]} ({self.kind})"


class Place(NamedTuple):
    """The origin of numbers in a view."""

    message: str
    field: str
    slot: Slot | None = None
    is_combined: bool = False

    def name(self, what: str) -> Coordinate:
        """Return the coordinate of a number that is computed here."""
        return Coordinate(self.message, self.field, what, self.is_combined)


class Shape(NamedTuple):
    """The number and kind of the numbers in a place."""

    bits: int
    entries: int


@dataclass(frozen=True, slots=True)
class Block:
    """The numbers of one place over some runs.

    Attributes:
        bits: The size of the words, or 0 for real numbers.
        values: Shape (runs, entries), uint64 or float64.
        missing: Whether a run lacks an entry, shape (runs, entries).
        length: The number of entries of each run, shape (runs,); -1 if it lacks the place.
    """

    bits: int
    values: NDArray[Any]
    missing: Mask
    length: NDArray[np.int64]

    @property
    def entries(self) -> int:
        """The number of entries."""
        return int(self.values.shape[1])

    def is_like(self, other: "Block") -> bool:
        """Return whether both are words, or both real, with the same number of entries."""
        return self.entries == other.entries > 0 and (self.bits == 0) == (other.bits == 0)

    def plus(self, other: "Block") -> "Block":
        """Return the sums of the entries, as words of this block's size."""
        return self._merged(other, self.values + other.values)

    def minus(self, other: "Block") -> "Block":
        """Return the differences of the entries, as words of this block's size."""
        return self._merged(other, self.values - other.values)

    def _merged(self, other: "Block", values: NDArray[Any]) -> "Block":
        if self.bits > 0:
            values &= np.uint64((1 << self.bits) - 1)
        return Block(
            self.bits,
            values,
            self.missing | other.missing,
            np.minimum(self.length, other.length),
        )


def add_blocks(blocks: Sequence[Block]) -> Block:
    """Return the sum of blocks of the same kind."""
    return reduce(Block.plus, blocks)
