"""Random sequences of charges, with and without restarts, compared with a model."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.ledger.charged import BUDGETS

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import UNITS, Charge, from_units
from veilring.privacy.ledger import Ledger, open_ledger, read_totals


class _Attempt(NamedTuple):
    analyst: str
    key: str
    request: bytes
    units: int


ATTEMPTS = st.builds(
    _Attempt,
    st.sampled_from(["ann", "bob", "eve"]),
    st.sampled_from("12345678"),
    st.sampled_from([b"x", b"y"]),
    st.integers(0, UNITS // 3),
)


GROUPS = st.lists(st.lists(ATTEMPTS, max_size=4), max_size=12)


@settings(deadline=None)
@given(groups=GROUPS)
def test_any_sequence_of_charges_is_that_of_a_model(groups: list[list[_Attempt]]) -> None:
    """No budget is exceeded, each request is charged once, and its answer never changes."""
    with open_ledger(None, BUDGETS) as ledger:
        model = _Model()
        for number, group in enumerate(groups):
            model.require_same(ledger, group, number)


@settings(max_examples=8, deadline=None)  # the disk is waited for at each charge
@given(groups=GROUPS)
def test_restarts_change_nothing(
    groups: list[list[_Attempt]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The model still holds if the ledger is reopened between any two groups."""
    path, model = tmp_path_factory.mktemp("model") / "ledger", _Model()
    for number, group in enumerate(groups):
        with open_ledger(path, BUDGETS, new=not number) as ledger:
            model.require_same(ledger, group, number)
        assert read_totals(path).answers == len(model.kept)


class _Model:
    """A model of a ledger with `BUDGETS`, in plain dictionaries."""

    def __init__(self) -> None:
        self.limits = {"ann": 6 * UNITS // 10, "bob": 6 * UNITS // 10, "eve": UNITS // 10}
        self.spent = dict.fromkeys(self.limits, 0)
        self.kept: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def require_same(self, ledger: Ledger, group: list[_Attempt], number: int) -> None:
        """Charge a group, and check each result and the totals."""
        answers = [f"{number}.{place}".encode() for place in range(len(group))]
        outcomes = ledger.charge_many(
            Charge(one.analyst, one.key, one.request, answer, float(from_units(one.units)))
            for one, answer in zip(group, answers, strict=True)
        )
        for one, answer, outcome in zip(group, answers, outcomes, strict=True):
            expected = self._outcome(one, answer)
            assert outcome == expected if isinstance(expected, bytes) else type(outcome) is expected
        counted = {each.name: each.spent for each in ledger.totals().analysts}
        named = {analyst for analyst, _ in self.kept}
        assert counted == {name: float(from_units(self.spent[name])) for name in named}

    def _outcome(self, one: _Attempt, answer: bytes) -> bytes | type[Exception]:
        request, first = self.kept.get((one.analyst, one.key), (one.request, None))
        if request != one.request:
            return InputError
        if first is not None:
            return first
        own = self.spent[one.analyst] + one.units
        if own > self.limits[one.analyst] or sum(self.spent.values()) + one.units > UNITS:
            return BudgetExhausted
        self.kept[one.analyst, one.key] = one.request, answer
        self.spent[one.analyst] = own
        return answer
