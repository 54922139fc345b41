"""Coins: exact by enumeration of all their bits, and statistically correct."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import FALSE_ALARM, GENERATORS, follows, scripted, seeded

from veilring.privacy.draws import bernoulli, packed_bernoulli
from veilring.privacy.exact import Dyadic


@given(st.integers(1, 2**8 - 1))
def test_a_coin_shows_heads_for_its_numerator_of_all_bits(numerator: int) -> None:
    """Over all 256 values of the bits, exactly `numerator` give heads."""
    rng = scripted(np.arange(256, dtype=np.uint8))
    assert bernoulli(Dyadic(numerator, 8), 256, rng).sum() == numerator


@given(st.integers(0, 2**8))
def test_a_packed_coin_shows_heads_for_its_numerator_of_all_bits(numerator: int) -> None:
    """Over all 256 values of their eight bits, exactly `numerator` packed coins give heads."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    slices = [np.packbits(bits[:, place]).view(np.uint64) for place in range(8)]
    packed = packed_bernoulli(Dyadic(numerator, 8), 32, 8, scripted(*slices))
    assert np.unpackbits(packed).sum() == numerator


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize(
    "p",
    [Dyadic(1, 1), Dyadic(3, 8), Dyadic(3, 10), Dyadic(17626, 16), Dyadic(2**33 - 7, 37),
     Dyadic.ceil(0.2689414213699951, 64)],
    ids=str,
)  # fmt: skip
def test_coins_are_as_frequent_as_their_probability(
    p: Dyadic, generator: Callable[[], np.random.Generator]
) -> None:
    """Heads in 400,000 single and 400,000 packed coins pass an exact binomial test."""
    rng, trials = generator(), 400_000
    packed = np.unpackbits(packed_bernoulli(p, 400, 1000, rng))
    for heads in (bernoulli(p, trials, rng).sum(), packed.sum()):
        assert stats.binomtest(int(heads), trials, float(p)).pvalue > FALSE_ALARM / 24


def test_rare_heads_are_everywhere() -> None:
    """Heads decided only by the tenth bit or later fall into each part of a row alike."""
    for p in (Dyadic(3, 11), Dyadic(2**9 + 1, 20)):
        packed = packed_bernoulli(p, 1, 64 * 2**15, seeded("everywhere", p.bits))
        heads = np.unpackbits(packed).reshape(16, -1).sum(axis=1)
        pmf = np.full(16, 1 / 16)
        assert follows(heads, pmf, tests=2)


def test_neighbouring_packed_coins_are_independent() -> None:
    """The count of pairs that both show heads passes an exact binomial test, at any distance."""
    p = Dyadic(700, 11)
    coins = np.unpackbits(packed_bernoulli(p, 600_000, 2, seeded("pairs")), axis=1)[:, :2]
    words = np.unpackbits(packed_bernoulli(p, 1, 64 * 20_000, seeded("words"))).reshape(-1, 64)
    for pair in (
        coins,
        words[:, [0, 1]],
        words[:, [0, 63]],
        np.stack([words[:-1, 5], words[1:, 5]], 1),
    ):
        both = int(pair.all(axis=1).sum())
        assert stats.binomtest(both, len(pair), float(p) ** 2).pvalue > FALSE_ALARM / 4


@given(st.integers(0, 5), st.integers(0, 70), st.integers(0, 2**12))
def test_padding_bits_are_zero(rows: int, columns: int, numerator: int) -> None:
    """A row takes the minimum number of bytes, and padding is 0 even if every coin is heads."""
    packed = packed_bernoulli(Dyadic(numerator, 12), rows, columns, seeded(rows, columns))
    assert packed.shape == (rows, -(-columns // 8))
    bits = np.unpackbits(packed, axis=1) if packed.size else np.zeros((rows, columns), np.uint8)
    assert not bits[:, columns:].any()
    if numerator in {0, 2**12}:
        assert (bits[:, :columns] == (numerator > 0)).all()


def test_certain_coins_take_no_randomness() -> None:
    """Probabilities 0 and 1 give constant results and leave the generator unchanged."""
    rng = seeded("certain")
    before = rng.bit_generator.state
    assert bernoulli(Dyadic(4, 2), (2, 3), rng).all()
    assert not bernoulli(Dyadic(0, 64), (2, 3), rng).any()
    assert rng.bit_generator.state == before
