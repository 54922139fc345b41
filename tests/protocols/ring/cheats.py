"""Parties that lie to the ring: roles that processes import by name."""

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veilring.nodes.party import Party, broadcast
from veilring.protocols.ring import KNNParameters, pp_topk, private_knn, secure_sum
from veilring.protocols.ring.messages import (
    Queries,
    SumPart,
    SumPartial,
    SumShare,
    SumTotal,
    TopKResult,
    TopKVector,
)
from veilring.protocols.rows import Rows
from veilring.transport.messages import Message

Lie = Callable[[Message], Message]

__all__ = ("LIES_IN_SUM", "LIES_IN_TOPK", "cheat_at_knn", "cheat_at_sum", "cheat_at_topk")


class _Liar:
    """An honest party but for what it does to its own messages."""

    def __init__(self, honest: Party, alter: Lie) -> None:
        self._honest, self._alter = honest, alter

    def __getattr__(self, name: str) -> object:
        return getattr(self._honest, name)

    async def send(self, to: str, message: Message) -> None:
        """Send something else."""
        await self._honest.send(to, self._alter(message))


def _change(values: NDArray[np.float64], column: int, to: float) -> NDArray[np.float64]:
    changed = values.copy()
    changed[:, column] = to
    return changed


def _vector(
    alter: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Callable[[Message], Message]:
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


async def cheat_at_topk(
    party: Party, own: NDArray[np.float64], *, liar: str, lie: str, **public: object
) -> object:
    """Play PP-TopK, with one liar."""
    return await pp_topk(_perhaps(party, liar, LIES_IN_TOPK[lie]), own, **public)  # type: ignore[arg-type]  # passed on


async def cheat_at_sum(
    party: Party, own: NDArray[np.float64], *, liar: str, lie: str, **public: object
) -> object:
    """Play a secure sum, with one liar."""
    return await secure_sum(_perhaps(party, liar, LIES_IN_SUM[lie]), own, **public)  # type: ignore[arg-type]  # passed on


async def cheat_at_knn(party: Party, own: Rows, *, liar: str, parameters: KNNParameters) -> object:
    """Play PP-kNN, with an asker that asks nonsense."""
    if party.me == liar:
        await broadcast(party, Queries(features=np.full((1, 2), 7.0)))
        await party.receive(TopKVector, sender=party.peers[0])
    return await private_knn(party, own, asker=liar, parameters=parameters)


def _perhaps(party: Party, liar: str, alter: Lie) -> Party:
    return cast("Party", _Liar(party, alter)) if party.me == liar else party
