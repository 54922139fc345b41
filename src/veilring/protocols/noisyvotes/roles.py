"""The party of noisy votes: it counts its own rows, adds its noise share, and sums.

Before each sum all parties send each other a hash of the public inputs: the parties, the ring,
parameters, queries, radii, all totals so far, and the division of the budget. If a malicious client
could send some parties queries that are far apart and others queries that overlap, the former would
add less noise than the rows of the latter need; so no party adds anything before all hashes agree.
After the last sum they compare hashes again: no two honest parties end with different labels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Final

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, check_rows
from veilring.errors import InputError, ProtocolViolation, Tampered
from veilring.measures import vote_shares
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import Ring, draw_ring
from veilring.privacy.checks import require, require_that
from veilring.protocols.batches import require_announced
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of, digest_of_names, written
from veilring.protocols.masks import agree_keys, keys_cost
from veilring.protocols.membership import Membership
from veilring.protocols.noisyvotes.algorithm.noise import Plan, plan_bytes
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    require_shares,
)
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer, batch_steps, noisy_counts
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.radius.algorithm.balls import BATCH_MAX
from veilring.protocols.radius.algorithm.conversion import ByGrid, grid_side
from veilring.protocols.ring.cost import draw_cost, sum_cost
from veilring.protocols.ring.roles import sum_rounds, sum_words
from veilring.reached import sometimes
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Array, Matrix, Message


class VotesBatch(Message, kind="noisyvotes.batch"):
    """A batch of queries, from the client to all. It is public to the parties.

    Attributes:
        queries: Shape (queries, features), in [0, 1].
        radii: Shape (queries,); empty if the parameters determine which rows vote.
    """

    queries: Matrix
    radii: Annotated[Floats, Array("<f8", 1)]


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


_NUMBER_BYTES: Final = 8
# A hash of parameters is part of the protocol: a renamed class is written with its old name.
_WRITTEN_NAMES: Final = {"WithinRadius": "Within", "NearestRows": "Nearest"}


def queries_max(parameters: NoisyVotesParameters) -> int:
    """Return the number of queries with which every message of a batch fits a frame."""
    near, widest = parameters.neighbours, max(parameters.features + 1, parameters.classes)
    if isinstance(near, NearestRows) and isinstance(near.conversion, ByAnnuli):
        widest = max(widest, near.conversion.number)
    return min(BATCH_MAX, CONTENT_BYTES_MAX // (_NUMBER_BYTES * widest))


Radii = Callable[[Floats], Floats]
"""A function from the queries of a batch to their radii."""


def votes_membership(
    parameters: NoisyVotesParameters, batch_max: int, radii: Radii | None = None
) -> Membership:
    """Return how a party takes part in deployed noisy votes; each party needs a till."""
    return Membership(
        private_votes,
        batch_max,
        _labels,
        {"parameters": parameters, "radii": radii},
        all_learn=True,
        check=partial(check_batch, radii=radii, parameters=parameters),
        scores=scores_of,
        announced=True,
    )


def _labels(answer: VotesAnswer) -> Ints:
    return answer.labels


def scores_of(answer: VotesAnswer) -> Floats:
    """Return each class's share of the noisy votes, shape (Q, classes)."""
    return vote_shares(answer.totals.astype(np.float64))


async def private_votes(  # noqa: PLR0913  (an experiment chooses some of them)
    party: Party,
    rows: Rows,
    *,
    client: str,
    parameters: NoisyVotesParameters,
    queries: Floats | None = None,
    radii: Floats | Radii | None = None,
    ring: Ring | None = None,
    announced: int | None = None,
    charge: Callable[[Plan], object] | None = None,
) -> VotesAnswer:
    """Label a batch of queries from the rows of all parties, protected by distributed noise.

    Args:
        rows: The party's private rows; it may have none.
        queries: The queries, shape (Q, features), only at the client.
        radii: The radii, shape (Q,), if the parameters leave them to the client, which is the only
            party that uses them; or a function that it calls.
        ring: A dealt order of parties. By default it is drawn together, if the method of summing
            needs one.
        announced: The number of queries that the client has announced, if it has.
        charge: Called with the plan of each release before this party sends any of it: from then on
            others may have the total, and the release is spent even if the run fails. If it raises
            an error, nothing of the release is sent. `list.append` collects the input of
            `remaining_epsilon`; a run that succeeds returns the same list as `spent`.

    Returns:
        The same answer at every party.

    Raises:
        ProtocolViolation: If a peer sent something that no honest party sends.
        Tampered: If parties have different public inputs.
    """
    exponent = parameters.exponent(len(party.parties))
    check_rows(rows, parameters.features, parameters.classes)
    batch = await _hand_out(party, client, parameters, queries, radii, announced)
    ring = await _ring_for(party, parameters) if ring is None else ring
    keys = await agree_keys(party) if parameters.sum.name == "masks" else None
    given = batch.radii if batch.radii.size else None
    steps = batch_steps(batch.queries, parameters, given, shares=exponent.denominator)
    digest = digest_of(
        digest_of_names(party.parties),
        digest_of_names(ring.order),
        written(parameters, _WRITTEN_NAMES).encode(),
        batch.queries.tobytes(),
        batch.radii.tobytes(),
    )
    release, next_round = next(steps), 1
    while True:
        await _agree(party, digest_of(digest, plan_bytes(release.plan)), next_round)
        shared = bool((release.plan.crowds > 1).any())
        sometimes("queries share the budget of the rows between them", shared)
        own = noisy_counts(release.count(rows), release.plan, exponent, party.rng)
        if charge is not None:
            charge(release.plan)
        words = await sum_words(
            party,
            own.view(np.uint64),
            ring=ring,
            method=parameters.sum,
            first_round=next_round + 1,
            keys=keys,
            digest=digest,
        )
        next_round += 1 + sum_rounds(parameters.sum, len(ring))
        digest = digest_of(digest, words.tobytes())
        try:
            release = steps.send(words.view(np.int64))
        except StopIteration as done:
            answer: VotesAnswer = done.value
            break
    await _agree(party, digest, next_round)  # or parties could end with different labels
    return answer


async def _hand_out(  # noqa: PLR0917  (a batch, and what it has to fit)
    party: Party,
    client: str,
    parameters: NoisyVotesParameters,
    queries: Floats | None,
    radii: Floats | Radii | None,
    announced: int | None,
) -> VotesBatch:
    if party.me == client:
        if queries is None:
            raise InputError.because(
                f"{client} is the client and needs a batch of queries", field="queries"
            )
        chosen = radii(queries) if callable(radii) else radii
        check_batch(queries, chosen, parameters)
        given = np.zeros(0) if chosen is None else chosen
        batch = VotesBatch(queries=queries.astype(np.float64), radii=given.astype(np.float64))
        await broadcast(party, batch)
        return batch
    batch = await party.receive(VotesBatch, sender=client, due=-2)
    require_announced(client, len(batch.queries), announced)
    try:
        check_batch(batch.queries, batch.radii if batch.radii.size else None, parameters)
    except InputError as error:
        party.accuse(ProtocolViolation(client, f"sent an invalid request: {error}"))
    return batch


def check_batch(
    queries: Floats, radii: Floats | Radii | None, parameters: NoisyVotesParameters
) -> None:
    """Refuse an invalid batch; see `NoisyVotesParameters.radii_of`."""
    chosen = radii(queries) if callable(radii) else radii
    for name, given in (("queries", queries), ("radii", chosen)):
        real = given is None or np.can_cast(given.dtype, np.float64, "same_kind")
        require_that(real, name, f"{name} must be real numbers")
    parameters.radii_of(queries, chosen)
    most = queries_max(parameters)
    require(len(queries) <= most, "queries", len(queries), f"1 to {most} in a batch")
    require_shares(parameters, len(queries))


async def _ring_for(party: Party, parameters: NoisyVotesParameters) -> Ring:
    """Return a ring to sum on; methods that send to everybody need none."""
    return await draw_ring(party) if parameters.sum.goes_round else Ring(party.parties)


async def _agree(party: Party, digest: bytes, number: int) -> None:
    """Wait for equal public inputs of all parties; otherwise it or a sender of inputs lies."""
    party.round(number)
    await broadcast(party, PublicDigest(digest=digest))
    for peer in party.peers:
        if (await party.receive(PublicDigest, sender=peer, due=number)).digest != digest:
            party.accuse(
                Tampered(party.peers, "made parties hold different rings, queries, totals or plans")
            )
