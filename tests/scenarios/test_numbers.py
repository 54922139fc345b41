"""Scenarios, reports and commands whose label is a number."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.invoking import done, refused
from tests.scenarios.reporting.pages import Page

from veilring.errors import ScenarioError
from veilring.measures import NumberMeasures
from veilring.protocols.release.model import load_model
from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.report import Report
from veilring.scenarios.reporting import read_folder
from veilring.scenarios.reporting.page import render

ROWS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file whose label is nearly linear in its features."""
    rng = np.random.default_rng(3)
    rows = rng.random((ROWS, 3)).round(3)
    values = (10 * rows @ [1.0, 2.0, -1.0] + rng.normal(0, 0.3, ROWS)).round(2)
    lines = [",".join(map(str, [*row, y])) for row, y in zip(rows.tolist(), values, strict=True)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["a,b,c,y", *lines, ""]))
    return file


def run(path: Path, protocol: str, *settings: str) -> Report:
    """Run a scenario on the file."""
    chosen = ['data.label="y"', f'protocol.name="{protocol}"', "parties.count=3", *settings]
    scenario = load_scenario(str(path), ["run.leakage_trials=0", *chosen])
    return run_scenario(scenario, runtime="memory", seed=1)


@pytest.mark.parametrize("protocol", ["rank-search", "release"])
def test_a_report_has_errors_in_place_of_accuracies(protocol: str, path: Path) -> None:
    """It compares them with the pooled regression, and is read back from its JSON."""
    report = run(path, protocol)
    assert (report.accuracy, report.reference_accuracy, report.majority_accuracy) == (None,) * 3
    assert isinstance(report.measures, NumberMeasures)
    assert isinstance(report.reference_measures, NumberMeasures)
    assert report.cost == report.forecast
    if protocol == "rank-search":
        assert report.agreement == 1.0
        assert report.measures == report.reference_measures
        assert report.measures.rmse.value < 3
        assert "the sum of their targets" in report.promise.learned
    again = Report.from_json(json.loads(json.dumps(report.as_json())))
    assert again.measures == report.measures
    assert again.labels == report.labels
    assert again == report


def test_a_system_for_classes_and_a_comparison_refuse_the_file(path: Path) -> None:
    """The errors name the key, and the systems to use."""
    with pytest.raises(ScenarioError, match="use rank-search or release") as wrong:
        run(path, "private-knn")
    assert wrong.value.field == "protocol.name"
    assert "run rank-search or release with it" in refused("compare", path, "--label", "y")


@pytest.mark.slow
def test_the_commands_predict_numbers(path: Path, tmp_path: Path) -> None:
    """`run` prints errors and writes a page and a model, with which `classify` predicts."""
    folder = tmp_path / "run"
    chosen = ("--label", "y", "--protocol", "release", "--set", "parties.count=3")
    out = done("run", path, *chosen, "--runtime", "memory", "--measure", "auc", "--out", folder)
    for told in ("RMSE", "MAE", "R²", "pooled kNN", "the label is a number, not a class"):
        assert told in out
    page = Page(render(read_folder(folder)))
    assert [row[0] for row in page.tables["errors-table"]][:3] == ["RMSE", "MAE", "R²"]
    assert "accuracy-table" not in page.tables
    found = done("classify", folder / "model.json", path).splitlines()
    assert found[0] == "label"
    assert list(map(float, found[1:])) == load_model(folder / "model.json").predict(path).tolist()
    assert "no probabilities" in refused("classify", folder / "model.json", path, "--probabilities")
    assert "a number from" in done("classify", folder / "model.json")
