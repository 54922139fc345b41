"""Numbers as labels: declared in a schema, chosen in a file, drafted, checked and refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilring as vr
from veilring.data.checking import check_file
from veilring.data.columns import STEPS_MAX, Target
from veilring.data.csv import TARGET_STEPS_MAX
from veilring.data.drafting import draft_schema
from veilring.data.schema import RowSchema, read_file, read_schema, schema_of
from veilring.data.table import scale_to_unit
from veilring.deployment.peers import PeerTerms
from veilring.errors import InputError, ScenarioError

SCHEMA = """
label = "price"
target = { low = 0, high = 50, resolution = 0.5 }

[[features]]
name = "size"
low = 0
high = 10
"""


def written(folder: Path, cells: Sequence[object], name: str = "rows.csv") -> Path:
    """Write a file with a feature and the given labels."""
    rows = [f"{n % 10}.5,{cell}" for n, cell in enumerate(cells)]
    path = folder / name
    path.write_text("\n".join(["size,price", *rows, ""]))
    return path


def declared(folder: Path, text: str = SCHEMA) -> RowSchema:
    """Return the schema of a file."""
    (folder / "schema.toml").write_text(text)
    return read_schema(folder / "schema.toml")


@settings(max_examples=40)
@given(
    st.integers(-100, 100),
    st.sampled_from([0.001, 0.1, 0.25, 1.0, 30.0]),
    st.integers(1, 100_000),
    st.data(),
)
def test_steps_and_values_are_inverse(
    low: int, resolution: float, steps: int, data: st.DataObject
) -> None:
    """Each step has a value, which is that step again; others are rounded and clipped."""
    target = Target(low=low / 10, high=low / 10 + steps * resolution, resolution=resolution)
    target.require_sound()
    assert target.steps == steps
    label = np.array([0, data.draw(st.integers(0, steps)), steps])
    values = target.values_of(label)
    np.testing.assert_array_equal(target.labels_of(values), label)
    np.testing.assert_array_equal(target.labels_of(values + 0.4 * resolution), label)
    assert target.labels_of(np.array([target.low - 1, target.high + 1])).tolist() == [0, steps]


def test_values_have_no_rounding_errors() -> None:
    """A sum of tenths is shown as such."""
    target = Target(low=0.0, high=1.0, resolution=0.1)
    assert target.values_of(np.arange(11)).tolist() == [n / 10 for n in range(11)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{ low = 0, high = 0, resolution = 1 }", "whole steps"),
        ("{ low = 1, high = 0, resolution = 1 }", "whole steps"),
        ("{ low = 0, high = 1, resolution = 0.3 }", "whole steps"),
        (f"{{ low = 0, high = {STEPS_MAX + 1}, resolution = 1 }}", "whole steps"),
        ("{ low = 0, high = 1, resolution = 0 }", "resolution"),
        ("{ low = 0, high = 1 }", "resolution"),
        ("5", "target"),
    ],
)
def test_an_invalid_target_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """The error names the key and the remedy."""
    with pytest.raises(ScenarioError, match=says):
        declared(tmp_path, SCHEMA.replace("{ low = 0, high = 50, resolution = 0.5 }", text))


def test_classes_and_a_target_exclude_each_other(tmp_path: Path) -> None:
    """A schema has exactly one of both."""
    for text in (SCHEMA + 'classes = ["a"]', SCHEMA.replace("target", "# target")):
        with pytest.raises(ScenarioError, match=r"classes: |there is no such key"):
            declared(tmp_path, text.replace(SCHEMA, 'classes = ["a"]\n' + SCHEMA, 1))


@pytest.mark.parametrize("kind", ["file", "frame"])
def test_a_declared_label_is_read(kind: str, tmp_path: Path) -> None:
    """Labels are steps, clipped to the range; the schema follows from the table again."""
    schema, cells = declared(tmp_path), [1, 2.26, 99, -3, 7.5]
    path = written(tmp_path, [*cells])
    source: Any = path if kind == "file" else pl.read_csv(path)
    table = vr.load(source, schema=schema)
    assert table.y.tolist() == [2, 5, 100, 0, 15]
    assert table.features.named(table.y) == (1.0, 2.5, 50.0, 0.0, 7.5)
    assert table.features.label_count == 101
    assert "label 'price' (a number from 0 to 50 in steps of 0.5)" in table.describe()
    assert schema_of(table.features).target == schema.target
    assert scale_to_unit(table).features.target == schema.target
    rows = schema.read_rows(path)
    np.testing.assert_array_equal(rows.labels, table.y)


def test_many_labels_outside_of_the_range_are_refused(tmp_path: Path) -> None:
    """A party with prices in cents does not start, and the check of its file names the factor."""
    schema, path = declared(tmp_path), written(tmp_path, [n * 100 for n in range(50)])
    with pytest.raises(ScenarioError, match="column 'price'"):
        schema.read_rows(path, 0.05)
    wrong = [each for each in check_file(schema, read_file(path)) if each.is_wrong]
    assert [each.column for each in wrong] == ["price"]
    assert "the unit may differ" in wrong[0].text
    assert "factors.price in the reading" in wrong[0].text
    fits = check_file(schema, read_file(written(tmp_path, [*range(50)])))
    assert not any(each.is_wrong for each in fits)


def test_a_word_among_declared_numbers_is_refused(tmp_path: Path) -> None:
    """The error names its line."""
    path = written(tmp_path, [1, "cheap", 3])
    with pytest.raises(InputError, match=r"line 3.*not a finite number"):
        vr.load(path, schema=declared(tmp_path))


@pytest.mark.parametrize(
    ("cells", "target"),
    [
        ([0.5 * n for n in range(40)], Target(low=0, high=19.5, resolution=0.01)),
        ([n % 30 for n in range(60)], Target(low=0, high=29, resolution=0.01)),
        ([1000 * n for n in range(40)], Target(low=0, high=39000, resolution=1)),
        ([f"{n}e-3" for n in range(40)], Target(low=0, high=0.039, resolution=1e-5)),
        ([n / 7 for n in range(40)], Target(low=0, high=5.57143, resolution=1e-5)),
    ],
)
def test_a_chosen_label_of_numbers_is_predicted(
    cells: Sequence[object], target: Target, tmp_path: Path
) -> None:
    """Its range is that of the rows, and its resolution that of its cells or a coarser one."""
    table = vr.load(written(tmp_path, cells), label="price")
    assert table.features.target == target
    assert target.steps <= TARGET_STEPS_MAX
    assert table.features.classes == ()
    half = target.resolution / 2 + 1e-12
    truth = [float(str(cell)) for cell in cells]
    np.testing.assert_allclose(target.values_of(table.y), truth, rtol=0, atol=half)


def test_a_label_that_is_not_chosen_is_refused_with_both_remedies(tmp_path: Path) -> None:
    """The error names the option, the schema and the regressors; few whole numbers are classes."""
    path = written(tmp_path, [0.5 * n for n in range(40)])
    with pytest.raises(InputError) as refused:
        vr.load(path)
    for remedy in ("--label", "`target`", "RankSearchRegressor", "ReleasedRegressor"):
        assert remedy in str(refused.value)
    assert vr.load(written(tmp_path, [1, 2, 3] * 20), label="price").features.target is None


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["inf", *(n / 3 for n in range(40))], "line 2: the number is not finite"),
        ([*(n / 3 for n in range(40)), "cheap"], "40 of 41 cells are numbers, but line 42 is"),
        ([0.5] * 40, "all its numbers are equal, so there is nothing to predict"),
        (["", *(n / 3 for n in range(40))], r"line 2 is empty; fill in the label, .*1 of 41 rows"),
    ],
)
def test_a_chosen_label_with_a_mistake_is_refused_by_its_place(
    cells: Sequence[object], says: str, tmp_path: Path
) -> None:
    """The error names the line or what is wrong, and not the options that were already given."""
    with pytest.raises(InputError, match=says) as refused:
        vr.load(written(tmp_path, cells), label="price")
    assert "--label" not in str(refused.value)


def test_clipped_labels_are_noted(tmp_path: Path) -> None:
    """A table counts its labels outside of the range, as it counts those of a feature."""
    table = vr.load(written(tmp_path, [*range(40), 60, -1]), schema=declared(tmp_path))
    assert table.notes == ("column 'price': 2 of 42 values are outside of its range",)
    with pytest.raises(InputError, match="unless it is the label"):
        vr.load(written(tmp_path, [1, "", 3]), schema=declared(tmp_path))


def test_a_drafted_target_reads_its_own_file(tmp_path: Path) -> None:
    """The draft says that its range is from rows; classes that are numbers name the alternative."""
    path = written(tmp_path, [0.5 * n for n in range(40)])
    draft = draft_schema(read_file(path), "price")
    assert "its range is from rows" in draft.found["price"]
    (tmp_path / "draft.toml").write_text(draft.text)
    again = read_schema(tmp_path / "draft.toml")
    assert again.target == Target(low=0, high=19.5, resolution=0.01, agreed=False)
    noted = [each.text for each in check_file(again, read_file(path)) if each.column == "price"]
    assert noted == ["its range or categories are not yet agreed"]
    terms = PeerTerms.of_table(vr.load(path, label="price"), protocol={"name": "release"})
    assert terms.target == again.target
    public = vr.load(path, schema=declared(tmp_path))
    assert PeerTerms.of_table(public, protocol={"name": "release"}).target == public.features.target
    assert vr.load(path, schema=again).y.tolist() == [50 * n for n in range(40)]
    few = draft_schema(read_file(written(tmp_path, [1, 2, 3] * 20)), "price")
    assert "give a `target` instead" in few.found["price"]


def test_parts_and_queries_need_the_same_target(tmp_path: Path) -> None:
    """Other ranges of the label are other schemas."""
    path = written(tmp_path, [0.5 * n for n in range(40)])
    one = vr.load(path, schema=declared(tmp_path))
    other = vr.load(path, schema=declared(tmp_path, SCHEMA.replace("0.5", "0.25")))
    with pytest.raises(InputError, match=r"the label is a number from 0 to 50 in steps of 0\.5 in"):
        vr.run(vr.RankSearch(k=1), [one, one, other], one)
    with pytest.raises(InputError, match="the label of the queries is"):
        vr.run(vr.RankSearch(k=1), [one, one, one], other)
