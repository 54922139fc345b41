"""The bound on PP-TopK's exactness: closed form, inverse, and Monte Carlo over whole rings."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    exactness_bound,
    rounds_for,
    run_ring,
    true_topk,
)

FALSE_ALARM = 1e-6
TRIALS = 100_000


def error_in_decimals(k: int, P0: float, d: float, rounds: int) -> Decimal:
    """Return 1 - (1 - P0^r d^(r(r-1)/2))^k with 120 digits."""
    with localcontext(prec=120):
        always_noise = Decimal(P0) ** rounds * Decimal(d) ** (rounds * (rounds - 1) // 2)
        return 1 - (1 - always_noise) ** k


@pytest.mark.parametrize(
    ("P0", "d", "rounds", "k"),
    [(1.0, 0.5, 2, 1), (1.0, 0.5, 2, 5), (1.0, 0.5, 4, 3), (0.5, 1.0, 3, 4), (0.9, 0.8, 1, 2)],
)
def test_the_result_is_exact_at_the_stated_rate(P0: float, d: float, rounds: int, k: int) -> None:
    """Over 100,000 rings the bound holds, and with c contributors its formula is exact in c."""
    rng = np.random.default_rng([rounds, k])
    parameters = TopKParameters(k=k, P0=P0, d=d, rounds=rounds, delta=0.05, upper=1.0)
    values = np.sort(rng.random((TRIALS, 4, k)), axis=2)
    truth = true_topk(values, parameters)
    exact = (run_ring(values, parameters, rng) == truth).all(axis=1)
    contributors = (values[:, :, 0] <= truth[:, -1:]).sum(axis=1)
    bound = exactness_bound(k, P0, d, rounds)
    test = stats.binomtest(int(exact.sum()), TRIALS, bound, alternative="less")
    assert test.pvalue > FALSE_ALARM / 2
    for c in np.unique(contributors):
        among = exact[contributors == c]
        bound = exactness_bound(int(c), P0, d, rounds)
        assert stats.binomtest(int(among.sum()), among.size, bound).pvalue > FALSE_ALARM / (2 * k)


def test_one_round_of_pure_noise_gives_a_larger_radius() -> None:
    """With P0 = 1 and one round no result is exact, and no k-th smallest is too small."""
    rng = np.random.default_rng(0)
    parameters = TopKParameters(k=3, P0=1.0, d=0.5, rounds=1, delta=0.05, upper=1.0)
    values = np.sort(rng.random((5_000, 5, 3)), axis=2)
    radius = run_ring(values, parameters, rng)[:, -1]
    assert (radius > true_topk(values, parameters)[:, -1]).all()
    assert exactness_bound(3, 1.0, 0.5, 1) == 0.0


def test_the_bound_has_its_closed_form() -> None:
    """The bound is (1 - P0^r d^(r(r-1)/2))^k."""
    assert exactness_bound(3, 1.0, 0.5, 3) == pytest.approx((1 - 0.5**3) ** 3, rel=1e-14)
    assert exactness_bound(2, 0.5, 1.0, 2) == pytest.approx(0.75**2, rel=1e-14)
    assert exactness_bound(7, 0.0, 0.5, 1) == 1.0
    assert exactness_bound(7, 1.0, 1.0, 50) == 0.0


@given(
    exponent=st.floats(0.01, 60),
    k=st.integers(1, 100),
    P0=st.floats(0.0, 1.0),
    d=st.floats(1e-3, 1.0),
)
def test_rounds_for_returns_the_minimum(exponent: float, k: int, P0: float, d: float) -> None:
    """It gives the least r with at most the accepted error, down to 1e-60."""
    assume(P0 < 0.999 or d < 0.999)
    error = 10.0**-exponent
    rounds = rounds_for(error, k, P0, d)
    slack = Decimal("1e-10")
    assert error_in_decimals(k, P0, d, rounds) <= Decimal(error) * (1 + slack)
    if rounds > 1:
        assert error_in_decimals(k, P0, d, rounds - 1) > Decimal(error) * (1 - slack)


def test_rounds_for_agrees_with_the_papers_numbers() -> None:
    """With P0 = 1 and d = 1/2, an error of 1e-3 at k = 5 needs 6 rounds; honesty needs one."""
    assert rounds_for(1e-3, 5, 1.0, 0.5) == 6
    assert rounds_for(1e-300, 5, 0.0, 0.5) == 1
    assert rounds_for(0.5, 1, 1 - 2**-40, 1.0) == math.ceil(math.log(0.5) / math.log1p(-(2**-40)))


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("d", (0.1, 3, 1.0, 1.0)),
        ("error", (0.0, 3, 1.0, 0.5)),
        ("error", (1.0, 3, 1.0, 0.5)),
        ("error", (math.nan, 3, 1.0, 0.5)),
        ("k", (0.1, 0, 1.0, 0.5)),
        ("P0", (0.1, 3, 2.0, 0.5)),
        ("d", (0.1, 3, 1.0, 0.0)),
    ],
)
def test_rounds_for_refuses_an_unreachable_error(
    field: str, arguments: tuple[float, int, float, float]
) -> None:
    """An unreachable error, or an argument outside its range, is refused by name."""
    with pytest.raises(InputError) as caught:
        rounds_for(*arguments)
    assert caught.value.field == field


def test_the_bound_refuses_no_rounds() -> None:
    """A run without rounds is refused."""
    with pytest.raises(InputError, match="rounds is 0"):
        exactness_bound(1, 1.0, 0.5, 0)
