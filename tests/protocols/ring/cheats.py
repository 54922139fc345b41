"""Parties that send messages that no honest party sends; processes import them by name."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilring.arrays import Floats
from veilring.nodes.adversary import Adversary, Lines
from veilring.protocols.batches import Queries
from veilring.protocols.masks import MaskedWords
from veilring.protocols.ring.roles import (
    SumPart,
    SumPartial,
    SumShare,
    SumTotal,
    TopKResult,
    TopKVector,
)
from veilring.transport.messages import Message

Lie = Callable[[Message], Message]


def _change(values: Floats, column: int, to: float) -> Floats:
    changed = values.copy()
    changed[:, column] = to
    return changed


def _vector(alter: Callable[[Floats], Floats]) -> Lie:
    def lie(message: Message) -> Message:
        if isinstance(message, TopKVector):
            return TopKVector(round=message.round, values=alter(message.values))
        if isinstance(message, TopKResult):
            return TopKResult(values=alter(message.values))
        return message

    return lie


def _another_round(message: Message) -> Message:
    if isinstance(message, TopKVector):
        return TopKVector(round=message.round + 1, values=message.values)
    return message


def _another_type(_message: Message) -> Message:
    return SumShare(values=np.zeros((2, 3), dtype=np.uint64))


LIES_IN_TOPK: dict[str, Lie] = {
    "wrong round": _another_round,
    "wrong shape": _vector(lambda values: values[:, :-1]),
    "other batch": _vector(lambda values: np.vstack([values, values])),
    "not a number": _vector(lambda values: _change(values, -1, np.nan)),
    "infinite": _vector(lambda values: _change(values, -1, np.inf)),
    "unsorted": _vector(lambda values: _change(values, -1, 0.0)),
    "below all bounds": _vector(lambda values: _change(values, 0, -0.1)),
    "above all bounds": _vector(lambda values: _change(values, -1, 1e6)),
    "wrong type": _another_type,
}
"""By name, what a liar makes of each message that it sends in PP-TopK."""


def _longer(message: Message) -> Message:
    if isinstance(message, SumPart):
        return SumPart(cycle=message.cycle, values=np.vstack([message.values, message.values]))
    if isinstance(message, SumShare | SumPartial | SumTotal):
        return type(message)(values=np.vstack([message.values, message.values]))
    if isinstance(message, MaskedWords):
        return MaskedWords(digest=message.digest, words=message.words * 2)
    return message


def _a_vector(_message: Message) -> Message:
    return TopKVector(round=1, values=np.zeros((2, 3)))


def _another_cycle(message: Message) -> Message:
    if isinstance(message, SumPart):
        return SumPart(cycle=message.cycle + 1, values=message.values)
    return _longer(message)


LIES_IN_SUM: dict[str, Lie] = {
    "wrong shape": _longer,
    "wrong type": _a_vector,
    "wrong cycle": _another_cycle,
}
"""By name, what a liar makes of each message that it sends in a secure sum."""


LIES = {"topk": LIES_IN_TOPK, "sum": LIES_IN_SUM}


@dataclass
class Liar(Adversary):
    """Sends false messages of a step; only the names of step and lie are sent to a process."""

    step: str
    name: str

    async def sending(self, to: str, message: Message) -> Lines:
        """Return a false message."""
        return [(to, LIES[self.step][self.name](message))]


def ask_nonsense(_message: Message) -> Message:
    """Ask for queries outside the unit cube."""
    return Queries(features=np.full((1, 2), 7.0))
