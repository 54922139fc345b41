"""The benchmark of defaults: its output, and reproducibility by seed."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.__main__ import app
from benchmarks.defaults import DIABETES, MADE_ON, RULES, Judged, format_line, judge, read
from benchmarks.samples import TABLES
from typer.testing import CliRunner

from veilring.errors import InputError
from veilring.protocols.promise import Facts

FACTS = Facts(parties=8, features=4, classes=3, rows=100)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_compared_with_its_predecessor(name: str) -> None:
    """Equal seeds give equal numbers, and the gain is the difference of two of them."""
    table = read("iris", None)
    found = judge(RULES[name], table, (4.0,), splits=2, seed=1)
    assert found == judge(RULES[name], table, (4.0,), splits=2, seed=1)
    assert found.gain == pytest.approx(found.rule - found.before)
    for share in (found.rule, found.before, found.best):
        assert 0 <= share <= 100


@pytest.mark.parametrize("name", ["radius", "prediction", "conversion"])
def test_no_constant_is_better_in_hindsight(name: str) -> None:
    """If the predecessor is itself a constant, it is no better than the best constant."""
    rule, table = RULES[name], read("iris", None)
    before = rule.before(FACTS)
    both = rule.__class__(rule.what, rule.labels, rule.before, lambda _facts: [before], (20,))
    found = judge(both, table, (4.0,), splits=2, seed=1)
    assert found.best == pytest.approx(found.before)


def test_columns_of_categories_are_counted_as_columns(tmp_path: Path) -> None:
    """Reports are about the values of a column, not about one-hot features."""
    path = tmp_path / "car.csv"
    rows = [f"{'abc'[n % 3]},{'xy'[n % 2]},{'uv'[n % 2]}" for n in range(400)]
    path.write_text("form,colour,label\n" + "\n".join(rows))
    found = judge(RULES["smoothing"], read("car", tmp_path), (4.0,), splits=2, seed=1)
    assert found.rule == 100  # the second column is the label


def test_a_mean_and_its_error_are_over_tables() -> None:
    """The error of a mean of two independent numbers is one number's divided by the root of two."""
    one = Judged(80.0, 70.0, 90.0, 2.0, 10.0, 1.0)
    line = format_line("mean", [one, one])
    assert line.split() == ["mean", "80.0", "±", "1.4", "70.0", "+10.0", "±", "0.7", "90.0"]


def test_the_command_marks_tables_used_for_a_rule() -> None:
    """A star marks each table used for making a rule, and the mean of such tables."""
    command = ["defaults", "--rule", "radius", "--splits", "2", "--epsilon", "4"]
    shown = CliRunner().invoke(app, [*command, "--table", "wine", "--table", "iris"])
    names = [line[:15].strip() for line in shown.stdout.splitlines()[2:-1]]
    assert names == ["wine *", "iris", "mean of *", "mean of others"]
    refused = CliRunner().invoke(app, ["defaults", "--rule", "luck"])
    assert refused.exit_code == 2
    assert "allowed: radius, " in refused.output


def test_tables_are_those_of_other_benchmarks_and_one_more() -> None:
    """Rules use existing tables only; the median splits the table of diabetes in two."""
    assert set(MADE_ON) < set(TABLES)
    counts = np.bincount(read(DIABETES, None).y)
    assert abs(counts[0] - counts[1]) < 10
    with pytest.raises(InputError, match=f"agnews_minilm, {DIABETES}"):
        read("cars", None)
