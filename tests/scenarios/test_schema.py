"""Scenarios: loading, setting of keys, and the error for each mistake."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from veilring.errors import ScenarioError
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios import (
    load_scenario,
    make_scenario,
    run_scenario,
    runner,
    scenario_names,
    scenario_text,
)

ONE_SECOND = "start_seconds=1, end_seconds=2"
ONE_LINK = 'source="party-1", target="party-2"'
ALL_OF_THREE = '["party-0", "party-1", "party-2"]'

FAULTS = (  # of one fault: its keys, and the key, value and allowed values of the error
    ('kind="quake"', "kind", "quake", "stall, delay, jitter"),
    ('party="party-1"', "kind", "missing", "crash"),
    ('kind="crash", party="party-1"', "", "party-1", "the table needs kind, "),
    ('kind="crash", party="bob", start_seconds=1', "party", "bob", "party-0, party-1"),
    (
        f'kind="crash", party="party-1", {ONE_SECOND}',
        "end_seconds",
        "2",
        "did you mean start_seconds?",
    ),
    ('kind="crash", party="party-1", start_seconds="soon"', "start_seconds", "soon", "a number"),
    ('kind="crash", party="party-1", start_seconds=-1', "start_seconds", "-1", "at least 0"),
    (
        'kind="pause", party="party-1", start_seconds=1, end_seconds=inf',
        "end_seconds",
        "inf",
        "above start_seconds, 1",
    ),
    (
        'kind="pause", party="party-1", start_seconds=2, end_seconds=2',
        "end_seconds",
        "2",
        "above start_seconds, 2",
    ),
    (
        f'kind="slow", party="party-1", {ONE_SECOND}, extra_seconds=0',
        "extra_seconds",
        "0",
        "above 0",
    ),
    (f'kind="skew", party="party-1", {ONE_SECOND}, times=-2', "times", "-2", "above 0"),
    (f'kind="squeeze", {ONE_LINK}, {ONE_SECOND}, times=0.5', "times", "0.5", "at least 1"),
    (
        f'kind="stall", source="party-1", target="party-1", {ONE_SECOND}',
        "target",
        "party-1",
        "party-0, party-2",
    ),
    (
        f'kind="reset", party="party-1", other="bob", {ONE_SECOND}',
        "other",
        "bob",
        "party-0, party-2",
    ),
    (f'kind="halves", parties="party-1", {ONE_SECOND}', "parties", "party-1", "a list of texts"),
    (f'kind="halves", parties=["party-1", 7], {ONE_SECOND}', "parties", "7", "party-0, party-2"),
    (f'kind="halves", parties=[], {ONE_SECOND}', "parties", "[]", "at least one party"),
)
SIMPLE = {  # a setting, whose key and value the error repeats, and the allowed values
    "protocol.kk=3": "did you mean k?",
    "colour=red": "partition",
    "protocol.k=0": "at least 1",
    "protocol.k=5.0": "a whole number",
    "protocol.k=five": "a whole number",
    "protocol.k=135": "at most 134",
    "protocol.P0=1.5": "from 0 to 1",
    "protocol.P0=nan": "from 0 to 1",
    "protocol.d=0": "above 0",
    "protocol.rounds=0": '"auto"',
    "protocol.rounds=often": '"auto"',
    "protocol.error=1": "below 1",
    "protocol.delta=0": "above 0",
    "protocol.weights=none": "uniform or distance",
    "protocol.sum=star": "ring, cycles, shares or masks",
    "protocol.cycles=2": "otherwise 1",
    "protocol.name=magic": "private-knn",
    "protocol.batch=0": "at least 1",
    "parties=3": "a table with the keys count, names",
    "parties.count=2": "at least 3",
    "partition.kind=fair": "by-label",
    "partition.alpha=0": "0.001",
    "partition.sizes=[1]": "sizes need partition.kind",
    "data.test_share=1": "below 1",
    "data.queries=0": '"all"',
    "data.source=wines": "breast-cancer",
    "data.source=nowhere.csv": "existing",
    "network.runtime=cloud": "memory, tls, processes or simulated",
    "network.latency=0.1": "distribution = ",
    "network.latency.distribution=slow": "lognormal",
    "network.latency.sigma=-1": "at least 0",
    "network.latency.sigma=wide": "a number",
    "network.bandwidth_bytes_per_second=0": "no limit",
    "network.graph=web": "complete, cycle, path, star",
    "network.graph=nowhere.graphml": "can be read",
    "run.seed=-1": "at least 0",
    "run.leakage_trials=1": "at least 2",
    "adversaries=1": "inflate-topk",
    "adversaries.party-1.kind=nice": "wrong-sum",
    "parties.coalition=party-1": "a list of names",
    "parties.colition=[]": "did you mean coalition?",
    "run.retries=-1": "at least 0",
    "run.session_seconds=0": "above 0",
    "run.fault_seconds=0": "above 0",
    "run.fault_seconds=5": 'faults need network.runtime = "simulated"',
    "faults=1": "a list of tables",
}
MISTAKES: tuple[tuple[Sequence[str], str, str, str], ...] = (
    (["netwrk.runtime=tls"], "netwrk", "tls", "did you mean network?"),
    (["protocol.k=true"], "protocol.k", "True", "a whole number"),
    (["protocol.d=1"], "protocol.d", "1.0", "below 1 if P0 is 1"),
    (["protocol.delta=1e300"], "protocol.delta", "1e+300", "up to 1,000,000"),
    (["protocol.sum=cycles"], "protocol.cycles", "1", "2 or more"),
    (["protocol.sum=cycles", "protocol.cycles=4"], "protocol.cycles", "4", "at most 3"),
    (["parties.names=[]", "parties.count=x"], "parties.count", "x", "at least 3"),
    (["parties.count=3", 'parties.names=["a", "b", "c"]'], "parties.count", "3", "not both"),
    (['parties={names=["a", "b", "a"]}'], "parties.names", "'a', 'b', 'a'", "different"),
    (['parties={names=["a", "b"]}'], "parties.names", "'a', 'b'", "at least 3"),
    (['parties={names=["a", "b", "c d"]}'], "parties.names", "c d", "A-Z"),
    (["partition.kind=sizes"], "partition.sizes", "[]", "8 parties"),
    (["partition.kind=sizes", "partition.sizes=[1, -1]"], "partition.sizes", "-1", "at least 0"),
    (
        ["partition.kind=sizes", "partition.sizes=[1, 1, 1, 1, 1, 1, 1, 1]"],
        "partition.sizes",
        "[1, 1, 1, 1, 1, 1, 1, 1]",
        "sum is 134",
    ),
    (["data.source.file=x"], "data.source", "wine", "a table, to hold data.source.file"),
    (
        ["network.latency.distribution=constant"],
        "network.latency.median_seconds",
        "0.02",
        "seconds",
    ),
    (['network.jitter={distribution="uniform"}'], "network.jitter", "uniform", "low_seconds"),
    (["network.jitter.low_seconds=1"], "network.jitter.distribution", "missing", "uniform"),
    (["adversaries.bob.kind=silent"], "adversaries.bob", "silent", "party-0, party-1"),
    (["adversaries.party-1.by=1"], "adversaries.party-1.kind", "missing", "wrong-sum"),
    (
        ['adversaries.party-1={kind="wrong-sum", bye=1}'],
        "adversaries.party-1.bye",
        "1",
        "did you mean by?",
    ),
    (
        ['adversaries.party-1={kind="silent", first_round=1.5}'],
        "adversaries.party-1.first_round",
        "1.5",
        "a whole number",
    ),
    (
        ['adversaries.party-1={kind="deflate-topk", factor=2}'],
        "adversaries.party-1.factor",
        "2",
        "from 0 to 1",
    ),
    (['adversaries.party-1={kind="equivocate"}'], "adversaries.party-1", "equivocate", "victim"),
    (["parties.coalition=[1]"], "parties.coalition", "1", "a list of names"),
    (['parties.coalition=["bob"]'], "parties.coalition", "bob", "party-0, party-1"),
    (
        ['parties.coalition=["party-1", "party-1"]'],
        "parties.coalition",
        "['party-1', 'party-1']",
        "each party once",
    ),
    (
        ["parties.count=3", 'parties.coalition=["party-0", "party-1", "party-2"]'],
        "parties.coalition",
        "party-2",
        "not all of them",
    ),
    (
        ['parties.coalition=["party-1"]', "adversaries.party-1.kind=silent"],
        "parties.coalition",
        "party-1",
        "party-1 is malicious",
    ),
    (["run.retries=true"], "run.retries", "True", "a whole number"),
    (["faults=[1]"], "faults", "1", "a list of tables"),
    (["faults.kind=crash"], "faults", "crash", "a list of tables"),
    (
        ['faults=[{kind="crash", party="party-1", start_seconds=1}]'],
        "faults",
        "1 of them",
        'faults need network.runtime = "simulated"; it is "processes"',
    ),
    (
        ["parties.count=3", f'faults=[{{kind="halves", parties={ALL_OF_THREE}, {ONE_SECOND}}}]'],
        "faults[0].parties",
        "party-2",
        "not all of them",
    ),
    (["k"], "--set", "k", "table.key=value"),
    (["=3"], "--set", "=3", "table.key=value"),
    (["protocol..k=3"], "--set", "protocol..k=3", "table.key=value"),
    *(
        ([text], text.partition("=")[0], text.partition("=")[2], allowed)
        for text, allowed in SIMPLE.items()
    ),
    *(
        ([f"faults=[{{{keys}}}]"], f"faults[0].{key}".removesuffix("."), value, allowed)
        for keys, key, value, allowed in FAULTS
    ),
)


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


class TestMistakes:
    """Every mistake is reported by its key, its value and the allowed values."""

    @pytest.mark.parametrize(("overrides", "key", "value", "allowed"), MISTAKES)
    def test_is_named_before_any_party_starts(
        self,
        overrides: Sequence[str],
        key: str,
        value: str,
        allowed: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The error has the key, the value and the allowed values, and no cluster was created."""
        monkeypatch.delattr(runner, "Cluster")
        with pytest.raises(ScenarioError) as caught:
            run_scenario(load_scenario("wine", overrides), seed=1)
        error = caught.value
        assert error.field == key
        assert value in error.value or error.message
        assert allowed in str(error)
        assert all(part in str(error) for part in (key, error.value, allowed))

    def test_all_mistakes_are_reported_at_once(self) -> None:
        """There is one line per mistake, and each key occurs once."""
        with pytest.raises(ScenarioError) as caught:
            load_scenario("wine", ["protocol.k=0", "protocol.rounds=0", "run.seed=x", "a=1"])
        told = caught.value
        assert [told.field, *(other.field for other in told.others)] == [
            "protocol.k",
            "protocol.rounds",
            "run.seed",
            "a",
        ]
        assert len(str(told).splitlines()) == 4
        assert str(pickle.loads(pickle.dumps(told))) == str(told)

    def test_a_missing_table_is_named(self) -> None:
        """Data are the only setting without a default."""
        with pytest.raises(ScenarioError, match=r"data: the key is missing; .*source"):
            make_scenario({})

    @pytest.mark.parametrize("name", ["wines", "../wine", ""])
    def test_an_unknown_scenario_lists_all_names(self, name: str) -> None:
        """Neither loading nor printing finds a name that is not in the library."""
        for look in (load_scenario, scenario_text):
            with pytest.raises(ScenarioError, match=r"coalition, digits, faults, (iris, )?wine"):
                look(name)

    def test_a_built_in_table_is_a_scenario(self) -> None:
        """It has the settings of the scenario for files of tables."""
        iris, wine = load_scenario("iris"), load_scenario("wine")
        assert (iris.name, iris.data.source) == ("iris", "iris")
        assert (iris.protocol, iris.parties) == (wine.protocol, wine.parties)

    def test_a_typing_error_gets_a_suggestion(self) -> None:
        """A scenario, a data set and a key without its table are suggested."""
        with pytest.raises(ScenarioError, match=r"did you mean wine\?"):
            load_scenario("wien")
        with pytest.raises(ScenarioError, match=r"data.source is 'wien'; .*did you mean wine\?"):
            run_scenario(load_scenario("wine", ["data.source=wien"]), seed=1)
        with pytest.raises(
            ScenarioError, match=r"k: there is no such key; .*did you mean protocol\.k\?"
        ):
            load_scenario("wine", ["k=7"])

    def test_a_missing_file_is_named(self) -> None:
        """The error contains the path."""
        with pytest.raises(ScenarioError, match=r"nowhere\.toml"):
            load_scenario("nowhere.toml")

    def test_a_file_that_is_not_toml_names_the_line(self, tmp_path: Path) -> None:
        """The error has the line at which the parser stopped."""
        (tmp_path / "bad.toml").write_text("[data]\nsource = wine\n")
        with pytest.raises(ScenarioError, match="line 2"):
            load_scenario(str(tmp_path / "bad.toml"))

    def test_a_mistake_in_the_data_names_its_location(self, tmp_path: Path) -> None:
        """The key is data.source; the value has the column and the line."""
        path = tmp_path / "rows.csv"
        path.write_text("a,class\n1,x\n,y\n")
        with pytest.raises(ScenarioError, match="column 'a', line 3 is empty") as caught:
            run_scenario(load_scenario("wine", [f"data.source={path}"]), seed=1)
        assert caught.value.field == "data.source"
