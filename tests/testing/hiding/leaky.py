"""A sum under pairwise masks in a few lines, and broken variants."""

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.nodes.party import Party, broadcast
from veilring.transport.messages import Array, Message

Words = NDArray[np.uint64]
WordArray = Annotated[NDArray[np.uint64], Array("<u8", 1)]
PARTIES = ("ada", "ben", "cy")


class Part(Message, kind="test.hidden-part"):
    """A mask or a masked number, possibly followed by further bytes."""

    values: WordArray
    rest: Annotated[bytes, Field(max_length=1 << 10)] = b""


def draw(party: Party, entries: int) -> Words:
    """Return fresh masks."""
    return party.rng.integers(0, 1 << 64, entries, np.uint64)


async def swap_masks(party: Party, entries: int) -> dict[str, Words]:
    """Send a mask to each peer, and return each peer's mask minus the own one."""
    masks = {}
    for peer in party.peers:
        masks[peer] = draw(party, entries)
        await party.send(peer, Part(values=masks[peer]))
    for peer in party.peers:
        masks[peer] = (await party.receive(Part, sender=peer)).values - masks[peer]
    return masks


async def masked(party: Party, own: Words, entries: int | None = None) -> Words:
    """Return words under fresh masks of all pairs, of which further entries repeat the first."""
    masks = await swap_masks(party, len(own) if entries is None else entries)
    return own + sum(masks.values(), np.zeros_like(own))


async def add_up(party: Party, masked: Words, rest: bytes = b"") -> Words:
    """Send the masked words to all, and return the total."""
    await broadcast(party, Part(values=masked, rest=rest))
    total = masked.copy()
    for peer in party.peers:
        total += (await party.receive(Part, sender=peer)).values
    return total


async def honest_sum(party: Party, own: Words) -> Words:
    """Add up words, revealing only the total."""
    return await add_up(party, await masked(party, own))


async def reused_mask(party: Party, own: Words) -> Words:
    """Mask both entries with the same words."""
    return await add_up(party, await masked(party, own, entries=1))


async def reused_later(party: Party, own: Words) -> Words:
    """Add up the entries one after another under the same masks."""
    added = await masked(party, np.zeros(1, np.uint64))
    return np.concatenate([await add_up(party, own[[at]] + added) for at in range(len(own))])


async def constant_mask(party: Party, own: Words) -> Words:
    """Draw masks from a generator that always starts equally."""
    masks = {}
    for peer in party.peers:
        bits = np.random.default_rng([ord(name[0]) for name in sorted((party.me, peer))])
        mask = bits.integers(0, 1 << 64, len(own), np.uint64)
        masks[peer] = mask if party.me < peer else -mask
    return await add_up(party, own + sum(masks.values(), np.zeros_like(own)))


async def unmasked_low_bits(party: Party, own: Words) -> Words:
    """Mask all except the lowest eight bits."""
    added = await masked(party, np.zeros_like(own))
    return await add_up(party, own + (added << np.uint64(8)))


async def order_leak(party: Party, own: Words) -> Words:
    """Send the masked entries in the order of their hidden values."""
    words = await masked(party, own)
    await broadcast(party, Part(values=np.argsort(own).astype(np.uint64)))
    for peer in party.peers:
        await party.receive(Part, sender=peer)
    return await add_up(party, words)


async def size_leak(party: Party, own: Words) -> Words:
    """Add a number of bytes given by the first entry."""
    return await add_up(party, await masked(party, own), rest=bytes(int(own[0])))


async def late_leak(party: Party, own: Words) -> Words:
    """Sleep before sending, longer for a larger number."""
    words = await masked(party, own)
    await asyncio.sleep(float(own[0]))
    return await add_up(party, words)


async def one_share(party: Party, own: Words) -> Words:
    """Give each peer a separate mask to remove, so that its view is unmasked."""
    first = party.parties[0]
    masks = await swap_masks(party, len(own))
    added = masks.get(first, sum(masks.values(), np.zeros_like(own)))
    return await add_up(party, own + added)


def total(inputs: Mapping[str, Any]) -> Words:
    """Return the allowed leakage of a sum."""
    return np.asarray(sum(inputs.values()))


async def veto(party: Party, own: bool) -> bool:
    """Return whether any party objects: whether the total of random numbers is not zero."""
    numbers = draw(party, 1) if own else np.zeros(1, np.uint64)
    return bool((await honest_sum(party, numbers))[0])


MODULUS = (1 << 31) - 1


async def two_holders(party: Party, own: Words) -> None:
    """Deal additive shares of the own number to the first two parties only."""
    holders = party.parties[:2]
    if party.me not in holders:
        first = party.rng.integers(0, MODULUS, len(own), np.uint64)
        shares = (first, (own + np.uint64(MODULUS) - first) % np.uint64(MODULUS))
        for holder, share in zip(holders, shares, strict=True):
            await party.send(holder, Part(values=share))
        return
    for peer in party.parties[2:]:
        await party.receive(Part, sender=peer)


async def many_messages(party: Party, own: Words, *, number: int) -> None:
    """Send as many messages as given, the last of which is the own number."""
    for turn in range(number):
        values = own if turn == number - 1 else draw(party, len(own))
        await broadcast(party, Part(values=values))
    for peer in party.peers:
        for _ in range(number):
            await party.receive(Part, sender=peer)


async def multiplied(party: Party, own: int) -> None:
    """Send the own number times a random one, and the square of that, modulo a prime."""
    first = party.parties[0]
    if party.me == first:
        for peer in party.peers:
            for _ in range(2):
                await party.receive(Part, sender=peer)
        return
    factor = int(party.rng.integers(1, MODULUS))
    for number in (own * factor % MODULUS, factor * factor % MODULUS):
        await party.send(first, Part(values=np.array([number], np.uint64)))


async def hashed(party: Party, own: int, *, is_keyed: bool = False) -> None:
    """Send a hash of the own number and the public session, or one under a secret key."""
    await broadcast(party, Part(values=np.zeros(0, np.uint64), rest=_token(party, own, is_keyed)))
    for peer in party.peers:
        await party.receive(Part, sender=peer)


def _token(party: Party, own: int, is_keyed: bool) -> bytes:
    item = str(own).encode()
    if is_keyed:
        return hmac.digest(party.rng.bytes(16), party.session + item, "sha256")
    return hashlib.sha256(party.session + item).digest()
