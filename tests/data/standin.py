"""A stand-in for a sentence-transformers model: a folder, and a library that loads it."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray


class _StandIn:
    """A model that counts letters, and refuses arguments unknown to the library's class."""

    def __init__(self, name: str, *, local_files_only: bool) -> None:
        assert Path(name).is_dir()
        assert local_files_only  # nothing is fetched

    def encode(self, sentences: list[str], **options: bool) -> NDArray[np.float32]:
        """Return the fractions of a, b and other letters."""
        asked = {"normalize_embeddings": True, "convert_to_numpy": True, "show_progress_bar": False}
        assert options == asked
        counts = [[each.count("a"), each.count("b"), 1 + len(each)] for each in sentences]
        found = np.array(counts, np.float32)
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def install_stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a model's folder and the library that loads it; return the model."""
    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = _StandIn  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    (folder / "model").mkdir()
    return folder / "model"
