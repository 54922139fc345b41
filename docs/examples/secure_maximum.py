"""Secure maximum of the parties' numbers, found bit by bit from counts under masks."""

import asyncio
from collections.abc import Mapping
from typing import Final

import numpy as np

from veilring import MaskedSums, Message, Party, agree_keys, broadcast
from veilring.testing import RoleClaims
from veilring.testing.exploring import explore

BITS: Final = 8
FEW_BITS: Final = 3
"""The number of bits in an audit, whose runs take one round for each bit."""


async def secure_maximum(party: Party, own: int, *, bits: int = BITS) -> int:
    """Find the greatest number below 2**bits; all learn how many numbers share its prefixes."""
    sums, found = MaskedSums(party, await agree_keys(party)), 0
    for bit in reversed(range(bits)):
        candidate = found | 1 << bit
        begins_so = own >> bit == candidate >> bit
        (total,) = await sums.add([np.array([begins_so], np.uint32)])
        found = candidate if total[0] else found
    return found


class Number(Message, kind="maximum.number"):
    """A number that all parties may know."""

    number: int


async def hasty_maximum(party: Party, own: int) -> int:
    """Broadcast the number, and ignore parties that send nothing within a second."""
    party.round(1)
    await broadcast(party, Number(number=own))
    found = own
    for peer in party.peers:
        try:
            async with asyncio.timeout(1.0):
                found = max(found, (await party.receive(Number, sender=peer)).number)
        except TimeoutError:
            continue
    return found


def is_greatest(inputs: Mapping[str, int], results: Mapping[str, int]) -> None:
    """Require the greatest number of the parties that took part."""
    for party, found in results.items():
        assert found == max(inputs.values()), f"{party} found {found}"  # noqa: S101  (how a test speaks)


def count_candidates(inputs: Mapping[str, int]) -> list[int]:
    """Return everything that the protocol reveals: for each bit, how many numbers match."""
    counts, found = [], 0
    for bit in reversed(range(FEW_BITS)):
        candidate = found | 1 << bit
        counts.append(sum(own >> bit == candidate >> bit for own in inputs.values()))
        found = candidate if counts[-1] else found
    return counts


ONLY_THE_MAXIMUM: Final = RoleClaims(
    secure_maximum,
    {"ada": 3, "ben": 1, "cy": 4},
    is_greatest,
    other_inputs={"ada": 3, "ben": 4, "cy": 4},
    coalition=("ada",),
    permitted=lambda inputs: max(inputs.values()),
    least=3,
    title="secure maximum, which claims to reveal the maximum only",
    bits=FEW_BITS,
)
THE_COUNTS_TOO: Final = ONLY_THE_MAXIMUM.replaced(
    other_inputs={"ada": 3, "ben": 4, "cy": 1},
    permitted=count_candidates,
    title="secure maximum, which states the counts that it reveals",
)

HASTY: Final = RoleClaims(hasty_maximum, {"ada": 3, "ben": 1, "cy": 4, "dee": 1}, is_greatest)


def main() -> None:
    """Explore both, and print the smallest world in which the second one fails."""
    campaign = explore(secure_maximum, [3, 1, 4, 1], invariant=is_greatest, seeds=50, least=3)
    ended = f"{campaign.succeeded} runs with a result, {campaign.failed} with a named error"
    print("secure_maximum:", len(campaign.failures), "of", campaign.seeds, "worlds went wrong;")
    print("   ", ended)
    hasty = explore(hasty_maximum, [3, 1, 4, 1], invariant=is_greatest, seeds=50)
    print("hasty_maximum:", len(hasty.failures), "of", hasty.seeds, "worlds went wrong")
    print("   ", hasty.smallest())


if __name__ == "__main__":
    main()
