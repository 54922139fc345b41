"""The messages of noisy votes beside the ring's secure sums, and the cost of a batch."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.digests import DIGEST_BYTES, Digest
from veilring.protocols.masks import keys_cost
from veilring.protocols.noisyvotes.algorithm.parameters import (
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
)
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.radius.algorithm.conversion import ByGrid, grid_side
from veilring.protocols.ring.cost import draw_cost, sum_cost
from veilring.transport.messages import Array, Matrix, Message


class VotesBatch(Message, kind="noisyvotes.batch"):
    """A batch of queries, from the client to all. It is public to the parties.

    Attributes:
        queries: Shape (queries, features), in [0, 1].
        radii: Shape (queries,); empty if the parameters determine which rows vote.
    """

    queries: Matrix
    radii: Annotated[NDArray[np.float64], Array("<f8", 1)]


class PublicDigest(Message, kind="noisyvotes.agreed"):
    """A hash of the public inputs so far, from each party to all: before each sum, and last."""

    digest: Digest


def votes_cost(
    parties: int,
    queries: int,
    parameters: NoisyVotesParameters,
    *,
    drawn: bool = True,
    rows: int | None = None,
) -> Forecast:
    """Forecast noisy votes on one batch.

    Each of the one to three releases takes a round of `n (n - 1)` messages in which all agree, and
    a secure sum: two further rounds of the same size by shares, one by masks. Another round in
    which all agree ends the batch.

    Args:
        drawn: Whether the parties draw the ring, if there is one; a dealt ring costs nothing.
        rows: The number of rows of the grid, if rows are counted with noise; known afterwards as
            `NoisyVotes.rows`.
    """
    own_radii = (
        isinstance(parameters.neighbours, WithinRadius) and parameters.neighbours.radius is None
    )
    batch = VotesBatch(
        queries=np.zeros((queries, parameters.features)),
        radii=np.zeros(queries if own_radii else 0),
    )
    setup = repeated(parties - 1, batch)
    if drawn and parameters.sum.goes_round:
        setup = setup.plus(draw_cost(parties))
    if parameters.sum.name == "masks":
        setup = setup.plus(keys_cost(parties))
    agreeing = repeated(parties * (parties - 1), PublicDigest(digest=bytes(DIGEST_BYTES)))
    total = Forecast(1, agreeing, setup)
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
                raise InputError.because(
                    "the number of cells depends on a public number of rows; give `rows`",
                    field="rows",
                )
            side = grid_side(known, parameters.features, near.epsilon_conversion)
            yield 1, side**parameters.features
        else:
            yield queries, near.conversion.number
    yield queries, parameters.classes
