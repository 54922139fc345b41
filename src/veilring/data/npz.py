"""Data sets from NumPy's .npz files, such as embeddings that were computed before."""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Table
from veilring.errors import InputError

__all__ = ("read_arrays", "read_npz")

# A label has two bytes on the wire; where there are more, they number rows and not classes.
_CLASSES_MAX: Final = 1 << 16
# What NumPy and the modules below it raise for files that are empty, cut, damaged or none of these.
_UNREADABLE: Final = (
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
    arrays = read_arrays(path, ("X", "y", "class_names"))
    features, labels = arrays.get("X"), arrays.get("y")
    if features is None or features.ndim != 2 or features.dtype.kind not in "biuf":  # noqa: PLR2004 (a table has two axes)
        raise _no_table(path, "X of numbers, of shape (rows, features)")
    if labels is None or labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
        raise _no_table(path, "y of whole numbers, one for each row of X")
    if not len(labels) or not features.shape[1] or labels.min() < 0:
        raise _no_table(path, "at least one row and one feature, and labels from 0")
    names = _names(path, arrays.get("class_names"), int(labels.max()) + 1)
    return Table(
        path.name,
        features.astype(np.float64),
        labels.astype(np.int64),
        tuple(f"x{number}" for number in range(features.shape[1])),
        names,
    )


def read_arrays(
    path: Path, names: Collection[str], *, field: str = "source"
) -> dict[str, NDArray[Any]]:
    """Return those arrays of a file that have one of these names. Nothing in it is unpickled.

    Args:
        path: The file.
        names: Other arrays are passed over.
        field: How an error calls the file.

    Raises:
        InputError: If the file cannot be read.
    """
    if not path.is_file():
        raise InputError(field, path, "the path of an .npz file that exists")
    try:
        # NumPy does not close a file that it opened and could not read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return {name: held[name] for name in names if name in held}
    except _UNREADABLE:
        allowed = "a file with arrays of numbers and texts, as NumPy's savez writes it"
        raise InputError(field, path, allowed) from None


def _names(path: Path, given: NDArray[Any] | None, classes: int) -> tuple[str, ...]:
    """Return the names of so many classes, or of more."""
    if classes > _CLASSES_MAX:
        raise _no_table(path, f"labels below {_CLASSES_MAX:,}")
    if given is None:
        return tuple(map(str, range(classes)))
    names = tuple(map(str, given.tolist())) if given.ndim == 1 and given.dtype.kind in "Uiu" else ()
    if len(names) < classes or len(set(names)) < len(names):
        raise _no_table(path, f"different class_names, one for each of {classes} classes")
    return names


def _no_table(path: Path, allowed: str) -> InputError:
    return InputError("source", path, f"a file with {allowed}")
