"""Tables by name: built in, from openml.org, of embedded texts, and from .npz files."""

import importlib.util
import io
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest
from sklearn import datasets
from sklearn.utils import Bunch
from tests.data.standin import install_stand_in
from tests.refusals import require_refused
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.data.npz import Vectors, read_vectors, write_vectors
from veilring.data.sources import embed, embed_csv, load
from veilring.errors import InputError, MissingExtra


@pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
def test_a_built_in_set_is_scikit_learns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, labels and names equal its own, even if it stores its files elsewhere."""
    theirs = getattr(datasets, f"load_{name.replace('-', '_')}")()
    ours = load(name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for table in (ours, load(name)):
        np.testing.assert_array_equal(table.X, theirs.data)
        np.testing.assert_array_equal(table.y, theirs.target)
    assert ours.features.names == tuple(map(str, theirs.feature_names))
    assert ours.features.classes == tuple(map(str, theirs.target_names))


@pytest.fixture
def openml(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Replace the function with which scikit-learn fetches from openml.org."""
    monkeypatch.setattr(datasets, "fetch_openml", fetch := Mock())
    return fetch


def test_nominal_columns_are_one_hot_and_missing_values_a_category(openml: Mock) -> None:
    """Numbers stay; a missing category becomes `?`."""
    openml.return_value = Bunch(
        data=np.array([[0.5, 1], [1.5, 0], [2.5, np.nan]]),
        target=np.array(["no", "yes", "no"], dtype=object),
        feature_names=["age", "sex"],
        categories={"sex": ["F", "M"]},
    )
    table = load("openml:made")
    assert table.features.names == ("age", "sex=?", "sex=F", "sex=M")
    np.testing.assert_array_equal(table.X, [[0.5, 0, 0, 1], [1.5, 0, 1, 0], [2.5, 1, 0, 0]])
    assert table.features.classes == ("no", "yes")


def test_an_unfit_source_is_refused(openml: Mock) -> None:
    """A missing number, two labels per row, no network and an unknown name are named."""
    rows = {"data": np.array([[0.5], [np.nan]]), "feature_names": ["age"], "categories": {}}
    openml.return_value = Bunch(**rows, target=np.array(["a", "b"]))
    require_refused("column 'age', row 2", load, "openml:made")
    openml.return_value = Bunch(**rows, target=np.zeros((2, 2)))
    require_refused("one label", load, "openml:made")
    openml.side_effect = URLError("no route to host")
    require_refused(r"^(?=.*openml:adult).*no route to host.*\Z", load, "openml:adult")
    for name in ("", "wines", "wine.tsv"):
        require_refused(r"breast-cancer.*openml:NAME.*\.csv", load, name)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model's folder, with a library that loads it."""
    return install_stand_in(tmp_path, monkeypatch)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Return a file of three texts."""
    file = tmp_path / "texts.csv"
    file.write_text("n,text,label\n1,aa,x\n2,bb,y\n3,ab,x\n", encoding="utf-8")
    return file


def test_texts_become_a_table_and_a_file(model: Path, texts: Path, tmp_path: Path) -> None:
    """The command's output is read like any table, and it overwrites no file."""
    out = tmp_path / "texts.npz"
    command = ["embed", str(texts), "--model", str(model), "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    table = load(str(out))
    assert table.features.classes == ("x", "y")
    assert table.y.tolist() == [0, 1, 0]
    expected = np.array([[2, 0, 3], [0, 2, 3], [1, 1, 3]]) / np.sqrt([[13], [13], [11]])
    np.testing.assert_allclose(table.X, expected, rtol=1e-6)
    assert np.array_equal(embed_csv(texts, "text", model).features, table.X)
    assert CliRunner().invoke(app, command).exit_code == 2


def test_ids_are_kept_and_labels_left_out(model: Path, texts: Path, tmp_path: Path) -> None:
    """With a key, the file keeps each row's id; rows without a label have none."""
    out = tmp_path / "texts.npz"
    command = ["embed", str(texts), "--model", str(model), "--key", "n", "--unlabelled"]
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 0, done.output
    held = read_vectors(out, "file")
    assert held.ids == ("1", "2", "3")
    assert (held.labels, held.class_names) == (None, None)


def test_invalid_input_is_refused(model: Path, texts: Path) -> None:
    """A missing column, the label as column, no texts, and no model are refused."""
    for column in ("title", "label"):
        require_refused("column is", embed_csv, texts, column, model)
        require_refused("key is", embed_csv, texts, "text", model, key=column)
    require_refused("texts", embed, [], model)
    require_refused("model", embed, ["a"], model / "none")


def test_the_error_names_the_extra_to_install(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the install command, without a traceback."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"'\.\[text\]'"):
        embed(["a"], model)


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


BROKEN: list[dict[str, Any]] = [
    {"X": None},
    {"y": None},
    {"X": X[0]},
    {"y": Y[:2]},
    {"y": Y.astype(float)},
    {"X": X[:0], "y": Y[:0]},
    {"y": -Y.astype(np.int64)},
    {"X": X.astype(str)},
    *(
        {"class_names": np.array(names)}
        for names in (["a", "b"], ["a", "b", "a"], "abc", [[1, 2, 3]])
    ),
    {"y": np.array([0, 1, 1 << 40])},
    {"y": np.array([0, 1, (1 << 64) - 1], np.uint64)},
    {"X": X * np.nan},
    {"X": np.array([[object()], [1], [2]])},
    *({"ids": np.array(ids)} for ids in (["a", "b"], [0.5, 1.5, 2.5])),
]


@pytest.mark.parametrize("changed", BROKEN)
def test_an_invalid_archive_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Files with Python objects are refused as well, and no object is loaded."""
    path = tmp_path / "broken.npz"
    arrays = {"X": X, "y": Y, **changed}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
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
    require_refused("out", write_vectors, written, path)


def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    """Missing files, other files and files of a single array are refused."""
    (tmp_path / "text.npz").write_text("no", encoding="utf-8")
    with (tmp_path / "lone.npz").open("wb") as lone:
        np.save(lone, X)
    for name in ("missing.npz", "text.npz", "lone.npz"):
        require_refused("source", load, str(tmp_path / name))


def header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    """Return the header of an array file, which states the number of values."""
    file = io.BytesIO()
    announced = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, announced)
    return file.getvalue()


def require_unread(folder: Path, member: bytes, compression: int, *, more: int = 0) -> None:
    """Refuse an archive with this array, whose directory claims more bytes than it has."""
    path = folder / "hostile.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("X.npy", member)
        archive.infolist()[0].file_size += more
    require_refused("with arrays of numbers and texts", read_vectors, path, "source")


HOSTILE = [
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
]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("member", HOSTILE)
def test_an_oversized_array_is_refused(tmp_path: Path, member: bytes, compression: int) -> None:
    """It is refused before memory is allocated, for any announced numbers and brackets."""
    require_unread(tmp_path, member, compression)


def test_an_archive_that_lies_or_is_compressed_otherwise_is_refused(tmp_path: Path) -> None:
    """A directory may not claim more than the file has, and zeros are compressed as by NumPy."""
    large, small = header((1 << 22, 1 << 5)), header((3, 2)) + bytes(48)
    require_unread(tmp_path, large, zipfile.ZIP_STORED, more=1 << 30)
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        require_unread(tmp_path, small, compression)


def test_large_arrays_of_zeros_are_read(tmp_path: Path) -> None:
    """Zeros have the highest compression ratio."""
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, X=np.zeros((1 << 10, 1 << 10)))
    assert read_vectors(path, "source").features.shape == (1 << 10, 1 << 10)
