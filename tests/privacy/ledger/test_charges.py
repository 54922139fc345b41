"""Charges and budgets are judged when they are made, and show nothing of what is in them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from tests.privacy.ledger.charged import charge

from veilring.errors import InputError
from veilring.privacy.budgets import (
    ANSWER_BYTES_MAX,
    KEY_SIZE,
    Budgets,
    Charge,
    RecordCharge,
    merge_slots,
)


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
def test_a_charge_is_judged_when_it_is_made(field: str, change: dict[str, Any]) -> None:
    """The error names the field."""
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


def test_a_charge_does_not_show_what_is_in_it() -> None:
    """Its representation has neither the request nor the answer."""
    shown = repr(charge("ann", "1", 0.1, answer=b"secret", request=b"secret"))
    assert "secret" not in shown


@pytest.mark.parametrize("budget", [{"total": -1.0}, {"record": float("nan")}, {"unit": ""}])
def test_budgets_are_judged_when_they_are_made(budget: dict[str, Any]) -> None:
    """The error names the budget."""
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
def test_a_charge_of_records_is_judged_when_it_is_made(
    field: str, slots: ArrayLike, amounts: ArrayLike
) -> None:
    """The error names the argument; sums that 64 bits cannot hold are refused, too."""
    with pytest.raises(InputError) as caught:
        RecordCharge.of(slots, amounts)
    assert caught.value.field == field


@pytest.mark.parametrize("slots", [[0.5], [1.0], ["1"], [True], [None]])
def test_a_slot_is_a_whole_number(slots: ArrayLike) -> None:
    """A fraction is refused: made whole, it would be another record's slot."""
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
def test_units_are_whole_numbers_of_64_bits(
    field: str, slots: NDArray[np.int64], units: NDArray[np.int64]
) -> None:
    """Amounts that would be rounded or overflow are refused, and the error names the field."""
    with pytest.raises(InputError) as caught:
        RecordCharge(slots, units)
    assert caught.value.field == field


def test_who_pays_how_much_is_judged_slot_by_slot() -> None:
    """Payments that 64 bits hold for each slot are allowed for any number of slots."""
    most = (1 << 63) - 1
    assert RecordCharge(np.arange(3), np.full(3, most)).units.tolist() == [most] * 3
    twice = RecordCharge(np.array([4, 4]), np.full(2, most // 2))
    assert merge_slots(twice.slots, twice.units)[1].tolist() == [most - 1]
    with pytest.raises(InputError, match="units a slot"):
        RecordCharge(np.array([4, 4]), np.full(2, most // 2 + 1))


def test_nobody_may_pay() -> None:
    """A charge without records is one, whatever type an empty list has."""
    assert RecordCharge.of([], []).slots.dtype == np.int64


def test_charges_of_records_can_be_compared() -> None:
    """Two that were made apart are two, and each is itself."""
    one, other = RecordCharge.of([1, 2], 0.5), RecordCharge.of([1, 2], 0.5)
    assert one != other
    assert {one, one} == {one}
    made = Charge("ann", "1", b"?", b"!", records=one)
    assert made == Charge("ann", "1", b"?", b"!", records=one)
    assert made != Charge("ann", "1", b"?", b"!", records=other)
