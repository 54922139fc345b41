"""Validation of charges and budgets on creation, and the absence of secrets in their text."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from tests.privacy.ledger.charged import charge

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.privacy.budgets import (
    ANSWER_BYTES_MAX,
    KEY_SIZE,
    Budgets,
    Charge,
    RecordCharge,
    merge_slots,
)
from veilring.privacy.ledger import open_ledger


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("analyst", {"analyst": ""}),
        ("key", {"key": "k" * (KEY_SIZE + 1)}),
        ("key", {"key": "\ud800"}),
        ("answer", {"answer": bytes(ANSWER_BYTES_MAX + 1)}),
        ("amount", {"amount": -0.1}),
    ],
)
def test_a_charge_is_validated_on_creation(field: str, change: dict[str, Any]) -> None:
    """The error names the invalid field."""
    good: dict[str, Any] = {
        "analyst": "ann",
        "key": "1",
        "request": b"?",
        "answer": b"!",
        "amount": 0.1,
    }
    with pytest.raises(InputError) as caught:
        Charge(**{**good, **change})
    assert caught.value.field == field


def test_the_longest_names_are_stored() -> None:
    """Names of the greatest length are accepted, and found again."""
    name = "k" * KEY_SIZE
    with open_ledger(None, Budgets()) as ledger:
        ledger.charge(charge(name, name, 0.1))
        assert ledger.find(name, name, b"?") == b"yes"


def test_a_charge_does_not_show_its_content() -> None:
    """The representation contains neither the request nor the answer."""
    shown = repr(charge("ann", "1", 0.1, answer=b"secret", request=b"secret"))
    assert "secret" not in shown


@pytest.mark.parametrize("budget", [{"total": -1.0}, {"record": float("nan")}, {"unit": ""}])
def test_budgets_are_validated_on_creation(budget: dict[str, Any]) -> None:
    """The error names the invalid budget."""
    with pytest.raises(InputError) as caught:
        Budgets(**budget)
    assert caught.value.field in budget
    with pytest.raises(InputError) as caught:
        Budgets(analysts={"ann": 1.0, "eve": -1.0})
    assert caught.value.field == "analysts.eve"


@pytest.mark.parametrize(
    ("field", "slots", "amounts"),
    [
        ("slots", [[0]], 0.1),
        ("amounts", [0, 1], [0.1, 0.1, 0.1]),
        ("amounts", [0], [-0.1]),
        ("amounts", [0], [float("nan")]),
        ("amounts", [0] * 10, 1e6),
    ],
)
def test_a_charge_of_records_is_validated_on_creation(
    field: str, slots: ArrayLike, amounts: ArrayLike
) -> None:
    """The error names the argument; sums beyond 64 bits are refused as well."""
    with pytest.raises(InputError) as caught:
        RecordCharge.of(slots, amounts)
    assert caught.value.field == field


@pytest.mark.parametrize("slots", [[0.5], [1.0], ["1"], [True], [None]])
def test_a_slot_is_a_whole_number(slots: ArrayLike) -> None:
    """A fraction is refused: rounded, it would be another record's slot."""
    with pytest.raises(InputError) as caught:
        RecordCharge.of(slots, 0.5)
    assert caught.value.field == "slots"


@pytest.mark.parametrize(
    ("field", "slots", "units"),
    [
        ("slots", np.array([1.0]), np.array([1])),
        ("units", np.array([1]), np.array([1.5])),
        ("units", np.array([1]), np.array([1], np.int32)),
    ],
)
def test_units_are_whole_numbers_of_64_bits(field: str, slots: Ints, units: Ints) -> None:
    """Amounts that would be rounded or overflow are refused, and the error names the field."""
    with pytest.raises(InputError) as caught:
        RecordCharge(slots, units)
    assert caught.value.field == field


def test_payments_are_validated_slot_by_slot() -> None:
    """Payments that fit into 64 bits per slot are allowed for any number of slots."""
    most = (1 << 63) - 1
    assert RecordCharge(np.arange(3), np.full(3, most)).units.tolist() == [most] * 3
    twice = RecordCharge(np.array([4, 4]), np.full(2, most // 2))
    assert merge_slots(twice.slots, twice.units)[1].tolist() == [most - 1]
    with pytest.raises(InputError, match="units a slot"):
        RecordCharge(np.array([4, 4]), np.full(2, most // 2 + 1))


def test_a_charge_may_have_no_records() -> None:
    """A charge without records is valid, for empty arrays of any type."""
    assert RecordCharge.of([], []).slots.dtype == np.int64


def test_charges_of_records_can_be_compared() -> None:
    """Charges are equal only to themselves, even with equal content."""
    one, other = RecordCharge.of([1, 2], 0.5), RecordCharge.of([1, 2], 0.5)
    assert one != other
    assert {one, one} == {one}
    made = Charge("ann", "1", b"?", b"!", records=one)
    assert made == Charge("ann", "1", b"?", b"!", records=one)
    assert made != Charge("ann", "1", b"?", b"!", records=other)
