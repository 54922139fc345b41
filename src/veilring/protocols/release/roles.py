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
from veilring.nodes.party import Party
from veilring.protocols.chunks import receive_chunks, send_chunks, sending_cost
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
from veilring.protocols.promise import Forecast, total_cost
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


class ReleasedWords(Message, kind="release.words"):
    """The totals of a release, sent to a client.

    Attributes:
        shares: The number of parties whose rows and noise are in each total.
        words: The entries of all totals, shape (entries,).
    """

    shares: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]
    words: Annotated[Ints, Array("<i8", 1)]


def require_ready(rows: Rows, parameters: ReleaseParameters, parties: int) -> None:
    """Reject rows that cannot be released, and a number of parties that differs from the plan."""
    check_rows(rows, len(parameters.features), parameters.features.label_count)
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
    """Send the totals of a release to a client."""
    words = np.concatenate([total.sums for total in totals])
    shares = tuple(total.shares for total in totals)
    await send_chunks(party, client, ReleasedWords(shares=shares, words=words))


async def receive_release(party: Party, sender: str, parameters: ReleaseParameters) -> Released:
    """Return a release from the totals of a party, which is accused of invalid ones."""
    trust, lengths = parameters.plan.trust, _lengths(parameters)
    message = await receive_chunks(party, _totals_like(parameters), sender=sender)
    shares = message.shares
    if (
        len(shares) != len(lengths)
        or not trust.present <= min(shares) <= max(shares) <= trust.parties
    ):
        raise ProtocolViolation(sender, "sent totals of the wrong number of parties")
    sums = np.split(message.words, np.cumsum(lengths)[:-1])
    return released_by(parameters, list(map(Total, sums, message.shares)))


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
    """Forecast an owner's release to one client."""
    return sending_cost(_totals_like(parameters))


def _totals_like(parameters: ReleaseParameters) -> ReleasedWords:
    """Return a message of the shape of the totals."""
    lengths = _lengths(parameters)
    return ReleasedWords(shares=(1,) * len(lengths), words=np.zeros(sum(lengths), np.int64))


def _lengths(parameters: ReleaseParameters) -> list[int]:
    return [noise.sensitivity.dimensions for noise in parameters.noises]


def _pieces(parameters: ReleaseParameters) -> Iterator[NDArray[np.uint64]]:
    for length in _lengths(parameters):
        yield from slices(np.zeros(length, np.uint64))
