"""The closed forms: what a run will cost, before it is run."""

from collections.abc import Iterator

import numpy as np

from veilring.errors import InputError
from veilring.nodes.ring import RingCommit, RingReveal, draw_ring_messages
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.noisyvotes.algorithm import NearestRows, NoisyVotesParameters, WithinRadius
from veilring.protocols.noisyvotes.messages import DIGEST_BYTES, PublicDigest, VotesBatch
from veilring.protocols.radius.algorithm.conversion import ByGrid, grid_side
from veilring.protocols.ring.cost import sum_cost


def votes_cost(
    parties: int,
    queries: int,
    parameters: NoisyVotesParameters,
    *,
    drawn: bool = True,
    rows: int | None = None,
) -> Forecast:
    """Forecast noisy votes on one batch.

    Each release, of which there are one to three, takes a round of `n (n - 1)` messages in which
    all agree, and a secure sum: by shares two rounds of as many.

    Args:
        parties: n.
        queries: How many are in the batch.
        parameters: Public.
        drawn: Whether the parties draw the ring, where there is one; it costs nothing if dealt.
        rows: How many rows the grid is cut for, if that is not public but counted with noise, as
            `NoisyVotes.rows` says afterwards.

    Raises:
        InputError: If `rows` is needed and missing.
    """
    own_radii = (
        isinstance(parameters.neighbours, WithinRadius) and parameters.neighbours.radius is None
    )
    batch = VotesBatch(
        queries=np.zeros((queries, parameters.features)),
        radii=np.zeros(queries if own_radii else 0),
    )
    setup = repeated(parties - 1, batch)
    if drawn and parameters.sum.name != "shares":
        each, nonce = draw_ring_messages(parties) // 2, bytes(32)
        setup = setup.plus(repeated(each, RingCommit(commitment=nonce)))
        setup = setup.plus(repeated(each, RingReveal(nonce=nonce, heard=nonce)))
    agreeing = repeated(parties * (parties - 1), PublicDigest(digest=bytes(DIGEST_BYTES)))
    total = Forecast(0, repeated(0, batch), setup)
    for runs, entries in _shapes(queries, parameters, rows):
        sum_ = sum_cost(parties, runs, entries, parameters.sum)
        traffic = total.traffic.plus(agreeing).plus(sum_.traffic)
        total = Forecast(total.rounds + 1 + sum_.rounds, traffic, setup)
    return total


def _shapes(
    queries: int, parameters: NoisyVotesParameters, rows: int | None
) -> Iterator[tuple[int, int]]:
    """Yield the shape of each sum."""
    near = parameters.neighbours
    if isinstance(near, NearestRows):
        if near.rows is None:
            yield 1, 1
        if isinstance(near.conversion, ByGrid):
            known = rows if near.rows is None else near.rows
            if known is None:
                raise InputError("rows", "nothing", "how many rows the grid is cut for")
            side = grid_side(known, parameters.features, near.epsilon_conversion)
            yield 1, side**parameters.features
        else:
            yield queries, near.conversion.number
    yield queries, parameters.classes
