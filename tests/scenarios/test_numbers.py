"""Scenarios, reports and commands whose label is a number."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor
from tests.cli.invoking import done, refused
from tests.scenarios.reporting.pages import Page

from veilring.errors import ScenarioError
from veilring.measures import NumberMeasures
from veilring.protocols.release.model import load_model
from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.comparison import compare
from veilring.scenarios.comparison.page import render_page
from veilring.scenarios.comparison.question import draw_split, load_facts, make_question
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


def test_a_system_for_classes_refuses_the_file(path: Path) -> None:
    """The error names the key, and the systems to use."""
    with pytest.raises(ScenarioError, match="use rank-search or release") as wrong:
        run(path, "private-knn")
    assert wrong.value.field == "protocol.name"


def test_systems_are_compared_by_the_variance_that_they_explain(path: Path) -> None:
    """The score of a line is the R² of scikit-learn; systems for classes are left out."""
    asked = {"parties": 3, "epsilon": (2.0,), "splits": 3, "seed": 1, "k": 3}
    question = make_question({"data": str(path), "label": "y", "hindsight": False, **asked})
    found = compare(question, workers=1)
    rows, _ = load_facts(question)
    for number, score in enumerate(found.pooled.accuracies):
        split = draw_split(rows, question, number)
        nearest = KNeighborsRegressor(3).fit(split.train.X, split.train.y)
        expected = r2_score(split.held_out.y, nearest.predict(split.held_out.X))
        assert score == pytest.approx(expected, abs=1e-3)  # predictions are whole steps
        mean = np.full(len(split.held_out), round(split.train.y.mean()))
        baseline = r2_score(split.held_out.y, mean)
        assert found.majority.accuracies[number] == pytest.approx(baseline)
    search = next(line for line in found.lines if line.system == "rank-search")
    assert search.accuracies == found.pooled.accuracies
    assert {"noisy votes", "LDP naive Bayes", "PP-kNN"} <= {each.name for each in found.left_out}
    assert "R² is" in found.decision.says[0]
    page = Page(render_page(found))
    assert page.tables["lines-table"][0][2] == "R²"
    assert "measures-table" not in page.tables


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
