"""Runs of scenarios: the report, the leakage, malicious parties, and equality on all runtimes."""

import json
from dataclasses import dataclass, replace
from functools import cache

import networkx as nx
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from typing_extensions import override

from veilring.errors import RunFailed, Tampered
from veilring.nodes.adversary import Adversary
from veilring.protocols.promise import Estimate, Leakage
from veilring.protocols.registry import find_system
from veilring.protocols.ring.roles import SCALE_BITS, SumTotal
from veilring.protocols.ring.system import PrivateKNN
from veilring.randomness import Streams
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.prepare import prepare
from veilring.scenarios.report import leaks
from veilring.scenarios.runner import DRAWN_MAX
from veilring.transport.messages import Message


@cache
def wine_report(runtime: str) -> Report:
    """Return the report of a run of five parties with seed 11."""
    overrides = ["parties.count=5", "protocol.batch=20", "run.leakage_trials=200"]
    return run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=11)


def untimed(report: Report) -> dict[str, object]:
    """Return the parts that do not depend on the place and time of the run."""
    depends = {"runtime", "seconds", "start_seconds", "simulated_seconds", "settings"}
    return {name: value for name, value in report.as_json().items() if name not in depends}


class TestReport:
    """The report of a run."""

    @pytest.mark.parametrize("k", [1, 5, 20])
    @pytest.mark.parametrize(
        ("name", "queries"), [("wine", "all"), ("breast-cancer", "all"), ("digits", "100")]
    )
    def test_enough_rounds_give_the_pooled_labels(self, name: str, queries: str, k: int) -> None:
        """With the rounds for error 1e-6, private and pooled classifier agree on every row."""
        overrides = [f"data.queries={queries}", f"protocol.k={k}", "run.leakage_trials=0"]
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
        whole = wine_report("memory")
        report = json.loads(json.dumps(whole.as_json(), allow_nan=False))
        assert Report.from_json(report) == whole
        assert report.keys() == {*Report.__dataclass_fields__, "settings"}
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


RUNTIMES = ("memory", "tls", "processes", "simulated")


class TestRuntimes:
    """One scenario on four runtimes."""

    @pytest.mark.parametrize("runtime", RUNTIMES[1:])
    def test_a_seed_gives_the_same_report_everywhere(self, runtime: str) -> None:
        """Labels, cost, leakage and transcript equal those of the runtime in memory."""
        assert wine_report(runtime).runtime == runtime
        assert untimed(wine_report(runtime)) == untimed(wine_report("memory"))

    def test_only_the_simulated_clock_gives_simulated_seconds(self) -> None:
        """A run takes about one latency per round, and slightly more for set-up."""
        assert wine_report("memory").simulated_seconds is None
        report = wine_report("simulated")
        assert report.simulated_seconds is not None
        assert report.simulated_seconds > report.cost.rounds * 0.02 * 0.8

    def test_another_seed_gives_another_run(self) -> None:
        """Seeds determine the split and every message."""
        scenario = load_scenario("wine", ["parties.count=5", "run.leakage_trials=0"])
        other = run_scenario(scenario, runtime="memory", seed=12)
        assert other.transcript != wine_report("memory").transcript
        assert other.labels != wine_report("memory").labels

    def test_without_a_seed_only_the_experiment_can_be_repeated(self) -> None:
        """The reported seed repeats split and labels, but no message: secrets were unseeded."""
        scenario = load_scenario("wine", ["parties.count=3", "run.leakage_trials=0"])
        first = run_scenario(scenario, runtime="memory")
        again = run_scenario(scenario, runtime="memory", seed=first.seed)
        assert (first.secrets, again.secrets) == ("cryptographic", "seeded")
        assert first.labels == again.labels
        assert first.transcript != again.transcript

    def test_a_thousand_parties_are_dealt_a_ring(self) -> None:
        """Above the limit the simulated ring is dealt without set-up cost, and reported as such."""
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
        """Outside the simulation, rings are never dealt."""
        overrides = ["parties.count=65", "data.queries=1", "protocol.rounds=1"]
        scenario = load_scenario("wine", [*overrides, "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert report.ring == "drawn by a committee"
        assert report.cost == report.forecast

    @pytest.mark.parametrize("graph", ["star", "cycle", "path"])
    def test_a_graph_changes_only_times(self, graph: str) -> None:
        """Forwarded messages are the same messages, later."""
        overrides = [
            "parties.count=5",
            "protocol.batch=20",
            "run.leakage_trials=200",
            f"network.graph={graph}",
            'network.latency={distribution="constant", seconds=0.01}',
        ]
        report = run_scenario(load_scenario("wine", overrides), runtime="simulated", seed=11)
        assert untimed(report) == untimed(wine_report("memory"))
        assert report.simulated_seconds is not None
        assert report.simulated_seconds > report.cost.rounds * 0.01

    def test_a_graph_can_come_from_a_file(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Edges in a GraphML file have their own latency."""
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


def _leakage(overrides: list[str], trials: int) -> Leakage:
    prepared = prepare(load_scenario("wine", overrides), Streams(1))
    queries, rng = prepared.held_out.X, Streams(1).generator("leakage")
    leakage = prepared.setup.leakage(queries, trials, rng)
    assert leakage is not None
    return leakage


class TestLeakage:
    """Leakage per hop on the distances of a scenario."""

    def test_is_a_fraction_with_an_error(self) -> None:
        """All estimates are within their ranges, and the peak is at least the mean."""
        leakage = wine_report("memory").leakage
        assert leakage is not None
        assert leakage.trials == 200
        values = {name: each.value for name, each in leakage.estimates.items()}
        assert 0 < values["exposure"] < 1
        assert 0 < values["claim"] <= 1
        assert values["lop"] <= values["lop_peak"]
        assert leakage.estimates["exposure"].standard_error > 0

    def test_only_a_party_with_all_rows_leaks(self) -> None:
        """Of three parties, only the one with all rows is exposed, once per run."""
        overrides = [
            "parties.count=3",
            "partition.kind=sizes",
            "partition.sizes=[134, 0, 0]",
            "protocol.P0=0",
        ]
        assert prepare(load_scenario("wine", overrides), Streams(1)).setup.rounds == 1
        found = _leakage(overrides, 100).estimates
        assert found["exposure"].value == pytest.approx(1 / 3)

    @pytest.mark.slow
    def test_large_trials_are_fewer(self) -> None:
        """A thousand parties get as many trials as memory and time allow, and at least two."""
        overrides = ["parties.count=1000", "protocol.k=100"]
        assert 2 <= _leakage(overrides, 20_000).trials < 100
        assert _leakage(overrides, 2).trials == 2


class TestSimulatedViews:
    """A system whose views can be simulated from published values leaks nothing else."""

    RANK = ("protocol.name=rank-search", "data.queries=12")

    def test_the_measures_of_a_hop_are_0_with_a_reason(self) -> None:
        """All four measures of the ring are 0 by proof; published values are estimated."""
        report = run_scenario(load_scenario("wine", [*self.RANK]), runtime="memory", seed=1)
        assert report.leakage is not None
        ring = find_system("private-knn").measures
        shown = {leaked.label: leaked for leaked in leaks(report.leakage, "rank-search")}
        for name, measure in ring.items():
            assert report.leakage.estimates[name] == Estimate(0.0, 0.0)
            leaked = shown.pop(measure.label)
            assert leaked.value == "0"
            assert leaked.meaning.startswith("by proof: ")
        assert len(shown) == len(report.leakage.published) == 3
        assert all(leaked.is_estimated for leaked in shown.values())
        assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report

    def test_published_values_are_measured_on_the_queries(self) -> None:
        """There is one search per query or trial; intervals contain the distances, so none is 0."""
        leakage = _leakage([*self.RANK], 20_000)
        assert (leakage.trials, _leakage([*self.RANK], 5).trials) == (12, 5)
        assert 0 < leakage.published["radius"].value < 0.1
        assert 0 < leakage.published["above"].value < 1

    def test_ties_are_reported_as_revealed(self) -> None:
        """If all rows occur twice, an odd k ends each search at the distance of a row."""
        prepared = prepare(load_scenario("wine", [*self.RANK, "protocol.k=1"]), Streams(1))
        setup, rows = prepared.setup, list(prepared.setup.parts.values())
        twice = {f"party-{n}": rows[n % 8] for n in range(16)}
        doubled = setup.system.setup(twice, replace(setup.facts, parties=16))
        found = doubled.leakage(prepared.held_out.X, 100, np.random.default_rng(0))
        assert found is not None
        assert found.published["tied"] == Estimate(1.0, 0.0)
        assert found.published["radius"] == Estimate(0.0, 0.0)

    def test_without_totals_none_is_above_k(self) -> None:
        """A search that reveals votes opens comparisons only."""
        leakage = _leakage([*self.RANK, "protocol.reveal=votes"], 100)
        assert leakage.published["above"] == Estimate(0.0, 0.0)


@dataclass
class Pretender(Adversary):
    """An adversary that is honest to others, but tells itself that all rows have class one."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        if isinstance(message, SumTotal):
            values = message.values.copy()
            values[:, 0] += np.uint64(100 << SCALE_BITS)
            return SumTotal(values=values)
        return message


class TestAdversaries:
    """Malicious parties of a scenario."""

    def test_an_adversary_that_takes_over_decides_every_label(self) -> None:
        """The report has the scenario with its adversaries and their effect on the labels."""
        overrides = ["parties.count=5", 'adversaries.party-1={kind="take-over", by=5, entry=2}']
        scenario = load_scenario("wine", [*overrides, "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert len(set(report.labels)) == 1
        assert report.agreement < 0.5
        settings = report.as_json()["settings"]["adversaries"]
        assert settings == {"party-1": {"kind": "take-over", "by": 5, "entry": 2}}

    @pytest.mark.parametrize("runtime", ["processes", "simulated"])
    def test_a_detected_adversary_ends_the_run_with_its_suspects(self, runtime: str) -> None:
        """There is no report, and the error names the culprit among its suspects."""
        overrides = ["parties.count=5", 'adversaries.party-1={kind="replayer"}']
        with pytest.raises(RunFailed) as caught:
            run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=1)
        assert isinstance(caught.value.root, Tampered)
        assert "party-1" in caught.value.root.suspects

    def test_labels_are_those_of_an_honest_party(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Labels are an honest party's even if a malicious first party asked the queries."""
        kinds = {"pretender": Pretender}
        monkeypatch.setattr(PrivateKNN, "adversaries", lambda _system: kinds)
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
