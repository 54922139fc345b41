"""The place of a state file."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a ledger, or another state file, that does not exist yet."""
    return tmp_path / "state"
