"""Charges, budgets and their units: validated on creation, rounded safely, and not shown."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.ledger.charging import charge

from veilring.errors import InputError
from veilring.privacy.budgets import (
    AMOUNT_MAX,
    KEY_SIZE,
    UNITS,
    Budgets,
    Charge,
    RecordCharge,
    budget_units,
    from_units,
    merge_slots,
    to_units,
)
from veilring.privacy.ledger import open_ledger

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
@given(st.integers(0, 100 * UNITS), st.decimals(0, AMOUNT_MAX, places=6))
def test_decimal_numbers_are_exact(units: int, given: Decimal) -> None:
    """Numbers up to 100 with up to twelve places convert exactly both ways.

    Larger ones of up to 13 digits are the same numbers again, as a charge and as a budget.
    """
    amount = float(from_units(units))
    assert amount == float(f"{units // UNITS}.{units % UNITS:012d}")
    assert to_units(amount) == budget_units(amount, field="total") == units
    charged = int(to_units(float(given)))
    assert charged == budget_units(float(given), field="total")
    assert charged / UNITS == float(given)


@pytest.mark.parametrize("amount", [-1e-300, AMOUNT_MAX * 1.001, float("nan"), float("inf")])
def test_other_numbers_are_refused_and_not_shown(amount: float) -> None:
    """The error shows no amount, because it may belong to a record."""
    with pytest.raises(InputError) as caught:
        to_units([0.5, amount])
    assert "must be from 0 to" in str(caught.value)


def test_the_longest_names_are_stored() -> None:
    """Names of the greatest length are found again; a charge shows no request and no answer."""
    name = "k" * KEY_SIZE
    with open_ledger(None, Budgets()) as ledger:
        ledger.charge(charge(name, name, 0.1))
        assert ledger.find(name, name, b"?") == b"yes"
    assert "secret" not in repr(charge("ann", "1", 0.1, answer=b"secret", request=b"secret"))


def test_payments_are_validated_slot_by_slot() -> None:
    """Payments that fit into 64 bits per slot are allowed for any number of slots."""
    assert RecordCharge.of([], []).slots.dtype == np.int64
    most = (1 << 63) - 1
    assert RecordCharge(np.arange(3), np.full(3, most)).units.tolist() == [most] * 3
    twice = RecordCharge(np.array([4, 4]), np.full(2, most // 2))
    assert merge_slots(twice.slots, twice.units)[1].tolist() == [most - 1]
    with pytest.raises(InputError, match="units a slot"):
        RecordCharge(np.array([4, 4]), np.full(2, most // 2 + 1))


def test_charges_of_records_can_be_compared() -> None:
    """Charges are equal only to themselves, even with equal content."""
    one, other = RecordCharge.of([1, 2], 0.5), RecordCharge.of([1, 2], 0.5)
    assert one != other
    assert {one, one} == {one}
    made = Charge("ann", "1", b"?", b"!", records=one)
    assert made == Charge("ann", "1", b"?", b"!", records=one)
    assert made != Charge("ann", "1", b"?", b"!", records=other)
