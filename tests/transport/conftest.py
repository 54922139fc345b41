"""Fixtures of all transport tests: a town, and limits that a busy machine does not exceed."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest
from tests.transport.towns import PATIENCE_SECONDS, Stranger, Town, hello, stranger

from veilring.transport import connection, tls
from veilring.transport.handshake import Welcome, greeting
from veilring.transport.tls import TlsEndpoint


@pytest.fixture(autouse=True)
def patient_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a goodbye take any time, so that it never counts as a crash."""
    for module in (connection, tls):
        monkeypatch.setattr(module, "GOODBYE_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def town() -> Iterator[Town]:
    """Return a town with the party alice and the client carol."""
    with closing(Town(("alice",), ("carol",))) as town:
        yield town


@pytest.fixture
async def alice(town: Town) -> AsyncIterator[TlsEndpoint]:
    """Return alice's endpoint in the town."""
    async with town.start_all("alice") as endpoints:
        yield endpoints["alice"]


@pytest.fixture
async def carol(
    town: Town,
    alice: TlsEndpoint,  # noqa: ARG001  (who answers)
) -> AsyncIterator[Stranger]:
    """Return a stranger that alice takes for carol."""
    async with stranger(town) as carol:
        assert isinstance(await carol.answer(greeting(hello(town))), Welcome)
        yield carol


@pytest.fixture
def pair() -> Iterator[Town]:
    """Return a town with the parties alice and bob, of which alice dials."""
    with closing(Town(("alice", "bob"))) as town:
        yield town
