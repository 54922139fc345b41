"""Rows in NumPy's .npz files, such as precomputed embeddings.

===============  ====================================================================
array            contents
===============  ====================================================================
`X`              numbers, shape (rows, features)
`y`              optional: whole numbers from 0, one per row
`class_names`    optional: different texts, indexed by the numbers of `y`
`ids`            optional: the id of each row's owner
===============  ====================================================================

Other arrays are ignored, and nothing is ever unpickled.
"""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.data.table import Table, is_table
from veilring.errors import InputError
from veilring.privacy.files import open_private

NPZ: Final = ".npz"

# A label has two bytes on the wire; more distinct labels would number rows rather than classes.
_CLASSES_MAX: Final = 1 << 16
_LABELS: Final = "`y` must have one whole number for each row of `X`"
_ARRAYS: Final = ("X", "y", "class_names", "ids")
# DEFLATE shrinks nothing below 1/1032 (zlib's technical details), so the size of the file bounds
# the memory. NumPy writes no other compression.
_SHRINKS_MAX: Final = 1032
_COMPRESSIONS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
# Errors of NumPy and the modules below it for files that are empty, cut, damaged, encrypted or not
# archives.
_UNREADABLE: Final = (
    OSError,
    EOFError,
    ValueError,
    AttributeError,
    TypeError,
    LookupError,
    SyntaxError,
    tokenize.TokenError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Vectors:
    """The contents of a file. Its values are never shown.

    Attributes:
        features: Shape (rows, features).
        labels: Shape (rows,), from 0; `None` if the rows are not labelled.
        class_names: The names of the labels; `None` if they are missing.
        ids: One per row; `None` if the rows have no ids.
    """

    features: NDArray[np.floating]
    labels: Ints | None = None
    class_names: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None


def read_npz(path: Path) -> Table:
    """Read a file of labelled rows as a data set, ignoring ids.

    Features are called `x0`, `x1`, ...; classes have the names in `class_names`, or otherwise their
    numbers.
    """
    held = read_vectors(path, "source")
    if held.labels is None:
        raise _unfit("source", path, _LABELS)
    if not len(held.labels):
        raise _unfit("source", path, "`X` must have at least one row")
    names = held.class_names
    if names is None:
        names = tuple(map(str, range(int(held.labels.max()) + 1)))
    return Table.of(
        path.name,
        held.features.astype(np.float64),
        held.labels,
        tuple(f"x{number}" for number in range(held.features.shape[1])),
        names,
    )


def read_vectors(path: Path, field: str) -> Vectors:
    """Read a file."""
    arrays = _read(path, field)
    features, labels = arrays.get("X"), arrays.get("y")
    if features is None or not is_table(features) or features.dtype.kind not in "biuf":
        raise _unfit(field, path, "`X` must be an array of numbers of shape (rows, features)")
    if not features.shape[1]:
        raise _unfit(field, path, "`X` must have at least one column")
    if features.dtype.kind != "f":
        features = features.astype(np.float64)
    if labels is not None:
        _require_labels(field, path, labels, len(features))
        labels = labels.astype(np.int64)
    names = _texts(field, path, arrays, "class_names")
    if names is not None:
        count = 0 if labels is None else int(labels.max(initial=-1)) + 1
        if len(names) < count or len(set(names)) < len(names):
            raise _unfit(
                field,
                path,
                f"`class_names` must have a distinct name for each of the {count} classes",
            )
    ids = _texts(field, path, arrays, "ids")
    if ids is not None and len(ids) != len(features):
        raise _unfit(field, path, "`ids` must have one entry for each row of `X`")
    return Vectors(features, labels, names, ids)


def write_vectors(vectors: Vectors, path: Path) -> None:
    """Write a new file; features in single precision."""
    arrays: dict[str, Any] = {"X": vectors.features.astype(np.float32)}
    if vectors.labels is not None:
        arrays["y"] = vectors.labels
    for name, texts in (("class_names", vectors.class_names), ("ids", vectors.ids)):
        if texts is not None:
            arrays[name] = np.array(texts, np.str_)
    try:
        with open_private(path, "xb") as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        allowed = f"a new file that can be written ({error.strerror})"
        raise InputError("out", path, allowed) from None


def _read(path: Path, field: str) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(field, path, "the path of an existing .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            held = {info.filename: info for info in archive.infolist()}
            size = path.stat().st_size
            for name in _ARRAYS:
                if f"{name}.npy" in held:
                    _require_size(archive, held[f"{name}.npy"], size)
            # NumPy does not close a file that it opened but could not read.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in _ARRAYS if f"{name}.npy" in held}
    except _UNREADABLE:
        allowed = "a file with arrays of numbers and texts, as written by NumPy's savez"
        raise InputError(field, path, allowed) from None


def _require_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> None:
    """Refuse an array whose announced size the archive cannot hold, before it is allocated."""
    if member.compress_type not in _COMPRESSIONS or member.compress_size > size:
        raise ValueError(member.filename)
    if member.file_size > _SHRINKS_MAX * member.compress_size:
        raise ValueError(member.filename)
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
        else:
            shape, _, kind = np.lib.format.read_array_header_2_0(file)
        announced = file.tell() + math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or announced != member.file_size:
        raise ValueError(member.filename)


def _require_labels(field: str, path: Path, labels: NDArray[Any], rows: int) -> None:
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise _unfit(field, path, _LABELS)
    if labels.size and not 0 <= labels.min() <= labels.max() < _CLASSES_MAX:
        raise _unfit(field, path, f"`y` must contain class numbers from 0 to {_CLASSES_MAX - 1:,}")


def _texts(
    field: str, path: Path, arrays: Mapping[str, NDArray[Any]], name: str
) -> tuple[str, ...] | None:
    """Return an array of texts, or of whole numbers as texts, if there is one."""
    given = arrays.get(name)
    if given is None:
        return None
    if given.ndim != 1 or given.dtype.kind not in "Uiu":
        raise _unfit(field, path, f"`{name}` must be a one-dimensional array of texts")
    return tuple(map(str, given.tolist()))


def _unfit(field: str, path: Path, requirement: str) -> InputError:
    return InputError.because(f"{path}: {requirement}", field=field)
