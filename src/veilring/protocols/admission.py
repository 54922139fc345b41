"""The place where a party that serves decides, by its own rules, whether to take part in a request.

A long-lived member or server calls its `Admission` before it joins a session for a request, charges
it, or tells others of it. The rules are those of `veilring.deployment.policy`. Its
`veilring.deployment.gate` enters each request and its answer into the trail of the party.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.nodes.party import Party
from veilring.nodes.service import Offer

Count: TypeAlias = Callable[[sqlite3.Connection | None], None]
"""Counts an admitted request durably: see `Admitted.count`."""


class Asked(NamedTuple):
    """A request, as far as it is known before it is answered.

    Attributes:
        client: The client's name; empty if the members act for all of their clients.
        queries: The number of new queries; 0 if a stored answer is sent again.
        epsilon: The ε that the request spends; None if it is that of the terms.
        k: The number of neighbours that the request chooses; None if it is that of the terms.
        service: The service that was asked.
        peer: The peer that has opened the session, if it is not the client.
        session: The name of that session.
        request: The content or the key of the request, by which it is known again. Only a hash of
            it with a secret key is kept.
        records: The number of records that an administrator adds or forgets. No rule about clients
            applies to that.
    """

    client: str
    queries: int
    epsilon: float | None = None
    k: int | None = None
    service: str = ""
    peer: str = ""
    session: bytes = b""
    request: bytes = b""
    records: int = 0


class Admitted:
    """An admitted request. This one is of a party without a policy and without a trail."""

    def count(
        self,
        connection: sqlite3.Connection | None = None,
        *,
        session: bytes = b"",
        peers: Iterable[str] = (),
        answer: bytes | None = None,
    ) -> None:
        """Count it durably, before anything that depends on rows is sent.

        Args:
            connection: The transaction of the ledger's charge; none for a transaction of its own.
            session: The name of the session that it is played in; by default the client's.
            peers: The other parties that take part.
            answer: The answer, if it is known already: see `answer`.
        """

    def answer(self, answer: bytes, connection: sqlite3.Connection | None = None) -> None:
        """Enter its answer durably, before it is sent, unless it is entered already.

        Args:
            answer: The labels, see `pack_labels`, or the bytes of a result.
            connection: A transaction; by default one of its own.
        """

    def refuse(self, rule: str) -> None:
        """Enter that it is refused by something else than the policy, such as a budget."""


Admission: TypeAlias = Callable[[Asked], AbstractContextManager[Admitted]]
"""Admits a request, or raises `PolicyRefused`. Within the context its queries and its ε are
reserved."""


def admit_all(asked: Asked) -> AbstractContextManager[Admitted]:
    """Admit every request, without a policy."""
    del asked
    return nullcontext(Admitted())


def pack_labels(labels: NDArray[np.integer], radii: Floats | None = None) -> bytes:
    """Return an answer for `Admitted.answer`.

    Args:
        labels: Shape (queries,), which become 64-bit whole numbers, little-endian.
        radii: Shape (queries,), which follow as 64-bit floating-point numbers.
    """
    more = b"" if radii is None else radii.astype("<f8").tobytes()
    return labels.astype("<i8").tobytes() + more


def guarded(offers: Mapping[str, Offer], admission: Admission) -> dict[str, Offer]:
    """Return services that ask an admission first, for a party that counts no queries."""

    def guard(offer: Offer) -> Offer:
        async def play(party: Party, opener: str) -> None:
            with admission(Asked(opener, 0)):
                await offer.play(party, opener)

        return replace(offer, play=play)

    return {name: guard(offer) for name, offer in offers.items()}
