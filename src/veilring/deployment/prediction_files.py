"""Files of records and queries: CSV with the columns of the terms, or embeddings in .npz.

An .npz file holds `features` of shape (rows, features); of records also `labels`, which are names
of classes or their numbers, and `ids`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.csv import read_cells
from veilring.data.npz import read_arrays
from veilring.deployment.columns import look_up
from veilring.deployment.prediction_terms import PredictionTerms
from veilring.errors import InputError
from veilring.protocols.prediction.records import Records

__all__ = ("read_ids", "read_labelled", "read_queries", "read_records")

_NPZ: Final = ".npz"
_AXES: Final = {"features": 2, "labels": 1, "ids": 1}


def read_records(path: Path, terms: PredictionTerms, key: str) -> Records:
    """Read records that are to be added.

    Args:
        path: An .npz file if the terms have `dimensions`; else a CSV file whose last column is the
            label.
        terms: Public.
        key: The header of the column with the ids.

    Raises:
        InputError: If the file does not fit; it names no value but an unknown category's first
            characters.
    """
    if terms.dimensions:
        arrays = _arrays(path, ("features", "labels", "ids"))
        ids = [str(name) for name in arrays["ids"].tolist()]
        labels = _classes(path, arrays["labels"], terms)
        return Records.of(ids, terms.directions(arrays["features"]), labels)
    rows, cells = terms.read_rows(path), read_cells(path)
    if key not in cells:
        raise InputError("key", key, f"a column of {path.name}")
    ids = [str(name) for name in cells[key].tolist()]
    return Records.of(ids, terms.directions(rows.features), rows.labels)


def read_labelled(
    path: Path, terms: PredictionTerms
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read public rows as the server takes them, and their labels; ids are passed over.

    Raises:
        InputError: As `read_records`.
    """
    if terms.dimensions:
        arrays = _arrays(path, ("features", "labels"))
        return terms.directions(arrays["features"]), _classes(path, arrays["labels"], terms)
    rows = terms.read_rows(path)
    return terms.directions(rows.features), rows.labels


def read_queries(path: Path, terms: PredictionTerms) -> NDArray[np.float32]:
    """Read queries as the server takes them; labels and ids are passed over.

    Raises:
        InputError: As `read_records`.
    """
    if terms.dimensions:
        return terms.directions(_arrays(path, ("features",))["features"])
    return terms.directions(terms.read_queries(path))


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


def _arrays(path: Path, names: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
    if path.suffix != _NPZ:
        raise InputError("file", path, "an .npz file, because the terms have dimensions")
    arrays = read_arrays(path, names, field="file")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError("file", path, f"a file with the arrays {', '.join(missing)}, too")
    for name, array in arrays.items():
        if array.ndim != _AXES[name] or len(array) != len(arrays["features"]):
            allowed = f"{_AXES[name]} axes and as many rows as features"
            raise InputError(f"{path.name}, {name}", f"of shape {array.shape}", allowed)
    if arrays["features"].dtype.kind not in "fiu":
        raise InputError(f"{path.name}, features", arrays["features"].dtype, "numbers")
    return arrays


def _classes(path: Path, labels: NDArray[Any], terms: PredictionTerms) -> NDArray[np.int64]:
    if labels.dtype.kind == "U":
        return look_up(path, "labels", labels, terms.classes)
    if labels.dtype.kind not in "iu":
        raise InputError(f"{path.name}, labels", labels.dtype, "names of classes or their numbers")
    if labels.size and not 0 <= labels.min() <= labels.max() < len(terms.classes):
        allowed = f"class numbers from 0 to {len(terms.classes) - 1}"
        raise InputError(f"{path.name}, labels", "out of range", allowed)
    return labels.astype(np.int64)
