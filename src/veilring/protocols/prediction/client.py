"""The client of a prediction server, with queries in blocks or one at a time."""

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import opening
from veilring.protocols.prediction.messages import (
    KEYS_MAX,
    PredictionAnswer,
    PredictionRequest,
    StatusRequest,
    StreamStatus,
)
from veilring.protocols.prediction.rules import ServerRules
from veilring.protocols.prediction.server import PREDICT, STATUS
from veilring.protocols.requests import REQUEST_KEY_BYTES, content_key, require_answered


def make_request(
    queries: NDArray[np.float32], *, name: str = "", more: bool = False
) -> PredictionRequest:
    """Return a request for labels.

    Its key is a hash of its content. An equal request, even from another process after a crash,
    gets the same labels at no further cost.

    Args:
        queries: The result of `quantise`, shape (queries, features).
        name: A name that distinguishes requests with equal content. A request with a new name gets
            fresh labels and is charged again.
    """
    draft = PredictionRequest(
        key=bytes(REQUEST_KEY_BYTES), more=more, queries=queries.astype(np.int16)
    )
    return draft.model_copy(update={"key": content_key(name, draft.content)})


class Stream:
    """The requests of one session, each of which may depend on earlier labels.

    Args:
        party: The client, in a session with the server alone.
    """

    def __init__(self, party: Party, rules: ServerRules) -> None:
        self._party, self._rules, self._number = party, rules, 1

    async def ask(self, request: PredictionRequest) -> NDArray[np.int64]:
        """Request the labels of one block in one round trip. The last one sets `more` to False.

        Returns:
            The labels as class numbers, shape (queries,).

        Raises:
            BudgetExhausted: If fewer queries are left. Nothing has been charged.
            ProtocolViolation: If the server sent a message that no honest server sends.
        """
        (server,) = self._party.peers
        self._rules.check(request)
        self._party.round(self._number)
        self._number += 2
        await self._party.send(server, request)
        answer = await self._party.receive(PredictionAnswer, sender=server)
        count = len(request.queries)
        if answer.labels.shape != (count,) or answer.labels.max() >= self._rules.classes:
            raise ProtocolViolation(server, f"sent no labels for {count} queries")
        require_answered(answer.verdict, answer.left, asked=float(count), unit="queries")
        return answer.labels.astype(np.int64)


async def label_queries(
    party: Party, queries: NDArray[np.float32], *, rules: ServerRules, block: int, name: str = ""
) -> NDArray[np.int64]:
    """Request the labels of queries, block after block, in one session.

    Args:
        party: The client, in a session with the server alone.
        queries: The result of `quantise`, shape (queries, features), at least one query.
        block: The number of queries in each request, from 1 to `rules.fitting`.

    Returns:
        The labels as class numbers, shape (queries,).

    Raises:
        BudgetExhausted: As in `Stream.ask`. Earlier blocks have been charged; equal blocks are
            answered again at no cost.
        ProtocolViolation: As in `Stream.ask`.
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

    Args:
        party: The client, in a session with the server alone.
        keys: The keys of requests, at least one; see `make_request`.

    Returns:
        The number of queries left, which other clients may use up meanwhile; and for each request
        whether it was answered, so that repeating it costs nothing.

    Raises:
        ProtocolViolation: If the server sent a message that no honest server sends.
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


def label_session(terms: bytes) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return `label_queries` as a role that opens its session with the server.

    Args:
        terms: The SHA-256 of the terms. A server with other terms refuses the session.
    """
    return opening(label_queries, PREDICT, terms)


def status_session(terms: bytes) -> Callable[..., Awaitable[tuple[int, list[bool]]]]:
    """Return `request_status` as a role that opens its session; see `label_session`."""
    return opening(request_status, STATUS, terms)
