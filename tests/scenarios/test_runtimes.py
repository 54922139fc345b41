"""One scenario on four runtimes."""

import networkx as nx
import pytest
from tests.scenarios.wine import untimed, wine_report

from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.runner import DRAWN_MAX

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
