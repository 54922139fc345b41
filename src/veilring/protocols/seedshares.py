"""Shamir's secret sharing of seeds, with shares that can be checked against a commitment.

A seed is an element of the field of 2^255 - 19 elements: as 32 bytes it is a private key of X25519
or a key of masks. Party i of n, from 0, holds the value at i + 1 of a random polynomial of degree t
- 1 whose value at 0 is the seed: t shares reconstruct it, and t - 1 are independent of it.

A dealer shares two seeds and sends all parties the root of one hash tree over all 2n shares. A
wrong share can therefore be detected, and attributed to its dealer or its sender. The tree reveals
only the hashes of other shares, and a share is as hard to guess as a seed.

Source: Shamir, "How to share a secret", CACM 1979; Merkle, CRYPTO 1987, for the tree. (The sharing
in `veilring.protocols.ranksearch.algorithm.shares` is for arrays of small numbers.)
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from numpy.random import Generator

from veilring.protocols.digests import DIGEST_BYTES, digest_of

PRIME: Final = 2**255 - 19
"""The size of the field, a prime."""
SEED_BYTES: Final = 32
SEEDS: Final = 2  # that a dealer shares: one for masks with others, and one for its own
# Of 48 bytes modulo the prime, no element is more likely than another by a factor of 1 + 2^-128.
_DRAWN_BYTES: Final = 48


def draw_seed(rng: Generator, prime: int = PRIME) -> int:
    """Draw an element of the field."""
    return int.from_bytes(rng.bytes(_DRAWN_BYTES)) % prime


def seed_bytes(seed: int) -> bytes:
    """Return a seed, or a share of one, as a key."""
    return seed.to_bytes(SEED_BYTES, "little")


def share_seed(
    seed: int, threshold: int, parties: int, rng: Generator, *, prime: int = PRIME
) -> list[int]:
    """Share a seed, so that any `threshold` shares reconstruct it and fewer reveal nothing.

    The threshold t is from 1 to n, the number of parties, which is below the prime. Each party gets
    one of the returned shares.
    """
    falling = [draw_seed(rng, prime) for _ in range(threshold - 1)]
    shares = []
    for point in range(1, parties + 1):
        value = 0
        for coefficient in (*falling, seed):
            value = (value * point + coefficient) % prime
        shares.append(value)
    return shares


def weights_at_zero(points: Sequence[int], p: int) -> list[int]:
    """Return the weights of a polynomial's values at points that give its value at 0.

    Points are different numbers from 1 to p - 1, one more than the polynomial's degree.
    """
    weights = []
    for own in points:
        others = [other for other in points if other != own]
        below = math.prod(other - own for other in others)
        weights.append(math.prod(others) * pow(below, -1, p) % p)
    return weights


def join_shares(shares: Mapping[int, Sequence[int]], *, prime: int = PRIME) -> list[int]:
    """Return seeds from enough shares of each, for each sender by its place from 0."""
    weights = weights_at_zero([place + 1 for place in shares], prime)
    return [
        sum(weight * share for weight, share in zip(weights, of_one, strict=True)) % prime
        for of_one in zip(*shares.values(), strict=True)
    ]


class Branch(NamedTuple):
    """A share with the hashes that lead from it to the root of its dealer's tree."""

    share: bytes
    siblings: tuple[bytes, ...]
    """The hashes of the siblings, from the bottom to the top."""

    def root(self, place: int) -> bytes:
        """Return the root of the tree in which this is the leaf at a place."""
        node = digest_of(self.share)
        for sibling in self.siblings:
            node = digest_of(sibling, node) if place % 2 else digest_of(node, sibling)
            place //= 2
        return node


def leaf_place(holder: int, seed: int) -> int:
    """Return the place of a holder's share of the first or the second seed in the tree."""
    return SEEDS * holder + seed


def tree_depth(parties: int) -> int:
    """Return the number of hashes from a leaf to the root."""
    return (SEEDS * parties - 1).bit_length()


def hash_tree(shares: Sequence[Sequence[int]]) -> list[list[bytes]]:
    """Return the levels of the hash tree over shares, from the leaves to the root."""
    leaves = [digest_of(seed_bytes(share)) for pair in zip(*shares, strict=True) for share in pair]
    leaves += [bytes(DIGEST_BYTES)] * (2 ** tree_depth(len(shares[0])) - len(leaves))
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        level = [digest_of(*below[place : place + 2]) for place in range(0, len(below), 2)]
        levels.append(level)
    return levels


def siblings_above(levels: Sequence[Sequence[bytes]], holder: int) -> tuple[bytes, ...]:
    """Return the hashes on the path from a holder's pair of leaves to the root."""
    place, siblings = holder, []
    for level in levels[1:-1]:
        siblings.append(level[place ^ 1])
        place //= 2
    return tuple(siblings)


class HeldShares(NamedTuple):
    """A holder's shares of a dealer's two seeds, with the proof that they are right."""

    shares: tuple[bytes, bytes]
    above: tuple[bytes, ...]
    """The hashes on the path from the pair to the root."""

    def branch(self, seed: int) -> Branch:
        """Return one of the shares in the form in which it is revealed, without the other."""
        return Branch(self.shares[seed], (digest_of(self.shares[1 - seed]), *self.above))
