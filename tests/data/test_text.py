"""Conversion of texts to directions by a sentence-transformers model, here a stand-in."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.data.standin import install_stand_in
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.data.npz import read_vectors
from veilring.data.sources import embed, embed_csv, load
from veilring.errors import InputError, MissingExtra


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
