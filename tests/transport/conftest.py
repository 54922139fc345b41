"""Fixtures of all tests of transports: limits that a busy machine does not exceed."""

import pytest
from tests.transport.rosters import PATIENCE_SECONDS

from veilring.transport import connection, tls


@pytest.fixture(autouse=True)
def patient_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a goodbye take as long as it takes, so that it never ends as a crash."""
    for module in (connection, tls):
        monkeypatch.setattr(module, "GOODBYE_SECONDS", PATIENCE_SECONDS)
