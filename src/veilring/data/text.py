"""Texts as directions, by a sentence-transformers model that the user has on disk.

The model is the `text` extra's and is never fetched from anywhere. It must be one that was not
trained on the private texts.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilring.data.columns import encode
from veilring.data.csv import read_cells
from veilring.data.table import Table
from veilring.errors import InputError

__all__ = ("embed", "embed_csv", "write_npz")


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


def embed_csv(path: Path, text: str, model: Path) -> Table:
    """Embed a column of a CSV file whose last column is the label.

    Args:
        path: As `read_csv` takes it; all its other columns are left out.
        text: The name of the column.
        model: The folder of a sentence-transformers model.

    Raises:
        InputError: If the file cannot be read, has no such column, or `embed` refuses.
    """
    cells = read_cells(path)
    *names, label = cells
    if text not in names:
        raise InputError(
            "text", text, f"a column of {path.name} before its last: {', '.join(names)}"
        )
    vectors = embed(cells[text].tolist(), model).astype(np.float64)
    columns = {f"x{number}": values for number, values in enumerate(vectors.T)}
    return encode(path.name, columns, cells[label])


def write_npz(table: Table, path: Path) -> None:
    """Write what `load_table` reads again; features in single precision.

    Raises:
        InputError: If the file is there already, or cannot be written.
    """
    try:
        with path.open("xb") as file:
            features, names = table.features.astype(np.float32), np.array(table.class_names)
            np.savez_compressed(file, X=features, y=table.labels, class_names=names)
    except OSError as error:
        raise InputError(
            "out", path, f"a new file that can be written ({error.strerror})"
        ) from None


def _load(model: Path) -> Any:  # noqa: ANN401 (the library ships few types, and is optional)
    if not model.is_dir():
        raise InputError("model", model, "the folder of a sentence-transformers model")
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415  (an extra, and slow)
    except ImportError:
        raise InputError("text", "not installed", "pip install 'veilring[text]'") from None
    return SentenceTransformer(str(model), local_files_only=True)
