"""A party that waits for all others, and reports the missing ones."""

import asyncio
import logging
from pathlib import Path

import pytest

from veilring.deployment import connecting
from veilring.deployment.config import ServerConfig
from veilring.deployment.connecting import Server
from veilring.errors import HandshakeError, InputError
from veilring.testing.ports import reserve_ports
from veilring.transport.roster import Identity, Member, Roster, make_identity, save_identity
from veilring.transport.tls import LOOPBACK

LOG = logging.getLogger("veilring.member")


def server(folder: Path, identity: Identity, roster: Roster) -> Server:
    """Return a party with its key and its roster in files."""
    key, file = save_identity(identity, folder), folder / "roster.toml"
    roster.save(file)
    config = ServerConfig(role="member", identity=str(key), roster=str(file), terms="")
    return Server(config, LOG)


async def test_missing_parties_are_reported_repeatedly_with_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line per missing party and minute is logged; finally an error names all of them."""
    monkeypatch.setattr(connecting, "REMIND_SECONDS", 0.02)
    port, keys = reserve_ports(3), [make_identity(name) for name in ("ada", "bob", "cyd")]
    roster = Roster(tuple(Member.of(k, LOOPBACK, port + n) for n, k in enumerate(keys)))
    line = f"ada is waiting for cyd at {LOOPBACK}:{port + 2}: nothing listens at its address"
    async with server(tmp_path, keys[0], roster).meet({}) as met:
        waiting = asyncio.create_task(met.all_here())
        while caplog.text.count(line) < 2:  # noqa: ASYNC110  (a log is no event)
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(
            HandshakeError, match=r"bob, cyd.*not all parties are connected after 0 s"
        ):
            await met.all_here(0.0)


async def test_a_key_that_differs_from_the_roster_is_refused_before_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The party's own mistake is reported at once, before it listens."""
    keys = [make_identity(name) for name in ("ada", "bob", "cyd")]
    roster = Roster(tuple(Member.of(key, LOOPBACK, 1 + n) for n, key in enumerate(keys)))
    with pytest.raises(InputError, match="not the roster's key for ada"):
        async with server(tmp_path, make_identity("ada"), roster).meet({}):
            pass
    assert "waits" not in caplog.text
