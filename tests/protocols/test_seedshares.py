"""Shamir's sharing of seeds, by enumeration in a tiny field, and the hash tree over shares."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from typing_extensions import override

from veilring.protocols.digests import digest_of
from veilring.protocols.seedshares import (
    PRIME,
    SEED_BYTES,
    Branch,
    HeldShares,
    draw_seed,
    hash_tree,
    join_shares,
    leaf_place,
    seed_bytes,
    share_seed,
    siblings_above,
    tree_depth,
)


class Chosen(Generator):
    """A source of given draws, for enumeration."""

    def __init__(self, drawn: Sequence[int]) -> None:
        super().__init__(np.random.PCG64())
        self._drawn = iter(drawn)

    @override
    def bytes(self, length: int) -> bytes:
        return next(self._drawn).to_bytes(length)


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_fewer_shares_have_the_same_distribution_for_each_seed(threshold: int) -> None:
    """Over all polynomials of five elements, t - 1 of four parties' shares are uniform."""
    for few in combinations(range(4), threshold - 1):
        for seed in range(5):
            distributions = Counter(
                tuple(share_seed(seed, threshold, 4, Chosen(drawn), prime=5)[i] for i in few)
                for drawn in product(range(5), repeat=threshold - 1)
            )
            assert distributions == Counter(product(range(5), repeat=threshold - 1))


@given(
    seeds=st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=3),
    parties=st.integers(1, 12),
    data=st.data(),
)
def test_any_t_shares_give_the_seeds(seeds: list[int], parties: int, data: st.DataObject) -> None:
    """Shares of any t parties, in any order, reconstruct the seeds in the field of X25519."""
    threshold = data.draw(st.integers(1, parties))
    rng = np.random.default_rng(parties)
    shares = [share_seed(seed, threshold, parties, rng) for seed in seeds]
    tellers = data.draw(st.permutations(range(parties)))[:threshold]
    told = {teller: [of_one[teller] for of_one in shares] for teller in tellers}
    assert join_shares(told) == seeds


def test_seeds_are_elements_of_the_field() -> None:
    """Draws are reduced, and fit the bytes of a key."""
    assert draw_seed(Chosen([PRIME + 5])) == 5
    assert draw_seed(Chosen([2**384 - 1])) == (2**384 - 1) % PRIME
    assert seed_bytes(PRIME - 1) == (PRIME - 1).to_bytes(SEED_BYTES, "little")


@pytest.mark.parametrize("parties", [1, 2, 3, 5, 8, 13])
def test_every_share_leads_to_the_root(parties: int) -> None:
    """It does so only at its own position; another share leads to another root."""
    shares = [list(range(10, 10 + parties)), list(range(50, 50 + parties))]
    levels = hash_tree(shares)
    (root,) = levels[-1]
    assert len(levels) == tree_depth(parties) + 1
    for holder, seed in product(range(parties), range(2)):
        pair = (seed_bytes(shares[0][holder]), seed_bytes(shares[1][holder]))
        branch = HeldShares(pair, siblings_above(levels, holder)).branch(seed)
        places = [leaf_place(other, kind) for other in range(parties) for kind in range(2)]
        right = [place for place in places if branch.root(place) == root]
        assert right == [leaf_place(holder, seed)]
        assert branch._replace(share=seed_bytes(99)).root(right[0]) != root


def test_a_disclosed_share_does_not_reveal_the_other() -> None:
    """It is accompanied only by the hash of the other."""
    held = HeldShares((b"one" * 10, b"two" * 10), (b"above",))
    assert held.branch(0) == Branch(b"one" * 10, (digest_of(b"two" * 10), b"above"))
    assert held.branch(1) == Branch(b"two" * 10, (digest_of(b"one" * 10), b"above"))
