"""Scenarios: loading, setting of keys, and the error for each mistake."""

import math
import pickle
import re
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
from veilring.scenarios.network import links_table, make_links
from veilring.simulation import Exponential, LinkModel, Tcp, Uniform

SECOND = "start_seconds=1, end_seconds=2"
PARTY, LINK = 'party="party-1"', 'source="party-1", target="party-2"'
ALL_OF_THREE = '["party-0", "party-1", "party-2"]'
SIMULATED = 'faults need network.runtime = "simulated"; it is "processes"'

RANGES = {  # the allowed values, and settings whose key and value the error repeats
    "at least 0": ("network.latency.sigma=-1", "run.seed=-1", "run.retries=-1"),
    "at least 1": ("protocol.k=0", "protocol.batch=0"),
    "at least 2": ("run.leakage_trials=1",),
    "at least 3": ("parties.count=2",),
    "at most 134": ("protocol.k=135",),
    "above 0": ("protocol.d=0", "protocol.delta=0", "run.session_seconds=0", "run.fault_seconds=0"),
    "below 1": ("protocol.error=1", "data.test_share=1"),
    "from 0 to 1": ("protocol.P0=1.5", "protocol.P0=nan"),
    "from 0.001": ("partition.alpha=0",),
    "no limit": ("network.bandwidth_bytes_per_second=0",),
    "a whole number": ("protocol.k=5.0", "protocol.k=five", "network.tcp.mss_bytes=0.5"),
    "a number": ("network.latency.sigma=wide",),
    "a list of names": ("parties.coalition=party-1",),
    "a list of tables": ("faults=1",),
    "a table with the keys count, names": ("parties=3",),
    "a table for each malicious party": ("adversaries=1",),
    "a distribution, such as": ("network.latency=0.1",),
    "a table, such as": ("network.tcp=0.1",),
    "a probability": ("network.tcp.loss=1",),
    "at least mss_bytes": ("network.tcp.window_bytes=9",),
    '"auto"': ("protocol.rounds=0", "protocol.rounds=often"),
    '"all"': ("data.queries=0",),
    "otherwise 1": ("protocol.cycles=2",),
    "uniform or distance": ("protocol.weights=none",),
    "ring, cycles, shares or masks": ("protocol.sum=star",),
    "private-knn": ("protocol.name=magic",),
    "by-label": ("partition.kind=fair",),
    "breast-cancer": ("data.source=wines",),
    "existing": ("data.source=nowhere.csv",),
    "memory, tls, processes or simulated": ("network.runtime=cloud",),
    "lognormal": ("network.latency.distribution=slow",),
    "complete, cycle, path, star": ("network.graph=web",),
    "can be read": ("network.graph=nowhere.graphml",),
    "wrong-sum": ("adversaries.party-1.kind=nice",),
}
FAULTS = {  # a table of one fault, and the error after its place
    'kind="quake"': ".kind is 'quake'; … stall, delay, jitter",
    PARTY: ".kind: the key is missing; … crash",
    f'kind="crash", {PARTY}': ": the table needs kind, party, start_seconds",
    'kind="crash", party="bob", start_seconds=1': ".party is 'bob'; … party-0, party-1",
    f'kind="crash", {PARTY}, {SECOND}': ".end_seconds: …(did you mean start_seconds?)",
    f'kind="crash", {PARTY}, start_seconds="soon"': ".start_seconds is 'soon'; … a number",
    f'kind="crash", {PARTY}, start_seconds=-1': ".start_seconds is -1; … at least 0",
    f'kind="pause", {PARTY}, start_seconds=1, end_seconds=inf': ".end_seconds is inf; … above … 1",
    f'kind="pause", {PARTY}, start_seconds=2, end_seconds=2': ".end_seconds is 2; … above … 2",
    f'kind="slow", {PARTY}, {SECOND}, extra_seconds=0': ".extra_seconds is 0; … above 0",
    f'kind="skew", {PARTY}, {SECOND}, times=-2': ".times is -2; … above 0",
    f'kind="squeeze", {LINK}, {SECOND}, times=0.5': ".times is 0.5; … at least 1",
    f'kind="stall", {LINK.replace("2", "1")}, {SECOND}': ".target is 'party-1'; … party-0, party-2",
    f'kind="reset", {PARTY}, other="bob", {SECOND}': ".other is 'bob'; … party-0, party-2",
    f'kind="halves", parties="party-1", {SECOND}': ".parties is 'party-1'; … a list of texts",
    f'kind="halves", parties=["party-1", 7], {SECOND}': ".parties is 7; … party-0, party-2",
    f'kind="halves", parties=[], {SECOND}': ".parties is []; … at least one party",
}
MISTAKES: dict[str | tuple[str, ...], str] = {  # settings, and the error, with … for any words
    "k": "--set is 'k'; … table.key=value",
    "=3": "--set is '=3'; … table.key=value",
    "protocol..k=3": "--set is 'protocol..k=3'; … table.key=value",
    "netwrk.runtime=tls": "netwrk: …(did you mean network?)",
    "colour=red": "colour: … partition",
    "protocol.kk=3": "protocol.kk: …(did you mean k?)",
    "protocol.k=true": "protocol.k is True; … a whole number",
    "protocol.d=1": "protocol.d is 1.0; … below 1 if P0 is 1",
    "protocol.delta=1e300": "protocol.delta is 1e+300; … up to 1,000,000",
    "protocol.sum=cycles": "protocol.cycles is 1; … 2 or more",
    ("protocol.sum=cycles", "protocol.cycles=4"): "protocol.cycles is 4; … at most 3",
    (
        "parties.names=[]",
        "parties.count=x",
    ): "parties.count is 'x'; … at least 3: of two parties, each learns",
    ("parties.count=3", f"parties.names={ALL_OF_THREE}"): "parties.count: set either … not both",
    'parties={names=["a", "b", "a"]}': "parties.names is ['a', 'b', 'a']; … different",
    'parties={names=["a", "b"]}': "parties.names is ['a', 'b']; … at least 3",
    'parties={names=["a", "b", "c d"]}': "parties.names: 'c d' is not a name: … A-Z",
    "partition.sizes=[1]": "partition.sizes: sizes need partition.kind",
    "partition.kind=sizes": "partition.sizes: there are 0 sizes for 8 parties",
    ("partition.kind=sizes", "partition.sizes=[1, -1]"): "partition.sizes is -1; … at least 0",
    ("partition.kind=sizes", f"partition.sizes={[1] * 8}"): "partition.sizes is [1, … is 134",
    "data.source.file=x": "data.source is 'wine'; … a table, to hold data.source.file",
    "network.latency.distribution=constant": "network.latency.median_seconds: …mean seconds?)",
    'network.jitter={distribution="uniform"}': "network.jitter: the table needs … low_seconds",
    "network.jitter.low_seconds=1": "network.jitter.distribution: the key is missing; … uniform",
    "adversaries.bob.kind=silent": "adversaries.bob is … party-0, party-1",
    "adversaries.party-1.by=1": "adversaries.party-1.kind: the key is missing; … wrong-sum",
    'adversaries.party-1={kind="wrong-sum", bye=1}': "adversaries.party-1.bye: …(did you mean by?)",
    'adversaries.party-1={kind="silent", first_round=1.5}': (
        "adversaries.party-1.first_round is 1.5; … a whole number"
    ),
    'adversaries.party-1={kind="deflate-topk", factor=2}': (
        "adversaries.party-1.factor is 2; … from 0 to 1"
    ),
    "adversaries.party-1.kind=equivocate": "adversaries.party-1: the table needs … victim",
    "parties.colition=[]": "parties.colition: …(did you mean coalition?)",
    "parties.coalition=[1]": "parties.coalition is 1; … a list of names",
    'parties.coalition=["bob"]': "parties.coalition is 'bob'; … party-0, party-1",
    'parties.coalition=["party-1", "party-1"]': "parties.coalition: name each party once",
    ("parties.count=3", f"parties.coalition={ALL_OF_THREE}"): "parties.coalition: … not all of",
    ('parties.coalition=["party-1"]', "adversaries.party-1.kind=silent"): (
        "parties.coalition: party-1 is malicious"
    ),
    "run.retries=true": "run.retries is True; … a whole number",
    "run.fault_seconds=5": f"run.fault_seconds: {SIMULATED}",
    "faults=[1]": "faults is 1; … a list of tables",
    "faults.kind=crash": "faults is {'kind': 'crash'}; … a list of tables",
    f'faults=[{{kind="crash", {PARTY}, start_seconds=1}}]': f"faults: {SIMULATED}",
    ("parties.count=3", f'faults=[{{kind="halves", parties={ALL_OF_THREE}, {SECOND}}}]'): (
        "faults[0].parties is ['party-0', 'party-1', 'party-2']; … not all of them"
    ),
    **{
        text: "{} is …{}…; …".format(*text.split("=")) + words
        for words, texts in RANGES.items()
        for text in texts
    },
    **{f"faults=[{{{table}}}]": f"faults[0]{words}" for table, words in FAULTS.items()},
}


@pytest.mark.parametrize(("settings", "told"), MISTAKES.items())
def test_a_mistake_is_named_before_any_party_starts(
    settings: str | tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the key, the value and the allowed values, and no cluster was created."""
    monkeypatch.delattr(runner, "Cluster")
    with pytest.raises(ScenarioError) as caught:
        run_scenario(load_scenario("wine", [settings] if isinstance(settings, str) else settings))
    assert caught.value.field == re.split(": | is ", told)[0]
    assert re.match(".*".join(map(re.escape, told.split("…"))), str(caught.value))


def test_all_mistakes_are_reported_at_once() -> None:
    """There is one line per mistake, and each key occurs once."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario("wine", ["protocol.k=0", "protocol.rounds=0", "run.seed=x", "a=1"])
    told = caught.value
    fields = [told.field, *(other.field for other in told.others)]
    assert fields == ["run.seed", "protocol.k", "protocol.rounds", "a"]
    assert len(str(told).splitlines()) == 4
    assert str(pickle.loads(pickle.dumps(told))) == str(told)


def test_a_mistake_in_a_file_or_a_name_is_located(tmp_path: Path) -> None:
    """The error has the missing table or file, the line, the column, or the names there are."""
    for unknown in ("wines", "../wine", ""):
        for look in (load_scenario, scenario_text):
            with pytest.raises(ScenarioError, match=r"coalition, digits, faults, (iris, )?wine"):
                look(unknown)
    bad, rows = tmp_path / "bad.toml", tmp_path / "rows.csv"
    bad.write_text("[data]\nsource = wine\n")
    rows.write_text("a,class\n1,x\n,y\n")
    with pytest.raises(ScenarioError, match=r"data: the key is missing; .*source"):
        make_scenario({})
    for name, settings, told in (
        ("nowhere.toml", (), r"nowhere\.toml"),
        (str(bad), (), "line 2"),
        ("wine", [f"data.source={rows}"], r"^data.source: .*column 'a', line 3 is empty"),
        ("wien", (), r"did you mean wine\?"),
        ("wine", ["data.source=wien"], r"^data.source is 'wien'; .*did you mean wine\?"),
        ("wine", ["k=7"], r"^k: there is no such key; .*did you mean protocol\.k\?"),
    ):
        with pytest.raises(ScenarioError, match=told):
            run_scenario(load_scenario(name, settings), seed=1)


@pytest.mark.parametrize("name", scenario_names())
def test_each_built_in_scenario_is_correct_and_described(name: str) -> None:
    """It loads under its own name and has a one-line description."""
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.description
    assert "\n" not in scenario.description


def test_a_built_in_table_is_run_by_eight_processes() -> None:
    """The name of a real set is a scenario; one without its own has the settings of `wine`."""
    for name in ("wine", "breast-cancer", "digits", "iris"):
        scenario = load_scenario(name)
        assert (scenario.name, scenario.data.source) == (name, name)
        assert (len(scenario.parties.all), scenario.network.runtime) == (8, "processes")
    assert scenario.protocol == load_scenario("wine").protocol


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    """Data and graph are found beside the scenario; names of built-in sets stay names."""
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "rows.csv"\n[network]\ngraph = "links.graphml"\n')
    scenario = load_scenario(str(path))
    assert scenario.name == "mine"
    assert scenario.data.source == str(tmp_path / "rows.csv")
    assert scenario.network.graph == str(tmp_path / "links.graphml")
    path.write_text('[data]\nsource = "wine"\n')
    assert load_scenario(str(path)).data.source == "wine"


def test_any_key_can_be_set_until_the_scenario_is_checked() -> None:
    """Values are TOML or else strings, missing tables are created, and names replace a count."""
    settings = [
        "data.source=my.csv",
        "description=1\nrun.seed=7",
        "parties.count=5",
        'protocol.rounds = "auto"',
        "protocol.P0=0.5",
        "network.bandwidth_bytes_per_second=1e6",
        "network.latency.median_seconds=0.5",
        "partition.kind=sizes",
        "partition.sizes=[1, 2, 3, 4, 0]",
    ]
    scenario = load_scenario("wine", settings)
    assert (scenario.data.source, scenario.run.seed) == ("my.csv", None)
    assert scenario.description == "1\nrun.seed=7"
    assert scenario.protocol == PrivateKNN(P0=0.5)
    assert scenario.network.bandwidth_bytes_per_second == 1e6
    latency = {"distribution": "lognormal", "median_seconds": 0.5, "sigma": 0.25}
    assert scenario.network.latency == latency
    assert scenario.partition.sizes == (1, 2, 3, 4, 0)
    names = 'names=["ada", "bob", "cyd"]'
    for table in (f"parties.{names}", f"parties={{{names}}}"):
        assert load_scenario("wine", [table]).parties.all == ("ada", "bob", "cyd")
    with pytest.raises(ValueError, match="frozen"):
        scenario.name = "other"  # type: ignore[misc]  # the tested assignment
    with pytest.raises(ValueError, match="frozen"):
        load_scenario("wine").protocol.name = "other"  # type: ignore[misc]  # likewise


@pytest.mark.parametrize("tcp", [None, Tcp(), Tcp(0.01, 500, 9000)])
def test_links_are_read_as_they_are_written(tcp: Tcp | None) -> None:
    """The keys of links, as in the file of a world, make the same links."""
    for bandwidth in (1e6, math.inf):
        links = LinkModel(Uniform(0.01, 0.1), Exponential(0.01), bandwidth, tcp)
        tables = {"data": {"source": "wine"}, "network": links_table(links)}
        assert make_links(make_scenario(tables).network) == links
