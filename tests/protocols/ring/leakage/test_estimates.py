"""The ingredients of leakage estimates: the values of trials, and intervals."""

import numpy as np
import pytest
from scipy import stats
from tests.protocols.ring.leakage.cases import FALSE_ALARM, rng

from veilring.errors import InputError
from veilring.protocols.ring.leakage import proportion_interval, uniform_values


def test_uniform_values_are_order_statistics() -> None:
    """The j-th smallest of N uniforms is Beta(j, N - j + 1), and ratios are right (alarm 1e-6)."""
    values = uniform_values(20_000, 2, 4, 7, rng(11), upper=5.0) / 5.0
    assert (np.diff(values, axis=2) >= 0).all()
    assert (values <= 1).all()
    for j in range(1, 5):
        cdf = stats.beta(j, 7 - j + 1).cdf
        assert stats.kstest(values[:, :, j - 1].ravel(), cdf).pvalue > FALSE_ALARM / 5
    ratio = values[:, :, 0] / values[:, :, 3]
    assert stats.kstest(ratio.ravel(), stats.beta(1, 3).cdf).pvalue > FALSE_ALARM / 5


def test_uniform_values_of_few_rows_are_padded() -> None:
    """A party with fewer than k rows is padded with +inf, even without any rows."""
    assert (np.isfinite(uniform_values(3, 2, 4, 1, rng())).sum(axis=2) == 1).all()
    assert np.isinf(uniform_values(3, 2, 4, 0, rng())).all()


@pytest.mark.parametrize(
    ("field", "sizes"),
    [
        ("trials", (0, 1, 1, 1)),
        ("parties", (1, 0, 1, 1)),
        ("k", (1, 1, 0, 1)),
        ("rows_per_party", (1, 1, 1, -1)),
    ],
)
def test_uniform_values_refuse_invalid_sizes(field: str, sizes: tuple[int, int, int, int]) -> None:
    """An invalid size is refused by name."""
    with pytest.raises(InputError) as caught:
        uniform_values(*sizes, rng())
    assert caught.value.field == field
    with pytest.raises(InputError, match="upper is 0"):
        uniform_values(1, 1, 1, 1, rng(), upper=0.0)


def test_a_zero_proportion_has_its_exact_interval() -> None:
    """No event in T trials allows up to 1 - 0.005^(1/T); an interval contains its proportion."""
    assert proportion_interval(0.0, 500) == pytest.approx((0.0, 1 - 0.005 ** (1 / 500)))
    low, high = proportion_interval(0.25, 1000, confidence=0.9)
    assert 0.22 < low < 0.25 < high < 0.28


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("proportion", (1.1, 5, 0.9)), ("trials", (0.5, 0, 0.9)), ("confidence", (0.5, 5, 1.0))],
)
def test_an_interval_out_of_range_is_refused(
    field: str, arguments: tuple[float, int, float]
) -> None:
    """Arguments outside their ranges are refused by name."""
    with pytest.raises(InputError) as caught:
        proportion_interval(*arguments)
    assert caught.value.field == field
