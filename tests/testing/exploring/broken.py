"""Secure sums with one mistake each, which exploration must detect."""

from collections import Counter
from contextlib import suppress

from benchmarks.mistakes import add_what_is_sent_again, add_without_the_lost
from tests.roles import Number

from veilring.arrays import Floats
from veilring.errors import ClusterError, PeerLost, SessionAborted
from veilring.nodes.party import Party, broadcast, broadcast_to_rest
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm.sums import FixedPoint, draw_masks
from veilring.protocols.ring.roles import SumPart, SumTotal


async def leaves_the_mask_in(
    party: Party, own: Floats, *, ring: Ring, fixed: FixedPoint, **_public: object
) -> Floats:
    """Sum along the ring without removing the mask."""
    words = fixed.encode(own)
    if party.me == ring.starter:
        part = words + draw_masks(words.shape, party.rng)
        await party.send(ring.successor(party.me), SumPart(cycle=1, values=part))
        total = (await party.receive(SumPart, sender=ring.predecessor(party.me))).values
        await broadcast(party, SumTotal(values=total))
    else:
        part = (await party.receive(SumPart, sender=ring.predecessor(party.me))).values
        await party.send(ring.successor(party.me), SumPart(cycle=1, values=part + words))
        total = (await party.receive(SumTotal, sender=ring.starter)).values
    return fixed.decode(total)


async def ignores_losses(
    party: Party, own: Floats, *, fixed: FixedPoint, **_public: object
) -> Floats:
    """Send to all, and continue without late messages."""
    return fixed.decode(await add_without_the_lost(party, fixed.encode(own)))


async def counts_duplicates(
    party: Party, own: Floats, *, fixed: FixedPoint, **_public: object
) -> Floats:
    """Send a value to everyone, again after a slow answer, and count every received value."""
    return fixed.decode(await add_what_is_sent_again(party, fixed.encode(own)))


async def believes_any_two(party: Party, own: int) -> int:
    """Add up the numbers of the parties that are not lost, and return a total that two have."""
    party.tolerate_losses()
    found = own
    for number in (1, 2):
        party.round(number)
        await broadcast_to_rest(party, Number(number=found))
        heard = [found, *await _numbers_of_the_rest(party)]
        ((found, times),) = [(sum(heard), 2)] if number == 1 else Counter(heard).most_common(1)
    if times == 1:
        raise ClusterError("all totals differ")
    return found


async def _numbers_of_the_rest(party: Party) -> list[int]:
    numbers = []
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            numbers.append((await party.receive(Number, sender=peer)).number)
    return numbers
