"""The data owner: charges before answers, once per request, within every budget."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outcomes import Outcome, world

from veilring.data.table import Rows
from veilring.errors import InputError, StoreFailed
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius import messages
from veilring.protocols.radius.messages import REQUEST_EPSILON_MIN, LabelRequest
from veilring.protocols.radius.owner import Owner, ask_nearest, ask_within, convene_owner
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.requests import RequestVerdict
from veilring.transport.messages import encode

DRAWS = np.random.default_rng(9)
ROWS = Rows(DRAWS.random((60, 2)), DRAWS.integers(2, size=60))
QUERIES = DRAWS.random((5, 2))
RADII = np.full(5, 0.3)
RULES = DataOwner(conversion="grid").bind(Facts(1, 2, 2, 60))


def _asked(name: str, epsilon: float = 0.5) -> LabelRequest:
    return ask_within(QUERIES, RADII, epsilon, name=name)


@contextmanager
def _owner(path: Path | None, budgets: Budgets) -> Iterator[Owner]:
    with open_ledger(path, budgets, new=path is None or not path.exists()) as ledger:
        yield Owner(ROWS, RULES, ledger, run_inline)


def test_a_request_is_answered_and_charged_once(tmp_path: Path) -> None:
    """A repeated request, even after a restart, gets the same bytes at no cost."""
    budgets, path = Budgets(total=5.0), tmp_path / "ledger"
    with _owner(path, budgets) as room:
        answer = room.answer_once("ann", _asked("one"), np.random.default_rng(1))
        again = room.answer_once("ann", _asked("one"), np.random.default_rng(2))
        assert answer == again
    with _owner(path, budgets) as room:
        assert room.answer_once("ann", _asked("one"), np.random.default_rng(3)) == answer
    with open_ledger(path, budgets) as ledger:
        assert ledger.totals().spent == _asked("one").epsilon
        assert ledger.totals().answers == 1


def test_a_key_belongs_to_one_request() -> None:
    """A key used for another request is refused, and another analyst may use it."""
    with _owner(None, Budgets(total=2.0)) as room:
        first, rng = _asked("one"), np.random.default_rng(1)
        other = _asked("one", 0.25).model_copy(update={"key": first.key})
        assert room.answer_once("ann", first, rng).verdict == RequestVerdict.ANSWERED
        assert room.answer_once("ann", other, rng).verdict == RequestVerdict.KEY_USED
        assert room.answer_once("bob", other, rng).verdict == RequestVerdict.ANSWERED


def test_an_answer_has_one_size_for_any_content() -> None:
    """An answer and each kind of refusal have the same number of bytes."""
    for first in (_asked(""), ask_nearest(QUERIES, 7, 0.5)):
        with _owner(None, Budgets(total=1.0, analyst=0.5)) as room:
            rng = np.random.default_rng(1)
            other = first.model_copy(update={"epsilon": 0.25})
            new = first.model_copy(update={"key": bytes(16)})
            answers = [room.answer_once("ann", each, rng) for each in (first, other, new)]
            room.answer_once("bob", first, rng)
            answers.append(room.answer_once("cyd", first, rng))
        assert [answer.verdict for answer in answers] == [0, 3, 1, 2]
        assert len({len(encode(bytes(16), answer)) for answer in answers}) == 1


def test_concurrent_analysts_never_exceed_the_budgets(tmp_path: Path) -> None:
    """Of many concurrent requests exactly as many are answered as the budgets pay for."""
    budgets = Budgets(total=2.0, analyst=1.5)
    with _owner(tmp_path / "ledger", budgets) as room, ThreadPoolExecutor(8) as pool:
        asked = [(who, _asked(f"{number}", 0.25)) for number in range(8) for who in ("ann", "bob")]
        rngs = np.random.default_rng(1).spawn(len(asked))
        answered = pool.map(room.answer_once, *zip(*asked, strict=True), rngs)
        verdicts = [each.verdict for each in answered]
    assert verdicts.count(RequestVerdict.ANSWERED) == 8
    with open_ledger(tmp_path / "ledger", budgets) as ledger:
        assert ledger.totals().spent == 2.0
        assert max(each.spent for each in ledger.totals().analysts) <= 1.5


def test_whether_a_budget_suffices_does_not_depend_on_rows() -> None:
    """On any rows, equal requests get equal verdicts and equal remainders."""

    def refusals(rows: Rows) -> list[tuple[int, float]]:
        with open_ledger(None, Budgets(total=6.0, analyst=5.0)) as ledger:
            room = Owner(rows, RULES, ledger, run_inline)
            rng = np.random.default_rng(1)
            asked = [(who, _asked(f"{n}", 0.5)) for n in range(12) for who in ("ann", "bob")]
            answers = [room.answer_once(*each, rng) for each in asked]
        return [(answer.verdict, answer.left) for answer in answers]

    nobody = Rows(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    assert refusals(ROWS) == refusals(nobody)
    assert {verdict for verdict, _ in refusals(ROWS)} >= {0, 2}


@pytest.mark.parametrize(
    "error", [MemoryError("row 7"), ValueError("row 7"), InputError("rows", "row 7", "none")]
)
async def test_an_answer_that_cannot_be_drawn_ends_the_owner(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """To the analyst, any failure on the rows is one error, and the owner's last answer.

    The log has the kind of error and its location in the code, and no text that might quote a row.
    """

    def fail(*_: object, **__: object) -> None:
        raise error

    with open_ledger(None, Budgets(total=5.0)) as ledger:
        room = Owner(ROWS, RULES, ledger, run_inline)
        async with world({"owner": lambda _node: room.offers(bytes(32))}, "ann") as served:

            async def ask(name: str) -> Outcome:
                role = convene_owner(bytes(32))
                return await served.ask(
                    role, "ann", "owner", _asked(name), charged=ledger.totals, rules=RULES
                )

            monkeypatch.setattr(messages, "label_within", fail)
            first = await ask("one")
            assert first.ending == "SessionAborted"
            assert "StoreFailed" in first.text
            monkeypatch.undo()
            second = await ask("two")
            assert (second.text, second.wire) == (first.text, first.wire)
            assert ledger.totals().spent == 0.0
            with pytest.raises(StoreFailed) as failed:
                await room.failure()
    assert f"{type(error).__name__} in test_owner.py" in str(failed.value)
    assert "row 7" not in str(failed.value)


@given(
    st.floats(REQUEST_EPSILON_MIN, 10.0),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.99),
    st.sampled_from([None, 60]),
)
def test_the_parts_of_a_price_add_up(
    epsilon: float, count_share: float, conversion_share: float, rows: int | None
) -> None:
    """Counting, converting and voting together cost at most the request's price."""
    system = DataOwner(count_share=count_share, conversion_share=conversion_share, epsilon=10.0)
    parameters = system.bind(Facts(1, 2, 2, rows)).nearest(5, epsilon)
    assert parameters.epsilon <= epsilon
    assert parameters.parts.voting > 0


@pytest.mark.parametrize(
    ("facts", "field"), [(Facts(1, 3, 2), "rows"), (Facts(1, 2, 1), "rows.labels")]
)
def test_invalid_rows_are_refused_at_the_start(facts: Facts, field: str) -> None:
    """Rows of another schema are refused."""
    with open_ledger(None, Budgets()) as ledger, pytest.raises(InputError) as error:
        Owner(ROWS, DataOwner().bind(facts), ledger, run_inline)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"conversion": "grid"}, Facts(1, 7, 2)),
        ({"epsilon": 100.0}, Facts(1, 2, 2)),
        ({"batch": 5000}, Facts(1, 2, 2)),
        ({"count_share": 0.999}, Facts(1, 2, 2)),
        ({"conversion_share": 1e-300}, Facts(1, 2, 2)),
        ({}, Facts(1, 2, 1 << 11)),
        ({}, Facts(1, 2, 2, rows=10**400)),
        ({}, Facts(1, 200_000, 2)),
    ],
    ids=str,
)
def test_rules_that_could_fail_late_are_refused(changed: dict[str, Any], facts: Facts) -> None:
    """Rules that could fail only after rows were read are refused."""
    with pytest.raises(InputError):
        DataOwner(**changed).bind(facts)
