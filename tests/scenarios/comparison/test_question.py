"""Questions: the allowed ones, and the reading and scaling of their rows."""

from pathlib import Path

import numpy as np
import pytest

from veilring.errors import InputError, ScenarioError
from veilring.scenarios import load_scenario
from veilring.scenarios.comparison import make_question, read_network
from veilring.scenarios.comparison.question import load_facts

MISTAKES = (
    ("epsilon", (0.0, 1.0), "from 0.05 to 10"),
    ("epsilon", (-1.0,), "from 0.05 to 10"),
    ("epsilon", (11.0,), "from 0.05 to 10"),
    ("epsilon", (float("nan"),), "from 0.05 to 10"),
    ("epsilon", (), "up to 12 numbers"),
    ("parties", 2, "from 3 to 100"),
    ("splits", 1, "from 2 to 100"),
    ("queries", 3, "from 4 to 1,000"),
    ("k", 0, "at least 1"),
    ("partition", "sizes", "iid, dirichlet or by-label"),
    ("tolerated", 0, "at least 1"),
    ("seed", -1, "at least 0"),
)
RANGES = (
    '[[features]]\nname = "a"\nlow = 0\nhigh = 10\n\n[[features]]\nname = "b"\nlow = -1\nhigh = 1\n'
)


def _write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def _table(folder: Path, rows: int = 40) -> str:
    """Return a file of rows with two columns, an id and a label."""
    lines = (f"{n},{n % 5},{(n % 3) / 3},{'xy'[n % 2]}\n" for n in range(rows))
    return _write(folder / "rows.csv", "id,a,b,label\n" + "".join(lines))


@pytest.mark.parametrize(("field", "value", "allowed"), MISTAKES)
def test_a_mistake_is_named(field: str, value: object, allowed: str) -> None:
    """The error has the field and the allowed values, before data are read."""
    with pytest.raises(InputError, match=allowed) as caught:
        make_question({"data": "nowhere.csv", field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("rows", "given", "told"),
    [
        (40, {"parties": 31}, "^parties is 31; .*at most 30"),
        (40, {"k": 31}, "^k is 31; .*at most 30"),
        (40, {"tolerated": 8}, "^tolerated is 8; .*at most 7"),
        (10, {"parties": 3, "k": 1}, "10 rows"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_named(
    rows: int, given: dict[str, int], told: str, tmp_path: Path
) -> None:
    """Parties hold thirty of forty rows; of ten, too few are held out for a batch."""
    with pytest.raises(InputError, match=told):
        load_facts(make_question({"data": _table(tmp_path, rows), **given}))


def test_all_mistakes_are_reported_at_once() -> None:
    """There is one line per mistake, such as a parameter that is not tunable."""
    with pytest.raises(InputError, match=r"batch.*radius"):
        make_question({"data": "iris", "settings": {"batch": 3}})
    with pytest.raises(ScenarioError) as caught:
        make_question({"data": "iris", "parties": 1, "splits": 0, "colour": "red"})
    told = str(caught.value)
    assert all(field in told for field in ("parties", "splits", "colour"))


def test_what_a_question_leaves_out_has_defaults() -> None:
    """Fewer than half may collude, each ε is compared once, and the network is a scenario's."""
    for given, colluding in (({}, 3), ({"parties": 3}, 1), ({"tolerated": 7}, 7)):
        assert make_question({"data": "iris", **given}).colluding == colluding
    asked = make_question({"data": "iris", "epsilon": (2.0, 0.5, 2.0)})
    assert asked.epsilon == (0.5, 2.0)
    assert asked.network.latency == load_scenario("wine").network.latency
    assert asked.network.latency["median_seconds"] == 0.02


def test_a_network_file_has_the_keys_of_a_scenarios_table(tmp_path: Path) -> None:
    """It may have the table's heading; a graph's path is relative to the file."""
    latency = 'latency = { distribution = "constant", seconds = 0.1 }'
    limit = "bandwidth_bytes_per_second = 1e6"
    path = tmp_path / "wan.toml"
    for heading, graph, found in (
        ("", "mine.graphml", str(tmp_path / "mine.graphml")),
        ("[network]\n", "star", "star"),
    ):
        path.write_text(f'{heading}{latency}\n{limit}\ngraph = "{graph}"\n')
        network = make_question({"data": "iris"}, read_network(path)).network
        assert network.latency == {"distribution": "constant", "seconds": 0.1}
        assert (network.bandwidth_bytes_per_second, network.graph) == (1e6, found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('runtime = "tls"', "network.runtime: there is no such key"),
        ("latancy = 1", "network.latancy: .*did you mean latency?"),
        ("bandwidth_bytes_per_second = 0", "network.bandwidth_bytes_per_second is 0; .*above 0"),
        ("latency = ", "--network.*TOML"),
        (None, r"--network: there is no file .*wan\.toml"),
    ],
)
def test_a_mistake_in_the_network_file_is_named(
    text: str | None, told: str, tmp_path: Path
) -> None:
    """It is named by its dotted key, or by the option if the file is no TOML or missing."""
    if text is not None:
        _write(tmp_path / "wan.toml", text)
    with pytest.raises(InputError, match=f"^{told}"):
        make_question({"data": "iris"}, read_network(tmp_path / "wan.toml"))


def test_rows_are_scaled_by_the_ranges_of_a_file(tmp_path: Path) -> None:
    """A value's place does not depend on the extremes, which are not public in a private file."""
    _, facts = load_facts(make_question({"data": _table(tmp_path)}))
    assert facts.name == "rows"
    assert "They are not public" in facts.bounds
    assert "table is public" in load_facts(make_question({"data": "iris"}))[1].bounds
    rows = "a,b,label\n" + "".join(f"{n % 5},0.5,{n % 2}\n" for n in range(40))
    ranges = _write(tmp_path / "ranges.toml", RANGES)
    asked = make_question({"data": _write(tmp_path / "rows.csv", rows), "ranges": ranges})
    table, facts = load_facts(asked)
    assert np.unique(table.X[:, 0]) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert np.unique(table.X[:, 1]) == pytest.approx([0.75])
    assert facts.bounds.startswith("the given ones")


@pytest.mark.parametrize(("text", "told"), [(RANGES, "'id' has no range"), ("k = 1\n", "features")])
def test_ranges_for_other_columns_are_refused(text: str, told: str, tmp_path: Path) -> None:
    """A missing range is not replaced by the extremes of the rows."""
    ranges = _write(tmp_path / "ranges.toml", text)
    with pytest.raises(InputError, match=told):
        load_facts(make_question({"data": _table(tmp_path), "ranges": ranges}))


def test_terms_select_columns_and_set_parameters(tmp_path: Path) -> None:
    """Other columns are ignored; parameters of the terms apply unless given."""
    text = f'classes = ["x", "y", "z"]\n\n{RANGES}\n[protocol]\nradius = 0.4\nk = 7\n'
    terms = _write(tmp_path / "terms.toml", text)
    asked = make_question({"data": _table(tmp_path), "terms": terms, "settings": {"k": 9}})
    assert asked.settings == {"radius": 0.4, "k": 9}
    table, facts = load_facts(asked)
    assert table.features.names == ("a", "b")
    assert facts.classes == 3
    assert table.X.max(axis=0) == pytest.approx([0.4, (2 / 3 + 1) / 2])


def test_embeddings_are_scaled_about_their_origin(tmp_path: Path) -> None:
    """Directions from the cube's centre equal those from the origin in the terms."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(40) % 2)
    text = 'classes = ["0", "1"]\ndimensions = 3\norigin = [0.5, 0.0, -0.5]\n'
    terms = _write(tmp_path / "terms.toml", text)
    table, _ = load_facts(make_question({"data": str(tmp_path / "rows.npz"), "terms": terms}))
    found, expected = table.X - 0.5, X - np.array([0.5, 0.0, -0.5])
    found /= np.linalg.norm(found, axis=1)[:, None]
    expected /= np.linalg.norm(expected, axis=1)[:, None]
    assert found == pytest.approx(expected)
