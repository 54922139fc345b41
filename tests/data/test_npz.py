"""Tables from .npz files."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilring.data.npz import Vectors, read_vectors, write_vectors
from veilring.data.sources import load
from veilring.errors import InputError

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float16)
Y = np.array([0, 2, 1], np.uint8)


def test_arrays_become_a_table(tmp_path: Path) -> None:
    """Numbers of any precision become features, and labels are positions in the names."""
    path = tmp_path / "embeddings.npz"
    np.savez(path, X=X, y=Y, class_names=np.array(["a", "b", "c"]), ignored=np.zeros(9))
    table = load(str(path))
    assert table.name == "embeddings.npz"
    assert np.array_equal(table.X, X)
    assert table.y.tolist() == [0, 2, 1]
    assert table.features.classes == ("a", "b", "c")
    assert table.features.names == ("x0", "x1")
    np.savez(path, X=X, y=Y)
    assert load(str(path)).features.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    "arrays",
    [
        {"y": Y},
        {"X": X},
        {"X": X[0], "y": Y},
        {"X": X, "y": Y[:2]},
        {"X": X, "y": Y.astype(float)},
        {"X": X[:0], "y": Y[:0]},
        {"X": X, "y": -Y.astype(np.int64)},
        {"X": X.astype(str), "y": Y},
        {"X": X, "y": Y, "class_names": np.array(["a", "b"])},
        {"X": X, "y": Y, "class_names": np.array(["a", "b", "a"])},
        {"X": X, "y": Y, "class_names": np.array("abc")},
        {"X": X, "y": Y, "class_names": np.array([[1, 2, 3]])},
        {"X": X, "y": np.array([0, 1, 1 << 40])},
        {"X": X, "y": np.array([0, 1, (1 << 64) - 1], np.uint64)},
        {"X": X * np.nan, "y": Y},
        {"X": np.array([[object()], [1], [2]]), "y": Y},
        {"X": X, "y": Y, "ids": np.array(["a", "b"])},
        {"X": X, "y": Y, "ids": np.array([0.5, 1.5, 2.5])},
    ],
)
def test_an_invalid_archive_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    """Files with Python objects are refused as well, and no object is loaded."""
    path = tmp_path / "broken.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError):
        load(str(path))


@pytest.mark.parametrize(
    "written",
    [
        Vectors(X),
        Vectors(X, ids=("a", "b", "é")),
        Vectors(X, Y.astype(np.int64), ("0", "zwei", "3")),
        Vectors(X, Y.astype(np.int64), ids=("a", "b", "c")),
        Vectors(X[:0], Y[:0].astype(np.int64), (), ()),
    ],
)
def test_a_written_table_is_read_back(tmp_path: Path, written: Vectors) -> None:
    """Labels, names and ids are read back, and an existing file is not overwritten."""
    path = tmp_path / "some.npz"
    write_vectors(written, path)
    read = read_vectors(path, "file")
    assert np.array_equal(read.features, written.features)
    assert (read.labels is None) == (written.labels is None)
    assert read.labels is None or np.array_equal(read.labels, Y[: len(read.labels)])
    assert (read.class_names, read.ids) == (written.class_names, written.ids)
    with pytest.raises(InputError, match="out"):
        write_vectors(written, path)


def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    """Missing files, other files and files of a single array are refused."""
    (tmp_path / "text.npz").write_text("no", encoding="utf-8")
    np.save(tmp_path / "lone.npy", X)
    (tmp_path / "lone.npy").rename(tmp_path / "lone.npz")
    for name in ("missing.npz", "text.npz", "lone.npz"):
        with pytest.raises(InputError, match="source"):
            load(str(tmp_path / name))


def header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    """Return the header of an array file, which states the number of values."""
    file = io.BytesIO()
    announced = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, announced)
    return file.getvalue()


def require_refused(folder: Path, member: bytes, compression: int, *, more: int = 0) -> None:
    """Refuse an archive with this array, whose directory claims more bytes than it has."""
    path = folder / "hostile.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("X.npy", member)
        archive.infolist()[0].file_size += more
    with pytest.raises(InputError, match="with arrays of numbers and texts"):
        read_vectors(path, "source")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    "member",
    [
        header((1 << 40, 1 << 10)),
        header((1 << 22, 1 << 9)),
        header((1 << 62, 1 << 62)),
        header((1 << 40, 0)) + bytes(8),
        header((-1, 8)) + bytes(64),
        header((1,), "<U1000000000"),
        header((3, 2)) + bytes(40),
        header((3, 2)) + bytes(56),
        header((3, 2))[:20],
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"(" * 5000,
        b"\x93NUMPY\x01\x00\x88\x13" + b"[" * 5000,
        b"",
    ],
)
def test_an_array_that_announces_more_than_the_file_holds_is_refused(
    tmp_path: Path, member: bytes, compression: int
) -> None:
    """It is refused before memory is allocated, for any announced numbers and brackets."""
    require_refused(tmp_path, member, compression)


def test_an_archive_that_lies_about_a_member_is_refused(tmp_path: Path) -> None:
    """The archive's directory claims the announced size, but the file is too small for it."""
    require_refused(tmp_path, header((1 << 22, 1 << 5)), zipfile.ZIP_STORED, more=1 << 30)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(tmp_path: Path, compression: int) -> None:
    """NumPy writes no others, and their compression of zeros has no known bound."""
    require_refused(tmp_path, header((3, 2)) + bytes(48), compression)


def test_large_arrays_of_zeros_are_read(tmp_path: Path) -> None:
    """Zeros have the highest compression ratio."""
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, X=np.zeros((1 << 10, 1 << 10)))
    assert read_vectors(path, "source").features.shape == (1 << 10, 1 << 10)
