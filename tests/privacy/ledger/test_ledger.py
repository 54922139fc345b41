"""Global budgets: what is charged, once, and what is refused."""

import pickle
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.ledger import (
    UNITS,
    Budgets,
    Charge,
    Ledger,
    RecordCharge,
    from_units,
    open_ledger,
    read_totals,
)
from veilring.privacy.ledger.charges import ANSWER_BYTES_MAX, KEY_SIZE

BUDGETS = Budgets(total=1.0, analyst=0.6, analysts={"eve": 0.1})


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """Give a ledger on the disk, and one in memory."""
    path = tmp_path / "spent.ledger" if request.param == "file" else None
    with open_ledger(path, BUDGETS) as opened:
        yield opened


def _charge(
    analyst: str, key: str, amount: float, *, answer: bytes = b"yes", request: bytes = b"?"
) -> Charge:
    return Charge(analyst, key, request, answer, amount)


def test_an_answer_is_given_for_its_price(ledger: Ledger) -> None:
    """It comes back, and the odometer, the analyst's budget and the total go down by its price."""
    assert ledger.charge(_charge("ann", "1", 0.25)) == b"yes"
    assert ledger.remaining("ann") == 0.35
    assert ledger.remaining("bob") == 0.6
    totals = ledger.totals()
    assert (totals.spent, totals.budget, totals.answers) == (0.25, 1.0, 1)
    assert [(each.name, each.spent, each.budget) for each in totals.analysts] == [
        ("ann", 0.25, 0.6)
    ]


def test_tenths_fill_a_whole(tmp_path: Path) -> None:
    """Ten charges of 0.1 fit into 1, and not a millionth of a millionth more."""
    with open_ledger(tmp_path / "a", Budgets(total=1.0)) as ledger:
        for number in range(10):
            ledger.charge(_charge("ann", str(number), 0.1))
        with pytest.raises(BudgetExhausted):
            ledger.charge(_charge("ann", "more", 1e-12))
        assert ledger.totals().spent == 1.0


def test_a_repeated_request_gets_the_same_answer_for_nothing(ledger: Ledger) -> None:
    """Whatever answer and price the second attempt comes with."""
    ledger.charge(_charge("ann", "1", 0.25))
    assert ledger.charge(_charge("ann", "1", 0.5, answer=b"no")) == b"yes"
    assert ledger.find("ann", "1", b"?") == b"yes"
    assert ledger.totals().spent == 0.25


def test_a_request_is_found_even_if_nothing_is_left(ledger: Ledger) -> None:
    """An answer that was paid for is the analyst's."""
    ledger.charge(_charge("ann", "1", 0.6))
    assert ledger.charge(_charge("ann", "1", 0.6)) == b"yes"


def test_a_key_of_another_request_is_refused(ledger: Ledger) -> None:
    """Nothing is charged, and the error shows neither request."""
    ledger.charge(_charge("ann", "1", 0.25, request=b"first secret"))
    for use in (ledger.charge, lambda one: ledger.find(one.analyst, one.key, one.request)):
        with pytest.raises(InputError) as caught:
            use(_charge("ann", "1", 0.25, request=b"other secret"))
        assert caught.value.field == "key"
        assert "secret" not in str(caught.value)
    assert ledger.totals().spent == 0.25


def test_keys_of_analysts_are_their_own(ledger: Ledger) -> None:
    """One cannot fetch another's answer by its key and request."""
    ledger.charge(_charge("ann", "1", 0.1, answer=b"for ann"))
    assert ledger.find("bob", "1", b"?") is None
    assert ledger.charge(_charge("bob", "1", 0.1, answer=b"for bob")) == b"for bob"


@pytest.mark.parametrize(
    ("analyst", "amount", "budget", "left"),
    [("ann", 0.61, "analyst", 0.6), ("eve", 0.2, "analyst", 0.1), ("bob", 0.5, "total", 0.4)],
)
def test_what_exceeds_a_budget_is_refused(
    ledger: Ledger, analyst: str, amount: float, budget: str, left: float
) -> None:
    """The error says which budget, what was asked and what is left; nothing is charged."""
    if budget == "total":
        ledger.charge(_charge("ann", "1", 0.6))
    before = ledger.totals()
    with pytest.raises(BudgetExhausted) as foreseen:
        ledger.check(analyst, amount)
    ledger.check(analyst, left)
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge(_charge(analyst, "2", amount))
    assert foreseen.value.args == caught.value.args
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  (our own error)
    fields = (error.budget, error.asked, error.left, error.unit)
    assert fields == (budget, amount, left, "epsilon")
    assert str(error) == str(caught.value)
    assert f"{amount} epsilon asked, {left} left" in str(error)
    assert ledger.totals() == before
    assert ledger.find(analyst, "2", b"?") is None


def test_a_group_is_charged_in_order_and_refused_one_by_one(ledger: Ledger) -> None:
    """One that is refused holds up no other, and a key may occur twice."""
    outcomes = ledger.charge_many(
        [
            _charge("ann", "1", 0.5, answer=b"1"),
            _charge("ann", "2", 0.5, answer=b"2"),
            _charge("ann", "1", 0.5, answer=b"again"),
            _charge("ann", "1", 0.5, request=b"another"),
            _charge("bob", "1", 0.5, answer=b"3"),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [
        bytes,
        BudgetExhausted,
        bytes,
        InputError,
        bytes,
    ]
    assert [outcomes[0], outcomes[2], outcomes[4]] == [b"1", b"1", b"3"]
    assert ledger.totals().spent == 1.0


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
    """Never over a budget, each request charged once, and the same answer ever after."""
    with open_ledger(None, BUDGETS) as ledger:
        model = _Model()
        for number, group in enumerate(groups):
            model.require_same(ledger, group, number)


@settings(max_examples=8, deadline=None)  # the disk is waited for at each charge
@given(groups=GROUPS)
def test_restarts_change_nothing(
    groups: list[list[_Attempt]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same model holds if the ledger is closed and opened between any two groups."""
    path, model = tmp_path_factory.mktemp("model") / "ledger", _Model()
    for number, group in enumerate(groups):
        with open_ledger(path, BUDGETS) as ledger:
            model.require_same(ledger, group, number)
        assert read_totals(path).answers == len(model.kept)


class _Model:
    """What a ledger with `BUDGETS` does, with plain dictionaries."""

    def __init__(self) -> None:
        self.limits = {"ann": 6 * UNITS // 10, "bob": 6 * UNITS // 10, "eve": UNITS // 10}
        self.spent = dict.fromkeys(self.limits, 0)
        self.kept: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def require_same(self, ledger: Ledger, group: list[_Attempt], number: int) -> None:
        """Charge a group, and check each outcome and the totals."""
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


def test_threads_take_turns(tmp_path: Path) -> None:
    """Charges from many threads never exceed the budget together, and use it up."""
    given = Budgets(total=0.5)
    with open_ledger(tmp_path / "a", given) as ledger:
        outcomes: list[object] = []

        def spend(analyst: str) -> None:
            group = [_charge(analyst, str(number), 0.01) for number in range(20)]
            outcomes.extend(outcome for one in group for outcome in ledger.charge_many([one]))

        threads = [threading.Thread(target=spend, args=(f"{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(outcome, bytes) for outcome in outcomes) == 50
        assert ledger.totals().spent == 0.5


def test_other_budgets_need_to_be_meant(tmp_path: Path) -> None:
    """A ledger opens with the budgets it was begun with; amended, what was spent stays spent."""
    path = tmp_path / "a"
    with open_ledger(path, Budgets(total=1.0)) as ledger:
        ledger.charge(_charge("ann", "1", 0.8))
    with pytest.raises(InputError, match="budgets"):
        open_ledger(path, Budgets(total=2.0))
    for total, left in ((2.0, 1.2), (0.5, 0.0)):
        with open_ledger(path, Budgets(total=total), amend=True) as ledger:
            assert ledger.remaining("ann") == left
        assert read_totals(path).budget == total


def test_another_key_changes_no_budget(tmp_path: Path) -> None:
    """Who has not the key of a ledger cannot amend its budgets, either."""
    path = tmp_path / "a"
    open_ledger(path, Budgets(total=1.0), key=bytes(16)).close()
    with pytest.raises(InputError, match="key"):
        open_ledger(path, Budgets(total=9.0), key=bytes(15) + b"1", amend=True)
    assert read_totals(path).budget == 1.0


def test_a_record_over_a_lowered_budget_holds_nobody_up(tmp_path: Path) -> None:
    """A record that has spent more than it now may still takes part in what costs it nothing."""
    path = tmp_path / "a"
    for budget, key, amounts in ((1.0, "1", [0.9, 0.0]), (0.5, "2", [0.0, 0.1])):
        with open_ledger(path, Budgets(record=budget), amend=True) as ledger:
            paid = RecordCharge.of(ledger.records.add(["a", "b"]), amounts)
            assert ledger.charge(Charge("ann", key, b"?", b"yes", records=paid)) == b"yes"


def test_an_error_of_the_disk_closes_the_ledger(tmp_path: Path) -> None:
    """Nobody knows then what was charged; opened again, the ledger says."""
    path = tmp_path / "a"
    with open_ledger(path, Budgets()) as ledger:
        ledger.charge(_charge("ann", "1", 0.5))
        ledger._store.connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001  (a full disk)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            ledger.charge(_charge("ann", "2", 0.5, answer=bytes(ANSWER_BYTES_MAX)))
        for use in (
            lambda: ledger.charge(_charge("ann", "1", 0.5)),
            lambda: ledger.remaining("ann"),
            ledger.records.remaining,
        ):
            with pytest.raises(InputError, match="closed"):
                use()
    with open_ledger(path, Budgets()) as ledger:
        assert ledger.totals().spent == 0.5


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
def test_a_charge_is_judged_when_it_is_made(field: str, change: dict[str, object]) -> None:
    """The error names the field."""
    good = {"analyst": "ann", "key": "1", "request": b"?", "answer": b"!", "amount": 0.1}
    with pytest.raises(InputError) as caught:
        Charge(**{**good, **change})  # type: ignore[arg-type]  # what is refused
    assert caught.value.field == field


def test_a_charge_does_not_show_what_is_in_it() -> None:
    """Its representation has neither the request nor the answer."""
    shown = repr(_charge("ann", "1", 0.1, answer=b"secret", request=b"secret"))
    assert "secret" not in shown


@pytest.mark.parametrize("budget", [{"total": -1.0}, {"record": float("nan")}, {"unit": ""}])
def test_budgets_are_judged_when_they_are_made(budget: dict[str, object]) -> None:
    """The error names the budget."""
    with pytest.raises(InputError) as caught:
        Budgets(**budget)  # type: ignore[arg-type]  # what is refused
    assert caught.value.field in budget


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    """To write or to read, and it is left as it is; an empty file can be begun."""
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(InputError, match="a ledger of veilring"):
        read_totals(path)
    if content:
        with pytest.raises(InputError, match="a ledger of veilring"):
            open_ledger(path, BUDGETS)
        assert path.read_bytes() == content
    else:
        open_ledger(path, BUDGETS).close()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """A SQLite file that is no ledger stays as it is."""
    path = tmp_path / "a"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="a ledger of veilring"):
        open_ledger(path, BUDGETS)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="a ledger of veilring"):
        read_totals(tmp_path / "nowhere")
