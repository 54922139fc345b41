"""The hash family's distribution, by enumeration of all functions, and the counting of support."""

from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.generators import seeded

from veilring.protocols.ldp.algorithm.oracles import HashFamily

FUNCTIONS = np.indices((256, 256)).reshape(2, -1).astype(np.uint8)


def reference(family: HashFamily, a: int, b: int, value: int) -> int:
    """Return a bucket by the definition, in integers."""
    word = (a * value + b) % 2**family.word_bits
    high: int = word >> (family.word_bits - family.high_bits)
    return high * family.buckets >> family.high_bits


@pytest.mark.parametrize(("domain", "buckets"), [(2, 2), (4, 3), (5, 4), (8, 5), (16, 7)])
def test_two_values_are_hashed_independently(domain: int, buckets: int) -> None:
    """Over all functions on 8-bit words, each pair of values has the exact product distribution."""
    family = HashFamily(domain, buckets, word_bits=8)
    a, b = FUNCTIONS
    hashed = [family.bucket(a, b, np.array(value)) for value in range(domain)]
    alone = np.bincount(hashed[0], minlength=buckets)
    for one in range(domain):
        for other in range(one):
            joint = np.bincount(buckets * hashed[one] + hashed[other], minlength=buckets**2)
            # 2^16 functions: a product of two probabilities, each a multiple of 2^-16.
            assert (joint * 2**16 == np.outer(alone, alone).reshape(-1)).all()
            shared = int((hashed[one] == hashed[other]).sum())
            assert family.collision == Fraction(shared, 2**16)


@pytest.mark.parametrize("word_bits", [8, 16, 32])
@pytest.mark.parametrize(("domain", "buckets"), [(2, 2), (6, 3), (100, 4), (100, 56), (16, 255)])
def test_support_is_counted_by_definition(domain: int, buckets: int, word_bits: int) -> None:
    """A value's sum grows by the number of functions that map it to their given bucket."""
    family, rng = HashFamily(domain, buckets, word_bits), seeded("support", domain, word_bits)
    a, b = rng.integers(2**word_bits, size=(2, 50), dtype=np.uint64).astype(family.word)
    said = rng.integers(buckets, size=50)
    sums = np.ones(domain, dtype=np.int64)
    family.add_supported(sums, a, b, said)
    defined = [
        [reference(family, int(x), int(y), value) for x, y in zip(a, b, strict=True)]
        for value in range(domain)
    ]
    assert (sums - 1 == (np.array(defined) == said).sum(axis=1)).all()
    for value in range(min(domain, 20)):
        assert family.bucket(a, b, np.array(value)).tolist() == defined[value]


def test_the_hash_is_the_same_on_every_machine() -> None:
    """A few hashes equal values computed by hand from the definition."""
    family = HashFamily(1000, 4)
    assert family.high_bits == 23
    a = np.array([1, 2**31 + 1, 0xDEADBEEF], dtype=np.uint32)
    b = np.array([2**30, 5, 0x12345678], dtype=np.uint32)
    # 4 buckets are the two highest bits: of 2^30 + 999, 2^31 + 8, and 0x0C76C45B.
    assert family.bucket(a, b, np.array([999, 3, 77])).tolist() == [1, 2, 0]
