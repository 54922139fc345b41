"""Fixtures of all transport tests: limits that a busy machine does not exceed."""

import pytest
from tests.transport.rosters import PATIENCE_SECONDS

from veilring.transport import connection, tls


@pytest.fixture(autouse=True)
def patient_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a goodbye take any time, so that it never counts as a crash."""
    for module in (connection, tls):
        monkeypatch.setattr(module, "GOODBYE_SECONDS", PATIENCE_SECONDS)
