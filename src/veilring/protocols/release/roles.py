"""The roles in a release: peers that add up under masks, an owner, and a client without rows.

Each peer adds a noise share to the sum of its own rows, and no party sees more than the noisy
total. The total therefore protects every row, even against the peers: enough noise stays hidden
from a coalition of `tolerated` parties, even if the allowed number of parties is lost.

A client receives the totals and builds the model itself. Its queries stay local.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.arrays import Ints
from veilring.data.table import Rows, check_rows
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party
from veilring.protocols.digests import digest_of, digest_of_names
from veilring.protocols.dropouts import SurvivingSums, surviving_cost
from veilring.protocols.masks import (
    MaskedSums,
    agree_keys,
    confirming_cost,
    keys_cost,
    masked_cost,
    slices,
)
from veilring.protocols.promise import Forecast, repeated, total_cost
from veilring.protocols.release.algorithm.noise import Account
from veilring.protocols.release.algorithm.steps import (
    Released,
    ReleaseParameters,
    Total,
    finish_release,
    release_steps,
    released_by,
)
from veilring.protocols.seeding import Quorum, seeds_cost, share_seeds
from veilring.transport.messages import Array, Message

Adding = Literal["all-to-all", "star"]

Charge = Callable[[Account], object]
"""A callback with the guarantee of the whole release, before any part of it is sent."""


class ReleaseRequest(Message, kind="release.request"):
    """Requests the next piece of the totals, so that at most one is in flight."""


class ReleasedWords(Message, kind="release.words"):
    """A piece of a total, sent to a client.

    Attributes:
        shares: The number of parties whose rows and noise are in the total.
        words: Shape (entries,), at most a frame full.
    """

    shares: Annotated[int, Field(ge=1)]
    words: Annotated[Ints, Array("<i8", 1)]


def require_ready(rows: Rows, parameters: ReleaseParameters, parties: int) -> None:
    """Reject rows that cannot be released, and a number of parties that differs from the plan."""
    check_rows(rows, len(parameters.features), len(parameters.features.classes))
    planned = parameters.plan.trust.parties
    if parties != planned:
        raise InputError.because(
            f"the noise is planned for {planned} parties, but {parties} take part; plan it for "
            "all of them",
            field="parties",
        )
    if parameters.own is not None:  # built-in statistics stay within their bounds
        parameters.own.sum(rows.features, rows.labels)


async def release_rows(
    party: Party,
    rows: Rows,
    *,
    client: str,
    parameters: ReleaseParameters,
    adding: Adding = "all-to-all",
    charge: Charge | None = None,
) -> Released:
    """Release the sum of all parties' rows once, protected by the noise of all parties.

    Args:
        party: This participant; if alone, it is an owner and adds all of the noise.
        rows: The party's private rows; may be empty.
        client: With `star`, the participant that adds up. If parties may be lost, it also names the
            parties in the sum, and the release fails if the client itself is lost.
        adding: The way to add up: each party does, or the client does and sends the totals to the
            others.
        charge: A callback before this party sends any message about its rows. From then on others
            may obtain the total, so the budget is spent even if the run fails. If the callback
            raises, nothing is sent.

    Returns:
        The same release at every party.

    Raises:
        TooManyLost: If more parties are lost than the plan allows for.
        ProtocolViolation: If a peer sent something that no honest party sends.
        Tampered: If parties have different public inputs.
    """
    require_ready(rows, parameters, len(party.parties))
    sums = await _agree(party, client, parameters, adding) if party.peers else None
    if charge is not None:
        charge(parameters.account)
    return await _release(party, rows, parameters, sums)


async def _release(
    party: Party,
    rows: Rows,
    parameters: ReleaseParameters,
    sums: MaskedSums | SurvivingSums | None = None,
) -> Released:
    """Add up with all parties, or alone, in each step."""
    steps = release_steps(parameters)
    step = next(steps)
    for _ in parameters.noises[:-1]:
        step = steps.send(await _add(sums, step.draw(rows, party.rng)))
    total = await _add(sums, step.draw(rows, party.rng))
    if sums is not None:
        await sums.confirm()  # or a liar could give parties different models
    return finish_release(steps, total)


async def _agree(
    party: Party, client: str, parameters: ReleaseParameters, adding: Adding
) -> MaskedSums | SurvivingSums:
    """Agree on keys or seeds, and bind all sums to the public inputs."""
    trust, star = parameters.plan.trust, adding == "star"
    sums: MaskedSums | SurvivingSums
    if trust.lost:
        quorum = Quorum(trust.parties, trust.tolerated, trust.lost)
        seeds = await share_seeds(party, quorum, client, sums=len(list(_pieces(parameters))))
        sums = SurvivingSums(party, seeds, star=star)
    else:
        keys = await agree_keys(party, colluding=trust.tolerated)
        sums = MaskedSums(party, keys, client if star else None)
    sums.bind(digest_of(digest_of_names(party.parties), parameters.digest))
    return sums


async def _add(sums: MaskedSums | SurvivingSums | None, own: Ints) -> Total:
    """Return the total of all summands that arrived; an owner returns its own summand."""
    if sums is None:
        return Total(own, 1)
    found: list[NDArray[Any]] = []
    shares = 0
    for piece in slices(own.view(np.uint64)):
        found += await sums.add((piece,))
        shares = max(shares, len(sums.parties_in))  # a later piece may lack more parties
    return Total(np.concatenate(found).view(np.int64), shares)


async def release_by_owner(
    party: Party, rows: Rows | None, *, parameters: ReleaseParameters
) -> Released:
    """Release all rows at their owner, or without rows request the totals as its client."""
    (other,) = party.peers
    if rows is None:
        return await receive_release(party, other, parameters)
    require_ready(rows, parameters, 1)
    released = await _release(party, rows, parameters)
    await send_release(party, other, released.totals)
    return released


async def send_release(party: Party, client: str, totals: Sequence[Total]) -> None:
    """Send the totals of a release to a client in order, piece by piece as it asks for them."""
    pieces = ((total.shares, piece) for total in totals for piece in slices(total.sums))
    for number, (shares, piece) in enumerate(pieces):
        await party.receive(ReleaseRequest, sender=client, due=2 * number + 1)
        party.round(2 * number + 2)
        await party.send(client, ReleasedWords(shares=shares, words=piece))


async def receive_release(party: Party, sender: str, parameters: ReleaseParameters) -> Released:
    """Return a release from the totals of a party, which is accused of invalid ones."""
    trust, totals, number = parameters.plan.trust, [], 0
    for noise in parameters.noises:
        words, shares = np.zeros(noise.sensitivity.dimensions, np.int64), set()
        for piece in slices(words):
            party.round(2 * number + 1)
            await party.send(sender, ReleaseRequest())
            party.round(2 * number + 2)
            message = await party.receive(ReleasedWords, sender=sender, due=2 * number + 2)
            if message.words.shape != piece.shape:
                raise ProtocolViolation(sender, "sent a total of the wrong length")
            piece[:] = message.words
            shares.add(message.shares)
            number += 1
        (least, *more) = sorted(shares)
        if more or not trust.present <= least <= trust.parties:
            raise ProtocolViolation(sender, "sent a total of the wrong number of parties")
        totals.append(Total(words, least))
    return released_by(parameters, totals)


def release_cost(parties: int, parameters: ReleaseParameters, adding: Adding) -> Forecast:
    """Forecast a release by peers without dropouts: one masked sum for each piece of its totals.

    A last round confirms the totals, unless parties may be lost and each opens the sums itself.
    """
    trust, pieces = parameters.plan.trust, list(_pieces(parameters))
    cost = surviving_cost if trust.lost else masked_cost
    sums = [cost(parties, (piece,), star=adding == "star") for piece in pieces]
    if trust.lost:
        setup = seeds_cost(parties, sums=len(pieces))
        last = [confirming_cost(parties)] if adding == "star" else []
    else:
        setup = keys_cost(parties, trust.tolerated)
        last = [confirming_cost(parties, trust.tolerated)]
    total = total_cost(*sums, *last)
    return Forecast(total.rounds, total.traffic, setup)


def owner_cost(parameters: ReleaseParameters) -> Forecast:
    """Forecast an owner's release to one client: a request and an answer for each piece."""
    rounds, traffic = 0, Traffic()
    for piece in _pieces(parameters):
        answer = ReleasedWords(shares=1, words=piece.view(np.int64))
        traffic = traffic.plus(repeated(1, ReleaseRequest())).plus(repeated(1, answer))
        rounds += 2
    return Forecast(rounds, traffic)


def _pieces(parameters: ReleaseParameters) -> Iterator[NDArray[np.uint64]]:
    for noise in parameters.noises:
        yield from slices(np.zeros(noise.sensitivity.dimensions, np.uint64))
