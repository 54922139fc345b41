"""Texts as directions, by a sentence-transformers model that the user has on disk.

The model is the `text` extra's and is never fetched from anywhere. It must be one that was not
trained on the private texts.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilring.data.columns import number_classes
from veilring.data.csv import read_cells
from veilring.data.npz import Vectors
from veilring.errors import InputError


def embed(texts: list[str], model: Path) -> NDArray[np.float32]:
    """Return the embedding of each text, of length 1, shape (texts, dimensions).

    Args:
        texts: At least one.
        model: The folder of a sentence-transformers model.

    Raises:
        InputError: If there is no text or no such folder, or the extra is not installed.
    """
    if not texts:
        raise InputError("texts", "none", "at least one")
    encoder = _load(model)
    found = encoder.encode(
        texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
    )
    return np.asarray(found, np.float32)


def embed_csv(
    path: Path, text: str, model: Path, *, key: str | None = None, labelled: bool = True
) -> Vectors:
    """Embed a column of a CSV file; what is neither text, id nor label is left out.

    Args:
        path: As `read_csv` takes it.
        text: The name of the column.
        model: The folder of a sentence-transformers model.
        key: The column that says whose each row is, if there is one.
        labelled: Whether the last column is the label.

    Raises:
        InputError: If the file cannot be read, has no such column, or `embed` refuses.
    """
    cells = read_cells(path)
    label = list(cells)[-1] if labelled else None
    columns = [name for name in cells if name != label]
    for option, column in (("column", text), ("key", key)):
        if column is not None and column not in columns:
            where = f"{path.name} before its last" if labelled else path.name
            raise InputError(option, column, f"a column of {where}: {', '.join(columns)}")
    labels, names = (None, None) if label is None else number_classes(path.name, cells[label])
    ids = None if key is None else tuple(cells[key].tolist())
    return Vectors(embed(cells[text].tolist(), model), labels, names, ids)


def _load(model: Path) -> Any:  # noqa: ANN401 (the library ships few types, and is optional)
    if not model.is_dir():
        raise InputError("model", model, "the folder of a sentence-transformers model")
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415  (an extra, and slow)
    except ImportError:
        raise InputError("text", "not installed", "pip install 'veilring[text]'") from None
    return SentenceTransformer(str(model), local_files_only=True)
