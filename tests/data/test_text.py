"""Texts become directions through a sentence-transformers model; here, a stand-in."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.data import load_table
from veilring.data.text import embed, embed_csv
from veilring.errors import InputError


class _StandIn:
    """Counts letters. Takes what the library's class takes, and refuses anything else."""

    def __init__(self, name: str, *, local_files_only: bool) -> None:
        assert Path(name).is_dir()
        assert local_files_only  # nothing is fetched

    def encode(
        self,
        sentences: list[str],
        *,
        normalize_embeddings: bool,
        convert_to_numpy: bool,
        show_progress_bar: bool,
    ) -> NDArray[np.float32]:
        """Return the shares of a, b and of all else."""
        assert (normalize_embeddings, convert_to_numpy, show_progress_bar) == (True, True, False)
        counts = [[each.count("a"), each.count("b"), 1 + len(each)] for each in sentences]
        found = np.array(counts, np.float32)
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, and a library that loads it."""
    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = _StandIn  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of three texts."""
    file = tmp_path / "texts.csv"
    file.write_text("n,text,label\n1,aa,x\n2,bb,y\n3,ab,x\n", encoding="utf-8")
    return file


def test_texts_become_a_table_and_a_file(model: Path, texts: Path, tmp_path: Path) -> None:
    """The command's file is read as any other table, and it overwrites none."""
    out = tmp_path / "texts.npz"
    command = ["embed", str(texts), "--model", str(model), "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    table = load_table(str(out))
    assert table.class_names == ("x", "y")
    assert table.labels.tolist() == [0, 1, 0]
    expected = np.array([[2, 0, 3], [0, 2, 3], [1, 1, 3]]) / np.sqrt([[13], [13], [11]])
    np.testing.assert_allclose(table.features, expected, rtol=1e-6)
    assert np.array_equal(embed_csv(texts, "text", model).features, table.features)
    assert CliRunner().invoke(app, command).exit_code == 2


def test_what_cannot_be_embedded_is_refused(model: Path, texts: Path) -> None:
    """A column that is not there or is the label, no texts, and no model."""
    for column in ("title", "label"):
        with pytest.raises(InputError, match="text"):
            embed_csv(texts, column, model)
    with pytest.raises(InputError, match="texts"):
        embed([], model)
    with pytest.raises(InputError, match="model"):
        embed(["a"], model / "none")


def test_without_the_extra_it_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, but the command."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match=r"veilring\[text\]"):
        embed(["a"], model)
