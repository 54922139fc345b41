"""The analyst: it has a batch of queries labelled by a data owner."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import convening
from veilring.protocols.radius.messages import Answer, Request
from veilring.protocols.radius.owner import LABEL
from veilring.protocols.radius.rules import Rules
from veilring.protocols.requests import REQUEST_KEY_BYTES, content_key, require_answered


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """What an analyst learns.

    Attributes:
        labels: Shape (queries,), class numbers.
        radii: Shape (queries,): the radii within which rows voted.
    """

    labels: NDArray[np.int64]
    radii: NDArray[np.float64]


def ask_within(
    queries: NDArray[np.float64], radii: NDArray[np.float64], epsilon: float, *, name: str = ""
) -> Request:
    """Return a request for the labels that rows within radii vote for.

    Its key follows from its content. So whoever asks the same again, also in another process after
    a crash, gets the same answer and pays nothing.

    Args:
        queries: Shape (queries, features), in [0, 1].
        radii: Shape (queries,).
        epsilon: What the batch may cost.
        name: Another name makes another request of the same content, which is drawn and paid anew.
    """
    return _keyed(name, queries, radii, epsilon, 0)


def ask_nearest(queries: NDArray[np.float64], k: int, epsilon: float, *, name: str = "") -> Request:
    """Return a request for the labels that about k nearest rows vote for.

    Args:
        queries: Shape (queries, features), in [0, 1].
        k: At least 1.
        epsilon: What the batch may cost.
        name: As `ask_within` takes it.

    Raises:
        InputError: If k is less than 1.
    """
    if k < 1:
        raise InputError("k", k, "a whole number of at least 1")
    return _keyed(name, queries, np.zeros(0), epsilon, k)


async def request_labels(party: Party, request: Request, *, rules: Rules) -> Labelled:
    """Have a batch labelled: one round trip.

    Args:
        party: This participant, in a session with the owner alone.
        request: What to ask.
        rules: The owner's.

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
    answer = await party.receive(Answer, sender=owner)
    _check(owner, request, answer, rules)
    price = rules.price(request)
    require_answered(answer.verdict, answer.left, asked=price, unit="epsilon")
    radii = answer.radii if request.k else request.radii
    return Labelled(answer.labels.astype(np.int64), radii)


def ask_owner(terms: bytes) -> Callable[..., Awaitable[Labelled]]:
    """Return the analyst's role in a session that it opens: `await role(party, request, rules=…)`.

    Args:
        terms: SHA-256 of all that analyst and owner agree on; an owner that has others refuses.
    """
    return convening(request_labels, LABEL, terms)


def _keyed(
    name: str,
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    epsilon: float,
    k: int,
) -> Request:
    draft = Request(
        key=bytes(REQUEST_KEY_BYTES), epsilon=epsilon, k=k, queries=queries, radii=radii
    )
    return draft.model_copy(update={"key": content_key(name, draft.content)})


def _check(owner: str, request: Request, answer: Answer, rules: Rules) -> None:
    count = len(request.queries)
    if answer.labels.shape != (count,) or answer.radii.shape != (count if request.k else 0,):
        raise ProtocolViolation(owner, f"sent an answer of another shape for {count} queries")
    if answer.labels.size and int(answer.labels.max()) >= rules.classes:
        raise ProtocolViolation(owner, "sent a class that there is not")
    if not np.all(np.isfinite(answer.radii) & (answer.radii >= 0)):
        raise ProtocolViolation(owner, "sent a radius that is none")
