"""The records administrator, who adds and removes records of a prediction server."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import opening
from veilring.protocols.prediction.messages import (
    NO_PLACE,
    AddRequest,
    ChangeReceipt,
    ForgetRequest,
)
from veilring.protocols.prediction.records import ID_BYTES_MAX, LabelledRecords
from veilring.protocols.prediction.server import ADD, FORGET
from veilring.transport.frames import CONTENT_BYTES_MAX

# The size of an id and a label on the wire, including their MessagePack prefixes.
_ID_BYTES: Final = ID_BYTES_MAX + 4
_FEATURE_BYTES: Final = 2


async def add_at_server(party: Party, records: LabelledRecords) -> int:
    """Add records, in blocks that fit a frame; a receipt confirms that each block is on disk.

    After an interruption, repeat the call to continue: existing records are skipped.

    Args:
        party: The administrator, in a session with the server alone.
        records: The records to add, at least one.

    Returns:
        The number of records that are new.

    Raises:
        ProtocolViolation: If the server sent a message that no honest server sends.
    """
    width = records.features.shape[1]
    blocks = _blocks(len(records), _ID_BYTES + _FEATURE_BYTES * (1 + width))
    messages = (
        AddRequest(
            ids=records.ids[block],
            labels=records.labels[block],
            features=records.features[block],
            more=block.stop < len(records),
        )
        for block in blocks
    )
    return await _change(party, messages, "an id without another row; forget the old row first")


async def forget_at_server(party: Party, ids: Sequence[str]) -> int:
    """Forget records, in blocks that fit a frame; a receipt confirms that each block is erased.

    Args:
        party: The administrator, in a session with the server alone.
        ids: The ids of the records, at least one, each once.

    Returns:
        The number of records that existed.

    Raises:
        ProtocolViolation: If the server sent a message that no honest server sends.
    """
    messages = (
        ForgetRequest(ids=tuple(ids[block]), more=block.stop < len(ids))
        for block in _blocks(len(ids), _ID_BYTES)
    )
    return await _change(party, messages, "an id that was added before")


def add_session(terms: bytes) -> Callable[..., Awaitable[int]]:
    """Return `add_at_server` as a role that opens its session with the server.

    Args:
        terms: The SHA-256 of the terms. A server with other terms refuses the session.
    """
    return opening(add_at_server, ADD, terms)


def forget_session(terms: bytes) -> Callable[..., Awaitable[int]]:
    """Return `forget_at_server` as a role that opens its session; see `add_session`."""
    return opening(forget_at_server, FORGET, terms)


async def _change(
    party: Party, messages: Iterator[AddRequest | ForgetRequest], allowed: str
) -> int:
    (server,) = party.peers
    changed = 0
    for number, message in enumerate(messages):
        party.round(2 * number + 1)
        await party.send(server, message)
        receipt = await party.receive(ChangeReceipt, sender=server)
        if max(receipt.changed, receipt.place + 1) > len(message.ids):
            raise ProtocolViolation(server, "sent a receipt for more than it was sent")
        if receipt.place != NO_PLACE:  # shows the administrator its own input, to correct it
            raise InputError("ids", message.ids[receipt.place], allowed)
        changed += receipt.changed
    return changed


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of the records, each of which fits a frame."""
    if not count:
        raise InputError.because("there are no records; give at least one", field="records")
    step = max(1, CONTENT_BYTES_MAX // size)
    return (slice(first, min(first + step, count)) for first in range(0, count, step))
