"""Files of records and queries: CSV with the columns of the terms, or embeddings in .npz.

What an .npz file holds is said by `veilring.data.npz`. Where it names no classes, its labels number
those of the terms.
"""

from logging import Logger, getLogger
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilring.data.csv import read_cells
from veilring.data.npz import NPZ, Vectors, read_vectors
from veilring.deployment.columns import look_up
from veilring.deployment.prediction_terms import PredictionTerms
from veilring.deployment.ranges import OUTSIDE_MAX, check_ranges
from veilring.errors import InputError
from veilring.protocols.prediction.records import LabelledRecords

_log = getLogger("veilring.prediction")


def read_records(
    path: Path,
    terms: PredictionTerms,
    key: str,
    outside_max: float = OUTSIDE_MAX,
    log: Logger = _log,
) -> LabelledRecords:
    """Read records that are to be added.

    Args:
        path: An .npz file with ids and labels if the terms have `dimensions`; else a CSV file whose
            last column is the label.
        terms: Public.
        key: The header of the column with the ids.
        outside_max: The share of a column's values that may lie outside of its range.
        log: Where it is logged how the records fit the ranges.

    Raises:
        InputError: If the file does not fit; it names no value but an unknown category's first
            characters.
    """
    if terms.dimensions:
        held = _vectors(path)
        if held.ids is None:
            raise InputError("file", path, "a file with the array ids, too")
        return LabelledRecords.of(
            held.ids, terms.directions(held.features), _labels(path, held, terms)
        )
    cells = read_cells(path)
    check_ranges(path, terms.features, cells, outside_max, log)
    rows = terms.rows_of(path, cells)
    if key not in cells:
        raise InputError("key", key, f"a column of {path.name}")
    ids = [str(name) for name in cells[key].tolist()]
    return LabelledRecords.of(ids, terms.directions(rows.features), rows.labels)


def read_labelled(
    path: Path, terms: PredictionTerms
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read public rows as the server takes them, and their labels; ids are passed over.

    Raises:
        InputError: As `read_records`.
    """
    if terms.dimensions:
        held = _vectors(path)
        return terms.directions(held.features), _labels(path, held, terms)
    cells = read_cells(path)
    check_ranges(path, terms.features, cells, 1.0, _log)
    rows = terms.rows_of(path, cells)
    return terms.directions(rows.features), rows.labels


def read_queries(
    path: Path, terms: PredictionTerms, outside_max: float = OUTSIDE_MAX, log: Logger = _log
) -> NDArray[np.float32]:
    """Read queries as the server takes them; labels and ids are passed over.

    Args:
        path: As `read_records` takes it.
        terms: Public.
        outside_max: The share of a column's values that may lie outside of its range.
        log: Where it is logged how the queries fit the ranges.

    Raises:
        InputError: As `read_records`.
    """
    if terms.dimensions:
        return terms.directions(_vectors(path).features)
    return terms.directions(terms.read_own_queries(path, outside_max, log))


def read_ids(path: Path) -> list[str]:
    """Read ids from a text file, one on each line; empty lines do not count.

    Raises:
        InputError: If it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--from", path, f"a text file in UTF-8 ({error})") from error
    return [line.strip() for line in lines if line.strip()]


def _vectors(path: Path) -> Vectors:
    if path.suffix.lower() != NPZ:
        raise InputError("file", path, "an .npz file, because the terms have dimensions")
    held = read_vectors(path, "file")
    if not len(held.features):
        raise InputError(path.name, "without rows", "at least one row in X")
    return held


def _labels(path: Path, held: Vectors, terms: PredictionTerms) -> NDArray[np.int64]:
    """Return the labels as the terms number the classes."""
    if held.labels is None:
        raise InputError("file", path, "a file with the array y, too")
    if held.class_names is not None:
        named = np.array(held.class_names, np.str_)[held.labels]
        return look_up(path, "y", named, terms.classes)
    if held.labels.max(initial=0) >= len(terms.classes):
        allowed = f"class numbers from 0 to {len(terms.classes) - 1}"
        raise InputError(f"{path.name}, y", "out of range", allowed)
    return held.labels
