"""Coins, and noise of every kind: distributions, exact paths, losses and sums of shares."""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import FALSE_ALARM, GENERATORS, follows, scripted, seeded, spelling

from veilring.arrays import Floats, Ints
from veilring.privacy import divisible
from veilring.privacy.draws import Scale, bernoulli, bernoulli_exp, geometric, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_ceil, exp_floor
from veilring.privacy.noise import (
    discrete_gaussian,
    discrete_gaussian_pmf,
    discrete_laplace,
    discrete_laplace_kurtosis,
    discrete_laplace_pmf,
    discrete_laplace_tail,
    discrete_laplace_variance,
)


@given(st.integers(0, 2**8))
def test_a_coin_shows_heads_for_its_numerator_of_all_bits(numerator: int) -> None:
    """Over all 256 values of its eight bits, a single or packed coin has `numerator` heads."""
    p, values = Dyadic(numerator, 8), np.arange(256, dtype=np.uint8)
    assert bernoulli(p, 256, scripted(values)).sum() == numerator
    bits = np.unpackbits(values[:, None], axis=1)
    slices = [np.packbits(bits[:, place]).view(np.uint64) for place in range(8)]
    assert np.unpackbits(packed_bernoulli(p, 32, 8, scripted(*slices))).sum() == numerator


COINS = [Dyadic(n, bits) for n, bits in ((1, 1), (3, 8), (3, 10), (17626, 16), (2**33 - 7, 37))]
COINS.append(Dyadic.ceil(0.2689414213699951, 64))


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("p", COINS, ids=str)
def test_coins_have_their_rate(p: Dyadic, generator: Callable[[], np.random.Generator]) -> None:
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
        assert follows(heads, np.full(16, 1 / 16), tests=2)


def test_neighbouring_packed_coins_are_independent() -> None:
    """The count of pairs that both show heads passes an exact binomial test, at any distance."""
    p = Dyadic(700, 11)
    coins = np.unpackbits(packed_bernoulli(p, 600_000, 2, seeded("pairs")), axis=1)[:, :2]
    words = np.unpackbits(packed_bernoulli(p, 1, 64 * 20_000, seeded("words"))).reshape(-1, 64)
    below = np.stack([words[:-1, 5], words[1:, 5]], 1)
    for pair in (coins, words[:, [0, 1]], words[:, [0, 63]], below):
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
TWO_SIDED = {
    "Laplace": (discrete_laplace, discrete_laplace_pmf),
    "Gaussian": (discrete_gaussian, discrete_gaussian_pmf),
}
POLYA: tuple[tuple[float | Fraction, float | Fraction], ...] = (
    (Fraction(1, 1000), 40),
    (Fraction(1, 3), Fraction(7, 3)),
    (0.5, 300),
    (Fraction(9, 10), 0.4),
    (1, 7.3),
)
Draw = Callable[[np.random.Generator], Ints]


def _distributions() -> Iterator[tuple[str, Draw, Floats, int]]:
    """Yield the name of each distribution, its draws, its probabilities and the least number."""
    for name, (draw, pmf) in TWO_SIDED.items():
        for scale in (0.2, Fraction(1, 3), 1, 7.3, 40):
            reach = math.ceil(40 * scale) + 10
            expected = pmf(np.arange(-reach, reach + 1), scale)
            assert sum(expected) == pytest.approx(1, abs=1e-12)
            yield f"{name} {scale}", partial(draw, scale, DRAWS), expected, -reach
    for exponent, scale in POLYA:
        expected = divisible.polya_pmf(np.arange(math.ceil(60 * scale)), exponent, scale)
        yield (
            f"Pólya {exponent} {scale}",
            partial(divisible.polya, exponent, scale, DRAWS),
            expected,
            0,
        )
    means: tuple[float | Fraction, ...] = (1, Fraction(7, 3), 4.5, 19, 300.7)
    for mean in means:
        expected = stats.poisson.pmf(np.arange(1000), float(mean))
        yield f"Poisson {mean}", partial(divisible.poisson, mean, DRAWS), expected, 0


LISTED = {name: case for name, *case in _distributions()}


def counted(draws: Ints, reach: int) -> Ints:
    """Return the number of draws of each whole number from `-reach` to `reach`."""
    return np.bincount(draws + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize(("draw", "expected", "least"), LISTED.values(), ids=LISTED)
def test_draws_follow_their_distribution(
    draw: Draw, expected: Floats, least: int, generator: Callable[[], np.random.Generator]
) -> None:
    """200,000 draws pass a G-test against the closed form, with either generator."""
    counts = np.bincount(draw(generator()) - least, minlength=len(expected))
    assert len(counts) == len(expected)
    assert follows(counts, expected, tests=2 * len(LISTED))


@pytest.mark.parametrize("name", TWO_SIDED)
def test_each_draw_can_have_its_own_scale(name: str) -> None:
    """An array of scales gives each column the distribution of its scale."""
    draw, pmf = TWO_SIDED[name]
    scales = np.array([0.5, 3.0, 11.0])
    draws = draw(scales, (60_000, 3), seeded("columns", name))
    for column, scale in enumerate(scales):
        distribution = pmf(np.arange(-500, 501), float(scale))
        assert follows(counted(draws[:, column], 500), distribution, tests=6)


PAIRS = ((Fraction(1, 3), 7), (Fraction(1, 1000), 60), (0.9, 0.3), (0.5, 40), (0.2, 1e-5))
SCALES, MEANS = (0.01, 0.7, 5, Fraction(1000, 7), 2.0**20), (1, Fraction(7, 3), 40.25, 3000)
EXACT: dict[str, tuple[Callable[..., Ints], float]] = {
    **{f"geometric {x}": (partial(geometric, x, 1500), 0.9) for x in SCALES},
    **{f"Pólya {a} {x}": (partial(divisible.polya, a, x, 500), 2.0**60) for a, x in PAIRS},
    **{f"Poisson {x}": (partial(divisible.poisson, x, 300), 1.0) for x in MEANS},
    "Poisson 2**32": (partial(divisible.poisson, 2.0**32, 3), 1.0),
}


@pytest.mark.parametrize("name", EXACT)
def test_floats_decide_exactly(name: str) -> None:
    """The same random bits give the same geometric, Pólya and Poisson draws on the exact path."""
    draw, slack = EXACT[name]
    assert np.array_equal(draw(seeded(name)), draw(seeded(name), slack=slack))


@pytest.mark.parametrize("sigma", [0.3, Fraction(7, 3), np.array([0.5, 20.0, 2.0**30])], ids=str)
def test_gaussian_noise_is_judged_exactly(sigma: Scale, monkeypatch: pytest.MonkeyPatch) -> None:
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


@given(st.floats(0.05, 50))
def test_moments_are_those_of_the_distributions(scale: float) -> None:
    """Closed forms of variances and of the kurtosis are moments of the probabilities."""
    k = np.arange(-3000, 3001)
    laplace, gaussian = discrete_laplace_pmf(k, scale), discrete_gaussian_pmf(k, scale)
    variance = np.sum(k**2 * laplace)
    assert discrete_laplace_variance(scale) == pytest.approx(variance, rel=1e-9)
    kurtosis = np.sum(k**4.0 * laplace) / variance**2
    assert discrete_laplace_kurtosis(scale) == pytest.approx(kurtosis, rel=1e-9)
    assert np.sum(k**2 * gaussian) <= scale**2 * (1 + 1e-9)


@given(st.floats(0.1, 100), st.integers(1, 5))
def test_laplace_noise_loses_at_most_its_claim(scale: float, shift: int) -> None:
    """No outcome is more than e**(shift / scale) times as likely as for a shifted input."""
    reach = math.ceil(300 * scale)
    k = np.arange(-reach, reach + 1)
    ratio = np.log(discrete_laplace_pmf(k, scale)) - np.log(discrete_laplace_pmf(k - shift, scale))
    # Exponents up to 350 and their logarithms err by a few units in their last place, 2**-44.
    assert np.abs(ratio).max() <= shift / scale + 2.0**-41


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("order", [1.1, 1.5, 2.0, 7.3, 32.0])
@pytest.mark.parametrize("shift", [1, 3])
def test_gaussian_noise_loses_at_most_its_claim(sigma: float, order: float, shift: int) -> None:
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


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(1e-3, 4), st.floats(0.02, 500))
def test_probabilities_are_scipys(exponent: float, scale: float) -> None:
    """The distribution is SciPy's negative binomial distribution."""
    k = np.arange(int(20 * scale) + 5)
    known = stats.nbinom.pmf(k, exponent, -math.expm1(-1 / scale))
    seen = known > 1e-200
    assert divisible.polya_pmf(k, exponent, scale)[seen] == pytest.approx(known[seen], rel=1e-10)
    assert divisible.polya_pmf(np.array([-3]), exponent, scale).tolist() == [0.0]


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
@pytest.mark.parametrize("scale", [0.4, 3, 11.5])
def test_shares_add_up_to_discrete_laplace_noise(shares: int, scale: float) -> None:
    """Differences with exponent 1 / m, m of them convolved, are discrete Laplace noise."""
    reach = math.ceil(40 * scale)
    one = divisible.polya_difference_pmf(np.arange(-reach, reach + 1), Fraction(1, shares), scale)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    near = np.arange(-reach // 2, reach // 2 + 1)
    assert total[middle + near] == pytest.approx(discrete_laplace_pmf(near, scale), abs=1e-12)


@pytest.mark.parametrize("exponent", [0.1, Fraction(1, 2), 1, Fraction(5, 3), 4])
@pytest.mark.parametrize("scale", [0.3, 6])
def test_differences_follow_the_convolution(exponent: float | Fraction, scale: float) -> None:
    """The difference's probabilities are NumPy's convolution, and the discrete Laplace's for 1."""
    reach = math.ceil(80 * scale)
    pmf = divisible.polya_pmf(np.arange(reach), exponent, scale)
    apart = np.arange(-reach + 1, reach)
    found = divisible.polya_difference_pmf(apart, exponent, scale)
    assert found == pytest.approx(np.convolve(pmf, pmf[::-1]), abs=1e-14)
    if exponent == 1:
        assert found == pytest.approx(discrete_laplace_pmf(apart, scale), rel=1e-12)


@pytest.mark.parametrize("bits", [40, 52, 53, 54, 85, 117, 150])
def test_a_number_next_to_polyas_threshold_is_decided_correctly(bits: int) -> None:
    """Numbers that differ from P[at least 2] far beyond a float's last bit fall correctly."""
    a, scale = Fraction(1, 2), Fraction(3)
    q = [bound(Fraction(-1, 3)) for bound in (exp_floor, exp_ceil)]
    q_mean = (q[0] + q[1]) / 2
    # 1 - P[0] - P[1], with a square root that is right to 60 digits.
    root = Fraction(math.isqrt(math.floor((1 - q_mean) * 10**120)), 10**60)
    threshold = 1 - root * (1 + a * q_mean)
    for side in (-1, 1):
        number = threshold + side * Fraction(1, 2**bits)
        assert divisible.polya(a, scale, 1, spelling(number)).tolist() == [2 if side < 0 else 1]


def test_the_smallest_number_continues_beyond_the_table() -> None:
    """A number below all table entries is decided by its further bits."""
    drawn = divisible.polya(0.5, 1, 1, spelling(Fraction(1, 2**80)))
    tail = stats.nbinom.sf(drawn[0] - np.array([1, 0]), 0.5, -math.expm1(-1))
    assert tail[0] > 2.0**-80 > tail[1]
    assert drawn[0] > 42


@settings(max_examples=15)
@given(st.floats(divisible.SKELLAM_VARIANCE_MIN, 5000))
def test_skellam_probabilities_are_scipys(variance: float) -> None:
    """The distribution is SciPy's, sums to 1, and has the stated variance."""
    k = np.arange(-math.ceil(12 * math.sqrt(variance)) - 60, 1)
    pmf = divisible.skellam_pmf(k, variance)
    assert pmf == pytest.approx(stats.skellam.pmf(k, variance / 2, variance / 2), abs=1e-12)
    assert 2 * pmf.sum() - pmf[-1] == pytest.approx(1, abs=1e-12)
    assert 2 * np.sum(k**2 * pmf) == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("mean", [2.0**20, divisible.SKELLAM_VARIANCE_MAX / 2])
def test_wide_poisson_draws_follow_their_distribution(mean: float) -> None:
    """Draws of large means pass a G-test in bins of half a standard deviation."""
    edges = np.floor(mean + math.sqrt(mean) * np.arange(-4, 4.25, 0.5))
    counts, _ = np.histogram(divisible.poisson(mean, 50_000, seeded("wide")), edges + 0.5)
    pmf = np.diff(stats.poisson.cdf(edges, mean))
    assert follows(counts, pmf, tests=2)


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_drawn_shares_add_up_exactly(parties: int) -> None:
    """Sums of shares pass a G-test against discrete Laplace noise, and Skellam's variances add."""
    rng, size = seeded("sums", parties), (parties, 100_000)
    laplace = divisible.polya_difference(Fraction(1, parties), 2.5, size, rng).sum(axis=0)
    assert follows(counted(laplace, 200), discrete_laplace_pmf(np.arange(-200, 201), 2.5), tests=6)
    shares = divisible.skellam(Fraction(20, parties), size, rng).sum(axis=0)
    assert follows(counted(shares, 100), divisible.skellam_pmf(np.arange(-100, 101), 20), tests=6)


@pytest.mark.parametrize("mean", [1, 1.5, Fraction(16, 3), 15.9, 100, 2.0**20, 2.0**32])
def test_floats_are_as_exact_as_assumed(mean: float | Fraction) -> None:
    """A float's probability is closer to the exact bounds than the margin for floats."""
    distribution = divisible.PoissonDistribution.of(Fraction(mean))
    step = max(1, distribution.scale // 40)
    x = np.arange(-4 * distribution.scale, 4 * distribution.scale + 1, step)[
        :: 1 + (distribution.scale > 10_000) * 40
    ]
    chances, doubts = distribution.chances(x)
    for place, chance, doubt in zip(x.tolist(), chances.tolist(), doubts.tolist(), strict=True):
        low, high = distribution.bounds(place, 50)
        assert high - low < Fraction(1, 10**30)
        assert abs(Fraction(chance) - low) <= Fraction(doubt) / 2**46


@settings(max_examples=25)
@given(st.floats(1, 400))
def test_no_proposal_is_ever_too_rare(mean: float) -> None:
    """No number is accepted with a probability above 1, and the likeliest with nearly 1."""
    distribution = divisible.PoissonDistribution.of(Fraction(mean))
    reach = 4 * distribution.scale + 20
    chances = [distribution.bounds(x, 40)[1] for x in range(-reach, reach + 1)]
    assert 1 - 1e-5 < max(chances) < 1
    assert min(chances) >= 0
    assert distribution.bounds(-distribution.middle - 1, 40)[1] == 0


@pytest.mark.parametrize("draws", [1, 2, 6])
@pytest.mark.parametrize("scale", [0.02, 0.3, 2.5, 20.0])
def test_a_tail_is_the_rest_of_the_distribution(scale: float, draws: int) -> None:
    """The tail of a sum of draws is 1 less all probabilities up to k, within 1e-12."""
    for k in (0, 1, 5, 37):
        numbers = np.arange(-k, k + 1)
        rest = 1 - divisible.polya_difference_pmf(numbers, draws, scale).sum()
        assert abs(discrete_laplace_tail(k, scale, draws) - rest) < 1e-12


def test_a_tail_of_wide_noise_is_that_of_continuous_noise() -> None:
    """At large scales, one draw and two draws have the tails of Laplace numbers."""
    for scale, draws in ((1e4, 1), (4e9, 2)):
        x = 3.0
        continuous = math.exp(-x) * (1 if draws == 1 else 1 + x / 2)
        found = discrete_laplace_tail(int(x * scale), scale, draws)
        assert found == pytest.approx(continuous, rel=1e-4)


def test_noise_of_no_width_has_no_tail() -> None:
    """At a scale so small that each draw is 0, a sum never exceeds 0."""
    assert discrete_laplace_tail(0, 1e-4, 2) == pytest.approx(0, abs=1e-12)


def test_a_tail_includes_a_further_number() -> None:
    """With the variance of a binomial number, the tail is that of its sum with a draw."""
    people, scale, reach = 400, 5.0, 400
    laplace = discrete_laplace_pmf(np.arange(-reach, reach + 1), scale)
    sums = np.convolve(laplace, stats.binom.pmf(np.arange(people + 1), people, 0.5))
    middle = reach + people // 2
    for k in (0, 7, 30):
        rest = 1 - sums[middle - k : middle + k + 1].sum()
        assert discrete_laplace_tail(k, scale, 1, people / 4) == pytest.approx(rest, abs=1e-3)
