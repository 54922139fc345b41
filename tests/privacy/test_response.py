"""Randomised response: its law by enumeration, and a loss within the budget."""

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
from veilring.privacy.tables import ResponseLaw, randomised_response


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 9), st.data())
def test_each_report_has_exactly_its_weight(
    domain: int, other: int, more: int, data: st.DataObject
) -> None:
    """Over all draws, the true value is reported `own` times and each other `other` times."""
    law = ResponseLaw(domain, other + more, other)
    value = data.draw(st.integers(0, domain - 1))
    rng = scripted(np.arange(law.total))
    reports = randomised_response(np.full(law.total, value), law, rng)
    expected = [law.own if x == value else law.other for x in range(domain)]
    assert np.bincount(reports, minlength=domain).tolist() == expected


@given(st.floats(0.001, 40), st.integers(2, 2**20))
def test_a_distribution_spends_at_most_its_budget(epsilon: float, domain: int) -> None:
    """The exact loss is at most epsilon, and close to it with 63 bits."""
    law = ResponseLaw.spending(epsilon, domain)
    assert Fraction(law.own, law.other) <= exp_floor(epsilon)
    assert law.epsilon <= epsilon
    # `own` has at least 63 - 1 - log2(domain) - 1 bits.
    assert epsilon - law.epsilon <= domain * 2.0**-60 + 1e-15 * epsilon
    assert law.p + (domain - 1) * law.q == 1
    assert law.total <= 2**63


@given(st.integers(2, 6), st.floats(0.1, 5))
def test_the_loss_of_any_two_values_is_the_one_reported(domain: int, epsilon: float) -> None:
    """The full laws of any two values, as fractions, have the loss `law.epsilon`."""
    law = ResponseLaw.spending(epsilon, domain)
    one, other = ([law.p if x == value else law.q for x in range(domain)] for value in (0, 1))
    assert loss(one, other) == law.epsilon


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
def test_reports_follow_their_distribution(generator: Callable[[], np.random.Generator]) -> None:
    """Reports of two values, in a two-dimensional array, pass a G-test against their laws."""
    law = ResponseLaw.spending(1.3, 12)
    values = np.tile(np.array([0, 7], dtype=np.uint8), (100_000, 1))
    reports = randomised_response(values, law, generator())
    for column, value in enumerate((0, 7)):
        expected = np.full(12, float(law.q))
        expected[value] = float(law.p)
        assert follows(np.bincount(reports[:, column], minlength=12), expected, tests=4)


def test_two_values_are_warners_coin() -> None:
    """With two values the true one is reported with probability e**epsilon / (1 + e**epsilon)."""
    law = ResponseLaw.spending(math.log(3), 2)
    assert float(law.p) == pytest.approx(0.75, rel=1e-15)


def test_an_invalid_distribution_is_refused() -> None:
    """Domains of one value, weights that favour lies, totals beyond 63 bits, and bad budgets."""
    for fields in ((1, 1, 1), (3, 1, 2), (3, 1, 0), (3, 2**63, 1)):
        with pytest.raises(InputError, match=r"domain|other"):
            ResponseLaw(*fields)
    for epsilon in (0.0, -1.0, math.inf, math.nan, 41.0):
        with pytest.raises(InputError, match="epsilon"):
            ResponseLaw.spending(epsilon, 4)
    with pytest.raises(InputError, match="domain"):
        ResponseLaw.spending(1.0, 1)
    with pytest.raises(InputError, match="domain"):
        ResponseLaw.spending(1.0, 2**63)


def test_a_tiny_budget_gives_equal_weights() -> None:
    """Weights are equal if the exponential of the budget equals 1 in floats."""
    law = ResponseLaw.spending(1e-300, 4)
    assert (law.own, law.epsilon) == (law.other, 0.0)


def test_the_largest_domain_has_63_bits() -> None:
    """With weights of 1, a domain may have 2**63 values, and no more."""
    assert ResponseLaw.spending(1e-300, 2**63).total == 2**63
    with pytest.raises(InputError, match="domain"):
        ResponseLaw.spending(1e-300, 2**63 + 1)


def test_values_outside_the_domain_are_refused_unseen() -> None:
    """A value outside the domain is refused, and the error does not show it."""
    law = ResponseLaw(4, 3, 1)
    for value in (-77, 4, 77):
        with pytest.raises(InputError, match="values must be from 0 to") as refusal:
            randomised_response(np.array([0, value]), law, seeded())
        assert "77" not in str(refusal.value)
