"""The place of a ledger."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a ledger that does not exist yet."""
    return tmp_path / "ledger"
