"""Data sets from NumPy's .npz files, such as embeddings that were computed before."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Table
from veilring.errors import InputError

__all__ = ("read_npz",)

# What NumPy and the modules below it raise for files that are empty, cut, damaged or none of these.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    AttributeError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: Path) -> Table:
    """Read a file that holds `X`, `y`, and perhaps `class_names`. Nothing in it is unpickled.

    `X` is numbers of shape (rows, features), and `y` whole numbers from 0, of shape (rows,).
    Features are called `x0`, `x1`, ...; classes by `class_names`, or else by their numbers.

    Raises:
        InputError: If the file cannot be read, or holds no such table.
    """
    if not path.is_file():
        raise InputError("source", path, "the path of an .npz file that exists")
    arrays = _arrays(path)
    features, labels = arrays.get("X"), arrays.get("y")
    if features is None or features.ndim != 2 or features.dtype.kind not in "biuf":  # noqa: PLR2004 (a table has two axes)
        raise _no_table(path, "X of numbers, of shape (rows, features)")
    if labels is None or labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
        raise _no_table(path, "y of whole numbers, one for each row of X")
    if not len(labels) or not features.shape[1] or labels.min() < 0:
        raise _no_table(path, "at least one row and one feature, and labels from 0")
    names = arrays.get("class_names", np.arange(int(labels.max()) + 1)).tolist()
    return Table(
        path.name,
        features.astype(np.float64),
        labels.astype(np.int64),
        tuple(f"x{number}" for number in range(features.shape[1])),
        tuple(map(str, names)),
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in ("X", "y", "class_names") if name in held}
    except _UNREADABLE:
        raise _no_table(path, "an .npz file without Python objects") from None


def _no_table(path: Path, allowed: str) -> InputError:
    return InputError("source", path, f"a file with {allowed}")
