"""A deployed collection: its estimates, one report for each client, and how reports are sent.

No change of files, keys or formats gives a client a second report.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.collection import (
    Collect,
    Collection,
    collecting,
    collector_of,
    kept,
    store_of,
)
from tests.protocols.ldp.collecting import batches, make_task
from typing_extensions import override

from veilring import simulation
from veilring.deployment.asking import ClientConnection
from veilring.deployment.duties import load_config_of
from veilring.deployment.surveys import client as sending
from veilring.deployment.surveys.client import (
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    SUBMIT_PATIENCE_SECONDS,
    Sender,
    SurveyClientConfig,
    for_one_session,
    submit_rows,
)
from veilring.deployment.surveys.collector import begin_store
from veilring.deployment.surveys.terms import SurveyTerms, read_published
from veilring.errors import (
    HandshakeError,
    PeerLost,
    ProtocolViolation,
    ScenarioError,
    SessionAborted,
    VeilringError,
)
from veilring.protocols.digests import canonical_json
from veilring.protocols.ldp import messages
from veilring.protocols.ldp.algorithm.bayes import DiscreteBayes
from veilring.protocols.ldp.messages import TASK_FORMAT, ClientBatch, ReportVerdict
from veilring.protocols.ldp.outbox import MarkedRows, Outbox
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.saved import load_classifier

CLIENTS = 120
CLIENT = "survey-client-0"
ROWS = f"{CLIENT}.csv"


@pytest.fixture
def collection(collect: Collect) -> Collection:
    """Serve a collector with one survey client, whose clients are identified by a key."""
    return collect(CLIENTS)


def lines_of(collection: Collection) -> list[list[str]]:
    """Return the cells of the survey client's file, starting with its header."""
    return [line.split(",") for line in (collection.folder / ROWS).read_text().splitlines()]


def write(collection: Collection, name: str, lines: list[list[str]]) -> str:
    """Write a file of rows, and return its name."""
    (collection.folder / name).write_text("".join(f"{','.join(line)}\n" for line in lines))
    return name


def configure(collection: Collection, key: str, *more: str) -> None:
    """Set the column that names the survey client's clients; none if the key is empty."""
    path = collection.folder / f"{CLIENT}.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("key")]
    path.write_text("\n".join([*([f'key = "{key}"'] if key else []), *more, *kept, ""]))


def config_of(folder: Path) -> SurveyClientConfig:
    """Read the configuration of the survey client."""
    return load_config_of(folder / f"{CLIENT}.toml", SurveyClientConfig, "veilring submit")


def test_a_file_whose_rows_have_moved_is_refused(collection: Collection) -> None:
    """With numbered rows, an inserted line causes no second report, and an appended one is new."""
    lines = [line[1:] for line in lines_of(collection)]
    configure(collection, "row number")
    collection.submitted(write(collection, "rows.csv", lines))
    made = collection.outboxes()
    assert len(made) == CLIENTS
    new = ["5.0", "3.0", "4.0", "1.0", "virginica"]
    moved = write(collection, "moved.csv", [lines[0], new, *lines[1:]])
    refused = collection.submitted(moved, code=2)
    assert "moved.csv: " in refused
    assert "differ from those that were reported" in refused
    assert collection.outboxes() == made
    other = [[cell if place else "other" for place, cell in enumerate(lines[0])], *lines[1:]]
    assert collection.submitted(write(collection, "other.csv", other), code=2).count("other.csv")
    longer = collection.submitted(write(collection, "longer.csv", [*lines, new]))
    assert kept(longer) == CLIENTS + 1
    numbers = {str(number) for number in range(1, CLIENTS + 2)}
    assert {client for client, *_ in collection.outboxes()} == numbers


def test_rows_are_numbered_only_on_request(collection: Collection) -> None:
    """Without a key no report is made, and an outbox keeps its first way of naming clients."""
    lines = lines_of(collection)
    configure(collection, "")
    missing = collection.submitted(code=2)
    assert "key" in missing
    assert "'row number'" in missing
    assert not collection.outboxes()
    configure(collection, "client")
    collection.submitted()
    configure(collection, "row number")
    rows = write(collection, "rows.csv", [line[1:] for line in lines])
    assert "key is 'row number'; allowed: 'client'" in collection.submitted(rows, code=2)
    assert len(collection.outboxes()) == CLIENTS


def test_a_key_ignores_surrounding_spaces(collection: Collection) -> None:
    """A key with spaces names the same client, and two rows of one client are refused.

    Within a question, the clients of reports are not in ascending order when sent.
    """
    lines = lines_of(collection)
    collection.submitted()
    order = [int(client.removeprefix("client-")) for client, *_ in collection.outboxes()]
    assert sorted(order) == list(range(CLIENTS))
    # Five questions: an order by question and then by row descends four times at the most. A random
    # one of 120 descends 20 times or fewer with probability below 1e-9 (Eulerian distribution).
    assert (np.diff(order) < 0).sum() > 20
    padded = [lines[0], *([f" {key}  ", *cells] for key, *cells in lines[1:])]
    again = collection.submitted(write(collection, "padded.csv", padded))
    assert kept(again) == CLIENTS == len(collection.outboxes())
    twice = write(collection, "twice.csv", [*lines, padded[1]])
    assert "they must all be different" in collection.submitted(twice, code=2)


def test_keys_of_other_people_are_refused(collection: Collection) -> None:
    """A known key with other cells is refused, without a report, unless amended."""
    lines = lines_of(collection)
    collection.submitted()
    made = [report[:-1] for report in collection.outboxes()]
    shifted = [[key, *cells] for (key, *_), (_, *cells) in zip(lines[2:], lines[1:], strict=False)]
    others = write(collection, "others.csv", [lines[0], *shifted])
    refused = collection.submitted(others, code=2)
    assert "reported under the same 'client'" in refused
    assert "5.1" not in refused
    configure(collection, "client", "amend = true")
    collection.submitted(others)
    configure(collection, "client")
    collection.submitted(others)
    assert [report[:-1] for report in collection.outboxes()] == made


def test_a_row_may_be_corrected_until_its_report_is_made(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A survey client interrupted before making reports has not stored their rows either."""

    def interrupted(*_: object) -> Iterator[ClientBatch]:
        raise RuntimeError

    lines = [line[1:] for line in lines_of(collection)]
    configure(collection, "row number")
    rows = collection.folder / write(collection, "rows.csv", lines)
    monkeypatch.setattr(ClientPool, "answer", interrupted)
    with pytest.raises(RuntimeError):
        asyncio.run(submit_rows(config_of(collection.folder), rows))
    assert not collection.outboxes()
    corrected = write(collection, "corrected.csv", [lines[0], lines[-1], *lines[1:-1]])
    collection.submitted(corrected)
    assert len(collection.outboxes()) == CLIENTS
    assert "differ from those that were reported" in collection.submitted("rows.csv", code=2)


def test_a_member_submits_at_most_its_quota(collection: Collection) -> None:
    """Rows beyond `reports_max` do not count, are shown by member, and can be left out."""
    collection.kill()
    collection.configure("collector", "reports_max = 150")
    collection.collect()
    lines = lines_of(collection)
    forged = [[f"forged-{n}", *lines[1][1:]] for n in range(400)]
    rows = write(collection, "forged.csv", [lines[0], *forged])
    refused = collection.submitted(rows, code=1)
    assert kept(refused) == 150
    assert "250 reports refused: no more reports accepted from this client" in refused
    assert len(collection.stored()) == 150
    found = collection.ended("estimate", "collector.toml")
    assert f"stored by member: {CLIENT} 150" in found
    nobody = collection.ended("estimate", "collector.toml", "--without", CLIENT, code=2)
    assert "no reports are left; leave out fewer members" in nobody
    stranger = collection.ended("estimate", "collector.toml", "--without", "ada", code=2)
    assert "without is 'ada'; allowed: a member that has sent reports" in stranger
    collection.kill()
    collection.configure("collector", f"reports_max_of.{CLIENT} = 390")
    collection.collect()
    again = collection.submitted(rows, code=1)  # the same reports, once more
    assert kept(again) == 390 == len(collection.stored())


@pytest.mark.parametrize("rows", [0, 60, CLIENTS])
def test_reports_that_a_collector_lost_are_sent_again(collection: Collection, rows: int) -> None:
    """If a restored backup lacks reports, all are sent again, unchanged; otherwise none is.

    With `--again`, all are sent in any case, and each counts once.
    """
    lines, folder = lines_of(collection), collection.folder
    if rows:
        collection.submitted(write(collection, "first.csv", lines[: 1 + rows]))
    collection.ended("state", "backup", "collector.db", "copy.sqlite")
    collection.submitted()
    stored = collection.stored()
    collection.kill()
    for each in folder.glob("collector.db*"):
        each.unlink()
    (folder / "copy.sqlite").rename(folder / "collector.db")
    collection.collect()
    assert len(collection.stored()) == rows
    again = collection.submitted()
    assert kept(again) == CLIENTS
    assert collection.stored() == stored
    lost = f"all {CLIENTS} reports are sent again, unchanged"
    assert (lost in again) == (rows < CLIENTS)
    nothing = "acknowledged earlier; the collector still has the newest"
    assert (nothing in again) == (rows == CLIENTS)
    assert nothing in collection.submitted()
    forced = collection.submitted(ROWS, "--again")
    assert kept(forced) == CLIENTS
    assert "acknowledged earlier" not in forced
    assert collection.stored() == stored
    assert {verdict for *_, verdict in collection.outboxes()} == {ReportVerdict.KNOWN}
    collection.kill()
    assert collection.require_sound() == CLIENTS


REPORTS = 3000


def test_a_collection_from_its_files_to_its_estimates(collect: Collect) -> None:
    """Each row is reported once for any number of attempts, and estimates work meanwhile."""
    collection = collect(REPORTS, 2)
    early = collection.ended("estimate", "collector.toml", code=2)
    assert "0 of at least 1,000 reports so far" in early
    for number, options in ((0, ()), (1, ("--single",)), (0, ())):
        assert kept(collection.submitted("", *options, number=number)) == REPORTS // 2
    confidence = ("--confidence", "0.9999999")
    shown = collection.ended("estimate", "collector.toml", "--json", "--recount", *confidence)
    document = json.loads(shown)
    assert document["reports"] == REPORTS
    shares = [line for line in document["estimates"] if line["of"] == "class"]
    assert [line["value"] for line in shares] == ["setosa", "versicolor", "virginica"]
    # Three intervals each miss with probability 1e-7; and the frequencies in 3,000 rows drawn from
    # thirds are within 0.053 of them, except with probability 1e-7 each (Hoeffding).
    for line in shares:
        assert line["low"] - 0.053 <= 1 / 3 <= line["high"] + 0.053
    save = ("estimate", "collector.toml", "--save", "model.json")
    assert "setosa" in collection.ended(*save)
    model = load_classifier(collection.folder / "model.json").model
    assert isinstance(model, DiscreteBayes)
    assert len(model.class_counts) == 3
    assert sum(each.clients for each in model.evidence) == REPORTS
    collection.ended(*save, code=2)  # nothing is overwritten
    collection.end_in_order("collector")
    assert collection.require_sound() == REPORTS


@pytest.mark.slow
def test_a_spent_budget_a_changed_task_and_a_pinned_one(collect: Collect) -> None:
    """Clients without budget skip a second task, and a pinned task is the only one accepted."""
    collection = collect(1000)
    assert kept(collection.submitted()) == 1000
    collection.kill()

    collection.edit("terms.toml", "[protocol]", "[protocol]\ncloses = 2999-01-01T00:00:00Z")
    refused = collection.ended("serve", "collector.toml", code=2)
    assert "collector.db is for the task" in refused
    assert "restore the terms and the version of veilring" in refused.replace("\n", " ")
    for path in collection.folder.glob("collector.db*"):
        path.rename(path.with_name(path.name.replace("collector", "first")))
    collection.ended("state", "new", "collector.toml")
    collection.collect()
    said = "1,000 rows were not reported: the budgets of their clients are exhausted"
    assert said in collection.submitted(code=1)
    assert collection.stored() == {}

    collection.configure("survey-client-0", f'task = "{"0" * 64}"')
    assert ", not 0000" in collection.submitted(code=2)


FEW = 20
AGES = pytest.mark.parametrize(("step", "age"), [(-1, "an older"), (1, "a newer")])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a deployment of a collector and a survey client, of which nothing has started."""
    return Collection(tmp_path / "survey", reports=FEW).folder


@pytest.mark.parametrize(
    ("formats", "older"),
    [((TASK_FORMAT + 1, TASK_FORMAT), CLIENT), ((TASK_FORMAT, TASK_FORMAT + 1), "collector")],
    ids=["older client", "older collector"],
)
async def test_both_sides_name_the_older_one_and_nothing_is_charged(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    formats: tuple[int, int],
    older: str,
) -> None:
    """The connection is refused before any report is made; both sides say whom to update."""
    collector, client = formats
    monkeypatch.setattr(messages, "TASK_FORMAT", collector)
    config = config_of(folder)
    async with collecting(collector_of(folder)):
        monkeypatch.setattr(messages, "TASK_FORMAT", client)
        with caplog.at_level(logging.WARNING), pytest.raises(HandshakeError) as caught:
            await submit_rows(config, folder / ROWS)
    for said in (str(caught.value), caplog.text):
        assert f"task format: {client} at {CLIENT}, {collector} at collector" in said
        assert f"(update veilring at {older}, which is older)" in said
    names = [f"client-{number}" for number in range(FEW)]
    with Outbox(Path(config.state)) as outbox:
        assert outbox.can_afford(names, config.budget, config.budget).all()


@AGES
def test_another_format_is_not_blamed_on_the_collector(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, age: str
) -> None:
    """A client that did not compare formats before finds the other format in the task itself.

    A collector does not continue a store whose task it cannot write, and says so.
    """
    content = json.loads(SurveyTerms.load(folder / "terms.toml").task.encoded)
    content["format"] += step
    with pytest.raises(HandshakeError) as caught:
        read_published(json.dumps(content).encode(), "census")
    assert f"its task has format {TASK_FORMAT + step}, from {age} veilring" in str(caught.value)
    assert "use the same version of veilring at census and here" in str(caught.value)

    monkeypatch.setattr(messages, "TASK_FORMAT", TASK_FORMAT + step)
    store_of(folder).close()
    monkeypatch.undo()
    with pytest.raises(ScenarioError, match=f"format {TASK_FORMAT + step}, from {age} veilring"):
        store_of(folder)


def test_other_mechanisms_are_not_blamed_on_the_collector(tmp_path: Path) -> None:
    """A task of means from an earlier version, with one bit, is named; another number is a lie."""
    path = tmp_path / "terms.toml"
    path.write_text('features = [{ name = "age" }]\n[protocol]\nkind = "means"\nepsilon = 2\n')
    content = json.loads(SurveyTerms.load(path).task.encoded)
    lying = {**content, "numbers": {**content["numbers"], "steps": []}}
    with pytest.raises(ProtocolViolation, match="do not follow from its own terms"):
        read_published(canonical_json(lying), "census")
    del content["numbers"]["version"]
    with pytest.raises(HandshakeError, match="other mechanisms for means; use the same version"):
        read_published(canonical_json(content), "census")


ROUNDS = """
features = [{ name = "mood", categories = ["good", "fair", "bad"] }]
[protocol]
name = "ldp-bayes"
kind = "frequency"
changes = "loloha"
epsilon = 1
permanent = 2
round = "week 1"
"""


def set_key(folder: Path, name: str, key: str, value: str) -> None:
    """Set a key in the configuration of a party."""
    path = folder / f"{name}.toml"
    others = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    path.write_text("\n".join([f"{key} = {value}", *others, ""]))


async def test_rounds_of_a_series_are_answered_from_permanent_answers(tmp_path: Path) -> None:
    """Answers may change, all rounds are charged once, and a budget below that makes no report.

    The hash function of a client and its permanent answers stay; a new series has others.
    """
    folder = Collection(tmp_path / "survey", reports=1).folder
    rows, names = folder / ROWS, [f"client-{number}" for number in range(FEW)]
    set_key(folder, CLIENT, "key", '"client"')
    set_key(folder, CLIENT, "budget", "7.9")
    seeds = list[dict[str, bytes]]()
    series = ("week 1", "good", 0), ("week 2", "bad", 0), ("week 3", "bad", 3)
    for number, (week, mood, categories) in enumerate(series):
        text = ROUNDS.replace("week 1", week)
        if categories:
            text = text.replace('"bad"]', '"bad", "other"]')
        (folder / "terms.toml").write_text(text)
        rows.write_text("client,mood\n" + "".join(f"{name},{mood}\n" for name in names))
        set_key(folder, "collector", "state", f'"{number}.db"')
        begin_store(collector_of(folder))
        config = config_of(folder)
        async with collecting(collector_of(folder)):
            if categories:  # a second series would cost 4 more
                refused = await submit_rows(config, rows)
                assert (refused.refused, refused.kept) == (FEW, 0)
                continue
            sent = await submit_rows(config, rows)
        assert (sent.refused, sent.kept) == (0, FEW)
        with closing(store_of(folder)) as store, store.transaction():
            ((reports,),) = [[*store.stored(0)]]
            assert len(np.unique(reports[:, :8], axis=0)) == FEW
        with Outbox(Path(config.state)) as outbox:
            terms = SurveyTerms.load(folder / "terms.toml")
            seeds.append(outbox.permanent(terms.series))
            assert {*seeds[-1]} == {*names}
            sent_seeds = {each[:8].tobytes() for each in reports}
            assert {memo[:8] for memo in seeds[-1].values()} == sent_seeds
            assert outbox.can_afford(names, 3.9, config.budget).all()
            assert not outbox.can_afford(names, 3.91, config.budget).any()
    assert seeds[0] == seeds[1]
    set_key(folder, CLIENT, "key", '"row number"')
    (folder / "terms.toml").write_text(ROUNDS)
    set_key(folder, "collector", "state", '"0.db"')
    async with collecting(collector_of(folder)):
        with pytest.raises(ScenarioError, match="needs a key"):
            await submit_rows(config_of(folder), rows)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "frequency"', 'kind = "words"', 'these for kind = "frequency"'),
        ('changes = "loloha"', "", "are for changes"),
        ("permanent = 2", "", "permanent is missing"),
        ('round = "week 1"', "", "round is missing"),
        ("permanent = 2", "permanent = 1", "permanent is"),
    ],
)
def test_terms_with_changes_need_all_of_their_keys(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """Each key that is missing or in the wrong kind of survey is named."""
    path = tmp_path / "terms.toml"
    path.write_text(ROUNDS.replace(old, new))
    with pytest.raises(ScenarioError, match=message):
        SurveyTerms.load(path)


TASK, MADE = make_task(), 12
SESSION_SECONDS = 100.0


def batch(number: int, reports: int) -> ClientBatch:
    """Return a batch of reports of four bytes."""
    ids, bytes_ = np.zeros((reports, 16), dtype=np.uint8), np.zeros((reports, 4), dtype=np.uint8)
    return ClientBatch(0, ids, bytes_, np.full(reports, number))


@pytest.mark.parametrize(
    ("messages", "size", "expected"),
    [(3, 1 << 20, [3, 3, 1]), (100, 50, [3, 3, 1]), (100, 1, [1] * 7), (7, 1 << 20, [7])],
)
def test_sessions_take_all_batches_in_order_within_their_limits(
    monkeypatch: pytest.MonkeyPatch, messages: int, size: int, expected: list[int]
) -> None:
    """A session ends with the batch that reaches either limit, and the next session continues."""
    monkeypatch.setattr(sending, "SESSION_MESSAGES_MAX", messages)
    monkeypatch.setattr(sending, "SESSION_BYTES_MAX", size)
    waiting = iter([batch(number, 1) for number in range(7)])
    sessions = []
    while session := list(for_one_session(waiting)):
        sessions.append(session)
    assert [len(session) for session in sessions] == expected
    assert [int(b.clients[0]) for session in sessions for b in session] == list(range(7))


class _Collector(ClientConnection):
    """A connection to a collector that knows reports again, unless it forgets each session.

    Attributes:
        error: The error with which every session ends after a delay.
        receipts: The number of failing sessions with a receipt.
        sessions: The number of batches that each session sent.
    """

    def __init__(
        self, *, forgets: bool = False, error: VeilringError | None = None, receipts: int = 0
    ) -> None:
        self.forgets, self.error, self.receipts = forgets, error, receipts
        self.stored, self.sessions = set[bytes](), list[int]()

    @override
    async def run(self, role: Callable[..., Awaitable[Any]], *given: Any, **public: Any) -> Any:
        if self.forgets:
            self.stored.clear()
        (waiting,) = given
        if self.error is not None:
            await asyncio.sleep(SESSION_SECONDS)
            waiting = islice(waiting, 1 if len(self.sessions) < self.receipts else 0)
        sent = list(waiting)
        self.sessions.append(len(sent))
        for each in sent:
            known = each.ids.tobytes() in self.stored
            verdict = ReportVerdict.KNOWN if known else ReportVerdict.COUNTED
            self.stored.add(each.ids.tobytes())
            public["settled"](each, np.full(len(each), verdict, dtype=np.uint8))
        if self.error is not None:
            raise self.error


async def _sent(path: Path, connection: _Collector) -> int:
    """Make reports and send them, and return how many were sent."""
    with Outbox(path, new=True) as outbox:
        rows = MarkedRows([str(n) for n in range(MADE)], b"", [b""] * MADE)
        outbox.add(TASK, rows, batches(TASK, MADE))
        sender = Sender(connection, "census")
        return await sender.send(TASK, outbox, at_once=1, progress=lambda *_: None)


@pytest.mark.parametrize("forgets", [False, True])
def test_sessions_end_whatever_a_collector_says_of_receipts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> None:
    """Questions about receipts delay no report, and a collector that denies them is named."""
    monkeypatch.setattr(sending, "SESSION_MESSAGES_MAX", 1)
    connection = _Collector(forgets=forgets)
    sent = _sent(tmp_path / "outbox", connection)
    if forgets:
        with pytest.raises(ProtocolViolation, match=r"census .* lost reports twice"):
            asyncio.run(sent)
        assert connection.sessions == [1, 2, 2]
    else:
        assert asyncio.run(sent) == MADE == len(connection.sessions)
        assert len(connection.stored) == MADE


def _tried(outbox: Path, error: VeilringError, receipts: int) -> tuple[float, int]:
    """Send until it gives up, and return the simulated seconds and the number of attempts."""
    connection = _Collector(error=error, receipts=receipts)

    async def main() -> float:
        with pytest.raises(type(error)):
            await _sent(outbox, connection)
        return asyncio.get_running_loop().time()

    return simulation.simulate(main()), len(connection.sessions)


@pytest.mark.parametrize("receipts", [0, 1, 5])
def test_a_survey_client_waits_from_its_last_receipt(tmp_path: Path, receipts: int) -> None:
    """It gives up at the third failure in a row, the first one five minutes after the receipt."""
    seconds, sessions = _tried(tmp_path / "outbox", PeerLost("census"), receipts)
    pauses = RETRY_SECONDS * (1 + 2)
    assert 2 * SESSION_SECONDS + pauses < SUBMIT_PATIENCE_SECONDS < 3 * SESSION_SECONDS + pauses
    assert sessions == receipts + 3
    # A pause is twice the one before, and the first again after a receipt.
    pauses += (receipts + 3) * RETRY_SECONDS if receipts else 0
    assert seconds == sessions * SESSION_SECONDS + pauses


def test_an_unreachable_collector_is_retried_and_logged_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In five minutes there are about twenty attempts, counted in one log line."""
    monkeypatch.setattr("tests.deployment.test_collection.SESSION_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "veilring.survey_client"):
        seconds, sessions = _tried(tmp_path / "outbox", PeerLost("census"), 0)
    assert SUBMIT_PATIENCE_SECONDS < seconds <= SUBMIT_PATIENCE_SECONDS + RETRY_SECONDS_MAX
    assert sessions < 30
    assert len(caplog.messages) == sessions - 1
    assert "no receipt after attempt 5; 12 reports will be sent again" in caplog.messages[4]


@pytest.mark.parametrize("reason", ["NotOffered", "OtherTerms", "WrongParties"])
def test_a_permanent_refusal_is_not_retried(tmp_path: Path, reason: str) -> None:
    """A collector's permanent refusal ends the attempts at once."""
    assert _tried(tmp_path / "outbox", SessionAborted("census", reason), 0)[1] == 1
    assert _tried(tmp_path / "other", SessionAborted("census", "StoreFailed"), 0)[1] > 1
