"""Secure sums: nobody learns more than the total (Xiong, Chitti and Liu 2007, Algorithm 3).

Three methods behind one coroutine. `ring` is the paper's: a masked running sum. `cycles` splits
each input into random shares and sums each along its own edge-disjoint Hamiltonian cycle (Clifton
et al. 2002). `shares` gives one share to every other party and publishes what each was given: two
rounds, and n - 2 colluders learn nothing.
"""

import numpy as np
from numpy.typing import NDArray

from veilring.errors import ProtocolViolation
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm import (
    FixedPoint,
    SumMethod,
    draw_masks,
    split_shares,
    walecki_cycles,
)
from veilring.protocols.ring.messages import SumPart, SumPartial, SumShare, SumTotal


def sum_rounds(method: SumMethod, parties: int) -> int:
    """Return how many communication rounds a sum takes."""
    return 2 if method.name == "shares" else parties + 1


async def secure_sum(
    party: Party,
    own: NDArray[np.float64],
    *,
    ring: Ring,
    fixed: FixedPoint,
    method: SumMethod,
    first_round: int = 1,
) -> NDArray[np.float64]:
    """Add up one array of each party; nothing but the total is shown to anybody.

    Args:
        party: This participant.
        own: Its summand, shape (runs, entries), finite and at most `fixed.limit` in size.
        ring: The order, the same at all parties; `shares` does not use it.
        fixed: How reals are written in Z_{2^64}.
        method: How to sum.
        first_round: The communication round in which the first message is sent.

    Returns:
        The total, shape (runs, entries), the same at all parties.

    Raises:
        InputError: If the summand could overflow the sum; nothing was sent then.
        ProtocolViolation: If a peer sent an array of another shape or a part out of turn.
    """
    method.check(len(party.parties))
    words = fixed.encode(own)
    return fixed.decode(
        await sum_words(party, words, ring=ring, method=method, first_round=first_round)
    )


async def sum_words(
    party: Party, words: NDArray[np.uint64], *, ring: Ring, method: SumMethod, first_round: int = 1
) -> NDArray[np.uint64]:
    """Add up one array of words of each party modulo 2^64, as `secure_sum` does with reals.

    The arguments and errors are those of `secure_sum`; any words may be added.
    """
    method.check(len(party.parties))
    if method.name == "shares":
        return await _sum_by_shares(party, words, first_round)
    return await _sum_along(party, words, sum_cycles(ring, method), first_round)


def sum_cycles(ring: Ring, method: SumMethod) -> tuple[Ring, ...]:
    """Return the cycles that the shares take, all with the same starter.

    Walecki's cycles are taken over positions of the random ring, so that each is a random cycle.
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
            await receive_part(party, cycle, number, words.shape, due=first_round + n - 1)
            for number, cycle in enumerate(cycles, start=1)
        ]
        total = _add_up(np.stack(parts) - masks)
        party.round(first_round + n)
        await broadcast(party, SumTotal(values=total))
        return total
    # Serving the cycles in the order of this party's places keeps each message in its round.
    for place, number in sorted((c.position(party.me), i) for i, c in enumerate(cycles, start=1)):
        cycle = cycles[number - 1]
        due = first_round + place - 1
        part = await receive_part(party, cycle, number, words.shape, due=due)
        party.round(first_round + place)
        passed = SumPart(cycle=number, values=part + shares[number - 1])
        await party.send(cycle.successor(party.me), passed)
    total = (await party.receive(SumTotal, sender=starter, due=first_round + n)).values
    check_shape(total, starter, words.shape)
    return total


async def receive_part(
    party: Party, cycle: Ring, number: int, shape: tuple[int, ...], *, due: int
) -> NDArray[np.uint64]:
    """Receive the running sum of one cycle from the predecessor there.

    Args:
        party: This participant.
        cycle: The order that the sum goes round.
        number: Which of all cycles that is, from 1.
        shape: That of the sum.
        due: The round in which the predecessor sends it.

    Raises:
        ProtocolViolation: If it is of another cycle or shape.
    """
    sender = cycle.predecessor(party.me)
    part = await party.receive(SumPart, sender=sender, due=due)
    if part.cycle != number:
        raise ProtocolViolation(sender, f"sent cycle {part.cycle} where {number} was due")
    check_shape(part.values, sender, shape)
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
        check_shape(given[-1], peer, words.shape)
    partials = [_add_up(np.stack(given))]
    party.round(first_round + 1)
    await broadcast(party, SumPartial(values=partials[0]))
    for peer in party.peers:
        partial = await party.receive(SumPartial, sender=peer, due=first_round + 1)
        partials.append(partial.values)
        check_shape(partials[-1], peer, words.shape)
    return _add_up(np.stack(partials))


def _add_up(parts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Add along the first axis, modulo 2^64."""
    total: NDArray[np.uint64] = np.add.reduce(parts, axis=0)
    return total


def check_shape(values: NDArray[np.uint64], sender: str, expected: tuple[int, ...]) -> None:
    """Refuse words of another shape than is due.

    Raises:
        ProtocolViolation: It names the sender.
    """
    if values.shape != expected:
        raise ProtocolViolation(sender, f"sent an array of {values.shape}, not {expected}")
