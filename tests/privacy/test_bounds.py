"""Exact numbers and bounds: of honest counts, of probabilities, and of losses that runs prove."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import beta, binom, gamma

from papers import answers
from veilring.privacy import exact
from veilring.privacy.bounds import NEVER_BITS, binomial_range, laplace_sum_max, proportion_bounds
from veilring.privacy.noise import discrete_laplace_pmf

# A bound by Chernoff is looser than the exact tail by less than a factor of 2^8 here.
LOOSE_BITS = 8


@pytest.mark.parametrize(
    ("trials", "chance"),
    [(999, 0.2689), (63, 0.5), (1 << 20, 0.2689), (1 << 20, 1e-9), (1000, 1 - 1e-6), (3, 0.26)],
)
def test_a_count_outside_of_its_range_is_never_seen(trials: int, chance: float) -> None:
    """Each tail outside is at most 2^-64, but would not be for a range shorter by one."""
    low, high = binomial_range(trials, chance)
    assert 0 <= low <= trials * chance <= high <= trials
    above, below = binom.logsf(high, trials, chance), binom.logcdf(low - 1, trials, chance)
    assert max(above, below) <= -NEVER_BITS * math.log(2)
    shorter = max(binom.logsf(high - 1, trials, chance), binom.logcdf(low, trials, chance))
    assert shorter >= -(NEVER_BITS + LOOSE_BITS) * math.log(2)


def test_a_certain_coin_has_one_count() -> None:
    """Without trials, or with probability 0 or 1, there is one count."""
    assert binomial_range(0, 0.3) == (0, 0)
    assert binomial_range(10, 0.0) == (0, 0)
    assert binomial_range(10, 1.0) == (10, 10)


@pytest.mark.parametrize("count", [1, 3, 100, 10_000])
def test_a_sum_of_noise_above_its_bound_is_never_seen(count: int) -> None:
    """The exponential bound on the noise is exceeded with probability at most 2^-64."""
    scale = Fraction(1000)
    sum_max = laplace_sum_max(scale, count)
    tail = gamma.logsf((sum_max - count) / 1000, count) / math.log(2)
    assert -(NEVER_BITS + LOOSE_BITS) <= tail <= -NEVER_BITS


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_noise_is_no_greater_than_an_exponential_number_and_one(scale: float) -> None:
    """Each tail of the absolute value is at most the tail of `1 + E` used by the bound."""
    outcomes = np.arange(1, 60)
    exact = 2 * np.array([discrete_laplace_pmf(np.arange(k, 2000), scale).sum() for k in outcomes])
    assert (exact <= np.exp(-(outcomes - 1) / scale) * (1 + 1e-9)).all()


@pytest.mark.parametrize("runs", [1, 10, 100_000])
@pytest.mark.parametrize("alarm", [2.5e-9, 1e-3, 0.3])
def test_bounds_are_the_ends_of_exact_intervals(runs: int, alarm: float) -> None:
    """The bounds are SciPy's exact intervals, for all counts from none to all."""
    counts = np.unique([0, 1, runs // 3, runs - 1, runs])
    found = proportion_bounds(counts, runs, alarm)
    for count, low, high in zip(counts.tolist(), *found, strict=True):
        exact = stats.binomtest(count, runs).proportion_ci(1 - 2 * alarm, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), rel=1e-6)


RUNS = 10**6


def counts(p: float) -> np.ndarray:
    """Return the expected counts of a coin."""
    return np.array([round(p * RUNS), RUNS - round(p * RUNS)])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_reaches_the_advantage_bound(epsilon: float) -> None:
    """A coin of `e^epsilon / (1 + e^epsilon)` has the greatest advantage that epsilon-DP allows."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    distribution = np.array([[p, 1 - p]])
    assert answers.exact_advantage(distribution, distribution[:, ::-1]) == pytest.approx(
        answers.advantage_bound(epsilon), rel=1e-12
    )


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_a_gaussian_advantage_is_that_of_a_threshold_in_the_middle(mu: float) -> None:
    """The bound of mu-GDP is the advantage of the test that compares an answer with mu / 2."""
    rate = math.erfc(-mu / 2 / math.sqrt(2)) / 2  # that N(mu, 1) exceeds mu / 2
    assert answers.gaussian_advantage_bound(mu) == pytest.approx(rate - (1 - rate), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_an_audit_proves_nearly_the_true_epsilon(epsilon: float) -> None:
    """From the expected counts of a coin, the bound is below its epsilon by at most 0.02.

    Each of eight bounds is Clopper and Pearson's at an eighth of the alarm, so counts without an
    overlap have a finite bound.
    """
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    found = answers.audited_epsilon(counts(p), counts(1 - p))
    assert max(0.0, epsilon - 0.02) <= found <= epsilon
    low, high = beta.ppf(1e-3 / 8, 600, 401), beta.ppf(1 - 1e-3 / 8, 301, 700)
    known = answers.audited_epsilon(np.array([700, 300]), np.array([400, 600]), 1e-3)
    assert known == pytest.approx(math.log(low / high), rel=1e-9)
    certain = np.array([1000, 0])
    assert 4 < answers.audited_epsilon(certain, certain[::-1]) < math.inf


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_an_audit_of_scores_subtracts_delta(delta: float) -> None:
    """A score of 0 or 1 proves ln((p - delta) / q) of two coins, less at most 0.02."""
    p, q = 0.6, 0.2
    present, absent = (np.repeat([1, 0], counts(each)) for each in (p, q))
    proven = answers.audited_epsilon_of_scores(present, absent, 1, delta)
    truth = math.log((p - delta) / q)
    assert truth - 0.02 < proven < truth
    assert answers.audited_epsilon_of_scores(present, absent, 1, delta, alarm=1e-3) > proven


def test_an_audit_of_mu_proves_the_difference_of_quantiles() -> None:
    """Rates of 0.975 and 0.5 differ by 1.96 standard deviations, less at most 0.03."""
    present, absent = (np.repeat([1, 0], counts(each)) for each in (0.975, 0.5))
    assert 1.93 < answers.audited_mu(present, absent, 1) < 1.96
    assert answers.audited_mu(absent, absent, 1) == 0


def test_the_likelier_answers_are_guessed() -> None:
    """Labels that are likelier with the record are taken for it, and rates are subtracted."""
    present, absent = np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([[0.4, 0.6], [0.5, 0.5]])
    guesses = answers.guess_membership(np.array([[0, 1], [1, 0], [0, 0], [1, 1]]), present, absent)
    assert guesses.tolist() == [True, False, True, False]
    assert answers.membership_advantage(np.array([True, True, False, True]), guesses) == 0.25


PROBABILITIES = st.floats(0, 1) | st.fractions(0, 1)
BITS = st.integers(0, 64)


@given(PROBABILITIES, BITS)
def test_a_probability_is_between_its_neighbours(x: float | Fraction, bits: int) -> None:
    """Floor and ceil enclose the exact number, and are one step apart unless it is on the grid.

    A probability and its complement add up to exactly 1.
    """
    below, above = exact.Dyadic.floor(x, bits).fraction, exact.Dyadic.ceil(x, bits).fraction
    step = Fraction(1, 2**bits)
    assert below <= Fraction(x) <= above
    assert above - below == (0 if Fraction(x) % step == 0 else step)
    p = exact.Dyadic.floor(x, bits)
    assert p.fraction + p.complement.fraction == 1
    assert float(p) == float(p.fraction)


RATIOS = st.fractions(1, 10**30, max_denominator=2**70)


def decimals(x: Fraction) -> Decimal:
    """Return a fraction as a decimal in the current context."""
    return Decimal(x.numerator) / Decimal(x.denominator)


@given(RATIOS)
@example(Fraction(1))
@example(Fraction(2))
def test_a_logarithm_is_rounded_only_as_asked(ratio: Fraction) -> None:
    """Both bounds enclose the logarithm at 150 digits, each as one of its two nearest floats."""
    with localcontext(prec=150):
        truth, low, high = decimals(ratio).ln(), exact.log_floor(ratio), exact.log_ceil(ratio)
        assert Decimal(low) <= truth <= Decimal(high)
        below = math.nextafter(math.nextafter(high, -1), -1)
        assert Decimal(below) < truth or high == 0
        above = math.nextafter(math.nextafter(low, math.inf), math.inf)
        assert Decimal(above) > truth or low == 0


@given(st.fractions(-700, 700, max_denominator=2**60) | st.floats(-700, 700))
@example(-exact.EXP_MAX)
@example(exact.EXP_MAX)
def test_exponentials_are_enclosed(x: float | Fraction) -> None:
    """The exact value, at 150 digits, is between two fractions that differ by 1e-50 of it."""
    low, high = exact.exp_floor(x), exact.exp_ceil(x)
    with localcontext(prec=150):
        truth = decimals(Fraction(x)).exp()
        assert decimals(low) <= truth <= decimals(high)
    assert high - low <= low / 10**50


@given(st.floats(0.01, 8), st.integers(8, 64))
def test_optimised_unary_encoding_keeps_its_budget(epsilon: float, bits: int) -> None:
    """With p = 1/2 and q rounded up, the exact loss is at most epsilon, and approaches it."""
    q = exact.Dyadic.ceil(1 / (1 + exact.exp_floor(epsilon)), bits)
    spent = exact.unary_epsilon(exact.Dyadic(1, 1), q)
    assert spent <= epsilon
    assert epsilon - spent <= 2 * (1 + math.exp(epsilon)) * 2.0**-bits + 1e-12


@given(st.integers(1, 2**16 - 1), st.integers(1, 2**16 - 1))
def test_a_unary_encoding_loses_what_its_two_bits_lose(a: int, b: int) -> None:
    """The loss of two bits, as a distribution on four outcomes, equals the closed form."""
    assume(a >= b)
    p, q = Fraction(a, 2**16), Fraction(b, 2**16)
    distribution = [own * other for own in (p, 1 - p) for other in (q, 1 - q)]
    swapped = [own * other for own in (q, 1 - q) for other in (p, 1 - p)]
    assert exact.unary_epsilon(p, q) == exact.loss(distribution, swapped)


def test_two_distributions_have_their_textbook_loss() -> None:
    """Coins of 3/4 and 1/4 have a loss of ln 3, equal coins none, and impossible outcomes all.

    Two weights of 64 bits that differ by 1 have a loss of 2**-64, not 0.
    """
    assert exact.log_ceil(Fraction(2**64, 2**64 - 1)) == pytest.approx(2.0**-64, rel=1e-15)
    assert exact.log_ceil(Fraction(1)) == 0.0
    p, q = exact.Dyadic(3, 2), exact.Dyadic(1, 2)
    assert exact.epsilon_of(p, q) == exact.epsilon_of(q, p) == pytest.approx(math.log(3), rel=1e-15)
    assert exact.epsilon_of(p, Fraction(3, 4)) == 0.0
    assert exact.epsilon_of(exact.Dyadic(1, 1), exact.Dyadic(1, 0)) == math.inf
    assert exact.unary_epsilon(Fraction(1), Fraction(1, 2)) == math.inf
    assert exact.unary_epsilon(Fraction(1, 2), Fraction(0)) == math.inf
    assert exact.loss((Fraction(0), Fraction(1)), (Fraction(0), Fraction(1))) == 0.0
