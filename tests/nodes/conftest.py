"""Fixtures of all tests of nodes."""

from collections.abc import AsyncIterator

import pytest
from tests.nodes.worlds import started

from veilring.nodes.node import Node


@pytest.fixture
async def nodes() -> AsyncIterator[dict[str, Node]]:
    """Return the nodes of ada, bob and cy on one network."""
    async with started() as nodes:
        yield nodes
