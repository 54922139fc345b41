"""The querier: it has queries labelled by a prediction server, in blocks or one at a time."""

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import convening
from veilring.protocols.prediction.messages import KEYS_MAX, Answer, Look, Outlook, Request
from veilring.protocols.prediction.rules import Rules
from veilring.protocols.prediction.server import LOOK, PREDICT
from veilring.protocols.requests import REQUEST_KEY_BYTES, content_key, require_answered


def make_request(queries: NDArray[np.float32], *, name: str = "", more: bool = False) -> Request:
    """Return a request for labels.

    Its key follows from its content. So whoever asks the same again, also in another process after
    a crash, gets the same labels and spends nothing.

    Args:
        queries: From `quantise`, shape (queries, features).
        name: Another name makes another request of the same content, which is drawn and paid anew.
        more: Whether another request follows in the same session.
    """
    draft = Request(key=bytes(REQUEST_KEY_BYTES), more=more, queries=queries.astype(np.int16))
    return draft.model_copy(update={"key": content_key(name, draft.content)})


class Stream:
    """Requests of one session, each of which may depend on the labels before.

    Args:
        party: The querier, in a session with the server alone.
        rules: The server's.
    """

    def __init__(self, party: Party, rules: Rules) -> None:
        self._party, self._rules, self._number = party, rules, 1

    async def ask(self, request: Request) -> NDArray[np.int64]:
        """Have one block labelled: one round trip. The last request of a session says so.

        Returns:
            Class numbers, shape (queries,).

        Raises:
            InputError: If the request is against the rules (nothing is sent then), or its key was
                used for another.
            BudgetExhausted: If fewer queries are left. Nothing was charged.
            ProtocolViolation: If the server sent what no honest server sends.
        """
        (server,) = self._party.peers
        self._rules.check(request)
        self._party.round(self._number)
        self._number += 2
        await self._party.send(server, request)
        answer = await self._party.receive(Answer, sender=server)
        count = len(request.queries)
        if answer.labels.shape != (count,) or answer.labels.max() >= self._rules.classes:
            raise ProtocolViolation(server, f"sent no labels for {count} queries")
        require_answered(answer.verdict, answer.left, asked=float(count), unit="queries")
        return answer.labels.astype(np.int64)


async def label_queries(
    party: Party, queries: NDArray[np.float32], *, rules: Rules, block: int, name: str = ""
) -> NDArray[np.int64]:
    """Have queries labelled, block after block, in one session.

    Args:
        party: The querier, in a session with the server alone.
        queries: From `quantise`, shape (queries, features), at least one.
        rules: The server's.
        block: How many are sent at once, from 1 to `rules.fitting`.
        name: See `make_request`.

    Returns:
        Class numbers, shape (queries,).

    Raises:
        InputError: If there is no query, or they are against the rules.
        BudgetExhausted: As `Stream.ask`. What was labelled before was charged, and comes again for
            nothing to whoever asks for the same blocks.
        ProtocolViolation: As `Stream.ask`.
    """
    if not 1 <= block <= rules.fitting or not len(queries):
        allowed = f"1 to {rules.fitting} at once, and one in all"
        raise InputError("block", f"{block} of {len(queries)} queries", allowed)
    stream, labels = Stream(party, rules), []
    for first in range(0, len(queries), block):
        last = first + block
        more = last < len(queries)
        labels.append(await stream.ask(make_request(queries[first:last], name=name, more=more)))
    return np.concatenate(labels)


async def look_ahead(party: Party, keys: Sequence[bytes]) -> tuple[int, list[bool]]:
    """Find out how many queries are left, and which requests were answered: it costs nothing.

    Args:
        party: The querier, in a session with the server alone.
        keys: Of the requests, at least one; see `make_request`.

    Returns:
        How many queries may still be asked, unless others ask meanwhile; and for each request
        whether it was answered, so that its labels come again for nothing.

    Raises:
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    left, answered = 0.0, list[bool]()
    for first in range(0, len(keys), KEYS_MAX):
        some = keys[first : first + KEYS_MAX]
        party.round(2 * (first // KEYS_MAX) + 1)
        await party.send(server, Look(keys=b"".join(some), more=first + KEYS_MAX < len(keys)))
        outlook = await party.receive(Outlook, sender=server)
        if len(outlook.answered) != len(some):
            raise ProtocolViolation(
                server, f"did not say of {len(some)} requests what it was asked"
            )
        left = outlook.left
        answered += map(bool, outlook.answered)
    return int(left), answered


def look_at_server(terms: bytes) -> Callable[..., Awaitable[tuple[int, list[bool]]]]:
    """Return `look_ahead` for a session that the querier opens.

    Args:
        terms: As `ask_server` takes it.
    """
    return convening(look_ahead, LOOK, terms)


def ask_server(terms: bytes) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return `label_queries` for a session that the querier opens.

    Args:
        terms: SHA-256 of all that querier and server agree on; a server that has others refuses.
    """
    return convening(label_queries, PREDICT, terms)
