"""The place where a party that serves decides, by its own rules, whether to take part in a request.

A long-lived member or server calls its `Admission` before it joins a session for a request, charges
it, or tells others of it. The rules are those of `veilring.deployment.policy`.
"""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from veilring.nodes.party import Party
from veilring.nodes.service import Offer

Count: TypeAlias = Callable[[sqlite3.Connection | None], None]
"""Counts an admitted request durably, before anything that depends on rows is sent: within the
transaction of the ledger's charge, whose connection it gets, or in one of its own."""


class Asked(NamedTuple):
    """A request, as far as it is known before it is answered.

    Attributes:
        client: The client's name; empty if the members act for all of their clients.
        queries: The number of new queries; 0 if a stored answer is sent again.
        epsilon: The ε that the request spends; None if it is that of the terms.
        k: The number of neighbours that the request chooses; None if it is that of the terms.
    """

    client: str
    queries: int
    epsilon: float | None = None
    k: int | None = None


Admission: TypeAlias = Callable[[Asked], AbstractContextManager[Count]]
"""Admits a request, or raises `PolicyRefused`. Within the context its queries and its ε are
reserved. The context gives the function that counts them."""


def admit_all(asked: Asked) -> AbstractContextManager[Count]:
    """Admit every request, without a policy."""
    del asked
    return nullcontext(lambda _connection: None)


def guarded(offers: Mapping[str, Offer], admission: Admission) -> dict[str, Offer]:
    """Return services that ask an admission first, for a party that counts no queries."""

    def guard(offer: Offer) -> Offer:
        async def play(party: Party, opener: str) -> None:
            with admission(Asked(opener, 0)):
                await offer.play(party, opener)

        return replace(offer, play=play)

    return {name: guard(offer) for name, offer in offers.items()}
