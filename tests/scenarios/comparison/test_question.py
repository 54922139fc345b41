"""Questions: the allowed ones, and the reading and scaling of their rows; intervals over splits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from veilring.errors import InputError, ScenarioError
from veilring.scenarios.comparison import make_question, read_network
from veilring.scenarios.comparison.question import load_facts
from veilring.scenarios.comparison.tuning import Interval, over_splits, share_over_splits

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
UNFIT = (  # forty rows, of which the parties hold thirty
    ("parties", 31, "at most 30"),
    ("k", 31, "at most 30"),
    ("tolerated", 8, "at most 7"),
)


def _table(rows: int, folder: Path) -> str:
    path = folder / "rows.csv"
    path.write_text("x,y\n" + "".join(f"{n},{n % 2}\n" for n in range(rows)))
    return str(path)


@pytest.mark.parametrize(("field", "value", "allowed"), MISTAKES)
def test_a_mistake_is_named(field: str, value: object, allowed: str) -> None:
    """The error has the field, its value and the allowed values, before data are read."""
    with pytest.raises(ScenarioError) as caught:
        make_question({"data": "iris", field: value})
    assert caught.value.field == field
    assert allowed in str(caught.value)


@pytest.mark.parametrize(("field", "value", "allowed"), UNFIT)
def test_settings_that_do_not_fit_the_data_are_named(
    field: str, value: object, allowed: str, tmp_path: Path
) -> None:
    """The same error is raised once the data are known."""
    with pytest.raises(InputError) as caught:
        load_facts(make_question({"data": _table(40, tmp_path), field: value}))
    assert caught.value.field == field
    assert str(value) in caught.value.value
    assert allowed in str(caught.value)


def test_a_table_of_few_rows_is_refused(tmp_path: Path) -> None:
    """There are fewer held-out rows than a batch needs."""
    with pytest.raises(ScenarioError) as caught:
        load_facts(make_question({"data": _table(10, tmp_path), "parties": 3, "k": 1}))
    assert "10 rows" in str(caught.value)


def test_ranges_of_a_private_file_are_reported(tmp_path: Path) -> None:
    """The report states that ranges taken from private rows are not public."""
    _, facts = load_facts(make_question({"data": _table(40, tmp_path)}))
    assert facts.name == "rows"
    assert "They are not public" in facts.bounds
    assert "table is public" in load_facts(make_question({"data": "iris"}))[1].bounds


def test_all_mistakes_are_reported_at_once() -> None:
    """There is one line per mistake."""
    with pytest.raises(ScenarioError) as caught:
        make_question({"data": "iris", "parties": 1, "splits": 0, "colour": "red"})
    told = str(caught.value)
    assert all(field in told for field in ("parties", "splits", "colour"))


def test_epsilons_are_sorted_without_duplicates() -> None:
    """A repeated ε is compared once."""
    asked = make_question({"data": "iris", "epsilon": (2.0, 0.5, 2.0)})
    assert asked.epsilon == (0.5, 2.0)


def test_fewer_than_half_may_collude_by_default() -> None:
    """The default is three of eight parties, and one of three."""
    assert make_question({"data": "iris"}).colluding == 3
    assert make_question({"data": "iris", "parties": 3}).colluding == 1
    assert make_question({"data": "iris", "tolerated": 7}).colluding == 7


class TestNetwork:
    """The network file."""

    def test_has_the_keys_of_a_scenarios_table(self, tmp_path: Path) -> None:
        """It has distributions, limits and graphs; a graph's path is relative to the file."""
        path = tmp_path / "wan.toml"
        text = (
            'latency = { distribution = "constant", seconds = 0.1 }\n'
            "bandwidth_bytes_per_second = 1e6\n"
        )
        path.write_text(text + 'graph = "mine.graphml"\n')
        network = make_question({"data": "iris"}, read_network(path)).network
        assert network.latency == {"distribution": "constant", "seconds": 0.1}
        assert network.bandwidth_bytes_per_second == 1e6
        assert network.graph == str(tmp_path / "mine.graphml")

    def test_may_have_its_heading(self, tmp_path: Path) -> None:
        """A part of a scenario can be used unchanged."""
        path = tmp_path / "wan.toml"
        path.write_text('[network]\ngraph = "star"\n')
        assert make_question({"data": "iris"}, read_network(path)).network.graph == "star"

    @pytest.mark.parametrize(
        ("text", "field", "allowed"),
        [
            ('runtime = "tls"', "network.runtime", "no such key"),
            ("latancy = 1", "network.latancy", "did you mean latency?"),
            ("bandwidth_bytes_per_second = 0", "network.bandwidth_bytes_per_second", "above 0"),
            ("latency = ", "--network", "TOML"),
        ],
    )
    def test_a_mistake_in_it_is_named(
        self, text: str, field: str, allowed: str, tmp_path: Path
    ) -> None:
        """A mistake is named by its dotted key, or by the option if the value is not TOML."""
        path = tmp_path / "wan.toml"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            make_question({"data": "iris"}, read_network(path))
        assert caught.value.field == field
        assert allowed in str(caught.value)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        """A missing file is refused, and the error names the option."""
        with pytest.raises(InputError, match=r"--network: there is no file .*nowhere\.toml"):
            read_network(tmp_path / "nowhere.toml")


def test_the_default_network_is_that_of_scenarios() -> None:
    """The median latency is twenty milliseconds one way."""
    latency: dict[str, Any] = make_question({"data": "iris"}).network.latency
    assert latency["median_seconds"] == 0.02


RANGES = (
    '[[features]]\nname = "a"\nlow = 0\nhigh = 10\n\n[[features]]\nname = "b"\nlow = -1\nhigh = 1\n'
)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file of forty rows with two columns, an id and a label."""
    path = tmp_path / "rows.csv"
    lines = [f"{n},{n % 5},{(n % 3) / 3},{'xy'[n % 2]}" for n in range(40)]
    path.write_text("id,a,b,label\n" + "\n".join(lines) + "\n")
    return path


def test_rows_are_scaled_by_the_ranges_of_a_file(tmp_path: Path) -> None:
    """A value's position in its range does not depend on the extremes of the table."""
    path, ranges = tmp_path / "rows.csv", tmp_path / "ranges.toml"
    path.write_text("a,b,label\n" + "".join(f"{n % 5},0.5,{n % 2}\n" for n in range(40)))
    ranges.write_text(RANGES)
    table, facts = load_facts(make_question({"data": str(path), "ranges": str(ranges)}))
    assert np.unique(table.X[:, 0]) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert np.unique(table.X[:, 1]) == pytest.approx([0.75])
    assert facts.bounds.startswith("the given ones")


def test_a_column_without_a_range_is_named(rows: Path, tmp_path: Path) -> None:
    """A missing range is not replaced by the extremes of the rows."""
    ranges = tmp_path / "ranges.toml"
    ranges.write_text(RANGES)
    with pytest.raises(InputError, match="'id' has no range"):
        load_facts(make_question({"data": str(rows), "ranges": str(ranges)}))


def test_a_file_of_ranges_without_columns_is_refused(rows: Path, tmp_path: Path) -> None:
    """The error names the key."""
    ranges = tmp_path / "ranges.toml"
    ranges.write_text("k = 1\n")
    with pytest.raises(InputError, match="features"):
        load_facts(make_question({"data": str(rows), "ranges": str(ranges)}))


def test_terms_select_columns_and_set_parameters(rows: Path, tmp_path: Path) -> None:
    """Other columns are ignored; parameters of the terms apply unless given."""
    terms = tmp_path / "terms.toml"
    terms.write_text(f'classes = ["x", "y", "z"]\n\n{RANGES}\n[protocol]\nradius = 0.4\nk = 7\n')
    asked = make_question({"data": str(rows), "terms": str(terms), "settings": {"k": 9}})
    assert asked.settings == {"radius": 0.4, "k": 9}
    table, facts = load_facts(asked)
    assert table.features.names == ("a", "b")
    assert facts.classes == 3
    assert table.X.max(axis=0) == pytest.approx([0.4, (2 / 3 + 1) / 2])


def test_embeddings_are_scaled_about_their_origin(tmp_path: Path) -> None:
    """Directions from the cube's centre equal those from the origin in the terms."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(40) % 2)
    terms = tmp_path / "terms.toml"
    terms.write_text('classes = ["0", "1"]\ndimensions = 3\norigin = [0.5, 0.0, -0.5]\n')
    asked = make_question({"data": str(tmp_path / "rows.npz"), "terms": str(terms)})
    table, _ = load_facts(asked)
    found, expected = table.X - 0.5, X - np.array([0.5, 0.0, -0.5])
    found /= np.linalg.norm(found, axis=1)[:, None]
    expected /= np.linalg.norm(expected, axis=1)[:, None]
    assert found == pytest.approx(expected)


def test_only_tunable_parameters_can_be_set() -> None:
    """The error lists the tunable parameters."""
    with pytest.raises(InputError, match=r"batch.*radius"):
        make_question({"data": "iris", "settings": {"batch": 3}})


def test_without_overlap_it_is_students_interval() -> None:
    """For disjoint splits it equals SciPy's interval of a mean."""
    values = np.random.default_rng(1).random(7)
    expected = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    found = over_splits(values.tolist(), 0.0)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(expected)


def test_overlap_widens_it_as_published() -> None:
    """Variances are larger by the factor (1/J + q/n) / (1/J)."""
    values = [0.7, 0.8, 0.9, 0.75, 0.8]
    alone, shared = over_splits(values, 0.0), over_splits(values, 0.3)
    wider = (shared.high - shared.mean) / (alone.high - alone.mean)
    assert wider == pytest.approx(((1 / 5 + 0.3) / (1 / 5)) ** 0.5)


def test_equal_numbers_have_no_width() -> None:
    """The interval of equal values has no width."""
    assert over_splits([0.5, 0.5], 0.2) == Interval(0.5, 0.5, 0.5)


def test_equal_fractions_have_the_exact_interval() -> None:
    """It is SciPy's exact interval for that number of queries."""
    found = share_over_splits([1.0, 1.0], 0.2, 20)
    assert found.high == found.mean == 1.0
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 40, 1))


def test_differing_fractions_keep_the_wider_interval() -> None:
    """It is clipped to [0, 1]."""
    assert share_over_splits([0.1, 0.9], 0.2, 20) == Interval(0.5, 0.0, 1.0)
