"""The data owner: charges before answers, once per request, within every budget, in turns."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outcomes import Outcome, world
from tests.protocols.radius.parties import QUERIES, ROWS, RULES, asked, opened
from tests.protocols.test_served import handed

from veilring.data.table import Rows
from veilring.errors import BudgetExhausted, InputError, StoreFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.service import Threads, opening, run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius import messages
from veilring.protocols.radius.algorithm.conversion import ByCandidates, ByGrid
from veilring.protocols.radius.algorithm.nearest import LabelledBatch, label_within
from veilring.protocols.radius.messages import REQUEST_EPSILON_MIN
from veilring.protocols.radius.owner import LABEL_SERVICE, Owner, ask_nearest, request_labels
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.requests import RequestVerdict
from veilring.testing.exploring import explore
from veilring.transport.messages import encode


def test_the_promise() -> None:
    """Each batch spends ε, and batches add up; a public number of rows is stated as public."""
    promise = DataOwner(epsilon=0.5, radius=0.2).promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (0.5, 0.0, "batch")
    assert (promise.adjacency, promise.note) == ("one row added or removed", "")
    assert "public" in DataOwner().promise().note
    assert "public" in DataOwner(k=5, public_rows=True).promise().note
    spent = handed(DataOwner(epsilon=0.5)).spent(3)
    assert spent.epsilon == pytest.approx(1.5, rel=1e-12)
    assert spent.times == 3


def test_the_meaning_of_parameters() -> None:
    """The owner's rules follow from the parameters and public numbers."""
    assert handed(DataOwner()).rules.facts.rows is None
    assert handed(DataOwner(k=5, public_rows=True)).rules.facts.rows == 64
    for features, conversion in ((2, ByGrid()), (7, ByCandidates())):
        rules = handed(DataOwner(k=5), features=features).rules
        assert rules.nearest(5, 1.0).conversion == conversion


def test_a_request_is_answered_and_charged_once(tmp_path: Path) -> None:
    """A repeated request, even after a restart, gets the same bytes at no cost."""
    budgets, path = Budgets(total=5.0), tmp_path / "ledger"
    with opened(budgets, path) as (owner, _):
        answer = owner.answer_once("ann", asked("one"), np.random.default_rng(1))
        assert owner.answer_once("ann", asked("one"), np.random.default_rng(2)) == answer
    with opened(budgets, path) as (owner, ledger):
        assert owner.answer_once("ann", asked("one"), np.random.default_rng(3)) == answer
        assert (ledger.totals().spent, ledger.totals().answers) == (asked("one").epsilon, 1)


def test_an_answer_has_one_size_for_any_content() -> None:
    """An answer and each kind of refusal have the same number of bytes."""
    for first in (asked(""), ask_nearest(QUERIES, 7, 0.5)):
        with opened(Budgets(total=1.0, analyst=0.5)) as (owner, _):
            rng = np.random.default_rng(1)
            other = first.model_copy(update={"epsilon": 0.25})
            new = first.model_copy(update={"key": bytes(16)})
            answers = [owner.answer_once("ann", each, rng) for each in (first, other, new)]
            owner.answer_once("bob", first, rng)
            answers.append(owner.answer_once("cyd", first, rng))
        assert [answer.verdict for answer in answers] == [0, 3, 1, 2]
        assert len({len(encode(bytes(16), answer)) for answer in answers}) == 1


def test_concurrent_analysts_never_exceed_the_budgets(tmp_path: Path) -> None:
    """Of many concurrent requests exactly as many are answered as the budgets pay for."""
    with (
        opened(Budgets(total=2.0, analyst=1.5), tmp_path / "ledger") as (owner, ledger),
        ThreadPoolExecutor(8) as pool,
    ):
        many = [(who, asked(f"{number}", 0.25)) for number in range(8) for who in ("ann", "bob")]
        rngs = np.random.default_rng(1).spawn(len(many))
        verdicts = [
            each.verdict for each in pool.map(owner.answer_once, *zip(*many, strict=True), rngs)
        ]
        assert verdicts.count(RequestVerdict.ANSWERED) == 8
        assert ledger.totals().spent == 2.0
        assert max(each.spent for each in ledger.totals().analysts) <= 1.5


def test_whether_a_budget_suffices_does_not_depend_on_rows() -> None:
    """On any rows, equal requests get equal verdicts and equal remainders."""

    def refusals(rows: Rows) -> list[tuple[int, float]]:
        with opened(Budgets(total=6.0, analyst=5.0), rows=rows) as (owner, _):
            rng = np.random.default_rng(1)
            many = [(who, asked(f"{n}")) for n in range(12) for who in ("ann", "bob")]
            answers = [owner.answer_once(*each, rng) for each in many]
        return [(answer.verdict, answer.left) for answer in answers]

    assert refusals(ROWS) == refusals(Rows(np.zeros((0, 2)), np.zeros(0, dtype=np.int64)))
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

    with opened(Budgets(total=5.0)) as (owner, ledger):
        async with world({"owner": lambda _node: owner.offers(bytes(32))}, "ann") as served:

            async def ask(name: str) -> Outcome:
                role = opening(request_labels, LABEL_SERVICE, bytes(32))
                return await served.ask(
                    role, "ann", "owner", asked(name), charged=ledger.totals, rules=RULES
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
                await owner.failure()
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
    with pytest.raises(InputError) as error, opened(rules=DataOwner().bind(facts)):
        pass
    assert error.value.field == field


class Slow:
    """Labelling whose first batch waits until it is released, by events that threads share."""

    def __init__(self) -> None:
        self.working, self.second, self.release = (threading.Event() for _ in range(3))

    def __call__(self, *given: Any, **named: Any) -> object:
        """Label."""
        if self.working.is_set():
            self.second.set()
        else:
            self.working.set()
            assert self.release.wait(20)
        return label_within(*given, **named)

    async def begun(self) -> None:
        """Wait until the first batch is being labelled."""
        assert await asyncio.to_thread(self.working.wait, 20)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Label slowly in this test."""
    labelling = Slow()
    monkeypatch.setattr(messages, "label_within", labelling)
    return labelling


Ask = Callable[[str, str], "asyncio.Task[Any]"]


def play(budgets: Budgets, threads: int, act: Callable[[Ask, Ledger], Awaitable[None]]) -> None:
    """Let analysts ask an owner that labels in threads."""

    async def part(party: Party, *, name: str, owner: Owner) -> object:
        if party.me == "owner":
            await owner.answer(party, party.peers[0])
            return None
        return await request_labels(party, asked(name), rules=RULES)

    async def main() -> None:
        async with (
            Cluster(["owner", "ann", "bob"], seed=1) as cluster,
            Threads(threads, "labels") as offload,
        ):
            with opened(budgets, offload=offload) as (owner, ledger):

                def ask(who: str, name: str) -> asyncio.Task[Any]:
                    run = cluster.run(part, among=["owner", who], name=name, owner=owner)
                    return asyncio.create_task(run)

                await act(ask, ledger)

    asyncio.run(main())


def test_others_are_answered_during_a_long_batch(slow: Slow) -> None:
    """A long batch delays only the next request of its own analyst."""

    async def act(ask: Ask, _ledger: Ledger) -> None:
        first = ask("ann", "ann 1")
        await slow.begun()
        second, other = ask("ann", "ann 2"), ask("bob", "bob")
        await other
        assert not first.done()
        assert not second.done()
        slow.release.set()
        await asyncio.gather(first, second)

    play(Budgets(), 2, act)


def test_a_late_answer_is_kept(slow: Slow) -> None:
    """A session that ends during its batch is charged once, and answered on request."""

    async def act(ask: Ask, ledger: Ledger) -> None:
        first = ask("ann", "late")
        await slow.begun()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        slow.release.set()
        run = await ask("ann", "late")
        assert isinstance(run.results["ann"], LabelledBatch)
        assert (ledger.totals().spent, ledger.totals().answers) == (0.5, 1)

    play(Budgets(total=0.5), 1, act)


def test_a_cancelled_batch_keeps_its_turn_until_its_thread_is_done(slow: Slow) -> None:
    """An analyst that disconnects and asks again still uses one thread of the owner, not two."""

    async def act(ask: Ask, _ledger: Ledger) -> None:
        first = ask("ann", "first")
        await slow.begun()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = ask("ann", "again")
        assert not await asyncio.to_thread(slow.second.wait, 0.3)
        slow.release.set()
        await again
        assert slow.second.is_set()

    play(Budgets(), 2, act)


REQUESTS = [asked(name, 1.0) for name in "abc"]
TOTAL = 2.0
"""One request is left without an answer."""


class Client:
    """The state that a client remembers."""

    def __init__(self) -> None:
        self.heard: dict[int, list[int]] = {}


class Served:
    """An owner whose ledger outlives its sessions; each world begins with a new one."""

    def __init__(self) -> None:
        self.ledger = open_ledger(None, Budgets(total=TOTAL))
        self.owner = Owner(ROWS, RULES, self.ledger, run_inline)

    def __deepcopy__(self, _memo: object) -> "Served":
        return Served()


async def ask_by_number(party: Party, own: Client | Served, *, number: int) -> object:
    """Send a request by its number; return its first and its current answer."""
    (other,) = party.peers
    if isinstance(own, Served):
        await own.owner.answer(party, other)
        return own.ledger.totals().spent
    try:
        batch = await request_labels(party, REQUESTS[number], rules=RULES)
    except BudgetExhausted:
        return "refused"
    labels = batch.labels.tolist()
    return own.heard.setdefault(number, labels), labels


def is_paid_once(_inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Require one answer per request, and spending within the budget."""
    assert results.get("owner", 0.0) <= TOTAL
    answer = results.get("client", "refused")
    assert answer == "refused" or answer[0] == answer[1]


def test_no_fault_draws_an_answer_twice() -> None:
    """Lost answers are sent again, budgets end, and answers never change."""
    campaign = explore(
        ask_by_number,
        {"client": Client(), "owner": Served()},
        invariant=is_paid_once,
        public=lambda _among, rng: {"number": int(rng.integers(len(REQUESTS)))},
        seeds=20,
    )
    campaign.check()
    assert campaign.reached["a request that was answered is answered again"] > 20
    assert campaign.reached["a budget does not suffice for a request"] > 20
