"""Parties that wait for others and name the missing ones, and certificates that expire."""

import asyncio
import datetime as dt
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.ports import reserve_ports
from tests.deployment.commands import Deploy, call
from tests.deployment.members import Bystander

from veilring.cli.app import EXIT_INPUT
from veilring.deployment import asking, connecting, expiry
from veilring.deployment.asking import ClientConnection, Repeat
from veilring.deployment.config import ServerConfig
from veilring.deployment.connecting import Server
from veilring.deployment.expiry import expiry_warnings
from veilring.errors import (
    HandshakeError,
    PeerLost,
    ProtocolViolation,
    SessionAborted,
    VeilringError,
)
from veilring.nodes.party import Parties, Party
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
    async with server(tmp_path, keys[0], roster).meet({}, lambda _: Bystander()) as (met, _):
        waiting = asyncio.create_task(met.all_here())
        while caplog.text.count(line) < 2:  # noqa: ASYNC110  (a log is no event)
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(
            HandshakeError, match=r"bob, cyd.*not all parties are connected after 0 s"
        ):
            await met.all_here(0.0)


CHECKS = 2
NOW = dt.datetime(2030, 6, 1, tzinfo=dt.UTC)


def write_roster(folder: Path, **days: int) -> Roster:
    """Write the keys and the roster of parties whose certificates are valid for some days."""
    members = []
    for name, valid in days.items():
        identity = make_identity(name, valid_days=valid, now=NOW)
        save_identity(identity, folder)
        members.append(Member.of(identity, "127.0.0.1", reserve_ports()))
    roster = Roster(tuple(members))
    roster.save(folder / "roster.toml")
    return roster


def test_each_certificate_that_ends_soon_is_named_with_its_end(tmp_path: Path) -> None:
    """The warning begins 30 days before the end, and goes on after it.

    `veilring keys show` has the end of each.
    """
    members = write_roster(tmp_path, ada=31, bob=30, cyd=1).members
    shown = call("keys", "show", tmp_path / "roster.toml").output.splitlines()
    left = members[1].days_left(dt.datetime.now(dt.UTC))
    assert shown[1].endswith(f" valid until 2030-07-01 (days left: {left})")
    assert expiry_warnings(members[:1], NOW) == []
    bob, cyd = expiry_warnings(members, NOW)
    assert bob.sentence.startswith(
        "the certificate of bob ends on 2030-07-01 (days left: 30); without a new"
    )
    said = "the certificate of cyd ends on 2030-06-02 (days left: 1); without a new"
    assert cyd.sentence.startswith(said)
    ended = expiry_warnings(members, NOW.replace(day=3))[-1]
    assert "of cyd ended on 2030-06-02;" in ended.sentence


def test_the_level_of_a_warning_rises_a_week_and_a_day_before_the_end(tmp_path: Path) -> None:
    """It is a warning from 30 days on, an error from 7 days on, and critical on the last day."""
    (ada,) = write_roster(tmp_path, ada=100).members
    days = {31: None, 30: "WARNING", 8: "WARNING", 7: "ERROR", 2: "ERROR", 1: "CRITICAL"}
    for left, level in {**days, 0: "CRITICAL", -5: "CRITICAL"}.items():
        said = expiry_warnings((ada,), ada.expires - dt.timedelta(days=left))
        assert [logging.getLevelName(each.level) for each in said] == [level][: level is not None]


async def test_a_server_warns_at_its_start_and_each_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that runs for years warns of its own certificate and those of all others."""
    roster = write_roster(tmp_path, ada=10_000, bob=10_000)
    monkeypatch.setattr(expiry, "EXPIRY_CHECK_SECONDS", 0.001)
    config = ServerConfig(
        role="any", identity=f"{tmp_path}/ada.key", roster=f"{tmp_path}/roster.toml", terms="none"
    )
    days, warned = iter(range(1_000)), asyncio.Event()

    def tomorrow() -> dt.datetime:
        day = next(days)
        if day > CHECKS:
            warned.set()
        return roster.members[0].expires - dt.timedelta(days=30 - day)

    with caplog.at_level(logging.WARNING):
        async with Server(config, logging.getLogger("veilring.test"), tomorrow).listen({}):
            await warned.wait()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(";")[0] for line in lines[:4]] == [
        f"the certificate of {member.name} ends on {member.expires:%Y-%m-%d} (days left: {left})"
        for left in (30, 29)
        for member in roster.members
    ]


def test_an_expired_certificate_of_its_own_is_a_wrong_file(deploy: Deploy) -> None:
    """The exit code is 2, after which systemd does not start the server again."""
    owner = deploy("owner")
    expired = make_identity("owner", now=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    first, *others = Roster.load(owner.folder / "roster.toml").members
    assert first.name == "owner"
    members = (Member.of(expired, LOOPBACK, first.port), *others)
    Roster(members).save(owner.folder / "roster.toml")
    (owner.folder / "owner.key").unlink()
    save_identity(expired, owner.folder)
    said = "veilring: the certificate of owner expired on 2020-12-31; make a new key with"
    assert said in owner.ended("serve", "owner.toml", code=EXIT_INPUT)


@pytest.mark.parametrize(
    ("error", "is_unbegun", "is_loss"),
    [
        (SessionAborted("ada", "NotReady", "bob"), True, True),
        (SessionAborted("ada", "Stopping"), True, True),
        (PeerLost("ada", orderly=True), True, True),
        (PeerLost("ada"), False, True),
        (SessionAborted("ada", "PeerStopped", "bob"), False, True),
        (SessionAborted("ada", "PeerLost", "bob"), False, True),
        (SessionAborted("ada", "Busy"), False, False),
        (SessionAborted("ada", "PolicyRefused.amount"), False, False),
        (SessionAborted("ada", "BudgetExhausted"), False, False),
        (SessionAborted("ada", "OtherTerms"), False, False),
        (ProtocolViolation("ada", "lied"), False, False),
    ],
    ids=repr,
)
async def test_a_client_repeats_a_session_only_if_that_is_free(
    error: VeilringError, is_unbegun: bool, is_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so after each pause, if nothing began or the same request is free; no refusal is."""
    pauses, pair = (0.0, 0.001, 0.002), Parties(("client", "ada"))
    monkeypatch.setattr(asking, "REPEAT_PAUSES", pauses)

    class Failing:
        """A node whose sessions fail, up to a number."""

        def __init__(self, failures: int, *, is_here: bool) -> None:
            self.names = set[bytes]()
            self.endpoint = SimpleNamespace(connected=("ada",) * is_here)
            self._failures = failures

        async def run(self, _role: object, session: bytes, parties: Parties) -> str:
            assert parties == pair
            self.names.add(session)
            if len(self.names) > self._failures:
                return "answer"
            raise error

    cases: list[tuple[Repeat, bool, bool]] = [
        ("never", False, False),
        ("never", True, False),
        ("unbegun", True, is_unbegun),
        ("free", True, is_loss),
    ]
    if isinstance(error, PeerLost):  # nothing was sent if the party was not there
        cases += [("unbegun", False, True), ("free", False, True)]
    for repeat, is_here, repeats in cases:
        for failures in (1, len(pauses), len(pauses) + 1):
            node: Any = Failing(failures, is_here=is_here)
            asked = ClientConnection(node, pair, repeat).run(hear_all)
            if repeats and failures <= len(pauses):
                assert await asked == "answer"
            else:
                with pytest.raises(type(error)):
                    await asked
            assert len(node.names) == (min(failures, len(pauses)) if repeats else 0) + 1


async def hear_all(_party: Party) -> str:
    """Play a role that is never called."""
    raise AssertionError
