"""Rows of data frames, found by the names of their columns."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from veilring.arrays import Floats
from veilring.data.csv import read_columns
from veilring.data.frames import Frame, cells_of_frame, has_words
from veilring.data.schema import RowSchema, drafted, matched, read_schema
from veilring.errors import InputError

SchemaLike: TypeAlias = str | Path | RowSchema | None
"""A public schema or the path of its TOML file."""

_SOURCE: Final = "X"
_NO_LABEL: Final = "the label"  # which the rows of `fit` have in `y`


def find_schema(X: Any, given: SchemaLike) -> RowSchema | None:  # noqa: ANN401  (of any library)
    """Return the schema by which rows are read; none for an array, or a frame of numbers.

    Without a given schema, columns of words become categories, which are those of the rows, and
    all ranges are those of the rows: each such column is marked as not agreed.
    """
    if given is not None:
        return given if isinstance(given, RowSchema) else read_schema(Path(given))
    if not isinstance(X, Frame) or not has_words(X):
        return None
    cells = cells_of_frame(X, _SOURCE)
    labelled = replace(cells, texts={**cells.texts, _NO_LABEL: ["-"] * cells.rows})
    table = read_columns(labelled, label=_NO_LABEL)
    return RowSchema(classes=table.features.classes, features=drafted(table.features))


def numbers_by(schema: RowSchema, X: Any) -> Floats:  # noqa: ANN401  (of any library)
    """Return rows as numbers in the units of a schema, shape (rows, features).

    Args:
        X: A data frame, whose columns are found by name; or an array with the columns of the
            schema, in which categories are several 0 and 1.
    """
    if isinstance(X, Frame):
        return schema.numbers_of(matched(cells_of_frame(X, _SOURCE), schema.features))
    rows = np.asarray(X, np.float64)
    if rows.ndim != 2 or rows.shape[1] != schema.width:  # noqa: PLR2004  (a matrix)
        raise InputError.because(
            f"X has the shape {rows.shape}; give a data frame with the columns of the schema, or an"
            f" array of shape (rows, {schema.width})",
            field=_SOURCE,
        )
    return rows
