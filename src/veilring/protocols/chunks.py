"""Messages that are larger than a frame: their arrays are sent in chunks of rows.

A frame has at most 1 MiB, and a session keeps at most 4 MiB of a peer's messages until the role
receives them. A larger message is therefore split into chunks, one in each round, and no party is
more than two chunks ahead of another: in each round, it sends its next chunk and waits for that of
the peer. A party without chunks left sends `NextChunk` instead. Memory stays within the shapes that
the receiver expects, and two chunks for each peer.

A message of c chunks takes c rounds; `sending_cost` and `exchange_cost` are the closed forms. A
message that fits a frame is sent as it is, in one round.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party
from veilring.protocols.promise import Forecast, repeated
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)


class NextChunk(Message, kind="chunks.next"):
    """Tells a peer that this party follows, and has no chunk to send."""


def split(message: _M) -> list[_M]:
    """Return a message in chunks that fit a frame, at least one: rows of all its arrays.

    The number of chunks and their shapes depend only on the shapes and dtypes of the arrays. All
    other fields are in each chunk, and should take no more than some hundred bytes.

    Raises:
        InputError: If the arrays have different numbers of rows, or a row does not fit a frame.
    """
    arrays = _arrays(message)
    lengths = {len(array) for array in arrays.values()}
    if not lengths:
        return [message]
    if len(lengths) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError.because(
            f"the arrays of {message.kind} have different numbers of rows ({shapes}); send them in"
            " several messages",
            field="message",
        )
    row = sum(array[:1].nbytes for array in arrays.values())
    if row > CONTENT_BYTES_MAX:
        raise InputError.because(
            f"a row of {message.kind} has {row:,} bytes; at most {CONTENT_BYTES_MAX:,} fit a frame,"
            " so send arrays with more and shorter rows",
            field="message",
        )
    (count,), most = lengths, CONTENT_BYTES_MAX // max(1, row)
    if count <= most:
        return [message]
    return [
        message.model_copy(
            update={name: array[start : start + most] for name, array in arrays.items()}
        )
        for start in range(0, count, most)
    ]


def _arrays(message: Message) -> dict[str, NDArray[Any]]:
    fields = zip(message.names, message.fields(), strict=True)
    return {name: each for name, each in fields if isinstance(each, np.ndarray) and each.ndim}


async def send_chunks(party: Party, to: str, message: Message, *, first_round: int = 1) -> None:
    """Send a message of any size to a peer, which calls `receive_chunks`.

    Args:
        first_round: The round of the first chunk; each further chunk takes another round.
    """
    await exchange_chunks(party, message, {}, to=[to], first_round=first_round)


async def receive_chunks(party: Party, like: _M, *, sender: str, first_round: int = 1) -> _M:
    """Receive a message of any size from a peer that calls `send_chunks`.

    Args:
        like: A message whose arrays have the expected shapes and dtypes, such as `np.zeros`. The
            values of its fields do not matter.
        first_round: As at the sender.

    Raises:
        ProtocolViolation: If a chunk has another shape, or its other fields differ from those of
            the first chunk.
    """
    received = await exchange_chunks(party, None, {sender: like}, first_round=first_round)
    return received[sender]


async def exchange_chunks(
    party: Party,
    message: Message | Mapping[str, Message] | None,
    expected: Mapping[str, _M],
    *,
    to: Iterable[str] | None = None,
    first_round: int = 1,
) -> dict[str, _M]:
    """Send a message of any size to peers while receiving those of others.

    Parties that both send must exchange: if two called `send_chunks` to each other, each would wait
    for the other to receive.

    Args:
        message: The message, if this party sends one; or a message for each receiver, by name.
        expected: A message of the expected shapes for each sender, as in `receive_chunks`. The
            parties must agree on all shapes, because they determine the rounds.
        to: The receivers of one message; by default all peers.
        first_round: The round of the first chunk. The exchange takes as many rounds as the longest
            message has chunks.

    Returns:
        The message of each sender.

    Raises:
        ProtocolViolation: As in `receive_chunks`.
    """
    sending: dict[str, list[Message]] = {peer: [] for peer in party.peers}
    if isinstance(message, Mapping):
        sending.update((peer, split(each)) for peer, each in message.items())
    elif message is not None:
        sending.update(dict.fromkeys(party.peers if to is None else to, split(message)))
    receiving = {peer: split(expected[peer]) if peer in expected else [] for peer in party.peers}
    rounds = {peer: max(len(sending[peer]), len(receiving[peer])) for peer in party.peers}
    received: dict[str, list[_M]] = {peer: [] for peer in expected}
    for step in range(max(rounds.values(), default=0)):
        number = first_round + step
        party.round(number)
        for peer, chunks in sending.items():
            if step < len(chunks):
                await party.send(peer, chunks[step])
            elif step + 1 < rounds[peer]:
                await party.send(peer, NextChunk())
        for peer, likes in receiving.items():
            if step < len(likes):
                chunk = await party.receive(type(likes[step]), sender=peer, due=number)
                _require_like(chunk, likes[step], received[peer], peer)
                received[peer].append(chunk)
            elif step + 1 < rounds[peer]:
                await party.receive(NextChunk, sender=peer, due=number)
    return {peer: _joined(chunks) for peer, chunks in received.items()}


def _require_like(chunk: _M, like: _M, earlier: Sequence[_M], sender: str) -> None:
    """Refuse a chunk of another shape, or that is of another message than the earlier ones."""
    found, expected = _arrays(chunk), _arrays(like)
    for name, array in expected.items():
        if (found[name].dtype, found[name].shape) != (array.dtype, array.shape):
            shapes = f"{found[name].dtype} {found[name].shape}, not {array.dtype} {array.shape}"
            raise ProtocolViolation(
                sender, f"sent a chunk of {chunk.kind} whose {name} is {shapes}"
            )
    if earlier and earlier[0].model_copy(update=found) != chunk:
        raise ProtocolViolation(sender, f"sent chunks of {chunk.kind} that differ in other fields")


def _joined(chunks: Sequence[_M]) -> _M:
    if len(chunks) == 1:
        return chunks[0]
    arrays = [_arrays(chunk) for chunk in chunks]
    whole = {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
    return chunks[0].model_copy(update=whole)


def sending_cost(like: Message, receivers: int = 1) -> Forecast:
    """Forecast a message from one party to some others: c rounds, 2c - 1 messages to each.

    Args:
        like: A message of the same shapes.
    """
    chunks = split(like)
    following = repeated(receivers * (len(chunks) - 1), NextChunk())
    return Forecast(len(chunks), _chunks_traffic(chunks, receivers).plus(following))


def exchange_cost(parties: int, like: Message) -> Forecast:
    """Forecast an exchange of messages of the same shapes: c rounds, c n(n - 1) messages."""
    chunks = split(like)
    return Forecast(len(chunks), _chunks_traffic(chunks, parties * (parties - 1)))


def _chunks_traffic(chunks: Sequence[Message], times: int) -> Traffic:
    full, last = repeated(times * (len(chunks) - 1), chunks[0]), repeated(times, chunks[-1])
    return full.plus(last)
