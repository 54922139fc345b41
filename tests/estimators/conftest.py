"""Tests fit with seeds and without ranges; separate tests cover the warnings of `fit`."""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of leaks, in this folder only."""
    for item in items:
        if _HERE in item.path.parents:
            ignored = "ignore::veilring.estimators.PrivacyLeakWarning"
            item.add_marker(pytest.mark.filterwarnings(ignored), append=False)
