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
    """Return a request for the labels that rows within radii vote for.

    Its key follows from its content. The same request again, also from another process after a
    crash, gets the same answer and costs nothing.

    Args:
        queries: Shape (queries, features), in [0, 1].
        radii: Shape (queries,).
        epsilon: What the batch may cost.
        name: Another name makes another request of the same content, which is drawn and paid again.
    """
    return _keyed(name, queries, radii, epsilon, 0)


def ask_nearest(
    queries: NDArray[np.float64], k: int, epsilon: float, *, name: str = ""
) -> LabelRequest:
    """Return a request for the labels that about k nearest rows vote for.

    Args:
        queries: Shape (queries, features), in [0, 1].
        k: The number of neighbours, at least 1.
        epsilon: What the batch may cost.
        name: See `ask_within`.

    Raises:
        InputError: If k is less than 1.
    """
    if k < 1:
        raise InputError("k", k, "a whole number of at least 1")
    return _keyed(name, queries, np.zeros(0), epsilon, k)


async def request_labels(
    party: Party, request: LabelRequest, *, rules: OwnerRules
) -> LabelledBatch:
    """Have a batch labelled: one round trip.

    Args:
        party: This participant, in a session with the owner alone.
        request: From `ask_within` or `ask_nearest`.
        rules: The owner's rules.

    Raises:
        InputError: If the request is against the rules (nothing is sent then), or its key was used
            for another.
        BudgetExhausted: If a budget does not suffice. Nothing was charged.
        ProtocolViolation: If the owner sent what no honest owner sends.
    """
    (owner,) = party.peers
    rules.check(request)
    party.round(1)
    await party.send(owner, request)
    answer = await party.receive(LabelAnswer, sender=owner)
    _check(owner, request, answer, rules)
    price = rules.price(request)
    require_answered(answer.verdict, answer.left, asked=price, unit="epsilon")
    radii = answer.radii if request.k else request.radii
    return LabelledBatch(answer.labels.astype(np.int64), radii)


def convene_owner(terms: bytes) -> Callable[..., Awaitable[LabelledBatch]]:
    """Return the analyst's role in a session that it opens: `await role(party, request, rules=…)`.

    Args:
        terms: SHA-256 of all that analyst and owner agree on; an owner that has others refuses.
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
