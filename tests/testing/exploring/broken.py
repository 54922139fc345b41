"""Secure sums with a mistake each: exploration has to catch them."""

import asyncio

import numpy as np
from numpy.typing import NDArray

from veilring.errors import VeilringError
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import Ring
from veilring.protocols.ring import FixedPoint, SumMethod
from veilring.protocols.ring.algorithm.sums import draw_masks
from veilring.protocols.ring.messages import SumPart, SumShare, SumTotal


async def leaves_the_mask_in(
    party: Party, own: NDArray[np.float64], *, ring: Ring, fixed: FixedPoint, **_public: object
) -> NDArray[np.float64]:
    """Sum along the ring, but never take the mask away."""
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
    party: Party, own: NDArray[np.float64], *, fixed: FixedPoint, **_public: object
) -> NDArray[np.float64]:
    """Tell everybody, and go on without those that were not heard in time."""
    words = fixed.encode(own)
    await broadcast(party, SumShare(values=words))
    total = words
    for peer in party.peers:
        try:
            async with asyncio.timeout(1.0):
                total = total + (await party.receive(SumShare, sender=peer)).values
        except (TimeoutError, VeilringError):
            continue
    return fixed.decode(total)


async def counts_duplicates(
    party: Party, own: NDArray[np.float64], *, fixed: FixedPoint, method: SumMethod, ring: Ring
) -> NDArray[np.float64]:
    """Send a value to everyone, again after a slow answer, and count every value received."""
    del method, ring
    words = fixed.encode(own)
    await broadcast(party, SumShare(values=words))
    heard = {peer: asyncio.create_task(_hear(party, peer)) for peer in party.peers}
    try:
        _, slow = await asyncio.wait(heard.values(), timeout=0.5)
        if slow:
            await broadcast(party, SumShare(values=words))
        total = words
        for task in heard.values():
            total = total + await task
    finally:
        for task in heard.values():
            task.cancel()
    return fixed.decode(total)


async def _hear(party: Party, peer: str) -> NDArray[np.uint64]:
    total = (await party.receive(SumShare, sender=peer)).values
    try:
        async with asyncio.timeout(1.0):
            while True:
                total = total + (await party.receive(SumShare, sender=peer)).values
    except TimeoutError:
        return total
