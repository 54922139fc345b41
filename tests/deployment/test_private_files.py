"""Files with rows, reports, labels or models are private to their owner, for any umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collect
from tests.deployment.commands import Deploy

from veilring.data.npz import Vectors, write_vectors

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


def test_a_collection_leaves_only_private_files(collect: Collect) -> None:
    """Rows, reports, their log and index, outboxes, exports and models have mode 0600."""
    collection = collect(1000)
    collection.submitted()
    collection.call("estimate", "collector.toml", "--save", "model.json")
    collection.call("export", "collector.toml", "--out", "reports")
    require_private(collection.folder)


@pytest.mark.parametrize("system", ["ring", "prediction"])
def test_rows_of_a_trial_are_private(deploy: Deploy, system: str) -> None:
    """All files with rows or queries that `veilring deploy` writes have mode 0600."""
    require_private(deploy(system).folder)


def test_labels_and_vectors_are_private(deploy: Deploy) -> None:
    """The labels of `veilring ask --out`, the owner's ledger, and an .npz have mode 0600."""
    owner = deploy("owner")
    owner.serve("owner")
    owner.call("ask", "analyst-0.toml", "analyst-0.csv", "--out", "labels.csv")
    vectors = Vectors(np.zeros((2, 3), np.float32), None, None, None)
    write_vectors(vectors, owner.folder / "rows.npz")
    require_private(owner.folder)
