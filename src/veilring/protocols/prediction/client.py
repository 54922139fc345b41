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

    Its key follows from its content. So a client that asks the same again, also in another process
    after a crash, gets the same labels and spends nothing.

    Args:
        queries: From `quantise`, shape (queries, features).
        name: The name of the request; another name makes a new request of the same content, drawn
            and charged again.
        more: Whether another request follows in the same session.
    """
    draft = PredictionRequest(
        key=bytes(REQUEST_KEY_BYTES), more=more, queries=queries.astype(np.int16)
    )
    return draft.model_copy(update={"key": content_key(name, draft.content)})


class Stream:
    """Requests of one session, each of which may depend on the labels before.

    Args:
        party: The client, in a session with the server alone.
        rules: The rules of the server.
    """

    def __init__(self, party: Party, rules: ServerRules) -> None:
        self._party, self._rules, self._number = party, rules, 1

    async def ask(self, request: PredictionRequest) -> NDArray[np.int64]:
        """Label one block in one round trip. The last request of a session is marked as such.

        Returns:
            Class numbers, shape (queries,).

        Raises:
            InputError: If the request is against the rules (nothing is sent then), or its key was
                used for another request.
            BudgetExhausted: If fewer queries are left. Nothing was charged.
            ProtocolViolation: If the server sent something that no honest server sends.
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
    """Have queries labelled, block after block, in one session.

    Args:
        party: The client, in a session with the server alone.
        queries: From `quantise`, shape (queries, features), at least one.
        rules: The rules of the server.
        block: The number of queries in each request, from 1 to `rules.fitting`.
        name: See `make_request`.

    Returns:
        Class numbers, shape (queries,).

    Raises:
        InputError: If there is no query, or they are against the rules.
        BudgetExhausted: As in `Stream.ask`. Earlier blocks were charged, and repeating them is
            free.
        ProtocolViolation: As in `Stream.ask`.
    """
    if not 1 <= block <= rules.fitting or not len(queries):
        raise InputError.because(
            f"a block of {block} does not fit {len(queries)} queries: at most "
            f"{rules.fitting} are possible at once, and one is needed",
            field="block",
        )
    stream, labels = Stream(party, rules), []
    for first in range(0, len(queries), block):
        last = first + block
        more = last < len(queries)
        labels.append(await stream.ask(make_request(queries[first:last], name=name, more=more)))
    return np.concatenate(labels)


async def request_status(party: Party, keys: Sequence[bytes]) -> tuple[int, list[bool]]:
    """Ask how many queries are left, and which requests were answered. It costs nothing.

    Args:
        party: The client, in a session with the server alone.
        keys: The keys of requests, at least one; see `make_request`.

    Returns:
        The number of remaining queries, unless others ask meanwhile; and for each request whether
        it was answered, so that repeating it is free.

    Raises:
        ProtocolViolation: If the server sent something that no honest server sends.
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
        terms: SHA-256 of all that both agree on; a server with other terms refuses.
    """
    return opening(label_queries, PREDICT, terms)


def status_session(terms: bytes) -> Callable[..., Awaitable[tuple[int, list[bool]]]]:
    """Return `request_status` as a role that opens its session; see `label_session`."""
    return opening(request_status, STATUS, terms)
