"""The client of a prediction server, and the administrator who adds and removes its records."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.prediction.messages import (
    KEYS_MAX,
    NO_PLACE,
    AddRequest,
    ChangeReceipt,
    ForgetRequest,
    PredictionAnswer,
    PredictionRequest,
    ServerRules,
    StatusRequest,
    StreamStatus,
)
from veilring.protocols.prediction.records import ID_BYTES_MAX, LabelledRecords
from veilring.protocols.requests import REQUEST_KEY_BYTES, content_key, require_answered
from veilring.transport.frames import CONTENT_BYTES_MAX

# The size of an id and a label on the wire, including their MessagePack prefixes.
_ID_BYTES: Final = ID_BYTES_MAX + 4
_FEATURE_BYTES: Final = 2


async def add_at_server(party: Party, records: LabelledRecords) -> int:
    """Add records, in blocks that fit a frame; a receipt confirms that each block is on disk.

    After an interruption, repeat the call to continue: existing records are skipped.

    Returns:
        The number of records that are new.
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

    Returns:
        The number of records that existed.
    """
    messages = (
        ForgetRequest(ids=tuple(ids[block]), more=block.stop < len(ids))
        for block in _blocks(len(ids), _ID_BYTES)
    )
    return await _change(party, messages, "an id that was added before")


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


def make_request(
    queries: NDArray[np.float32], *, name: str = "", more: bool = False
) -> PredictionRequest:
    """Return a request for labels.

    Its key is a hash of its content. An equal request, even from another process after a crash,
    gets the same labels at no further cost.

    Args:
        name: A name that distinguishes requests with equal content. A request with a new name gets
            fresh labels and is charged again.
    """
    draft = PredictionRequest(
        key=bytes(REQUEST_KEY_BYTES), more=more, queries=queries.astype(np.int16)
    )
    return draft.model_copy(update={"key": content_key(name, draft.content)})


class Stream:
    """The requests of one session, each of which may depend on earlier labels."""

    def __init__(self, party: Party, rules: ServerRules) -> None:
        self._party, self._rules, self._number = party, rules, 1

    async def ask(self, request: PredictionRequest) -> Ints:
        """Request the labels of one block in one round trip. The last one sets `more` to False.

        Raises:
            BudgetExhausted: If fewer queries are left. Nothing has been charged.
        """
        (server,) = self._party.peers
        self._rules.check(request)
        self._party.round(self._number)
        self._number += 2
        await self._party.send(server, request)
        answer = await self._party.receive(PredictionAnswer, sender=server)
        count = len(request.queries)
        if answer.labels.shape != (count,) or answer.labels.max() >= self._rules.facts.classes:
            raise ProtocolViolation(server, f"sent no labels for {count} queries")
        require_answered(answer.verdict, answer.left, asked=float(count), unit="queries")
        return answer.labels.astype(np.int64)


async def label_queries(
    party: Party, queries: NDArray[np.float32], *, rules: ServerRules, block: int, name: str = ""
) -> Ints:
    """Request the labels of queries, block after block, in one session.

    Args:
        block: The number of queries in each request, from 1 to `rules.fitting`.

    Raises:
        BudgetExhausted: As in `Stream.ask`. Earlier blocks have been charged; equal blocks are
            answered again at no cost.
    """
    if not 1 <= block <= rules.fitting or not len(queries):
        raise InputError.because(
            f"{len(queries)} queries cannot be sent in blocks of {block}: give at least one "
            f"query, and a block of 1 to {rules.fitting}",
            field="block",
        )
    stream, labels = Stream(party, rules), []
    for first in range(0, len(queries), block):
        last = first + block
        more = last < len(queries)
        labels.append(await stream.ask(make_request(queries[first:last], name=name, more=more)))
    return np.concatenate(labels)


async def request_status(party: Party, keys: Sequence[bytes]) -> tuple[int, list[bool]]:
    """Request the number of queries left and the status of earlier requests, at no cost.

    Returns:
        The number of queries left, which other clients may use up meanwhile; and for each request
        whether it was answered, so that repeating it costs nothing.
    """
    (server,) = party.peers
    left, answered = 0.0, list[bool]()
    for first in range(0, len(keys), KEYS_MAX):
        some = keys[first : first + KEYS_MAX]
        party.round(2 * (first // KEYS_MAX) + 1)
        await party.send(
            server, StatusRequest(keys=b"".join(some), more=first + KEYS_MAX < len(keys))
        )
        status = await party.receive(StreamStatus, sender=server)
        if len(status.answered) != len(some):
            raise ProtocolViolation(server, f"did not confirm the contents of {len(some)} requests")
        left = status.left
        answered += map(bool, status.answered)
    return int(left), answered
