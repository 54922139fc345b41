"""Parties that send different messages to different peers; processes import them by name."""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from veilring.nodes.adversary import Adversary, Lines
from veilring.protocols.noisyvotes.roles import VotesBatch
from veilring.protocols.ring.roles import SumPartial, SumShare, SumTotal
from veilring.transport.messages import Message


@dataclass
class TwoTongues(Adversary):
    """Sends one of the others a different message of one type."""

    only: type[Message]
    misled: str

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if to == self.misled and isinstance(message, self.only):
            return [(to, _other(message))]
        return [(to, message)]


def _other(message: Message) -> Message:
    match message:
        case VotesBatch():
            return move_apart(message)
        case SumPartial():
            return SumPartial(values=message.values + np.uint64(7))
        case SumTotal():
            return SumTotal(values=message.values + np.uint64(7))
    return message


def move_apart(message: Message) -> Message:
    """Return the batch with its queries moved so that fewer overlap."""
    if not isinstance(message, VotesBatch):
        return message
    return VotesBatch(queries=1 - message.queries**2, radii=message.radii)


def ask_nonsense(message: Message) -> Message:
    """Return the batch with invalid queries."""
    if not isinstance(message, VotesBatch):
        return message
    return VotesBatch(queries=message.queries + 2, radii=message.radii)


def add_a_thousand(message: Message) -> Message:
    """Return a share of a vote that is far too large."""
    if not isinstance(message, SumShare):
        return message
    return SumShare(values=message.values + np.uint64(1000))
