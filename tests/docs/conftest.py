"""Fixtures of the documentation's tests."""

from collections.abc import Iterator

import pytest
from docs._ext.starter import Starter


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """Start the server that starts `veilring` and modules without delay."""
    with Starter() as server:
        yield server
