"""Data sets by name: built in, from openml.org, and embedded texts."""

import importlib.util
import sys
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from sklearn import datasets
from sklearn.utils import Bunch
from tests.data.standin import install_stand_in
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.data.npz import read_vectors
from veilring.data.sources import embed, embed_csv, load
from veilring.errors import InputError, MissingExtra


class TestBuiltIn:
    """The sets that come with scikit-learn."""

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
    def test_is_what_scikit_learn_loads(self, name: str) -> None:
        """Rows, labels and names equal those of scikit-learn's own loader."""
        theirs = getattr(datasets, f"load_{name.replace('-', '_')}")()
        ours = load(name)
        np.testing.assert_array_equal(ours.X, theirs.data)
        np.testing.assert_array_equal(ours.y, theirs.target)
        assert ours.features.names == tuple(map(str, theirs.feature_names))
        assert ours.features.classes == tuple(map(str, theirs.target_names))

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
    def test_without_the_packaged_file_the_library_is_asked(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The table is the same if scikit-learn stores its files elsewhere."""
        usual = load(name)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        asked = load(name)
        np.testing.assert_array_equal(asked.X, usual.X)
        np.testing.assert_array_equal(asked.y, usual.y)

    @pytest.mark.parametrize("name", ["", "wines", "wine.tsv"])
    def test_an_unknown_source_is_refused(self, name: str) -> None:
        """The error for an unknown source lists all sources."""
        with pytest.raises(InputError, match=r"breast-cancer.*openml:NAME.*\.csv"):
            load(name)


class TestOpenMl:
    """Data sets from openml.org, as returned by scikit-learn."""

    def test_without_a_network_the_error_is_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names the source and the failure."""

        def offline(*_: object, **__: object) -> Bunch:
            raise URLError("no route to host")

        monkeypatch.setattr(datasets, "fetch_openml", offline)
        with pytest.raises(InputError) as caught:
            load("openml:adult")
        assert "openml:adult" in str(caught.value)
        assert "no route to host" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_nominal_columns_are_one_hot_and_missing_values_a_category(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Numbers stay; a missing category becomes `?`."""
        found = Bunch(
            data=np.array([[0.5, 1], [1.5, 0], [2.5, np.nan]]),
            target=np.array(["no", "yes", "no"], dtype=object),
            feature_names=["age", "sex"],
            categories={"sex": ["F", "M"]},
        )
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        table = load("openml:made")
        assert table.features.names == ("age", "sex=?", "sex=F", "sex=M")
        np.testing.assert_array_equal(table.X, [[0.5, 0, 0, 1], [1.5, 0, 1, 0], [2.5, 1, 0, 0]])
        assert table.features.classes == ("no", "yes")

    def test_a_missing_number_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error names the column and the row."""
        found = Bunch(
            data=np.array([[0.5], [np.nan]]),
            target=np.array(["a", "b"]),
            feature_names=["age"],
            categories={},
        )
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        with pytest.raises(InputError, match="column 'age', row 2"):
            load("openml:made")

    def test_two_labels_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A table has one label per row."""
        found = Bunch(data=np.zeros((2, 1)), target=np.zeros((2, 2)), feature_names=["a"])
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        with pytest.raises(InputError, match="one label"):
            load("openml:made")


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


def test_ids_are_kept_and_labels_omitted_on_request(
    model: Path, texts: Path, tmp_path: Path
) -> None:
    """With a key, the file keeps each row's id; rows without a label have none."""
    out = tmp_path / "texts.npz"
    options = ("--model", str(model), "--key", "n", "--unlabelled", "--out", str(out))
    done = CliRunner().invoke(app, ["embed", str(texts), *options])
    assert done.exit_code == 0, done.output
    held = read_vectors(out, "file")
    assert held.ids == ("1", "2", "3")
    assert (held.labels, held.class_names) == (None, None)


def test_invalid_input_is_refused(model: Path, texts: Path) -> None:
    """A missing column, the label as column, no texts, and no model are refused."""
    for column in ("title", "label"):
        with pytest.raises(InputError, match="column is"):
            embed_csv(texts, column, model)
        with pytest.raises(InputError, match="key is"):
            embed_csv(texts, "text", model, key=column)
    with pytest.raises(InputError, match="texts"):
        embed([], model)
    with pytest.raises(InputError, match="model"):
        embed(["a"], model / "none")


def test_without_the_extra_the_error_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the install command, without a traceback."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"'\.\[text\]'"):
        embed(["a"], model)
