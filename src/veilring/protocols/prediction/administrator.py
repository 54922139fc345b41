"""The records administrator, who adds and removes records of a prediction server."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import opening
from veilring.protocols.prediction.messages import (
    MESSAGE_OVERHEAD_BYTES,
    NO_PLACE,
    AddRequest,
    ChangeReceipt,
    ForgetRequest,
)
from veilring.protocols.prediction.records import ID_BYTES_MAX, LabelledRecords
from veilring.protocols.prediction.server import ADD, FORGET
from veilring.transport.frames import FRAME_BYTES_MAX

# an id on the wire, and a label, each with its MessagePack header
_ID_BYTES: Final = ID_BYTES_MAX + 4
_FEATURE_BYTES: Final = 2


async def add_at_server(party: Party, records: LabelledRecords) -> int:
    """Add records, as many at once as fit a frame; each receipt says that they are on the disk.

    After an interruption, repeating the call continues it: existing records are skipped.

    Args:
        party: The administrator, in a session with the server alone.
        records: The records to add, at least one.

    Returns:
        The number of records that were not there before.

    Raises:
        InputError: If a record is there with another row; it names the record. The records of
            earlier messages were added.
        ProtocolViolation: If the server sent something that no honest server sends.
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
    """Forget records; each receipt confirms that they are gone.

    Args:
        party: The administrator, in a session with the server alone.
        ids: The ids of the records, at least one, each once.

    Returns:
        The number of records that were there.

    Raises:
        InputError: If a record was never there; it names the record. The records of earlier
            messages are forgotten.
        ProtocolViolation: If the server sent something that no honest server sends.
    """
    messages = (
        ForgetRequest(ids=tuple(ids[block]), more=block.stop < len(ids))
        for block in _blocks(len(ids), _ID_BYTES)
    )
    return await _change(party, messages, "an id that was added before")


def add_session(terms: bytes) -> Callable[..., Awaitable[int]]:
    """Return `add_at_server` as a role that opens its session with the server.

    Args:
        terms: SHA-256 of all that both agree on; a server with other terms refuses.
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
        if receipt.place != NO_PLACE:  # the administrator is shown its own input, to mend it
            raise InputError("ids", message.ids[receipt.place], allowed)
        changed += receipt.changed
    return changed


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of the records, each of which fits a frame."""
    if not count:
        raise InputError.because("there are no records; give at least one", field="records")
    step = max(1, (FRAME_BYTES_MAX - MESSAGE_OVERHEAD_BYTES) // size)
    return (slice(first, min(first + step, count)) for first in range(0, count, step))
