"""Survey clients and collectors whose versions of veilring write tasks in different formats."""

import json
import logging
from pathlib import Path

import pytest
from tests.deployment.collection import Collection, collecting, collector_of

from veilring.deployment.collector import open_configured_store
from veilring.deployment.duties import load_config_of
from veilring.deployment.survey import SurveyTerms, read_published
from veilring.deployment.survey_client import SurveyClientConfig, submit_rows
from veilring.errors import HandshakeError, ScenarioError
from veilring.protocols.ldp import messages
from veilring.protocols.ldp.messages import TASK_FORMAT
from veilring.protocols.ldp.outbox import Outbox

CLIENTS = 20
CLIENT = "survey-client-0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a deployment of a collector and a survey client, of which nothing has started."""
    return Collection(tmp_path / "survey", reports=CLIENTS, survey_clients=1).folder


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
    names = [f"client-{number}" for number in range(CLIENTS)]
    with Outbox(Path(config.outbox)) as outbox:
        assert outbox.can_afford(names, config.budget, config.budget).all()


@pytest.mark.parametrize(("step", "age"), [(-1, "an older"), (1, "a newer")])
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


@pytest.mark.parametrize(("step", "age"), [(-1, "an older"), (1, "a newer")])
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
