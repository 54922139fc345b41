"""A data owner and its analysts: what is charged, answered and refused, who is blamed, sizes."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outcomes import Outcome, world
from tests.protocols.test_served import handed

from veilring.data.table import Rows
from veilring.errors import (
    BudgetExhausted,
    FrameError,
    InputError,
    ProtocolViolation,
    RunFailed,
    StoreFailed,
)
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.service import Offload, Threads, opening, run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius import messages
from veilring.protocols.radius.algorithm.conversion import ByCandidates, ByGrid
from veilring.protocols.radius.algorithm.nearest import LabelledBatch, label_within
from veilring.protocols.radius.messages import (
    REQUEST_EPSILON_MIN,
    LabelAnswer,
    LabelRequest,
    label_cost,
)
from veilring.protocols.radius.owner import (
    LABEL_SERVICE,
    Owner,
    ask_nearest,
    ask_within,
    request_labels,
)
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestVerdict
from veilring.testing import ProtocolRunner
from veilring.testing.exploring import explore
from veilring.transport.frames import FRAME_BYTES_MAX, frame_size, pack
from veilring.transport.messages import Message, decode, encode

DRAWS = np.random.default_rng(9)
ROWS = Rows(DRAWS.random((60, 2)), DRAWS.integers(2, size=60))
NO_ROWS = Rows(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
QUERIES = DRAWS.random((5, 2))
RADII = np.full(5, 0.3)
RULES = DataOwner(conversion="grid").bind(Facts(1, 2, 2, rows=60))
ANALYST, OWNER = "analyst", "owner"
SESSION = bytes(16)


def asked(name: str = "", epsilon: float = 0.5) -> LabelRequest:
    """Return a request for the labels of the queries."""
    return ask_within(QUERIES, RADII, epsilon, name=name)


@contextmanager
def opened(
    budgets: Budgets | None = None,
    path: Path | None = None,
    rows: Rows = ROWS,
    offload: Offload = run_inline,
) -> Iterator[tuple[Owner, Ledger]]:
    """Open an owner and its ledger, which is in memory or a new file."""
    with open_ledger(path, budgets or Budgets(), new=True) as ledger:
        yield Owner(rows, RULES, ledger, offload), ledger


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
    with pytest.raises(InputError) as error, open_ledger(None, Budgets()) as ledger:
        Owner(ROWS, DataOwner().bind(facts), ledger, run_inline)
    assert error.value.field == field


@pytest.mark.parametrize("rows", [ROWS, NO_ROWS], ids=len)
@pytest.mark.parametrize("first", [asked(), ask_nearest(QUERIES, 7, 0.5)], ids=["r-N", "k-N"])
def test_verdicts_and_sizes_do_not_depend_on_content(first: LabelRequest, rows: Rows) -> None:
    """On any rows, an answer and each kind of refusal have the same number of bytes."""
    with opened(Budgets(total=1.0, analyst=0.75), rows=rows) as (owner, _):
        rng = np.random.default_rng(1)
        other = first.model_copy(update={"epsilon": 0.25})
        new = first.model_copy(update={"key": bytes(16)})
        answers = [owner.answer_once("ann", each, rng) for each in (first, other, new)]
        owner.answer_once("bob", first, rng)
        answers.append(owner.answer_once("cyd", first, rng))
    assert [(each.verdict, each.left) for each in answers] == [
        (RequestVerdict.ANSWERED, 0.0),
        (RequestVerdict.KEY_USED, 0.0),
        (RequestVerdict.CLIENT_EXHAUSTED, 0.25),
        (RequestVerdict.TOTAL_EXHAUSTED, 0.0),
    ]
    assert len({len(encode(SESSION, answer)) for answer in answers}) == 1


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

    role = opening(request_labels, LABEL_SERVICE, bytes(32))
    with opened(Budgets(total=5.0)) as (owner, ledger):
        async with world({OWNER: lambda _node: owner.offers(bytes(32))}, "ann") as served:

            async def ask(name: str) -> Outcome:
                told: dict[str, Any] = {"charged": ledger.totals, "rules": RULES}
                return await served.ask(role, "ann", OWNER, asked(name), **told)

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


async def test_a_long_batch_delays_only_its_own_analyst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are answered meanwhile; its analyst, even after disconnecting, waits for its thread.

    The batch is charged once, and its late answer is kept.
    """
    begun, began, release = 0, Event(), Event()

    def label(*given: Any, **named: Any) -> object:
        nonlocal begun
        begun += 1
        if begun == 1:
            began.set()
            assert release.wait(20)
        return label_within(*given, **named)

    async def part(party: Party, *, name: str, owner: Owner) -> object:
        if party.me == OWNER:
            await owner.answer(party, party.peers[0])
            return None
        return await request_labels(party, asked(name), rules=RULES)

    monkeypatch.setattr(messages, "label_within", label)
    async with Cluster([OWNER, "ann", "bob"], seed=1) as cluster, Threads(2, "labels") as offload:
        with opened(Budgets(total=2.0), offload=offload) as (owner, ledger):

            def ask(who: str, name: str) -> "asyncio.Task[Any]":
                run = cluster.run(part, among=[OWNER, who], name=name, owner=owner)
                return asyncio.create_task(run)

            first = ask("ann", "late")
            assert await asyncio.to_thread(began.wait, 20)
            waiting = [ask("ann", "queued")]
            await ask("bob", "bob")
            assert not first.done()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            waiting.append(ask("ann", "again"))
            await asyncio.sleep(0.3)
            assert begun == 2
            release.set()
            await asyncio.gather(*waiting)
            run = await ask("ann", "late")
            assert isinstance(run.results["ann"], LabelledBatch)
            assert begun == 4
            assert (ledger.totals().spent, ledger.totals().answers) == (2.0, 4)


async def label(party: Party, own: LabelRequest | None) -> None:
    """Ask, if the party has a request, and otherwise answer as the owner."""
    if own is not None:
        await request_labels(party, own, rules=RULES)
        return
    with opened(Budgets(total=1.0)) as (owner, _):
        await owner.answer(party, ANALYST)


def require_blamed(liar: str, request: LabelRequest, lie: LabelRequest | LabelAnswer) -> None:
    """Require that a party is blamed for sending another message in place of its own."""
    adversary = Alter(lambda _message: lie, only=(type(lie),))
    run = ProtocolRunner("memory")
    with pytest.raises(RunFailed) as failed:
        run(label, (ANALYST, OWNER), own=[request, None], adversaries={liar: adversary})
    (witness,) = {ANALYST, OWNER} - {liar}
    error = failed.value.errors[witness]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == liar


BAD = {
    "features": ask_within(np.hstack([QUERIES, QUERIES]), RADII, 0.5),
    "nothing": ask_within(QUERIES[:0], RADII[:0], 0.5),
    "outside": ask_within(QUERIES + 0.9, RADII, 0.5),
    "nan": ask_within(QUERIES * np.nan, RADII, 0.5),
    "radii": ask_within(QUERIES, RADII[1:], 0.5),
    "negative": ask_within(QUERIES, -RADII, 0.5),
    "infinite": ask_within(QUERIES, RADII * np.inf, 0.5),
    "not a radius": ask_within(QUERIES, RADII * np.nan, 0.5),
    "wide": ask_within(QUERIES, RADII + 1.2, 0.5),
    "free": ask_within(QUERIES, RADII, 0.0),
    "cheap": ask_within(QUERIES, RADII, 1e-9),
    "dear": ask_within(QUERIES, RADII, 1.5),
    "no price": ask_within(QUERIES, RADII, float("nan")),
    "huge k": ask_nearest(QUERIES, 1 << 40, 0.5),
    "both": LabelRequest(key=bytes(16), epsilon=0.5, k=3, queries=QUERIES, radii=RADII),
    "many": ask_within(np.tile(QUERIES, (300, 1)), np.tile(RADII, 300), 0.5),
}


@pytest.mark.parametrize("name", BAD)
def test_a_request_that_no_honest_analyst_sends_ends_the_session(name: str) -> None:
    """An analyst refuses to send it, and the owner reports a violation without any draw."""
    with pytest.raises(InputError):
        RULES.check(BAD[name])
    require_blamed(ANALYST, asked(), BAD[name])


@pytest.mark.parametrize(
    ("labels", "radii"),
    [
        (np.zeros(4), np.zeros(5)),
        (np.zeros(5), np.zeros(0)),
        (np.full(5, 2), np.zeros(5)),
        (np.zeros(5), np.full(5, -1.0)),
        (np.zeros(5), np.full(5, np.inf)),
    ],
    ids=["labels", "radii", "class", "negative", "infinite"],
)
def test_an_answer_that_no_honest_owner_sends_is_refused(labels: Any, radii: Any) -> None:
    """An analyst accepts no labels from an answer that does not fit its request."""
    answer = LabelAnswer(verdict=0, left=0.0, labels=labels.astype(np.uint16), radii=radii)
    require_blamed(OWNER, ask_nearest(QUERIES, 10, 0.5), answer)


ANSWER = LabelAnswer(verdict=0, left=0.0, labels=np.zeros(5, np.uint16), radii=np.zeros(0))


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (asked(), {"key": bytes(REQUEST_KEY_BYTES - 1)}),
        (asked(), {"key": bytes(REQUEST_KEY_BYTES + 1)}),
        (asked(), {"k": -1}),
        (asked(), {"queries": np.zeros(3)}),
        (asked(), {"queries": np.zeros((3, 2), dtype=np.float32)}),
        (asked(), {"radii": np.zeros((3, 1))}),
        (asked(), {"epsilon": "free"}),
        (ANSWER, {"verdict": 4}),
        (ANSWER, {"left": -1.0}),
        (ANSWER, {"left": float("nan")}),
    ],
)
def test_an_invalid_message_is_a_broken_frame(message: Message, changed: dict[str, Any]) -> None:
    """A field of another type, shape, length or range is refused before a role sees it."""
    fields: dict[str, Any] = {name: getattr(message, name) for name in message.names} | changed
    with pytest.raises(FrameError):
        decode(pack((SESSION, message.kind, *fields.values())))


def test_a_key_depends_on_the_whole_request() -> None:
    """Equal requests have equal keys, and any other content or name has another key."""
    others = [
        asked("again"),
        asked("", 0.25),
        ask_within(QUERIES, RADII * 2, 0.5),
        ask_within(QUERIES[::-1].copy(), RADII, 0.5),
        ask_nearest(QUERIES, 1, 0.5),
        ask_nearest(QUERIES, 2, 0.5),
    ]
    assert ask_within(QUERIES.copy(), RADII.copy(), 0.5).key == asked().key
    assert len({asked().key, *(other.key for other in others)}) == 7


@given(st.integers(1, 200), st.integers(1, 20), st.sampled_from([0, 1, 127, 128, 70_000]))
def test_the_closed_form_has_the_size_of_any_content(queries: int, features: int, k: int) -> None:
    """The size depends only on the numbers of queries and features and on k."""
    rng = np.random.default_rng(queries)
    points, radii = rng.random((queries, features)), rng.random(queries)
    request = ask_nearest(points, k, 0.3) if k else ask_within(points, radii, 0.7)
    labels = rng.integers(1 << 16, size=queries).astype(np.uint16)
    answer = LabelAnswer(verdict=3, left=0.123, labels=labels, radii=radii if k else np.zeros(0))
    forecast = label_cost(queries, features, k).traffic
    assert forecast.messages == 2
    assert forecast.bytes == sum(frame_size(encode(SESSION, each)) for each in (request, answer))
    assert forecast.bytes < 320 + queries * (8 * features + 10)
    assert forecast.bytes < FRAME_BYTES_MAX


REQUESTS = [asked(name, 1.0) for name in "abc"]
TOTAL = 2.0
"""One request is left without an answer."""


class Served:
    """An owner whose ledger outlives its sessions; each world begins with a new one."""

    def __init__(self) -> None:
        self.ledger = open_ledger(None, Budgets(total=TOTAL))
        self.owner = Owner(ROWS, RULES, self.ledger, run_inline)

    def __deepcopy__(self, _memo: object) -> "Served":
        return Served()


async def ask_by_number(party: Party, own: dict[int, list[int]] | Served, *, number: int) -> object:
    """Send a request by its number; return its first answer, which is kept, and its current one."""
    (other,) = party.peers
    if isinstance(own, Served):
        await own.owner.answer(party, other)
        return own.ledger.totals().spent
    try:
        batch = await request_labels(party, REQUESTS[number], rules=RULES)
    except BudgetExhausted:
        return "refused"
    labels = batch.labels.tolist()
    return own.setdefault(number, labels), labels


def is_paid_once(_inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Require one answer per request, and spending within the budget."""
    assert results.get("owner", 0.0) <= TOTAL
    answer = results.get("client", "refused")
    assert answer == "refused" or answer[0] == answer[1]


def test_no_fault_draws_an_answer_twice() -> None:
    """Lost answers are sent again, budgets end, and answers never change."""
    campaign = explore(
        ask_by_number,
        {"client": {}, "owner": Served()},
        invariant=is_paid_once,
        draw=lambda _among, rng: {"number": int(rng.integers(len(REQUESTS)))},
        seeds=20,
    )
    campaign.check()
    assert campaign.reached["a request that was answered is answered again"] > 20
    assert campaign.reached["a budget does not suffice for a request"] > 20
