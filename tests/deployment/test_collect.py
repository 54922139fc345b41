"""A deployed collection: `serve`, `submit` and `estimate` as processes, killed at any time."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection
from tests.deployment.collector_crashes import crash_rounds
from tests.deployment.commands import SECONDS
from tests.deployment.disks import FAULTS

from veilring.protocols.ldp.algorithm.bayes import DiscreteBayes
from veilring.protocols.ldp.saved import load_classifier

CLIENTS = 3000

Start = Callable[..., Collection]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Deploy collections, and end their processes afterwards."""
    started: list[Collection] = []

    def deploy(**options: int) -> Collection:
        started.append(Collection(tmp_path / f"survey-{len(started)}", **options))
        return started[-1]

    yield deploy
    for collection in started:
        collection.kill_all()


def test_a_collection_from_its_files_to_its_estimates(start: Start) -> None:
    """Each row is reported once for any number of attempts, and estimates work meanwhile."""
    collection = start(reports=CLIENTS)
    collection.serve()
    collector = collection.collector
    assert collector is not None
    early = collection.run("estimate", "collector.toml")
    assert early.poll() == 2
    assert "0 of at least 1,000 reports so far" in early.output
    for number, options in ((0, ()), (1, ("--single",)), (0, ())):
        submitted = collection.submit(number, *options)
        assert submitted.wait(SECONDS) == 0, submitted.output
        assert collection.kept(submitted.output) == CLIENTS // 2
    confidence = ("--confidence", "0.9999999")
    shown = collection.run("estimate", "collector.toml", "--json", "--recount", *confidence)
    assert shown.poll() == 0, shown.output
    document = json.loads(shown.output)
    assert document["reports"] == CLIENTS
    shares = [line for line in document["estimates"] if line["of"] == "class"]
    assert [line["value"] for line in shares] == ["setosa", "versicolor", "virginica"]
    # Three intervals each miss with probability 1e-7; and the frequencies in 3,000 rows drawn from
    # thirds are within 0.053 of them, except with probability 1e-7 each (Hoeffding).
    for line in shares:
        assert line["low"] - 0.053 <= 1 / 3 <= line["high"] + 0.053
    saved = collection.run("estimate", "collector.toml", "--save", "model.json")
    assert saved.poll() == 0, saved.output
    assert "setosa" in saved.output
    model = load_classifier(collection.folder / "model.json").model
    assert isinstance(model, DiscreteBayes)
    assert len(model.class_counts) == 3
    assert sum(each.clients for each in model.evidence) == CLIENTS
    again = collection.run("estimate", "collector.toml", "--save", "model.json")
    assert again.poll() == 2  # nothing is overwritten
    collector.terminate()
    assert collector.wait(SECONDS) == 0
    assert "Traceback" not in collection.log.read_text()
    assert collection.require_sound() == CLIENTS


@pytest.mark.slow
def test_kill_minus_nine_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """After any kill, acknowledged reports are stored; in the end each row counts once."""
    rng = np.random.default_rng()  # when to kill is the point, not the same again
    seen = crash_rounds(tmp_path / "survey", 4, rng)
    assert seen.kills == 4
    assert seen.rows >= 12_000


@pytest.mark.slow
def test_a_survey_client_outlives_its_collector(start: Start) -> None:
    """A survey client waits for a dead collector, and succeeds when it is back."""
    collection = start(reports=CLIENTS)
    collection.serve()
    submitted = collection.submit(0, "--single")
    while not collection.counted():
        assert submitted.poll() is None
    assert collection.collector is not None
    collection.collector.kill()
    collection.serve()
    assert submitted.wait(SECONDS) == 0, submitted.output
    assert collection.kept(submitted.output) == CLIENTS // 2
    assert "Traceback" not in submitted.output
    collection.kill_all()
    assert collection.require_sound() == CLIENTS // 2


def test_a_collector_outlives_a_full_disk(start: Start) -> None:
    """It keeps running without acknowledging anything, and stores the reports once there is space.

    The survey client sends them again.
    """
    collection = start(reports=CLIENTS)
    collection.serve()
    assert collection.collector is not None
    with FAULTS["full"](collection.folder / "collector.db", collection.collector.pid):
        submitted = collection.submit(0)
        while "nothing was stored; clients must send their reports again" not in (
            collection.log.read_text()
        ):
            assert submitted.poll() is None, submitted.output
        assert not collection.counted()
    assert submitted.wait(SECONDS) == 0, submitted.output
    assert collection.kept(submitted.output) == CLIENTS // 2
    assert collection.collector.poll() is None
    collection.kill_all()
    assert collection.require_sound() == CLIENTS // 2


@pytest.mark.slow
def test_a_spent_budget_a_changed_task_and_a_pinned_one(start: Start) -> None:
    """Clients without budget skip a second task, and a pinned task is the only one accepted."""
    collection = start(reports=1000, survey_clients=1)
    collection.serve()
    submitted = collection.submit(0)
    assert submitted.wait(SECONDS) == 0, submitted.output
    assert collection.kept(submitted.output) == 1000
    collection.kill_all()

    terms = collection.folder / "terms.toml"
    terms.write_text(
        terms.read_text().replace("[protocol]", "[protocol]\ncloses = 2999-01-01T00:00:00Z")
    )
    refused = collection.run("serve", "collector.toml")
    assert refused.poll() == 2
    assert "collector.db is for the task" in refused.output
    assert "restore the terms and the version of veilring" in refused.output.replace("\n", " ")
    for path in collection.folder.glob("collector.db*"):
        path.rename(path.with_name(path.name.replace("collector", "first")))
    begun = collection.run("state", "new", "collector.toml")
    assert begun.poll() == 0, begun.output
    collection.serve()
    refused_all = collection.submit(0)
    assert refused_all.wait(SECONDS) == 1
    assert (
        "1,000 rows were not reported: the budgets of their clients are exhausted"
        in refused_all.output
    )
    assert collection.stored() == {}

    config = collection.folder / "survey-client-0.toml"
    config.write_text(f'task = "{"0" * 64}"\n' + config.read_text())
    pinned = collection.run("submit", "survey-client-0.toml", "survey-client-0.csv")
    assert pinned.poll() == 2
    assert ", not 0000" in pinned.output
