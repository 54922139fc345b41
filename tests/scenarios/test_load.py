"""Scenarios: loading and setting of keys."""

from pathlib import Path

import pytest

from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios import load_scenario, scenario_names


class TestLoading:
    """Loading a checked scenario from a name or a file."""

    @pytest.mark.parametrize("name", scenario_names())
    def test_each_built_in_scenario_is_correct_and_described(self, name: str) -> None:
        """It loads under its own name and has a one-line description."""
        scenario = load_scenario(name)
        assert scenario.name == name
        assert scenario.description
        assert "\n" not in scenario.description

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits"])
    def test_a_real_set_is_run_by_eight_processes(self, name: str) -> None:
        """The scenario for newcomers runs on a real data set in eight processes."""
        scenario = load_scenario(name)
        assert (len(scenario.parties.all), scenario.network.runtime) == (8, "processes")

    def test_the_library_has_the_three_sets(self) -> None:
        """Wine, breast cancer and digits can be run without further files."""
        assert {"wine", "breast-cancer", "digits"} <= set(scenario_names())

    def test_paths_in_a_file_are_relative_to_it(self, tmp_path: Path) -> None:
        """Data and graph are found beside the scenario; names of built-in sets stay names."""
        text = '[data]\nsource = "rows.csv"\n[network]\ngraph = "links.graphml"\n'
        (tmp_path / "mine.toml").write_text(text)
        scenario = load_scenario(str(tmp_path / "mine.toml"))
        assert scenario.name == "mine"
        assert scenario.data.source == str(tmp_path / "rows.csv")
        assert scenario.network.graph == str(tmp_path / "links.graphml")
        (tmp_path / "mine.toml").write_text('[data]\nsource = "wine"\n')
        assert load_scenario(str(tmp_path / "mine.toml")).data.source == "wine"

    def test_any_key_can_be_set(self) -> None:
        """Values are TOML or otherwise strings; missing tables are created."""
        scenario = load_scenario(
            "wine",
            [
                "data.source=my.csv",
                "parties.count=5",
                'protocol.rounds = "auto"',
                "protocol.P0=0.5",
                "network.bandwidth_bytes_per_second=1e6",
                "network.latency.median_seconds=0.5",
                "partition.kind=sizes",
                "partition.sizes=[1, 2, 3, 4, 0]",
            ],
        )
        assert scenario.data.source == "my.csv"
        assert scenario.protocol == PrivateKNN(P0=0.5)
        assert scenario.network.bandwidth_bytes_per_second == 1e6
        assert scenario.network.latency == {
            "distribution": "lognormal",
            "median_seconds": 0.5,
            "sigma": 0.25,
        }
        assert scenario.partition.sizes == (1, 2, 3, 4, 0)

    def test_a_value_cannot_inject_another_key(self) -> None:
        """A line break in a value starts no second assignment."""
        scenario = load_scenario("wine", ["description=1\nrun.seed=7"])
        assert scenario.run.seed is None
        assert scenario.description == "1\nrun.seed=7"

    def test_parties_can_be_named(self) -> None:
        """Names replace a count."""
        scenario = load_scenario("wine", ['parties={names=["ann", "bo", "cy"]}'])
        assert scenario.parties.all == ("ann", "bo", "cy")

    def test_set_names_replace_the_count_of_a_file(self) -> None:
        """The names determine the number of parties."""
        names = 'parties.names=["ada", "bob", "cyd"]'
        for table in (names, f"parties={{{names.removeprefix('parties.')}}}"):
            assert load_scenario("wine", [table]).parties.all == ("ada", "bob", "cyd")

    def test_a_scenario_cannot_be_changed(self) -> None:
        """A checked scenario cannot change afterwards."""
        scenario = load_scenario("wine")
        with pytest.raises(ValueError, match="frozen"):
            scenario.name = "other"  # type: ignore[misc]  # the tested assignment
        with pytest.raises(ValueError, match="frozen"):
            scenario.protocol.name = "other"  # type: ignore[misc]  # likewise
