"""The curator: whoever may add records to a prediction server, and have it forget them."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import convening
from veilring.protocols.prediction.messages import NO_PLACE, Add, Forget, Receipt
from veilring.protocols.prediction.records import ID_BYTES_MAX, Records
from veilring.protocols.prediction.rules import ENVELOPE_BYTES
from veilring.protocols.prediction.server import ADD, FORGET
from veilring.transport.frames import FRAME_BYTES_MAX

# Of an id and of a label on the wire, with what MessagePack puts before them.
_ID_BYTES: Final = ID_BYTES_MAX + 4
_FEATURE_BYTES: Final = 2


async def add_records(party: Party, records: Records) -> int:
    """Hand records over, as many at once as fit a frame; each receipt says they are on the disk.

    Interrupted, the same call goes on: records that are there are passed over.

    Args:
        party: The curator, in a session with the server alone.
        records: To be added; at least one.

    Returns:
        How many were not there before.

    Raises:
        InputError: If one is there with another row; it names which. Those of earlier messages
            were added.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    width = records.features.shape[1]
    blocks = _blocks(len(records), _ID_BYTES + _FEATURE_BYTES * (1 + width))
    messages = (
        Add(
            ids=records.ids[block],
            labels=records.labels[block],
            features=records.features[block],
            more=block.stop < len(records),
        )
        for block in blocks
    )
    return await _change(party, messages, _there)


async def forget_records(party: Party, ids: Sequence[str]) -> int:
    """Have records forgotten; each receipt says that they are gone.

    Args:
        party: The curator, in a session with the server alone.
        ids: Whose; at least one, each once.

    Returns:
        How many were there.

    Raises:
        InputError: If one was never there; it names which. Those of earlier messages are forgotten.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    messages = (
        Forget(ids=tuple(ids[block]), more=block.stop < len(ids))
        for block in _blocks(len(ids), _ID_BYTES)
    )
    return await _change(party, messages, _unknown)


def adding(terms: bytes) -> Callable[..., Awaitable[int]]:
    """Return `add_records` for a session that the curator opens.

    Args:
        terms: SHA-256 of all that curator and server agree on; a server that has others refuses.
    """
    return convening(add_records, ADD, terms)


def forgetting(terms: bytes) -> Callable[..., Awaitable[int]]:
    """Return `forget_records` for a session that the curator opens.

    Args:
        terms: As `adding` takes it.
    """
    return convening(forget_records, FORGET, terms)


async def _change(
    party: Party,
    messages: Iterator[Add | Forget],
    refusal: Callable[[str], InputError],
) -> int:
    (server,) = party.peers
    changed = 0
    for number, message in enumerate(messages):
        party.round(2 * number + 1)
        await party.send(server, message)
        receipt = await party.receive(Receipt, sender=server)
        if max(receipt.changed, receipt.place + 1) > len(message.ids):
            raise ProtocolViolation(server, "sent a receipt for more than it was sent")
        if receipt.place != NO_PLACE:
            raise refusal(message.ids[receipt.place])
        changed += receipt.changed
    return changed


# The curator is shown its own input, so that it knows what to mend.


def _there(name: str) -> InputError:
    return InputError("ids", name, "not there with another row: forget it first")


def _unknown(name: str) -> InputError:
    return InputError("ids", name, "an id that was added before")


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Cut so many records into blocks that fit a frame."""
    if not count:
        raise InputError("records", "none", "at least one")
    step = max(1, (FRAME_BYTES_MAX - ENVELOPE_BYTES) // size)
    return (slice(first, min(first + step, count)) for first in range(0, count, step))
