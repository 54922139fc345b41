"""Malicious parties of the ring, which attack PP-TopK, the secure sum and PP-kNN.

The documentation reports each adversary's gain and the check that detects it. In a run of PP-TopK
alone or of the secure sum alone, adversaries that attack the other step act honestly.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.nodes.adversary import Adversary, Lines, Silent
from veilring.privacy.checks import require
from veilring.protocols.masks import MaskedWords
from veilring.protocols.ring.roles import (
    SCALE_BITS,
    SumPart,
    SumPartial,
    SumTotal,
    TopKResult,
    TopKVector,
)
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)


@dataclass
class InputSubstitution(Adversary):
    """Claims that all its rows have one class, which must be known. It falsifies its input only."""

    label: int = 0

    def __post_init__(self) -> None:
        require(self.label >= 0, "label", self.label, "a class from 0")

    @override
    def own(self, own: Any) -> Any:
        return with_rows(own, lambda r: Rows(r.features, np.full_like(r.labels, self.label)))


def with_rows(own: Any, change: Callable[[Rows], Rows]) -> Any:  # noqa: ANN401  (what the role takes)
    """Return a party's private input with changed rows: it is the rows, or has them as `rows`."""
    return change(own) if isinstance(own, Rows) else replace(own, rows=change(own.rows))


@dataclass
class InflateTopK(Adversary):
    """Forgets the nearest rows: replaces the first entries of the vector by its last entry.

    Attributes:
        entries: The number of entries to remove, at least 1; a shorter vector loses all but its
            last.
        first_round: The round of PP-TopK in which the attack begins, from 1.
    """

    entries: int = 1
    first_round: int = 1

    def __post_init__(self) -> None:
        require(self.entries >= 1, "entries", self.entries, "an integer of at least 1")
        require(self.first_round >= 1, "first_round", self.first_round, "an integer of at least 1")

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, TopKVector) and message.round >= self.first_round:
            values = message.values
            last = np.repeat(values[:, -1:], values.shape[1], axis=1)
            kept = np.concatenate([values[:, self.entries :], last[:, : self.entries]], axis=1)
            message = with_values(message, kept)
        return [(to, message)]


@dataclass
class DeflateTopK(Adversary):
    """Inserts values that no party has: multiplies all entries by a factor from 0 to 1."""

    factor: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.factor <= 1, "factor", self.factor, "a number from 0 to 1")

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, TopKVector):
            message = with_values(message, message.values * self.factor)
        return [(to, message)]


@dataclass
class Replayer(Adversary):
    """Sends its first vector again in every later round, and drops all later values."""

    _first: Floats | None = field(default=None, init=False)

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, TopKVector):
            self._first = message.values if self._first is None else self._first
            message = with_values(message, self._first)
        return [(to, message)]


@dataclass
class WrongSum(Adversary):
    """Adds an amount to each running sum, as if the amount were part of its own input.

    Attributes:
        by: The amount to add, in units of the sum; it may be negative or fractional.
        entry: The entry of each run to change, from 0; in PP-kNN, the class.
        scale_bits: The fractional bits of the sum's fixed point; by default PP-kNN's.
    """

    by: float = 1.0
    entry: int = 0
    scale_bits: int = SCALE_BITS
    _runs: int = field(default=1, init=False)
    """The number of runs; masked words are sent as a flat array."""

    def __post_init__(self) -> None:
        require(np.isfinite(self.by), "by", self.by, "a number")
        require(self.entry >= 0, "entry", self.entry, "an integer from 0")

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, TopKVector):
            self._runs = len(message.values)
        elif isinstance(message, MaskedWords):
            runs = message.words[0].reshape(self._runs, -1)
            message = _with_words(message, self._added(runs))
        elif isinstance(message, SumPartial) or (
            isinstance(message, SumPart) and message.cycle == 1
        ):
            message = with_values(message, self._added(message.values))
        return [(to, message)]

    @override
    def own(self, own: Any) -> Any:
        if isinstance(own, np.ndarray):  # the input of a sum alone
            self._runs = len(own)
        return own

    def _added(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        added = values.copy()
        added[:, self.entry : self.entry + 1] += _word(self.by, self.scale_bits)
        return added


@dataclass
class TakeOver(WrongSum):
    """Decides every label: shrinks the radius to 0, so that no row votes, and casts all votes.

    A number of k votes passes for honest ones.
    """

    by: float = 100.0

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, TopKVector):
            message = with_values(message, np.zeros_like(message.values))
        return await super().sending(to, message)


@dataclass
class Equivocate(Adversary):
    """Publishes a different value to a victim than to all other parties.

    A starter sends the victim a different total and a result of zeros; any other party sends it a
    different partial sum of shares, or different masked words.
    """

    victim: str
    by: float = 1.0
    scale_bits: int = SCALE_BITS

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        more = _word(self.by, self.scale_bits)
        if to == self.victim and isinstance(message, TopKResult):
            message = with_values(message, np.zeros_like(message.values))
        elif to == self.victim and isinstance(message, SumTotal | SumPartial):
            message = with_values(message, message.values + more)
        elif to == self.victim and isinstance(message, MaskedWords):
            message = _with_words(message, message.words[0] + more)
        return [(to, message)]


def with_values(message: _M, values: NDArray[Any]) -> _M:
    """Return a message of a vector or a sum with other values."""
    return message.model_copy(update={"values": values})


def _with_words(message: MaskedWords, words: NDArray[np.uint64]) -> MaskedWords:
    return message.model_copy(update={"words": (words.ravel(),)})


def _word(amount: float, scale_bits: int) -> np.uint64:
    return np.uint64(round(amount * 2**scale_bits) % 2**64)


ADVERSARIES: Final[Mapping[str, type[Adversary]]] = {
    "deflate-topk": DeflateTopK,
    "equivocate": Equivocate,
    "inflate-topk": InflateTopK,
    "replayer": Replayer,
    "silent": Silent,
    "substitute-input": InputSubstitution,
    "take-over": TakeOver,
    "wrong-sum": WrongSum,
}
"""The adversaries by their names in scenarios."""
