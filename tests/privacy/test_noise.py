"""Coins, discrete Laplace and Gaussian noise: distributions, exact paths and exact losses."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import FALSE_ALARM, GENERATORS, follows, scripted, seeded, spelling

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.privacy.draws import Scale, bernoulli, bernoulli_exp, geometric, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_ceil, exp_floor
from veilring.privacy.noise import (
    discrete_gaussian,
    discrete_gaussian_pmf,
    discrete_gaussian_variance,
    discrete_laplace,
    discrete_laplace_kurtosis,
    discrete_laplace_pmf,
    discrete_laplace_variance,
)


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


DRAWS = 200_000
SCALES = (0.2, Fraction(1, 3), 1, 7.3, 40)
DISTRIBUTIONS = {
    "Laplace": (discrete_laplace, discrete_laplace_pmf),
    "Gaussian": (discrete_gaussian, discrete_gaussian_pmf),
}


def counted(draws: Ints, reach: int) -> Ints:
    """Return the number of draws of each whole number from `-reach` to `reach`."""
    inside = draws[np.abs(draws) <= reach]
    return np.bincount(inside + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_noise_follows_its_distribution(
    name: str, scale: float | Fraction, generator: Callable[[], np.random.Generator]
) -> None:
    """200,000 draws pass a G-test against the closed form, with either generator."""
    draw, pmf = DISTRIBUTIONS[name]
    reach = math.ceil(40 * scale) + 10
    draws = draw(scale, DRAWS, generator())
    distribution = pmf(np.arange(-reach, reach + 1), scale)
    assert sum(distribution) == pytest.approx(1, abs=1e-12)
    assert np.abs(draws).max() <= reach
    assert follows(counted(draws, reach), distribution, tests=20)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_draw_can_have_its_own_scale(name: str) -> None:
    """An array of scales gives each column the distribution of its scale."""
    draw, pmf = DISTRIBUTIONS[name]
    scales = np.array([0.5, 3.0, 11.0])
    draws = draw(scales, (60_000, 3), seeded("columns", name))
    for column, scale in enumerate(scales):
        distribution = pmf(np.arange(-500, 501), float(scale))
        assert follows(counted(draws[:, column], 500), distribution, tests=6)


@pytest.mark.parametrize("scale", [0.01, 0.7, 5, Fraction(1000, 7), 2.0**20])
def test_floats_decide_as_exact_numbers_do(scale: float | Fraction) -> None:
    """The same random bits give the same geometric numbers on the exact path."""
    quick = geometric(scale, 1500, seeded("inverse", str(scale)))
    exact = geometric(scale, 1500, seeded("inverse", str(scale)), slack=0.9)
    assert np.array_equal(quick, exact)


@pytest.mark.parametrize("sigma", [0.3, Fraction(7, 3), np.array([0.5, 20.0, 2.0**30])], ids=str)
def test_gaussian_proposals_are_judged_as_exact_numbers_judge_them(
    sigma: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same random bits give the same Gaussian noise on the exact path."""
    quick = discrete_gaussian(sigma, (200, 3), seeded("judged"))
    trusting_none = partial(bernoulli_exp, slack=2.0)
    monkeypatch.setattr("veilring.privacy.noise.bernoulli_exp", trusting_none)
    assert np.array_equal(quick, discrete_gaussian(sigma, (200, 3), seeded("judged")))


def test_doubtful_draws_follow_the_distribution_too() -> None:
    """At a scale of 2**40, where many draws need more than 53 bits, coarse bins pass a G-test."""
    drawn = geometric(2.0**40, 6000, seeded("far")) >> 38
    bins = np.exp(-np.arange(41) / 4)
    assert follows(np.bincount(drawn, minlength=40)[:40], bins[:-1] - bins[1:], tests=2)
    last_bits = np.bincount(geometric(2.0**40, 6000, seeded("near")) & 7, minlength=8)
    # P[G mod 8 = r] is proportional to e**(-r / 2**40): uniform to 11 digits.
    assert follows(last_bits, np.full(8, 1 / 8), tests=2)


def test_coins_of_any_exponent_are_exact() -> None:
    """Coins of e**-gamma agree in floats and exact arithmetic, and are certain for 0."""
    numerators = np.arange(1200, dtype=np.float64) % 60
    unit = Fraction(3, 20)

    def exact(index: int) -> Fraction:
        return int(numerators[index]) * unit

    gamma = numerators * float(unit)
    quick = bernoulli_exp(gamma, exact, seeded("coins"))
    slow = bernoulli_exp(gamma, exact, seeded("coins"), slack=2.0)
    assert np.array_equal(quick, slow)
    assert quick[numerators == 0].all()


@pytest.mark.parametrize("bits", [40, 53, 54, 85, 117, 150])
@pytest.mark.parametrize("gamma", [Fraction(1, 7), Fraction(1), Fraction(50)])
def test_a_number_next_to_its_threshold_is_decided_correctly(gamma: Fraction, bits: int) -> None:
    """Numbers that differ from e**-gamma far beyond a float's last bit are decided correctly."""
    threshold = (exp_floor(-gamma) + exp_ceil(-gamma)) / 2
    for side in (-1, 1):
        number = threshold + side * Fraction(1, 2**bits) * threshold
        coin = bernoulli_exp(np.array([float(gamma)]), lambda _: gamma, spelling(number))
        assert coin.tolist() == [side < 0]
        assert geometric(1 / gamma, 1, spelling(number)).tolist() == [int(side < 0)]


def test_numpy_is_as_exact_as_assumed() -> None:
    """NumPy's `exp` and `log` are accurate to 48 bits, compared with 40-digit values."""
    rng = seeded("numpy")
    powers = np.concatenate([-np.logspace(-17, 2.8, 1500), -60 * rng.random(1500)])
    numbers = np.concatenate([rng.random(1500), 1 - np.logspace(-15.9, -1, 1500)])
    with localcontext(prec=40):
        for x, y in zip(powers.tolist(), np.exp(powers).tolist(), strict=True):
            assert abs(Decimal(y) / Decimal(x).exp() - 1) < 2.0**-48
        for x, y in zip(numbers.tolist(), np.log(numbers).tolist(), strict=True):
            assert abs(Decimal(y) / Decimal(x).ln() - 1) < 2.0**-48


@pytest.mark.parametrize("gamma", [Fraction(1, 7), Fraction(1), Fraction(5, 2)])
def test_coins_of_an_exponent_are_frequent_enough(gamma: Fraction) -> None:
    """A million coins pass a G-test against e**-gamma."""
    heads = bernoulli_exp(np.full(10**6, float(gamma)), lambda _: gamma, seeded(str(gamma)))
    p = math.exp(-gamma)
    assert follows(np.array([heads.sum(), 10**6 - heads.sum()]), np.array([p, 1 - p]), tests=3)


@given(st.floats(0.05, 50))
def test_the_kurtosis_is_that_of_the_distribution(scale: float) -> None:
    """The closed form is the fourth moment of the probabilities, over the variance squared."""
    k = np.arange(-3000.0, 3001)
    fourth = np.sum(k**4 * discrete_laplace_pmf(k.astype(np.int64), scale))
    expected = fourth / discrete_laplace_variance(scale) ** 2
    assert discrete_laplace_kurtosis(scale) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0.05, 50))
def test_variances_are_those_of_the_distributions(scale: float) -> None:
    """The closed forms are the second moments of the probabilities."""
    k = np.arange(-3000, 3001)
    laplace = np.sum(k**2 * discrete_laplace_pmf(k, scale))
    gaussian = np.sum(k**2 * discrete_gaussian_pmf(k, scale))
    assert discrete_laplace_variance(scale) == pytest.approx(laplace, rel=1e-9)
    assert discrete_gaussian_variance(scale) == pytest.approx(gaussian, rel=1e-9)
    assert discrete_gaussian_variance(scale) <= scale**2 * (1 + 1e-12)


@given(st.floats(0.1, 100), st.integers(1, 5))
def test_laplace_noise_loses_no_more_than_it_claims(scale: float, shift: int) -> None:
    """No outcome is more than e**(shift / scale) times as likely as for a shifted input."""
    reach = math.ceil(300 * scale)
    k = np.arange(-reach, reach + 1)
    ratio = np.log(discrete_laplace_pmf(k, scale)) - np.log(discrete_laplace_pmf(k - shift, scale))
    # Exponents up to 350 and their logarithms err by a few units in their last place, 2**-44.
    assert np.abs(ratio).max() <= shift / scale + 2.0**-41


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("order", [1.1, 1.5, 2.0, 7.3, 32.0])
@pytest.mark.parametrize("shift", [1, 3])
def test_gaussian_noise_loses_no_more_than_it_claims(
    sigma: float, order: float, shift: int
) -> None:
    """The Rényi divergence of shifted noise, summed, is at most order * shift² / (2 sigma²)."""
    k = np.arange(-1500, 1501)
    tilted = (order * k**2 - (order - 1) * (k - shift) ** 2) / (2 * sigma**2)
    # Only the difference of exponents matters: the distributions have the same sum.
    least = tilted.min()
    centred = math.log(np.exp(least - tilted).sum()) - least
    mass = math.log(np.exp(-(k**2) / (2 * sigma**2)).sum())
    divergence = (centred - mass) / (order - 1)
    claim = order * shift**2 / (2 * sigma**2)
    assert divergence <= claim * (1 + 1e-12)


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian, geometric])
def test_scales_of_another_shape_are_refused(draw: Callable[..., object]) -> None:
    """The error names the shape of scales that differs from that of the draws."""
    with pytest.raises(InputError, match=r"has the shape \(2,\), which does not fit \(4, 3\)"):
        draw(np.array([1.0, 2.0]), (4, 3), seeded())
