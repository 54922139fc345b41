"""Running scenarios: the same on every runtime, and what the report says."""

import json
from dataclasses import dataclass
from functools import cache

import networkx as nx
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from typing_extensions import override

from veilring import scenarios
from veilring.errors import RunFailed, Tampered
from veilring.nodes.adversary import Adversary
from veilring.protocols.ring.messages import SumTotal
from veilring.protocols.ring.roles.knn import SCALE_BITS
from veilring.randomness import Streams
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.leakage import estimate_leakage, trials_for
from veilring.scenarios.prepare import prepare
from veilring.scenarios.runner import DRAWN_MAX
from veilring.transport.messages import Message


@dataclass
class Pretender(Adversary):
    """Tells everybody the truth, and itself that all rows are of the first class."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        if isinstance(message, SumTotal):
            values = message.values.copy()
            values[:, 0] += np.uint64(100 << SCALE_BITS)
            return SumTotal(values=values)
        return message


RUNTIMES = ("memory", "tls", "processes", "simulated")


@cache
def _wine(runtime: str) -> Report:
    overrides = ["parties.count=5", "protocol.batch=20", "run.leakage_trials=200"]
    return run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=11)


def _untimed(report: Report) -> dict[str, object]:
    """Return all that does not depend on where and when it was run."""
    depends = {"runtime", "seconds", "start_seconds", "simulated_seconds", "settings"}
    return {name: value for name, value in report.as_json().items() if name not in depends}


class TestRuntimes:
    """One scenario, four places to run it."""

    @pytest.mark.parametrize("runtime", RUNTIMES[1:])
    def test_a_seed_gives_the_same_report_everywhere(self, runtime: str) -> None:
        """Labels, cost, leakage and transcript are those of the runtime in memory."""
        assert _wine(runtime).runtime == runtime
        assert _untimed(_wine(runtime)) == _untimed(_wine("memory"))

    def test_only_the_simulated_clock_gives_simulated_seconds(self) -> None:
        """A run takes about as many latencies as it has rounds, and set-up takes some more."""
        assert _wine("memory").simulated_seconds is None
        report = _wine("simulated")
        assert report.simulated_seconds is not None
        assert report.simulated_seconds > report.cost.rounds * 0.02 * 0.8

    def test_another_seed_gives_another_run(self) -> None:
        """Seeds decide the split and every message."""
        scenario = load_scenario("wine", ["parties.count=5", "run.leakage_trials=0"])
        other = run_scenario(scenario, runtime="memory", seed=12)
        assert other.transcript != _wine("memory").transcript
        assert other.labels != _wine("memory").labels

    def test_without_a_seed_only_the_experiment_can_be_repeated(self) -> None:
        """The reported seed repeats split and labels, but no message: secrets were not seeded."""
        scenario = load_scenario("wine", ["parties.count=3", "run.leakage_trials=0"])
        first = run_scenario(scenario, runtime="memory")
        again = run_scenario(scenario, runtime="memory", seed=first.seed)
        assert (first.secrets, again.secrets) == ("cryptographic", "seeded")
        assert first.labels == again.labels
        assert first.transcript != again.transcript

    def test_a_thousand_parties_are_dealt_a_ring(self) -> None:
        """Above the limit the simulated ring is dealt, costs nothing to set up, and is reported."""
        overrides = [
            f"parties.count={DRAWN_MAX + 1}",
            "data.queries=2",
            "protocol.rounds=1",
            "run.leakage_trials=4",
        ]
        report = run_scenario(
            load_scenario("breast-cancer", overrides), runtime="simulated", seed=1
        )
        assert report.ring == "dealt from the seed"
        assert report.cost == report.forecast
        assert report.cost.setup_messages == DRAWN_MAX

    def test_many_parties_elsewhere_draw_by_committee(self) -> None:
        """Outside the simulation no ring is ever dealt."""
        overrides = ["parties.count=65", "data.queries=1", "protocol.rounds=1"]
        scenario = load_scenario("wine", [*overrides, "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert report.ring == "drawn by a committee"
        assert report.cost == report.forecast

    @pytest.mark.parametrize("graph", ["star", "cycle", "path"])
    def test_a_graph_changes_time_and_nothing_else(self, graph: str) -> None:
        """Messages that have to be forwarded are the same messages, later."""
        overrides = [
            "parties.count=5",
            "protocol.batch=20",
            "run.leakage_trials=200",
            f"network.graph={graph}",
            'network.latency={law="constant", seconds=0.01}',
        ]
        report = run_scenario(load_scenario("wine", overrides), runtime="simulated", seed=11)
        assert _untimed(report) == _untimed(_wine("memory"))
        assert report.simulated_seconds is not None
        assert report.simulated_seconds > report.cost.rounds * 0.01

    def test_a_graph_can_come_from_a_file(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Edges of a GraphML file carry their own latency."""
        path = tmp_path_factory.mktemp("graph") / "links.graphml"
        graph: nx.Graph[str] = nx.complete_graph([f"party-{n}" for n in range(5)])
        for _, _, attributes in graph.edges(data=True):
            attributes["latency_seconds"] = 2.0
        nx.write_graphml(graph, path)
        overrides = ["parties.count=5", "run.leakage_trials=0", f"network.graph={path}"]
        report = run_scenario(load_scenario("wine", overrides), runtime="simulated", seed=1)
        assert report.simulated_seconds is not None
        set_up_steps = 3  # queries, then commitments, then nonces
        assert report.simulated_seconds == 2.0 * (set_up_steps + report.cost.rounds)


class TestReport:
    """What is said of a run."""

    @pytest.mark.parametrize(
        ("name", "queries"), [("wine", "all"), ("breast-cancer", "all"), ("digits", "100")]
    )
    def test_enough_rounds_give_the_pooled_labels(self, name: str, queries: str) -> None:
        """With the rounds of error 1e-6, private and pooled classifier agree on every row."""
        overrides = [f"data.queries={queries}", "run.leakage_trials=0"]
        report = run_scenario(load_scenario(name, overrides), runtime="memory", seed=2)
        assert report.agreement == 1.0
        assert report.accuracy == report.reference_accuracy > report.majority_accuracy

    def test_the_reference_is_the_classifier_that_everybody_knows(self) -> None:
        """Pooled accuracy is scikit-learn's on the same rows, where no distances tie."""
        report = _wine("memory")
        prepared = prepare(report.scenario, Streams(11))
        theirs = KNeighborsClassifier(5, algorithm="brute")
        theirs.fit(prepared.pooled.features, prepared.pooled.labels)
        score = theirs.score(prepared.held_out.features, prepared.held_out.labels)
        assert report.reference_accuracy == score

    def test_the_cost_is_what_was_forecast(self) -> None:
        """Messages, bytes and rounds of all batches are those of the closed forms."""
        report = _wine("memory")
        assert report.cost == report.forecast
        assert report.cost.batches == 3
        assert report.cost.messages == 3 * (5 * (report.rounds + 3) - 2)

    @pytest.mark.parametrize("total", ["shares", "cycles"])
    def test_the_forecast_holds_for_every_sum(self, total: str) -> None:
        """So it does when votes are added up in another way."""
        overrides = [f"protocol.sum={total}", f"protocol.cycles={2 if total == 'cycles' else 1}"]
        scenario = load_scenario("wine", [*overrides, "parties.count=5", "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=3)
        assert report.cost == report.forecast
        assert report.agreement == 1.0

    def test_parties_without_rows_take_part(self) -> None:
        """A party that holds nothing contributes nothing, and the labels are the pooled ones."""
        overrides = [
            "parties.count=4",
            "partition.kind=sizes",
            "partition.sizes=[0, 134, 0, 0]",
            "run.leakage_trials=50",
        ]
        report = run_scenario(load_scenario("wine", overrides), runtime="memory", seed=4)
        assert report.agreement == 1.0

    def test_one_round_of_noise_disagrees(self) -> None:
        """With P0 = 1 and one round every answer is noise, and agreement is not what it was."""
        overrides = ["protocol.rounds=1", "protocol.P0=1.0", "run.leakage_trials=0"]
        report = run_scenario(load_scenario("digits", overrides), runtime="memory", seed=5)
        assert report.agreement < 1.0

    def test_the_majority_is_that_of_the_parties_rows(self) -> None:
        """Its accuracy is the share of held-out rows of the class that most rows have."""
        report = _wine("memory")
        prepared = prepare(report.scenario, Streams(11))
        most = np.bincount(prepared.pooled.labels).argmax()
        assert report.majority_accuracy == np.mean(prepared.held_out.labels == most)

    def test_it_is_json(self) -> None:
        """The whole report survives a round trip, with the keys that programs rely on."""
        report = json.loads(json.dumps(_wine("memory").as_json(), allow_nan=False))
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

    def test_progress_is_told(self) -> None:
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
            "Estimating what a hop leaks",
        ]
        assert told[2:5] == [("Labelling", done, 44) for done in (0, 20, 40)]


class TestAdversaries:
    """Malicious parties of a scenario."""

    def test_one_that_takes_over_decides_every_label(self) -> None:
        """The report has the scenario with its adversaries, and what they did to the labels."""
        overrides = ["parties.count=5", 'adversaries.party-1={kind="take-over", by=5, entry=2}']
        scenario = load_scenario("wine", [*overrides, "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert len(set(report.labels)) == 1
        assert report.agreement < 0.5
        settings = report.as_json()["settings"]["adversaries"]
        assert settings == {"party-1": {"kind": "take-over", "by": 5, "entry": 2}}

    @pytest.mark.parametrize("runtime", ["processes", "simulated"])
    def test_one_that_is_found_ends_the_run_with_its_suspects(self, runtime: str) -> None:
        """There is no report, and the error has the culprit among those that it names."""
        overrides = ["parties.count=5", 'adversaries.party-1={kind="replayer"}']
        with pytest.raises(RunFailed) as caught:
            run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=1)
        assert isinstance(caught.value.root, Tampered)
        assert "party-1" in caught.value.root.suspects

    def test_labels_are_those_of_an_honest_party(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a malicious first party says it learned does not count; what it asked does."""
        monkeypatch.setattr(scenarios.prepare, "ADVERSARIES", {"pretender": Pretender})
        overrides = ["parties.count=5", "run.leakage_trials=0"]
        honest = run_scenario(load_scenario("wine", overrides), runtime="memory", seed=1)
        assert len(set(honest.labels)) > 1
        lying = 'adversaries.party-0={kind="pretender"}'
        scenario = load_scenario("wine", [*overrides, lying])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert (report.labels, report.transcript) == (honest.labels, honest.transcript)
        liar = 'adversaries.party-1={kind="pretender"}'
        other = run_scenario(load_scenario("wine", [*overrides, liar]), runtime="memory", seed=1)
        assert other.labels == honest.labels


class TestLeakage:
    """What a hop leaks on a scenario's own distances."""

    def test_is_a_share_and_comes_with_its_error(self) -> None:
        """All estimates are within their ranges, and the peak is no less than the mean."""
        leakage = _wine("memory").leakage
        assert leakage is not None
        assert leakage.trials == 200
        assert 0 < leakage.exposure.value < 1
        assert 0 < leakage.claim.value <= 1
        assert leakage.lop.value <= leakage.lop_peak.value
        assert leakage.exposure.standard_error > 0

    def test_who_holds_all_rows_is_who_leaks(self) -> None:
        """Of three parties the one with all rows is exposed once in each run, and nobody else."""
        overrides = [
            "parties.count=3",
            "partition.kind=sizes",
            "partition.sizes=[134, 0, 0]",
            "protocol.P0=0",
        ]
        prepared = prepare(load_scenario("wine", overrides), Streams(1))
        found = estimate_leakage(prepared, 100, Streams(1).generator("leakage"))
        assert prepared.parameters.rounds == 1
        assert found.exposure.value == pytest.approx(1 / 3)
        assert found.exposure_by_party.sum() == pytest.approx(1.0)

    def test_trials_are_fewer_where_each_is_large(self) -> None:
        """A thousand parties get as many trials as memory and patience allow, and at least two."""
        scenario = load_scenario("wine", ["parties.count=1000", "protocol.k=100"])
        prepared = prepare(scenario, Streams(1))
        assert 2 <= trials_for(prepared, 20_000) < 100
        assert trials_for(prepared, 2) == 2
