"""Estimators on data frames: categories, schemas, names of columns, and ranges by name."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from tests.estimators.tables import RANGES, three_classes

import veilring.estimators as ve
from veilring.data.schema import read_schema
from veilring.errors import InputError, PrivacyLeakWarning

ROWS, LABELS = three_classes(120)
SCHEMA = """
classes = ["ash", "elm", "oak"]

[[features]]
name = "x"
low = -4
high = 4
missing = 0

[[features]]
name = "side"
categories = ["south", "north"]
"""


def make_frame(rows: Any = ROWS) -> pl.DataFrame:
    """Return rows whose second feature is a word."""
    return pl.DataFrame({"x": rows[:, 0], "side": np.where(rows[:, 1] > 0, "north", "south")})


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """Return a file with the public schema of the frames."""
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "kind",
    [ve.PrivateKNNClassifier, ve.RankSearchClassifier, ve.ReleasedClassifier, ve.LDPNaiveBayes],
)
def test_columns_are_found_by_name_in_a_schema(kind: Any, schema: Path) -> None:
    """Words become categories; the order of columns, other columns and gaps do not matter."""
    model = kind(schema=schema).fit(make_frame(), LABELS)
    queries = make_frame(three_classes(20, seed=2)[0])
    said = model.predict(queries)
    other = queries.select("side", pl.lit("seen").alias("note"), "x")
    assert model.predict(other).tolist() == said.tolist()
    assert model.ranges_origin_ == "given as public"
    gap, filled = (queries.with_columns(pl.lit(x, pl.Float64).alias("x")) for x in (None, 0.0))
    assert model.predict(gap).tolist() == model.predict(filled).tolist()


def test_a_schema_gives_an_epsilon_and_a_model_with_its_columns(schema: Path) -> None:
    """The ranges are public, and the released model reads frames by the same schema."""
    model = ve.ReleasedClassifier(epsilon=50.0, schema=str(schema)).fit(make_frame(), LABELS)
    assert model.privacy_.epsilon == 50.0
    assert [each.name for each in model.model_.schema.features] == ["x", "side"]
    assert model.model_.schema.features[1].categories == ("south", "north")
    frame = make_frame()
    assert model.model_.predict(frame).tolist() == model.predict(frame).tolist()
    assert model.score(frame, LABELS) > 0.8
    again = clone(model).set_params(schema=read_schema(schema))
    assert cross_val_score(again, frame, LABELS, cv=3).mean() > 0.8


def test_words_without_a_schema_become_categories_of_the_rows() -> None:
    """A warning says that no ε holds; a schema that is not agreed is treated likewise."""
    model = ve.ReleasedClassifier(epsilon=50.0)
    with pytest.warns(PrivacyLeakWarning, match="computed from the rows"):
        model.fit(make_frame(), LABELS)
    assert model.privacy_.epsilon is None
    assert model.score(make_frame(), LABELS) > 0.8
    unknown = make_frame().with_columns(side=pl.lit("east"))
    with pytest.raises(InputError, match="'side', row 1 is 'east'; allowed: one of north"):
        model.predict(unknown)


def test_mistakes_with_frames_are_named(schema: Path) -> None:
    """A missing column, an array of another width, and ranges beside a schema are refused."""
    model = ve.RankSearchClassifier(schema=schema).fit(make_frame(), LABELS)
    with pytest.raises(InputError, match="X lacks the column 'side'"):
        model.predict(make_frame().drop("side"))
    with pytest.raises(InputError, match=r"give a data frame .* or an array of shape \(rows, 3\)"):
        model.predict(ROWS)
    both = ve.RankSearchClassifier(schema=schema, ranges=RANGES)
    with pytest.raises(InputError, match="leave `ranges` out"):
        both.fit(make_frame(), LABELS)
    with pytest.raises(InputError, match="allowed: iid, dirichlet, by-label"):
        ve.RankSearchClassifier(partition=np.zeros(120)).fit(ROWS, LABELS)


def test_ranges_may_be_given_by_name() -> None:
    """They follow the columns of the frame; other names are refused with those of the rows."""
    frame = pl.DataFrame({"x": ROWS[:, 0], "y": ROWS[:, 1]})
    named = {"y": RANGES, "x": (-3.0, 3.0)}
    model = ve.RankSearchClassifier(ranges=named).fit(frame, LABELS)
    other = ve.RankSearchClassifier(ranges=((-3.0, -4.0), (3.0, 4.0))).fit(frame, LABELS)
    assert model.predict(frame).tolist() == other.predict(frame).tolist()
    for rows, names in ((frame, "x, y"), (ROWS, "no names of columns")):
        with pytest.raises(InputError, match=f"are of the columns y, and the rows have {names}"):
            ve.RankSearchClassifier(ranges={"y": RANGES}).fit(rows, LABELS)
