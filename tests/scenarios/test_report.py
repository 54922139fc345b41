"""The report of a run."""

import json

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.scenarios.wine import wine_report

from veilring.randomness import Streams
from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.prepare import prepare


class TestReport:
    """The report of a run."""

    @pytest.mark.parametrize(
        ("name", "queries"), [("wine", "all"), ("breast-cancer", "all"), ("digits", "100")]
    )
    def test_enough_rounds_give_the_pooled_labels(self, name: str, queries: str) -> None:
        """With the rounds for error 1e-6, private and pooled classifier agree on every row."""
        overrides = [f"data.queries={queries}", "run.leakage_trials=0"]
        report = run_scenario(load_scenario(name, overrides), runtime="memory", seed=2)
        assert report.agreement == 1.0
        assert report.accuracy == report.reference_accuracy > report.majority_accuracy

    def test_the_reference_is_scikit_learns_classifier(self) -> None:
        """Pooled accuracy equals scikit-learn's on the same rows, if no distances tie."""
        report = wine_report("memory")
        prepared = prepare(report.scenario, Streams(11))
        theirs = KNeighborsClassifier(5, algorithm="brute")
        theirs.fit(prepared.pooled.X, prepared.pooled.y)
        score = theirs.score(prepared.held_out.X, prepared.held_out.y)
        assert report.reference_accuracy == score

    def test_the_cost_equals_the_forecast(self) -> None:
        """Messages, bytes and rounds of all batches equal the closed forms."""
        report = wine_report("memory")
        assert report.cost == report.forecast
        assert report.cost.batches == 3
        assert report.rounds is not None
        assert report.cost.messages == 3 * (5 * (report.rounds + 3) - 2)

    @pytest.mark.parametrize("total", ["shares", "masks", "cycles"])
    def test_the_forecast_holds_for_every_sum(self, total: str) -> None:
        """The forecast equals the cost for every method of adding votes."""
        overrides = [f"protocol.sum={total}", f"protocol.cycles={2 if total == 'cycles' else 1}"]
        scenario = load_scenario("wine", [*overrides, "parties.count=5", "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=3)
        assert report.cost == report.forecast
        assert report.agreement == 1.0

    def test_parties_without_rows_take_part(self) -> None:
        """A party without rows contributes nothing, and the labels are the pooled ones."""
        overrides = [
            "parties.count=4",
            "partition.kind=sizes",
            "partition.sizes=[0, 134, 0, 0]",
            "run.leakage_trials=50",
        ]
        report = run_scenario(load_scenario("wine", overrides), runtime="memory", seed=4)
        assert report.agreement == 1.0

    def test_one_round_of_noise_disagrees(self) -> None:
        """With P0 = 1 and one round every answer is noise, and agreement falls."""
        overrides = ["protocol.rounds=1", "protocol.P0=1.0", "run.leakage_trials=0"]
        report = run_scenario(load_scenario("digits", overrides), runtime="memory", seed=5)
        assert report.agreement < 1.0

    def test_the_majority_is_that_of_the_parties_rows(self) -> None:
        """Its accuracy is the fraction of held-out rows in the parties' majority class."""
        report = wine_report("memory")
        prepared = prepare(report.scenario, Streams(11))
        most = np.bincount(prepared.pooled.y).argmax()
        assert report.majority_accuracy == np.mean(prepared.held_out.y == most)

    def test_a_report_is_json(self) -> None:
        """The whole report survives a round trip, with the keys that programs use."""
        report = json.loads(json.dumps(wine_report("memory").as_json(), allow_nan=False))
        expected = {
            "accuracy",
            "reference_accuracy",
            "majority_accuracy",
            "agreement",
            "cost",
            "forecast",
            "seconds",
            "leakage",
            "transcript",
            "scenario",
            "runtime",
            "parties",
            "queries",
            "seed",
            "settings",
        }
        assert expected <= set(report)
        assert {"messages", "bytes", "rounds", "setup_messages", "setup_bytes"} <= set(
            report["cost"]
        )
        assert report["scenario"] == "wine"
        assert len(report["labels"]) == report["queries"] == 44

    def test_progress_is_reported(self) -> None:
        """Loading, starting, every batch and the estimate are announced in this order."""
        told: list[tuple[str, int, int]] = []
        overrides = ["parties.count=3", "protocol.batch=20", "run.leakage_trials=2"]
        run_scenario(
            load_scenario("wine", overrides),
            runtime="memory",
            seed=1,
            progress=lambda *step: told.append(step),
        )
        assert [doing for doing, _, _ in told] == [
            "Loading the data",
            "Starting the parties",
            "Labelling",
            "Labelling",
            "Labelling",
            "Estimating the leakage",
        ]
        assert told[2:5] == [("Labelling", done, 44) for done in (0, 20, 40)]
