"""PP-kNN in rings of rings: all groups pass vectors at the same time, then their starters do.

Each step is that of a single ring: PP-TopK passes around each group and then around the starters,
and so does the sum of votes. With groups of about the square root of n, a batch takes some `2 *
sqrt(n)` hops per round instead of n. The additional leakage compared with one ring is described on
the page of the ring family.

No party learns a group's vote totals. The second party of a group, its keeper, splits its own votes
into two random shares. One share opens the sum of its group, and the other goes to the starter of
the next group, so that each starter's input to the sum of the starters is a random array.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.nodes.party import Party, SubParty, broadcast
from veilring.nodes.ring import PARTIES_MIN, Ring, draw_ring
from veilring.protocols.batches import batch_digest, hand_out
from veilring.protocols.ring.algorithm.classify import decide_labels, local_votes
from veilring.protocols.ring.algorithm.sums import FixedPoint, split_shares
from veilring.protocols.ring.algorithm.topk import brought_by, own_smallest
from veilring.protocols.ring.messages import SumPart, SumShare, SumTotal, TopKResult
from veilring.protocols.ring.roles import (
    SCALE_BITS,
    KNNAnswer,
    KNNParameters,
    check_shape,
    check_totals,
    check_values,
    pp_topk,
    receive_part,
    sum_words,
    topk_turns,
)


@dataclass(frozen=True, slots=True)
class NestedRings:
    """A ring cut into arcs, each a ring of its own, and the ring of their starters.

    Attributes:
        order: The order of all parties.
        groups: Arcs of that order, the longer ones first; each is a ring.
        starters: The first of each group, in the order of the groups.
    """

    order: Ring
    groups: tuple[Ring, ...]
    starters: Ring

    def number(self, party: str) -> int:
        """Return the number of a party's group, from 0."""
        longest = len(self.groups[0])
        long = len(self.order) - (longest - 1) * len(self.groups)  # groups of that size
        place = self.order.position(party)
        if place < long * longest:
            return place // longest
        return long + (place - long * longest) // (longest - 1)


def group_sizes(parties: int, groups: int) -> tuple[int, ...]:
    """Return the number of parties of each group: sizes differ by at most 1, larger groups first.

    Raises:
        InputError: If there would be fewer than three groups, or fewer than three parties in one.
    """
    most = parties // PARTIES_MIN
    if not PARTIES_MIN <= groups <= most:
        allowed = f"{PARTIES_MIN} to {most} for {parties} parties"
        if most < PARTIES_MIN:
            allowed = f"nothing: rings of rings need at least {PARTIES_MIN**2} parties"
        raise InputError("groups", groups, allowed)
    size, larger = divmod(parties, groups)
    return (size + 1,) * larger + (size,) * (groups - larger)


def nest(order: Ring, groups: int) -> NestedRings:
    """Cut a ring into groups of consecutive parties.

    If no party chose the order, no party chose its group or its starter.

    Raises:
        InputError: As in `group_sizes`.
    """
    arcs = tuple(_arcs(order, group_sizes(len(order), groups)))
    return NestedRings(order, arcs, Ring([arc.starter for arc in arcs]))


def _arcs(order: Ring, sizes: tuple[int, ...]) -> Iterator[Ring]:
    first = 0
    for size in sizes:
        yield Ring(order.order[first : first + size])
        first += size


KEEPER: Final = 1
"""The position, within its group, of the party that splits its votes."""
_SHARES: Final = 2


async def nested_knn(
    party: Party,
    rows: Rows,
    *,
    client: str,
    parameters: KNNParameters,
    rings: NestedRings | int,
    queries: NDArray[np.float64] | None = None,
) -> KNNAnswer:
    """Label a batch of queries by the nearest rows of all parties, in rings of rings.

    For g groups one batch takes `n * (r + 3) + g * (r + 1) - 2` messages with r rounds of PP-TopK,
    and `(m + g) * (r + 1) + 2` communication rounds where the largest group has m parties.

    Args:
        party: This participant.
        rows: The party's private rows.
        client: The participant that distributes the queries.
        parameters: The public parameters. Both levels use PP-TopK's number of rounds, and votes are
            summed along rings.
        rings: The number of groups, for rings that all parties draw together; or rings dealt
            beforehand, the same at all parties.
        queries: Shape (Q, features) at the client; the others leave it out.

    Returns:
        The same answer at every party, with the starter of the starters.

    Raises:
        InputError: If the party's rows or queries do not fit the parameters, there are too few
            parties for the groups, or votes are not summed along a ring. Nothing has been sent
            then.
        ProtocolViolation: If a peer sent something that no honest party sends.
        Tampered: If parties received different queries, or honest parties could not have this
            outcome with any rows.
    """
    parameters.check_rows(rows)
    if parameters.sum.name != "ring":
        raise InputError("sum", parameters.sum.name, "ring; groups add up their votes along a ring")
    if isinstance(rings, int):
        group_sizes(len(party.parties), rings)  # raises before anything is sent
    batch = await hand_out(party, client, queries, parameters.check_queries)
    if isinstance(rings, int):
        rings = nest(await draw_ring(party, batch_digest(batch), (client,)), rings)
    level = Levels(party, rings, parameters)
    to_rows = pairwise_distances(batch, rows.features)
    nearest = await level.topk(own_smallest(to_rows, parameters.k))
    votes = local_votes(
        to_rows, rows.labels, nearest, classes=parameters.classes, weights=parameters.weights
    )
    fixed = FixedPoint(SCALE_BITS, len(rings.order))
    words = fixed.encode(votes)
    totals = fixed.decode(await level.sum(words))
    check_totals(
        party,
        totals,
        fixed.decode(words),
        nearest,
        weights=parameters.weights,
        upper=parameters.topk.upper,
    )
    return KNNAnswer(decide_labels(totals), totals, nearest, rings.starters.starter)


class Levels:
    """The position of one party on both levels, and its actions there.

    Args:
        party: The participant.
        rings: The same at all parties.
        parameters: The public parameters.
    """

    def __init__(self, party: Party, rings: NestedRings, parameters: KNNParameters) -> None:
        self._party, self._rings, self._parameters = party, rings, parameters
        self._number = rings.number(party.me)
        self._group = rings.groups[self._number]
        self._place = self._group.position(party.me)
        self._largest = len(rings.groups[0])
        among_starters = len(rings.groups) * parameters.rounds
        # The starters begin when the largest group has finished.
        self._starters_round = self._largest * parameters.rounds + 1
        self._result_round = self._starters_round + among_starters
        """The round in which the first starter knows the result and publishes it."""

    @property
    def _known_round(self) -> int:
        """The round in which this party's group receives its starter's last input."""
        return self._result_round + (self._number > 0)

    async def topk(self, own: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the k smallest of all parties' values, shape (runs, k)."""
        parameters = self._parameters.topk
        inside = SubParty(self._party, self._group.order)
        G = await topk_turns(inside, own, ring=self._group, parameters=parameters)
        if self._place == 0:
            starters = self._rings.starters
            result = await pp_topk(
                SubParty(self._party, starters.order),
                brought_by(G, parameters),
                ring=starters,
                parameters=parameters,
                first_round=self._starters_round,
            )
            self._party.round(self._known_round)
            await broadcast(self._party, TopKResult(values=result), inside.peers)
            return result
        starter = self._group.starter
        due = self._known_round
        result = (await self._party.receive(TopKResult, sender=starter, due=due)).values
        check_values(result, starter, parameters, 0, len(own))
        return result

    async def sum(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the sum of all parties' words modulo 2^64, the same shape."""
        first = self._result_round + self._largest  # when the largest group has finished
        known = first + len(self._rings.starters) + (self._number > 0)
        if self._place == 0:
            part = await self._collect(words)
            starters = self._rings.starters
            total = await sum_words(
                SubParty(self._party, starters.order),
                part,
                ring=starters,
                method=self._parameters.sum,
                first_round=first,
            )
            self._party.round(known)
            await broadcast(self._party, SumTotal(values=total), self._group.order[1:])
            return total
        await self._pass_on(words)
        starter = self._group.starter
        total = (await self._party.receive(SumTotal, sender=starter, due=known)).values
        check_shape(total, starter, words.shape)
        return total

    async def _pass_on(self, words: NDArray[np.uint64]) -> None:
        """Open the group's sum if this party is the keeper; otherwise add to it."""
        party, group = self._party, self._group
        if self._place == KEEPER:
            part, kept = split_shares(words, _SHARES, party.rng)
            party.round(self._known_round + self._place)
            following = self._rings.starters.successor(group.starter)
            await party.send(following, SumShare(values=kept))
        else:
            due = self._known_round + self._place - 1
            part = words + await receive_part(party, group, 1, words.shape, due=due)
            party.round(self._known_round + self._place)
        await party.send(group.successor(party.me), SumPart(cycle=1, values=part))

    async def _collect(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return a starter's part: its group's sum without one share, and another group's share."""
        giver = (self._number - 1) % len(self._rings.groups)
        keeper = self._rings.groups[giver].order[KEEPER]
        due = self._known_round + len(self._group) - 1
        own = words + await receive_part(self._party, self._group, 1, words.shape, due=due)
        due = self._result_round + (giver > 0) + KEEPER
        share = (await self._party.receive(SumShare, sender=keeper, due=due)).values
        check_shape(share, keeper, words.shape)
        return own + share
