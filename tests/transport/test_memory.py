"""Endpoints in memory."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.transport.conformance import CHECKS, run_check

from veilring.errors import InputError
from veilring.transport.endpoint import MemoryEndpoint, MemoryNetwork


@asynccontextmanager
async def memory_endpoints(names: Sequence[str]) -> AsyncIterator[dict[str, MemoryEndpoint]]:
    """Connect parties in memory."""
    network = MemoryNetwork(names)
    yield {name: network.endpoint(name) for name in names}


@pytest.mark.parametrize("check", CHECKS)
async def test_conforms(check: str) -> None:
    """In-memory endpoints fulfil the contract of every transport."""
    await run_check(check, memory_endpoints)


def test_names_are_unique() -> None:
    """A network refuses a name that occurs twice."""
    with pytest.raises(InputError, match="a party is named twice"):
        MemoryNetwork(("alice", "alice"))


def test_an_unknown_name_has_no_endpoint() -> None:
    """A network has endpoints for its own parties only."""
    with pytest.raises(InputError, match="mallory"):
        MemoryNetwork(("alice", "bob")).endpoint("mallory")
