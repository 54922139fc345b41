"""From named columns of numbers or categories to a table of numbers."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Categories, Table
from veilring.errors import InputError

# Each category becomes a feature that every query carries, and each class an entry of every vote.
# A column with more values than this is an identifier or a number with a slip in it.
CATEGORIES_MAX: Final = 1000

Column = NDArray[np.float64] | NDArray[np.str_]


def encode(name: str, columns: Mapping[str, Column], labels: NDArray[np.str_]) -> Table:
    """Return a table: numbers as they are, categories one-hot, classes numbered.

    A column of categories becomes one feature for each of its values, 1 where a row has it and 0
    elsewhere, named `column=value`, in the order of the values. Classes are in numerical order if
    all their names are numbers, else in alphabetical order.

    Args:
        name: The name of the table.
        columns: At least one, each of shape (rows,).
        labels: Shape (rows,).

    Raises:
        InputError: If there is no row or no column, a number is not finite (column and row are
            named), or a column or the labels have more than `CATEGORIES_MAX` values.
    """
    if not len(labels):
        raise InputError(name, "without rows", "at least one row below the header")
    if not columns:
        raise InputError(name, "without features", "at least one column beside the label")
    blocks: list[NDArray[np.float64]] = []
    feature_names: list[str] = []
    categories: list[Categories] = []
    for column, values in columns.items():
        block, found = _features(name, column, values)
        if found is not None:
            categories.append(Categories(column, len(feature_names), found))
        blocks.append(block)
        feature_names += [column] if found is None else [f"{column}={value}" for value in found]
    numbers, classes = number_classes(name, labels)
    X, names = np.hstack(blocks), tuple(feature_names)
    return Table.of(name, X, numbers, names, classes, categories=tuple(categories))


def number_classes(
    table: str, labels: NDArray[np.str_]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each label's class, shape (rows,), and the names of all classes.

    They are in numerical order if all names are numbers, else in alphabetical order.

    Args:
        table: The name of the table.
        labels: Shape (rows,).

    Raises:
        InputError: If there are more than `CATEGORIES_MAX` classes.
    """
    names: list[str] = np.unique(labels).tolist()
    _require_few(table, "label", len(names))
    with suppress(ValueError):
        names = sorted(names, key=float)
    numbers = {label: number for number, label in enumerate(names)}
    return np.array([numbers[label] for label in labels.tolist()], dtype=np.int64), tuple(names)


def _features(
    table: str, column: str, values: NDArray[Any]
) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Return the features of a column, and which categories they stand for if it has any."""
    if values.dtype == np.float64:
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argmin(finite)) + 1
            raise InputError(
                f"{table}, column {column!r}, row {row}", "not finite", "a finite number"
            )
        return values[:, None], None
    categories, positions = np.unique(values, return_inverse=True)
    _require_few(table, column, len(categories))
    one_hot = np.eye(len(categories))[positions]
    return one_hot, tuple(categories.tolist())


def _require_few(table: str, column: str, values: int) -> None:
    if values > CATEGORIES_MAX:
        few = f"at most {CATEGORIES_MAX}; a column is numbers only if each of its cells is one"
        raise InputError(f"{table}, column {column!r}", f"of {values} different categories", few)
