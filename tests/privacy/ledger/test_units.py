"""Amounts as whole units."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilring.errors import InputError
from veilring.privacy.budgets import AMOUNT_MAX, UNITS, budget_units, from_units, to_units

AMOUNTS = st.floats(0, AMOUNT_MAX, allow_subnormal=False)


@settings(deadline=None)
@given(AMOUNTS)
def test_charges_round_up_and_budgets_down(amount: float) -> None:
    """Each is off by less than a unit in the safe direction, apart from the float's error."""
    exact, error = Fraction(amount) * UNITS, Fraction(amount) * UNITS / 2**49
    charged, budget = int(to_units(amount)), budget_units(amount, field="total")
    assert -error <= charged - exact < 1
    assert -error <= exact - budget < 1


@settings(deadline=None)
@given(st.integers(0, 100 * UNITS))
def test_twelve_decimals_are_exact(units: int) -> None:
    """Decimal numbers up to 100 with up to twelve places convert exactly both ways."""
    amount = float(from_units(units))
    assert amount == float(f"{units // UNITS}.{units % UNITS:012d}")
    assert to_units(amount) == budget_units(amount, field="total") == units


@settings(deadline=None)
@given(st.decimals(0, AMOUNT_MAX, places=6))
def test_large_amounts_are_the_given_numbers(given: Decimal) -> None:
    """A decimal number of up to 13 digits is the same number again, as a charge and as a budget."""
    amount = float(given)
    charged = int(to_units(amount))
    assert charged == budget_units(amount, field="total")
    assert charged / UNITS == amount


@settings(deadline=None)
@given(st.integers(1, 1000), st.floats(1e-3, 10))
def test_shares_of_a_whole_lack_at_most_a_unit_each(parts: int, whole: float) -> None:
    """Rounding up makes equal parts dearer than the whole by less than a unit each."""
    excess = parts * int(to_units(whole / parts)) - budget_units(whole, field="total")
    assert -2 <= excess < parts + 2


def test_arrays_are_converted_entry_by_entry() -> None:
    """Each entry is converted as it would be alone."""
    amounts = np.array([[0.1, 1 / 3], [0.0, 1e-13]])
    expected = [[UNITS // 10, UNITS // 3 + 1], [0, 1]]
    np.testing.assert_array_equal(to_units(amounts), expected)


@pytest.mark.parametrize("amount", [-1e-300, AMOUNT_MAX * 1.001, float("nan"), float("inf")])
def test_other_numbers_are_refused_and_not_shown(amount: float) -> None:
    """The error shows no amount, because it may belong to a record."""
    with pytest.raises(InputError) as caught:
        to_units([0.5, amount])
    assert "must be from 0 to" in str(caught.value)
