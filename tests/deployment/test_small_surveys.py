"""Surveys of few clients: the minimum number of reports strands no operator."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection, collecting, collector_of
from tests.deployment.commands import call
from tests.protocols.ldp.collecting import accepted, keep

from veilring.deployment.collector import open_configured_store
from veilring.deployment.survey import MINIMUM_REPORTS, SurveyTerms
from veilring.protocols.ldp.roles import ClientPool

SITES, EACH = ("site-a", "site-b", "site-c", "site-d"), 50
CLIENTS = len(SITES) * EACH


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a collection with 50 stored reports of each of four sites."""
    folder = Collection(tmp_path / "survey", reports=CLIENTS, survey_clients=4).folder
    config = collector_of(folder)
    task = SurveyTerms.load(Path(config.terms)).task
    rng = np.random.default_rng(1)
    store = open_configured_store(config, task)
    for site in SITES:
        pool = ClientPool(rng.uniform(0.0, 8.0, size=(EACH, 4)), rng.integers(3, size=EACH))
        keep(store, accepted(task, list(pool.answer(task, rng))), member=site)
    store.close()
    return folder


def set_minimum(folder: Path, minimum: int) -> None:
    """Change the minimum in the terms of a collection."""
    path = folder / "terms.toml"
    lines = [each for each in path.read_text().splitlines() if not each.startswith("minimum")]
    lines.insert(lines.index("[protocol]") + 1, f"minimum = {minimum}")
    path.write_text("\n".join([*lines, ""]))


def test_a_lower_minimum_unlocks_the_stored_reports(folder: Path) -> None:
    """After it was lowered, the same store is estimated, and exported files are added up."""
    pytest.importorskip("polars", reason="polars is part of the extra `parquet`")
    collector, terms = folder / "collector.toml", folder / "terms.toml"
    set_minimum(folder, MINIMUM_REPORTS)
    call("export", collector, "--out", folder / "reports")
    files = sorted((folder / "reports").glob("*.parquet"))
    for command in (("estimate", collector), ("tally", terms, *files)):
        early = call(*command, code=2)
        assert "200 of at least 1,000 reports so far (`minimum` in the terms" in early.output
    set_minimum(folder, CLIENTS)
    for command in (("estimate", collector), ("tally", terms, *files)):
        done = call(*command, "--json")
        document = json.loads(done.stdout)
        assert document["reports"] == CLIENTS
        assert document["below_minimum"] is False


def test_estimates_without_a_member_may_fall_below_the_minimum(folder: Path) -> None:
    """They are marked, and no model is made of them; the minimum applies to all reports."""
    collector, without = folder / "collector.toml", ("--without", "site-d")
    shown = call("estimate", collector, *without)
    assert "150 reports are left, fewer than the minimum of 200" in shown.output
    document = json.loads(call("estimate", collector, *without, "--json").stdout)
    assert (document["reports"], document["below_minimum"]) == (150, True)
    assert "reports are left" not in call("estimate", collector).output
    model = folder / "model.json"
    refused = call("estimate", collector, *without, "--save", model, code=2)
    assert "150 of at least 200 reports" in refused.output
    assert not model.exists()
    nobody = call(
        "estimate", collector, *(word for site in SITES for word in ("--without", site)), code=2
    )
    assert "no reports are left; leave out fewer members" in nobody.output
    set_minimum(folder, CLIENTS + 1)
    early = call("estimate", collector, *without, code=2)
    assert "200 of at least 201 reports so far" in early.output


@pytest.mark.parametrize(
    ("limits", "minimum", "warning"),
    [
        ("reports_max = 50", 200, ""),
        ("reports_max = 50", 201, "only 200 reports of all members together, but estimates need"),
        ("reports_max = 50\nreports_max_of = { survey-client-0 = 51 }", 201, ""),
        ("", 10**9, "no reports_max is set"),
        ("reports_max_of = { survey-client-0 = 1 }", 10**9, "no reports_max is set"),
    ],
)
async def test_a_collector_warns_of_a_minimum_out_of_reach(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limits: str, minimum: int, warning: str
) -> None:
    """It adds up the limits of all members except itself, and starts nevertheless."""
    folder = Collection(tmp_path / "survey", reports=CLIENTS, survey_clients=4).folder
    set_minimum(folder, minimum)
    path = folder / "collector.toml"
    path.write_text(f"{limits}\n{path.read_text()}")
    with caplog.at_level(logging.WARNING, "veilring.collector"):
        async with collecting(collector_of(folder)):
            pass
    assert len(caplog.messages) == bool(warning)
    assert warning in caplog.text


def test_a_trial_survey_can_reach_its_minimum(tmp_path: Path) -> None:
    """Without a choice, it is at most the number of reports; one above it is refused."""
    for reports, minimum in ((CLIENTS, CLIENTS), (5000, MINIMUM_REPORTS)):
        folder = Collection(tmp_path / f"survey-{reports}", reports=reports).folder
        assert SurveyTerms.load(folder / "terms.toml").protocol.minimum == minimum
    options = ("--reports", CLIENTS, "--out", tmp_path / "other", "--minimum")
    refused = call("deploy", "survey", "iris", *options, CLIENTS + 1, code=2)
    assert "--minimum is 201; allowed: 1 to 200, as reports" in refused.output
    assert not (tmp_path / "other").exists()
    call("deploy", "survey", "iris", *options, 7)
