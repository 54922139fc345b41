"""The documentation's notebooks run in a fresh kernel and print the shown output."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS: Final = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))
SECONDS: Final = 600
"""A cell may take this long on a busy machine; on an idle one the longest takes ten seconds."""


@contextmanager
def _player(notebook: NotebookNode, folder: Path) -> Iterator[NotebookClient]:
    """Run all cells of a notebook in a folder, and keep the kernel for more of them."""
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=SECONDS, coalesce_streams=True, resources=resources)
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        yield client


def _shown(cell: NotebookNode) -> list[str]:
    """Return the text of a cell's outputs."""
    return [
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        for output in cell.get("outputs", ())
    ]


@pytest.mark.docs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    """Each cell runs without an error and prints the output that the page shows below it.

    The exercise for students finds a leak: shares of 0 or 1 give the right total, and the test of
    the notebook names the leak.
    """
    text = path.read_text(encoding="utf-8")
    kept, played = (nbformat.reads(text, as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]  # nbformat's
    with _player(played, tmp_path) as client:
        for cell, again in zip(kept.cells, played.cells, strict=True):
            assert _shown(again) == _shown(cell), cell.source
        assert sum(bool(_shown(cell)) for cell in kept.cells) >= 5
        if path.stem == "student":
            _find_leak(client)


def _find_leak(client: NotebookClient) -> None:
    """Do the exercise: change the shares, and run this cell and the test again."""
    cells = client.nb.cells
    shares = next(n for n, cell in enumerate(cells) if "integers(0, P," in cell.source)
    tested = next(n for n, cell in enumerate(cells) if "assert_hides(" in cell.source)
    cells[shares].source = cells[shares].source.replace("integers(0, P,", "integers(0, 2,")
    for number in (shares, tested):
        client.execute_cell(cells[number], number)
    assert "yes votes: 3" in _shown(cells[shares])[0]
    assert "shared_vote reveals:" in _shown(cells[tested])[0]
