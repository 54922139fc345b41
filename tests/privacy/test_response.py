"""Randomised response: its distribution by enumeration, and a loss within the budget."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.generators import GENERATORS, follows, scripted, seeded

from veilring.errors import InputError
from veilring.privacy.exact import exp_floor, loss
from veilring.privacy.selection import ResponseDistribution, randomised_response


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 9), st.data())
def test_each_report_has_exactly_its_weight(
    domain: int, other: int, more: int, data: st.DataObject
) -> None:
    """Over all draws, the true value is reported `own` times and each other `other` times."""
    distribution = ResponseDistribution(domain, other + more, other)
    value = data.draw(st.integers(0, domain - 1))
    rng = scripted(np.arange(distribution.total))
    reports = randomised_response(np.full(distribution.total, value), distribution, rng)
    expected = [distribution.own if x == value else distribution.other for x in range(domain)]
    assert np.bincount(reports, minlength=domain).tolist() == expected


@given(st.floats(0.001, 40), st.integers(2, 2**20))
def test_a_distribution_spends_at_most_its_budget(epsilon: float, domain: int) -> None:
    """The exact loss is at most epsilon, and close to it with 63 bits."""
    distribution = ResponseDistribution.spending(epsilon, domain)
    assert Fraction(distribution.own, distribution.other) <= exp_floor(epsilon)
    assert distribution.epsilon <= epsilon
    # `own` has at least 63 - 1 - log2(domain) - 1 bits.
    assert epsilon - distribution.epsilon <= domain * 2.0**-60 + 1e-15 * epsilon
    assert distribution.p + (domain - 1) * distribution.q == 1
    assert distribution.total <= 2**63


@given(st.integers(2, 6), st.floats(0.1, 5))
def test_the_loss_of_any_two_values_is_the_one_reported(domain: int, epsilon: float) -> None:
    """The distributions of any two values, as fractions, have the loss `distribution.epsilon`."""
    distribution = ResponseDistribution.spending(epsilon, domain)
    one, other = (
        [distribution.p if x == value else distribution.q for x in range(domain)]
        for value in (0, 1)
    )
    assert loss(one, other) == distribution.epsilon


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
def test_reports_follow_their_distribution(generator: Callable[[], np.random.Generator]) -> None:
    """Reports of two values, in a two-dimensional array, pass a G-test."""
    distribution = ResponseDistribution.spending(1.3, 12)
    values = np.tile(np.array([0, 7], dtype=np.uint8), (100_000, 1))
    reports = randomised_response(values, distribution, generator())
    for column, value in enumerate((0, 7)):
        expected = np.full(12, float(distribution.q))
        expected[value] = float(distribution.p)
        assert follows(np.bincount(reports[:, column], minlength=12), expected, tests=4)


def test_two_values_are_warners_coin() -> None:
    """With two values the true one is reported with probability e**epsilon / (1 + e**epsilon)."""
    distribution = ResponseDistribution.spending(math.log(3), 2)
    assert float(distribution.p) == pytest.approx(0.75, rel=1e-15)


def test_an_invalid_distribution_is_refused() -> None:
    """Domains of one value, weights that favour lies, totals beyond 63 bits, and bad budgets."""
    for fields in ((1, 1, 1), (3, 1, 2), (3, 1, 0), (3, 2**63, 1)):
        with pytest.raises(InputError, match=r"domain|other"):
            ResponseDistribution(*fields)
    for epsilon in (0.0, -1.0, math.inf, math.nan, 41.0):
        with pytest.raises(InputError, match="epsilon"):
            ResponseDistribution.spending(epsilon, 4)
    with pytest.raises(InputError, match="domain"):
        ResponseDistribution.spending(1.0, 1)
    with pytest.raises(InputError, match="domain"):
        ResponseDistribution.spending(1.0, 2**63)


def test_a_tiny_budget_gives_equal_weights() -> None:
    """Weights are equal if the exponential of the budget equals 1 in floats."""
    distribution = ResponseDistribution.spending(1e-300, 4)
    assert (distribution.own, distribution.epsilon) == (distribution.other, 0.0)


def test_the_largest_domain_has_63_bits() -> None:
    """With weights of 1, a domain may have 2**63 values, and no more."""
    assert ResponseDistribution.spending(1e-300, 2**63).total == 2**63
    with pytest.raises(InputError, match="domain"):
        ResponseDistribution.spending(1e-300, 2**63 + 1)


def test_values_outside_the_domain_are_refused_unseen() -> None:
    """A value outside the domain is refused, and the error does not show it."""
    distribution = ResponseDistribution(4, 3, 1)
    for value in (-77, 4, 77):
        with pytest.raises(InputError, match="values must be from 0 to") as refusal:
            randomised_response(np.array([0, value]), distribution, seeded())
        assert "77" not in str(refusal.value)
