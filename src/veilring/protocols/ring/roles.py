"""The parties of the ring: PP-TopK, secure sums and PP-kNN, one coroutine each over a `Party`.

Source: Xiong, Chitti and Liu, SAC 2007: Algorithm 2, Algorithm 3 and Section 4.3.

All parties learn from PP-kNN: the queries, the k smallest distances to each, the vote totals and
the labels. Everything else is protected only in the semi-honest model; see the chapter on leakage.

Secure sums have four methods behind one coroutine. `ring` is the paper's: a masked running sum.
`cycles` splits each input into random shares and sums each along its own edge-disjoint Hamiltonian
cycle (Clifton et al. 2002). `shares` gives one share to every other party and publishes the sums of
received shares: two rounds, and n - 2 colluders learn nothing. `masks` hides each input by masks
that cancel in the total (`veilring.protocols.masks`): one round, and n - 2 colluders learn nothing,
under the assumptions on ChaCha20 and X25519.

Each party checks the messages of its peers against what honest peers can send, and names the party
that a failed check convicts. The mathematics, and the proof that no honest run fails a check, is in
`algorithm.topk.highest_entry` and `algorithm.consistency`. The shapes of messages are (runs,
entries).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.arrays import Bools, Floats
from veilring.data.table import Rows, check_rows, pairwise_distances
from veilring.errors import ProtocolViolation, Tampered
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import Ring, draw_ring
from veilring.privacy.checks import require
from veilring.protocols.batches import batch_digest, check_queries, hand_out
from veilring.protocols.digests import DIGEST_BYTES, digest_of, digest_of_names, written
from veilring.protocols.masks import PairwiseKeys, agree_keys, masked_rounds, masked_sum
from veilring.protocols.promise import Facts
from veilring.protocols.ring.algorithm.classify import Classified, decide_labels, local_votes
from veilring.protocols.ring.algorithm.consistency import could_be_totals, could_become
from veilring.protocols.ring.algorithm.sums import (
    FixedPoint,
    SumMethod,
    draw_masks,
    split_shares,
    walecki_cycles,
)
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    final_result,
    highest_entry,
    own_smallest,
    require_bounded,
    rounds_for,
    start_vector,
    topk_step,
)
from veilring.reached import sometimes
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Matrix, Message, WordMatrix

if TYPE_CHECKING:
    from veilring.protocols.ring.system import PrivateKNN

_Ordinal = Annotated[int, Field(ge=1)]


class TopKVector(Message, kind="ring.topk.vector"):
    """The global vector on its way to the successor (PP-TopK, Algorithm 2)."""

    round: _Ordinal
    values: Matrix


class TopKResult(Message, kind="ring.topk.result"):
    """The global vector after the last round, from the starter to all."""

    values: Matrix


class SumPart(Message, kind="ring.sum.part"):
    """A masked running sum on its way along one cycle (secure sum, Algorithm 3)."""

    cycle: _Ordinal
    values: WordMatrix


class SumTotal(Message, kind="ring.sum.total"):
    """The unmasked sum, from the starter to all."""

    values: WordMatrix


class SumShare(Message, kind="ring.sum.share"):
    """A uniformly random additive share of one party's input, from each party to each other."""

    values: WordMatrix


class SumPartial(Message, kind="ring.sum.partial"):
    """The sum of the shares that one party received, from each party to all."""

    values: WordMatrix


# Votes weighted by distance keep 24 fractional bits; with 1,000 parties that leaves room for totals
# of 500 million per class and party.
SCALE_BITS: Final = 24

_FLOAT_BYTES: Final = 8


@dataclass(frozen=True)
class KNNParameters:
    """PP-kNN and the public facts that it is bound to, equal for all parties."""

    system: "PrivateKNN"
    facts: Facts

    def __post_init__(self) -> None:
        require(self.facts.features >= 1, "features", self.facts.features, "at least 1")
        require(self.facts.classes >= 1, "classes", self.facts.classes, "at least 1")
        _ = self.topk, self.sum  # raise for parameters that do not fit each other

    @cached_property
    def topk(self) -> TopKParameters:
        """PP-TopK's part; no distance in the unit cube exceeds the root of its dimension."""
        own, upper = self.system, math.sqrt(self.facts.features)
        auto = own.rounds == "auto"
        rounds = rounds_for(own.error, own.k, own.P0, own.d) if auto else int(own.rounds)
        return TopKParameters(own.k, own.P0, own.d, rounds, own.delta, upper)

    @cached_property
    def sum(self) -> SumMethod:
        """The method of the secure sum."""
        return SumMethod(self.system.sum, self.system.cycles)

    @cached_property
    def written(self) -> str:
        """The parameters as text for the digest of public inputs."""
        own, topk = self.system, self.topk
        noise = topk.k, topk.P0, topk.d, topk.rounds, topk.delta
        values = self.facts.features, self.facts.classes, *noise, own.weights, self.sum
        return f"KNNParameters({', '.join(map(written, values))})"

    @property
    def queries_max(self) -> int:
        """The maximum number of queries with which every message of a batch fits into a frame."""
        widest = max(self.facts.features, self.system.k, self.facts.classes)
        return CONTENT_BYTES_MAX // (_FLOAT_BYTES * widest)

    def check_queries(self, queries: Floats) -> None:
        """Reject queries that the ring cannot answer."""
        check_queries(queries, self.facts.features, self.queries_max)


@dataclass(frozen=True, slots=True, eq=False)
class KNNAnswer(Classified):
    """The answer that every party of the ring learns about a batch of queries."""

    starter: str


async def private_knn(
    party: Party,
    rows: Rows,
    *,
    client: str,
    parameters: KNNParameters,
    queries: Floats | None = None,
    ring: Ring | None = None,
    announced: int | None = None,
) -> KNNAnswer:
    """Label a batch of queries by the nearest rows of all parties.

    With r rounds of PP-TopK, a batch of any size takes `n * (r + 3) - 2` messages if the votes are
    summed along the ring; drawing the ring and distributing the queries are set-up.

    The client has queries of shape (Q, features), whose number is the announced one if that is
    given. All parties return the same answer. By default they draw the ring together, and compare
    their queries as they draw. A party raises `ProtocolViolation` if a peer sent something that no
    honest party sends, and `Tampered` if honest parties could not have this outcome with any rows,
    or received different queries.
    """
    facts, topk, method = parameters.facts, parameters.topk, parameters.sum
    weights = parameters.system.weights
    check_rows(rows, facts.features, facts.classes)
    method.check(len(party.parties))
    masked = method.name == "masks"
    due = -3 if masked else -2
    check = parameters.check_queries
    batch = await hand_out(party, client, queries, check, announced=announced, due=due)
    keys = await agree_keys(party, due=due + 1) if masked else None
    if ring is None:  # compares queries too: different ones would look like lies of the parties
        ring = await draw_ring(party, batch_digest(batch), (client,))
    to_rows = pairwise_distances(batch, rows.features)
    nearest = await pp_topk(party, to_rows, ring=ring, parameters=topk)
    fixed = FixedPoint(SCALE_BITS, len(ring))
    votes = fixed.encode(local_votes(to_rows, rows.labels, nearest, facts.classes, weights))
    digest = bytes(DIGEST_BYTES)
    if masked:
        digest = digest_of(
            parameters.written.encode(),
            digest_of_names(party.parties),
            digest_of_names(ring.order),
            batch.tobytes(),
            nearest.tobytes(),
        )
    total = await sum_words(
        party,
        votes,
        ring=ring,
        method=method,
        first_round=_first_sum_round(len(ring), parameters),
        keys=keys,
        digest=digest,
    )
    totals, own = fixed.decode(total), fixed.decode(votes)
    if not _hold(could_be_totals(totals, own, nearest, weights, topk.upper)):
        party.accuse(Tampered(party.peers, "caused vote totals that honest votes cannot have"))
    return KNNAnswer(decide_labels(totals), totals, nearest, ring.starter)


def _first_sum_round(parties: int, parameters: KNNParameters) -> int:
    """Return the first round of votes: the starter knows the result one round before the others."""
    known_to_starter = parties * parameters.topk.rounds + 1
    return known_to_starter + (not parameters.sum.goes_round)


async def pp_topk(
    party: Party, own: Floats, *, ring: Ring, parameters: TopKParameters, first_round: int = 1
) -> Floats:
    """Find the k smallest values of the union of all parties' values.

    Takes `len(ring) * parameters.rounds + 1` communication rounds and
    `len(ring) * (parameters.rounds + 1) - 1` messages, for any number of runs. A party raises
    `Tampered` if entries are missing that it passed on and no honest party displaces.

    Its own values have shape (runs, any number); the k smallest are within the public bounds. The
    public result, shape (runs, k), ascends, and is padded with `upper` if the union is smaller.
    """
    V = own_smallest(own, parameters.k)
    require_bounded(V, parameters, "own")
    inserted = at_once = np.zeros(len(V), dtype=np.bool_)
    G = start_vector(parameters, len(V))
    position, n = ring.position(party.me), len(ring)
    last = n * parameters.rounds
    for number in range(1, parameters.rounds + 1):
        hop = (number - 1) * n + position
        if hop > 0:
            before, G = G, await _receive_vector(party, ring, parameters, hop, first_round, len(V))
            if number > 1:
                _check_history(party, ring, parameters, before, G)
        G, inserted = topk_step(G, V, inserted, number, parameters, party.rng)
        at_once = inserted if number == 1 else at_once
        party.round(first_round + hop)
        await party.send(ring.successor(party.me), TopKVector(round=number, values=G))
    sometimes("a party inserts its values after the first round", bool((inserted > at_once).any()))
    before = G
    if position == 0:
        G = await _receive_vector(party, ring, parameters, last, first_round, len(V))
        _check_history(party, ring, parameters, before, G)
        party.round(first_round + last)
        await broadcast(party, TopKResult(values=G))
    else:
        due = first_round + last
        G = (await party.receive(TopKResult, sender=ring.starter, due=due)).values
        _check_values(G, ring.starter, parameters, last, len(V))
        _check_result(party, ring, parameters, before, G)
    return final_result(G, parameters)


async def _receive_vector(  # noqa: PLR0917  (which vector, and its bounds)
    party: Party, ring: Ring, parameters: TopKParameters, hop: int, first_round: int, runs: int
) -> Floats:
    """Receive the vector after `hop` hops, and check it against everything public."""
    sender = ring.predecessor(party.me)
    message = await party.receive(TopKVector, sender=sender, due=first_round + hop - 1)
    due = (hop - 1) // len(ring) + 1
    if message.round != due:
        raise ProtocolViolation(sender, f"sent round {message.round} where {due} was expected")
    _check_values(message.values, sender, parameters, hop, runs)
    return message.values


async def secure_sum(
    party: Party,
    own: Floats,
    *,
    ring: Ring,
    fixed: FixedPoint,
    method: SumMethod,
    first_round: int = 1,
    keys: PairwiseKeys | None = None,
    digest: bytes = bytes(DIGEST_BYTES),
) -> Floats:
    """Add up one array of each party, shape (runs, entries), revealing only the total.

    Args:
        own: Its summand, finite and at most `fixed.limit` in size.
        ring: The order; `shares` and `masks` do not use it.
        keys: For `masks`: the result of `agree_keys`; by default keys are agreed first, in set-up.
        digest: For `masks`: the hash of the public inputs of all parties.
    """
    method.check(len(party.parties))
    words = fixed.encode(own)
    total = await sum_words(
        party, words, ring=ring, method=method, first_round=first_round, keys=keys, digest=digest
    )
    return fixed.decode(total)


async def sum_words(
    party: Party,
    words: NDArray[np.uint64],
    *,
    ring: Ring,
    method: SumMethod,
    first_round: int = 1,
    keys: PairwiseKeys | None = None,
    digest: bytes = bytes(DIGEST_BYTES),
) -> NDArray[np.uint64]:
    """Add up one array of words of each party modulo 2^64, as `secure_sum` does with reals."""
    method.check(len(party.parties))
    if method.name == "shares":
        return await _sum_by_shares(party, words, first_round)
    if method.name == "masks":
        return await masked_sum(party, words, keys=keys, digest=digest, first_round=first_round)
    return await _sum_along(party, words, sum_cycles(ring, method), first_round)


def sum_rounds(method: SumMethod, parties: int) -> int:
    """Return the number of communication rounds of a sum."""
    if method.goes_round:
        return parties + 1
    return masked_rounds(None) if method.name == "masks" else 2


def sum_cycles(ring: Ring, method: SumMethod) -> tuple[Ring, ...]:
    """Return the cycles that the shares take, all with the same starter.

    Walecki's cycles are applied to positions of the random ring, so each is a random cycle.
    """
    if method.cycles == 1:
        return (ring,)
    chosen = walecki_cycles(len(ring))[: method.cycles]
    return tuple(Ring([ring.order[position] for position in cycle]) for cycle in chosen)


async def _sum_along(
    party: Party, words: NDArray[np.uint64], cycles: tuple[Ring, ...], first_round: int
) -> NDArray[np.uint64]:
    shares = split_shares(words, len(cycles), party.rng)
    starter, n = cycles[0].starter, len(cycles[0])
    if party.me == starter:
        masks = draw_masks(shares.shape, party.rng)
        party.round(first_round)
        for number, cycle in enumerate(cycles, start=1):
            part = masks[number - 1] + shares[number - 1]
            await party.send(cycle.successor(starter), SumPart(cycle=number, values=part))
        parts = [
            await _receive_part(party, cycle, number, words.shape, due=first_round + n - 1)
            for number, cycle in enumerate(cycles, start=1)
        ]
        total = _add_up(np.stack(parts) - masks)
        party.round(first_round + n)
        await broadcast(party, SumTotal(values=total))
        return total
    # Serving the cycles in the order of this party's positions keeps each message in its round.
    for place, number in sorted((c.position(party.me), i) for i, c in enumerate(cycles, start=1)):
        cycle = cycles[number - 1]
        due = first_round + place - 1
        part = await _receive_part(party, cycle, number, words.shape, due=due)
        party.round(first_round + place)
        passed = SumPart(cycle=number, values=part + shares[number - 1])
        await party.send(cycle.successor(party.me), passed)
    total = (await party.receive(SumTotal, sender=starter, due=first_round + n)).values
    _check_shape(total, starter, words.shape)
    return total


async def _receive_part(
    party: Party, cycle: Ring, number: int, shape: tuple[int, ...], *, due: int
) -> NDArray[np.uint64]:
    """Receive the running sum of one cycle, numbered from 1, from the predecessor there."""
    sender = cycle.predecessor(party.me)
    part = await party.receive(SumPart, sender=sender, due=due)
    if part.cycle != number:
        raise ProtocolViolation(sender, f"sent cycle {part.cycle} where {number} was expected")
    _check_shape(part.values, sender, shape)
    return part.values


async def _sum_by_shares(
    party: Party, words: NDArray[np.uint64], first_round: int
) -> NDArray[np.uint64]:
    shares = split_shares(words, len(party.parties), party.rng)
    party.round(first_round)
    for share, peer in zip(shares[1:], party.peers, strict=True):
        await party.send(peer, SumShare(values=share))
    given = [shares[0]]
    for peer in party.peers:
        share = await party.receive(SumShare, sender=peer, due=first_round)
        given.append(share.values)
        _check_shape(given[-1], peer, words.shape)
    partials = [_add_up(np.stack(given))]
    party.round(first_round + 1)
    await broadcast(party, SumPartial(values=partials[0]))
    for peer in party.peers:
        partial = await party.receive(SumPartial, sender=peer, due=first_round + 1)
        partials.append(partial.values)
        _check_shape(partials[-1], peer, words.shape)
    return _add_up(np.stack(partials))


def _add_up(parts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Add along the first axis, modulo 2^64."""
    total: NDArray[np.uint64] = np.add.reduce(parts, axis=0)
    return total


def _check_values(
    values: Floats, sender: str, parameters: TopKParameters, hops: int, runs: int
) -> None:
    """Check a vector after some hops since the start against everything public."""
    expected = runs, parameters.k
    if values.shape != expected:
        raise ProtocolViolation(sender, f"sent a vector of shape {values.shape}, not {expected}")
    highest = highest_entry(parameters, hops)
    if not _hold((values >= parameters.lower) & (values <= highest)):
        raise ProtocolViolation(sender, "sent a vector outside the public bounds")
    if not _hold(values[:, :-1] <= values[:, 1:]):
        raise ProtocolViolation(sender, "sent a vector that is not ascending")


def _hold(each: Bools) -> bool:
    """Return whether all are true, like `each.all()`, which takes three times as long for few."""
    return int(np.count_nonzero(each)) == each.size


def _check_history(
    party: Party, ring: Ring, parameters: TopKParameters, before: Floats, after: Floats
) -> None:
    """Compare a vector that has gone round with the one that this party had passed on.

    If entries are missing, all others are suspects: those after the culprit could not notice.
    """
    if not _hold(could_become(before, after, len(ring) - 1, parameters)):
        party.accuse(Tampered(_after(ring, party.me), "removed entries from the vector"))


def _check_result(
    party: Party, ring: Ring, parameters: TopKParameters, before: Floats, result: Floats
) -> None:
    """Compare the starter's result with the vector that this other party passed on last.

    If entries are missing, the starter and the parties in between are suspects.
    """
    hops = len(ring) - 1 - ring.position(party.me)
    if _hold(could_become(before, result, hops, parameters)):
        return
    if hops == 0:
        what = "sent a result different from the last vector"
        party.accuse(ProtocolViolation(ring.starter, what))
    else:
        suspects = _after(ring, party.me)[: hops + 1]
        party.accuse(Tampered(suspects, "removed entries from the result"))


def _check_shape(values: NDArray[np.uint64], sender: str, expected: tuple[int, ...]) -> None:
    if values.shape != expected:
        raise ProtocolViolation(sender, f"sent an array of shape {values.shape}, not {expected}")


def _after(ring: Ring, party: str) -> tuple[str, ...]:
    """Return all others in the order in which the vector reaches them."""
    place = ring.position(party)
    return (*ring.order[place + 1 :], *ring.order[:place])
