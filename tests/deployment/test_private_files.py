"""Files with rows, reports, labels or models are private to their owner, for any umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection
from tests.deployment.commands import SECONDS, Server, call

from veilring.data.npz import Vectors, write_vectors
from veilring.testing.ports import reserve_ports

# Nothing in these says anything of a row.
PUBLIC = (".toml", ".log")


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """Make new files readable by all users by default."""
    before = os.umask(0)
    yield
    os.umask(before)


def require_private(folder: Path) -> None:
    """Require that only its owner can read each file of a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in PUBLIC]
    assert files
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
    assert modes == dict.fromkeys(modes, 0o600)


def test_a_collection_leaves_only_private_files(tmp_path: Path) -> None:
    """Rows, reports, their log and index, outboxes, exports and models have mode 0600."""
    collection = Collection(tmp_path / "survey", reports=1000, survey_clients=1)
    try:
        collection.serve()
        submitted = collection.submit(0)
        assert submitted.wait(SECONDS) == 0, submitted.output
        config = collection.folder / "collector.toml"
        call("estimate", config, "--save", collection.folder / "model.json")
        call("export", config, "--out", collection.folder / "reports")
        require_private(collection.folder)
    finally:
        collection.kill_all()


@pytest.mark.parametrize(("kind", "options"), [("peers", ()), ("prediction", ())])
def test_rows_of_a_trial_are_private(
    tmp_path: Path, kind: str, options: tuple[object, ...]
) -> None:
    """All files with rows or queries that `veilring deploy` writes have mode 0600."""
    call("deploy", kind, "wine", *options, "--port", reserve_ports(), "--out", tmp_path / kind)
    require_private(tmp_path / kind)


def test_labels_are_private(tmp_path: Path) -> None:
    """The labels written by `veilring ask --out`, and the owner's ledger, have mode 0600."""
    folder = tmp_path / "owner"
    call("deploy", "owner", "iris", "--radius", 0.3, "--port", reserve_ports(), "--out", folder)
    server = Server(folder, "owner")
    server.serve()
    try:
        queries, labels = folder / "analyst-0.csv", folder / "labels.csv"
        call("ask", folder / "analyst-0.toml", queries, "--out", labels)
        require_private(folder)
    finally:
        server.kill()


def test_vectors_of_texts_are_private(tmp_path: Path) -> None:
    """An .npz file of rows has mode 0600."""
    write_vectors(Vectors(np.zeros((2, 3), np.float32), None, None, None), tmp_path / "rows.npz")
    require_private(tmp_path)
