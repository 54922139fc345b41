"""Reading and scaling of rows: by the ranges of a table, of a file, or of terms."""

from pathlib import Path

import numpy as np
import pytest

from veilring.errors import InputError
from veilring.scenarios.comparison import make_question
from veilring.scenarios.comparison.question import load_facts

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
