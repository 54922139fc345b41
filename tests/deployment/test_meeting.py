"""A party that is to meet all others, and says for whom it waits."""

import asyncio
import logging

import pytest
from tests.deployment.commands import free_ports

from veilring.deployment import connecting
from veilring.deployment.connecting import meeting
from veilring.errors import HandshakeError, InputError
from veilring.nodes.session import SessionLimits
from veilring.transport.identity import make_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

LOG = logging.getLogger("veilring.member")


async def test_who_is_missing_is_said_again_and_again_with_the_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each missing party a minute; in the end an error names all of them."""
    monkeypatch.setattr(connecting, "REMIND_SECONDS", 0.02)
    port, keys = free_ports(3), [make_identity(name) for name in ("ada", "bob", "cyd")]
    roster = Roster(tuple(Member.of(k, LOOPBACK, port + n) for n, k in enumerate(keys)))
    line = f"ada waits for cyd at {LOOPBACK}:{port + 2}: nobody listens at its address"
    async with meeting(keys[0], roster, LOOPBACK, LOG, SessionLimits(), {}) as met:
        waiting = asyncio.create_task(met.all_here())
        while caplog.text.count(line) < 2:  # noqa: ASYNC110 (a log is no event)
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(HandshakeError, match=r"bob, cyd.*missing after 0 s"):
            await met.all_here(0.0)


async def test_another_key_than_the_rosters_is_refused_before_anybody_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The party's own mistake is said at once, and it does not even listen."""
    keys = [make_identity(name) for name in ("ada", "bob", "cyd")]
    roster = Roster(tuple(Member.of(key, LOOPBACK, 1 + n) for n, key in enumerate(keys)))
    with pytest.raises(InputError, match="another key of ada"):
        async with meeting(make_identity("ada"), roster, LOOPBACK, LOG, SessionLimits(), {}):
            pass
    assert "waits" not in caplog.text
