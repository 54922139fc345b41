"""The analyst: a client that has a batch of queries labelled by a data owner."""

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import opening
from veilring.protocols.radius.algorithm.nearest import LabelledBatch
from veilring.protocols.radius.messages import LabelAnswer, LabelRequest
from veilring.protocols.radius.owner import LABEL_SERVICE
from veilring.protocols.radius.rules import OwnerRules
from veilring.protocols.requests import REQUEST_KEY_BYTES, content_key, require_answered


def ask_within(
    queries: NDArray[np.float64], radii: NDArray[np.float64], epsilon: float, *, name: str = ""
) -> LabelRequest:
    """Return a request for labels by the votes of the rows within given radii.

    Its key is a hash of its content. An equal request, even from another process after a crash,
    gets the same answer at no further cost.

    Args:
        queries: The queries, shape (queries, features), in [0, 1].
        radii: The radius of each query, shape (queries,).
        name: A name that distinguishes requests with equal content. A request with a new name gets
            a fresh answer and is charged again.
    """
    return _keyed(name, queries, radii, epsilon, 0)


def ask_nearest(
    queries: NDArray[np.float64], k: int, epsilon: float, *, name: str = ""
) -> LabelRequest:
    """Return a request for labels by the votes of about k nearest rows.

    Args:
        queries: The queries, shape (queries, features), in [0, 1].
        k: The number of neighbours, at least 1.
    """
    if k < 1:
        raise InputError("k", k, "a whole number of at least 1")
    return _keyed(name, queries, np.zeros(0), epsilon, k)


async def request_labels(
    party: Party, request: LabelRequest, *, rules: OwnerRules
) -> LabelledBatch:
    """Send a request and return the owner's answer, in one round trip.

    Args:
        party: This party, in a session with the owner alone.

    Raises:
        BudgetExhausted: If a budget does not suffice. Nothing has been charged.
        ProtocolViolation: If the owner sent a message that no honest owner sends.
    """
    (owner,) = party.peers
    rules.check(request)
    party.round(1)
    await party.send(owner, request)
    answer = await party.receive(LabelAnswer, sender=owner)
    _check(owner, request, answer, rules)
    require_answered(answer.verdict, answer.left, asked=request.epsilon, unit="epsilon")
    radii = answer.radii if request.k else request.radii
    return LabelledBatch(answer.labels.astype(np.int64), radii)


def convene_owner(terms: bytes) -> Callable[..., Awaitable[LabelledBatch]]:
    """Return the analyst's role in a session that it opens: `await role(party, request, rules=…)`.

    Args:
        terms: The SHA-256 of the terms. An owner with other terms refuses the session.
    """
    return opening(request_labels, LABEL_SERVICE, terms)


def _keyed(
    name: str,
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    epsilon: float,
    k: int,
) -> LabelRequest:
    draft = LabelRequest(
        key=bytes(REQUEST_KEY_BYTES), epsilon=epsilon, k=k, queries=queries, radii=radii
    )
    return draft.model_copy(update={"key": content_key(name, draft.content)})


def _check(owner: str, request: LabelRequest, answer: LabelAnswer, rules: OwnerRules) -> None:
    count = len(request.queries)
    if answer.labels.shape != (count,) or answer.radii.shape != (count if request.k else 0,):
        raise ProtocolViolation(owner, f"sent an answer of the wrong shape for {count} queries")
    if answer.labels.size and int(answer.labels.max()) >= rules.classes:
        raise ProtocolViolation(owner, "sent a class that does not exist")
    if not np.all(np.isfinite(answer.radii) & (answer.radii >= 0)):
        raise ProtocolViolation(owner, "sent an invalid radius")
