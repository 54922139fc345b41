"""The documentation's notebooks run in a fresh kernel and print the shown output."""

from pathlib import Path
from typing import Final

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS: Final = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))
SECONDS: Final = 600
"""A cell may take this long on a busy machine; on an idle one the longest takes ten seconds."""


def _play(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells of a notebook in a folder."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=SECONDS, coalesce_streams=True, resources=resources).execute()


def _shown(cell: NotebookNode) -> list[str]:
    """Return the text of a cell's outputs."""
    return [
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        for output in cell.get("outputs", ())
    ]


@pytest.mark.docs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    """Each cell runs without an error and prints the output that the page shows below it."""
    text = path.read_text(encoding="utf-8")
    kept, played = (nbformat.reads(text, as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]  # nbformat's
    _play(played, tmp_path)
    for cell, again in zip(kept.cells, played.cells, strict=True):
        assert _shown(again) == _shown(cell), cell.source
    assert sum(bool(_shown(cell)) for cell in kept.cells) >= 5


@pytest.mark.docs
def test_the_exercise_of_the_student_notebook_finds_a_leak(tmp_path: Path) -> None:
    """Shares of 0 or 1 give the right total, and the test of the notebook names the leak."""
    path = next(path for path in NOTEBOOKS if path.stem == "student")
    notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
    tested = next(n for n, cell in enumerate(notebook.cells) if "assert_hides(" in cell.source)
    notebook.cells = notebook.cells[: tested + 1]
    shares = next(cell for cell in notebook.cells if "integers(0, P," in cell.source)
    shares.source = shares.source.replace("integers(0, P,", "integers(0, 2,")
    _play(notebook, tmp_path)
    assert "yes votes: 3" in _shown(shares)[0]
    assert "shared_vote reveals:" in _shown(notebook.cells[tested])[0]
