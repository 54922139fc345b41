"""Clients and rows: no change of files, keys or formats gives a client a second report."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection, collecting, collector_of
from tests.deployment.commands import SECONDS, Command

from veilring.deployment.collector import open_configured_store
from veilring.deployment.duties import load_config_of
from veilring.deployment.survey import SurveyTerms, read_published
from veilring.deployment.survey_client import SurveyClientConfig, submit_rows
from veilring.errors import HandshakeError, ScenarioError
from veilring.protocols.ldp import messages
from veilring.protocols.ldp.messages import TASK_FORMAT, ClientBatch, ReportVerdict
from veilring.protocols.ldp.outbox import Outbox
from veilring.protocols.ldp.roles import ClientPool

CLIENTS = 120


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    """Serve a collector with one survey client, whose clients are identified by a key."""
    deployed = Collection(tmp_path / "survey", reports=CLIENTS, survey_clients=1)
    deployed.serve()
    yield deployed
    deployed.kill_all()


def lines_of(collection: Collection) -> list[list[str]]:
    """Return the cells of the survey client's file, starting with its header."""
    text = (collection.folder / "survey-client-0.csv").read_text()
    return [line.split(",") for line in text.splitlines()]


def write(collection: Collection, name: str, lines: list[list[str]]) -> str:
    """Write a file of rows, and return its name."""
    (collection.folder / name).write_text("".join(f"{','.join(line)}\n" for line in lines))
    return name


def configure(collection: Collection, key: str, *more: str) -> None:
    """Set the column that names the survey client's clients; none if the key is empty."""
    path = collection.folder / "survey-client-0.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("key")]
    path.write_text("\n".join([*([f'key = "{key}"'] if key else []), *more, *kept, ""]))


def handed_in(collection: Collection, rows: str, code: int = 0) -> Command:
    """Submit a file to the end, and require the given ending."""
    command = collection.submit(0, rows=rows)
    assert command.wait(SECONDS) == code, command.output
    assert "Traceback" not in command.output
    return command


def without_key(lines: list[list[str]]) -> list[list[str]]:
    """Return rows without their first column."""
    return [line[1:] for line in lines]


def test_a_file_whose_rows_have_moved_is_refused(collection: Collection) -> None:
    """With numbered rows, an inserted line causes no second report, and an appended one is new."""
    lines = without_key(lines_of(collection))
    configure(collection, "row number")
    handed_in(collection, write(collection, "rows.csv", lines))
    made = collection.outboxes()
    assert len(made) == CLIENTS
    new = ["5.0", "3.0", "4.0", "1.0", "virginica"]
    moved = write(collection, "moved.csv", [lines[0], new, *lines[1:]])
    refused = handed_in(collection, moved, 2)
    assert "moved.csv: " in refused.output
    assert "differ from those that were reported" in refused.output
    assert collection.outboxes() == made
    other = [[cell if place else "other" for place, cell in enumerate(lines[0])], *lines[1:]]
    assert handed_in(collection, write(collection, "other.csv", other), 2).output.count("other.csv")
    longer = handed_in(collection, write(collection, "longer.csv", [*lines, new]))
    assert collection.kept(longer.output) == CLIENTS + 1
    assert {client for client, *_ in collection.outboxes()} == {
        str(number) for number in range(1, CLIENTS + 2)
    }


def test_rows_are_numbered_only_on_request(collection: Collection) -> None:
    """Without a key no report is made, and an outbox keeps its first way of naming clients."""
    lines = lines_of(collection)
    configure(collection, "")
    missing = handed_in(collection, "survey-client-0.csv", 2)
    assert "key" in missing.output
    assert "'row number'" in missing.output
    assert not collection.outboxes()
    configure(collection, "client")
    handed_in(collection, "survey-client-0.csv")
    configure(collection, "row number")
    rows = write(collection, "rows.csv", without_key(lines))
    assert "key is 'row number'; allowed: 'client'" in handed_in(collection, rows, 2).output
    assert len(collection.outboxes()) == CLIENTS


def test_a_key_ignores_surrounding_spaces(collection: Collection) -> None:
    """A key with spaces names the same client, and two rows of one client are refused."""
    lines = lines_of(collection)
    handed_in(collection, "survey-client-0.csv")
    padded = [lines[0], *([f" {key}  ", *cells] for key, *cells in lines[1:])]
    again = handed_in(collection, write(collection, "padded.csv", padded))
    assert collection.kept(again.output) == CLIENTS == len(collection.outboxes())
    twice = write(collection, "twice.csv", [*lines, padded[1]])
    assert "they must all be different" in handed_in(collection, twice, 2).output


def test_keys_of_other_people_are_refused(collection: Collection) -> None:
    """A known key with other cells is refused, without a report, unless amended."""
    lines = lines_of(collection)
    handed_in(collection, "survey-client-0.csv")
    made = [report[:-1] for report in collection.outboxes()]
    shifted = [[key, *cells] for (key, *_), (_, *cells) in zip(lines[2:], lines[1:], strict=False)]
    others = write(collection, "others.csv", [lines[0], *shifted])
    refused = handed_in(collection, others, 2)
    assert "reported under the same 'client'" in refused.output
    assert "5.1" not in refused.output
    configure(collection, "client", "amend = true")
    handed_in(collection, others)
    configure(collection, "client")
    handed_in(collection, others)
    assert [report[:-1] for report in collection.outboxes()] == made


def test_a_row_may_be_corrected_until_its_report_is_made(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A survey client interrupted before making reports has not stored their rows either."""

    def interrupted(*_: object) -> Iterator[ClientBatch]:
        raise RuntimeError

    lines = without_key(lines_of(collection))
    configure(collection, "row number")
    rows = collection.folder / write(collection, "rows.csv", lines)
    config = load_config_of(
        collection.folder / "survey-client-0.toml", SurveyClientConfig, "submit"
    )
    monkeypatch.setattr(ClientPool, "answer", interrupted)
    with pytest.raises(RuntimeError):
        asyncio.run(submit_rows(config, rows))
    assert not collection.outboxes()
    corrected = write(collection, "corrected.csv", [lines[0], lines[-1], *lines[1:-1]])
    handed_in(collection, corrected)
    assert len(collection.outboxes()) == CLIENTS
    assert "differ from those that were reported" in handed_in(collection, "rows.csv", 2).output


def test_reports_are_sent_in_another_order_than_the_file(collection: Collection) -> None:
    """Within a question, the clients of reports are not in ascending order when sent."""
    handed_in(collection, "survey-client-0.csv")
    order = [int(client.removeprefix("client-")) for client, *_ in collection.outboxes()]
    assert sorted(order) == list(range(CLIENTS))
    # Five questions: an order by question and then by row descends four times at the most. A random
    # one of 120 descends 20 times or fewer with probability below 1e-9 (Eulerian distribution).
    assert (np.diff(order) < 0).sum() > 20


def test_a_member_submits_at_most_its_quota(collection: Collection) -> None:
    """Rows beyond `reports_max` do not count, are shown by member, and can be left out."""
    collection.kill_all()
    config = collection.folder / "collector.toml"
    config.write_text("reports_max = 150\n" + config.read_text())
    collection.serve()
    lines = lines_of(collection)
    forged = [[f"forged-{n}", *lines[1][1:]] for n in range(400)]
    rows = write(collection, "forged.csv", [lines[0], *forged])
    refused = handed_in(collection, rows, 1)
    assert collection.kept(refused.output) == 150
    assert "250 reports refused: no more reports accepted from this client" in refused.output
    assert len(collection.stored()) == 150
    found = collection.run("estimate", "collector.toml")
    assert "stored by member: survey-client-0 150" in found.output
    nobody = collection.run("estimate", "collector.toml", "--without", "survey-client-0")
    assert nobody.poll() == 2
    assert "no reports are left; leave out fewer members" in nobody.output
    stranger = collection.run("estimate", "collector.toml", "--without", "ada")
    assert "without is 'ada'; allowed: a member that has sent reports" in stranger.output
    collection.kill_all()
    config.write_text(config.read_text() + "\n[reports_max_of]\nsurvey-client-0 = 390\n")
    collection.serve()
    again = handed_in(collection, rows, 1)  # the same reports, once more
    assert collection.kept(again.output) == 390 == len(collection.stored())


@pytest.mark.parametrize("rows", [0, 60, CLIENTS])
def test_reports_that_a_collector_lost_are_sent_again(collection: Collection, rows: int) -> None:
    """If a restored backup lacks reports, all are sent again, unchanged; otherwise none is."""
    lines, folder = lines_of(collection), collection.folder
    if rows:
        handed_in(collection, write(collection, "first.csv", lines[: 1 + rows]))
    assert collection.run("state", "backup", "collector.db", "copy.sqlite").poll() == 0
    handed_in(collection, "survey-client-0.csv")
    stored = collection.stored()
    collection.kill_all()
    for each in folder.glob("collector.db*"):
        each.unlink()
    (folder / "copy.sqlite").rename(folder / "collector.db")
    collection.serve()
    assert len(collection.stored()) == rows
    again = handed_in(collection, "survey-client-0.csv")
    assert collection.kept(again.output) == CLIENTS
    assert collection.stored() == stored
    lost = f"all {CLIENTS} reports are sent again, unchanged"
    assert (lost in again.output) == (rows < CLIENTS)
    nothing = "acknowledged earlier; the collector still has the newest"
    assert (nothing in again.output) == (rows == CLIENTS)
    assert nothing in handed_in(collection, "survey-client-0.csv").output
    collection.kill_all()
    assert collection.require_sound() == CLIENTS


def test_reports_are_sent_again_on_request(collection: Collection) -> None:
    """With `--again`, a survey client sends all its reports, and each counts once."""
    handed_in(collection, "survey-client-0.csv")
    stored = collection.stored()
    again = collection.submit(0, "--again")
    assert again.wait(SECONDS) == 0, again.output
    assert collection.kept(again.output) == CLIENTS
    assert "acknowledged earlier" not in again.output
    assert collection.stored() == stored
    assert {verdict for *_, verdict in collection.outboxes()} == {ReportVerdict.KNOWN}


def test_a_quota_for_an_unknown_member_is_refused(collection: Collection) -> None:
    """A collector does not start with a limit for a name outside the roster."""
    collection.kill_all()
    config = collection.folder / "collector.toml"
    config.write_text(config.read_text() + "\n[reports_max_of]\nada = 390\n")
    refused = collection.run("serve", "collector.toml")
    assert refused.poll() == 2
    assert "reports_max_of: 'ada' is not a member of the roster" in refused.output


FEW = 20
CLIENT = "survey-client-0"
AGES = pytest.mark.parametrize(("step", "age"), [(-1, "an older"), (1, "a newer")])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a deployment of a collector and a survey client, of which nothing has started."""
    return Collection(tmp_path / "survey", reports=FEW, survey_clients=1).folder


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
    config = load_config_of(folder / f"{CLIENT}.toml", SurveyClientConfig, "veilring submit")
    async with collecting(collector_of(folder)):
        monkeypatch.setattr(messages, "TASK_FORMAT", client)
        with caplog.at_level(logging.WARNING), pytest.raises(HandshakeError) as caught:
            await submit_rows(config, folder / f"{CLIENT}.csv")
    for said in (str(caught.value), caplog.text):
        assert f"task format: {client} at {CLIENT}, {collector} at collector" in said
        assert f"(update veilring at {older}, which is older)" in said
    names = [f"client-{number}" for number in range(FEW)]
    with Outbox(Path(config.state)) as outbox:
        assert outbox.can_afford(names, config.budget, config.budget).all()


@AGES
def test_a_task_of_another_format_is_not_blamed_on_the_collector(
    folder: Path, step: int, age: str
) -> None:
    """A client that did not compare formats before finds the other format in the task itself."""
    content = json.loads(SurveyTerms.load(folder / "terms.toml").task.encoded)
    content["format"] += step
    with pytest.raises(HandshakeError) as caught:
        read_published(json.dumps(content).encode(), "census")
    assert f"its task has format {TASK_FORMAT + step}, from {age} veilring" in str(caught.value)
    assert "use the same version of veilring at census and here" in str(caught.value)


@AGES
def test_a_store_of_another_format_is_refused_with_its_age(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, age: str
) -> None:
    """A collector does not continue a store whose task it cannot write, and says so."""
    config = collector_of(folder)
    monkeypatch.setattr(messages, "TASK_FORMAT", TASK_FORMAT + step)
    open_configured_store(config, SurveyTerms.load(Path(config.terms)).task).close()
    monkeypatch.undo()
    with pytest.raises(ScenarioError, match=f"format {TASK_FORMAT + step}, from {age} veilring"):
        open_configured_store(config, SurveyTerms.load(Path(config.terms)).task)
