"""A running party reads its roster, key, policy and log level again, and nothing else."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.deployment import commands
from tests.deployment.commands import SECONDS, Deploy, call, wait_until
from tests.deployment.test_operating import status_of

from veilring.deployment import ask, load_config
from veilring.deployment.asking import Client
from veilring.deployment.duties import serve
from veilring.deployment.reloading import Reloads
from veilring.deployment.status import StatusReport
from veilring.errors import HandshakeError, SessionAborted
from veilring.transport.roster import Roster, load_identity, make_identity, write_identity

if sys.platform != "win32":
    import fcntl
    import pty
    import termios

ENDED = "has read its files again"


class Reloading:
    """An owner that is served in this process, and reads its files again when asked."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.folder, self._caplog = folder, caplog
        self._config: Any = load_config(folder / "owner.toml")
        self.reloads = Reloads(partial(load_config, folder / "owner.toml"))

    async def reload(self) -> str:
        """Read the files again, and return the lines of the log about it."""
        self._caplog.clear()
        self.reloads.requested.set()
        async with asyncio.timeout(SECONDS):
            while ENDED not in self._caplog.text:  # noqa: ASYNC110  (a log is no event)
                await asyncio.sleep(0.001)
        return self._caplog.text

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text of a file."""
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    async def status(self) -> StatusReport:
        """Return the status of the owner."""
        return await status_of(self._config)

    async def ask(self, number: int) -> None:
        """Ask as one of its analysts."""
        await ask(self.folder / f"analyst-{number}.toml", self.folder / f"analyst-{number}.csv")


@asynccontextmanager
async def serving(folder: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Reloading]:
    """Serve an owner in this process."""
    caplog.set_level(logging.INFO, "veilring")
    found = Reloading(folder, caplog)

    async def run() -> None:
        Reloads.current.set(found.reloads)
        await serve(found.reloads.read())

    role = asyncio.create_task(run())
    try:
        async with asyncio.timeout(SECONDS):
            while "owner is ready" not in caplog.text:
                if role.done():
                    await role
                await asyncio.sleep(0.001)
        yield found
    finally:
        role.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await role
        logging.getLogger("veilring").setLevel(logging.NOTSET)


async def test_a_policy_a_roster_and_a_level_are_used_from_then_on(
    deploy: Deploy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has each difference; a client that leaves the roster is refused."""
    folder = deploy("owner").folder
    async with serving(folder, caplog) as owner:
        assert "owner has read its files again: none has changed" in await owner.reload()
        await owner.ask(0)
        owner.edit("owner.policy.toml", "10000", "0")
        log = await owner.reload()
        assert (
            "the policy of owner has changed since its last start: queries_hour: 10000 → 0" in log
        )
        assert "owner has read its files again: policy" in log
        with pytest.raises(SessionAborted, match=r"PolicyRefused\.amount"):
            await owner.ask(1)
        owner.edit("owner.policy.toml", "queries_hour = 0\n", "")
        roster = Roster.load(folder / "roster.toml")
        Roster(roster.members[:2]).save(folder / "roster.toml")
        owner.edit("owner.policy.toml", '    "analyst-1",\n', "")
        owner.edit("owner.toml", "role", 'log_level = "warning"\nrole')
        assert (await owner.status())["certificate_days"].keys() == set(roster.names)
        log = await owner.reload()
        assert "queries_hour: 0 → nothing" in log
        assert logging.getLogger("veilring").level == logging.WARNING
        assert (await owner.status())["certificate_days"].keys() == set(roster.names[:2])
        roster.save(folder / "client.toml")
        owner.edit("analyst-1.toml", '"roster.toml"', '"client.toml"')
        await owner.ask(0)
        monkeypatch.setitem(vars(Client.connect)["__wrapped__"].__kwdefaults__, "seconds", 0.1)
        with pytest.raises(HandshakeError):
            await owner.ask(1)


async def test_a_new_key_and_roster_are_used_in_one_step(
    deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    """The status shows the next key while it waits, and the days of the previous one."""
    folder = deploy("owner").folder
    async with serving(folder, caplog) as owner:
        until = f"{load_identity(folder / 'owner.key').certificate.not_valid_after_utc:%Y-%m-%d}"
        call("keys", "renew", folder / "owner.toml", "--until", until, "--days", 500)
        assert (await owner.status())["next_key"]
        (folder / "roster.toml.new").replace(folder / "roster.toml")
        fingerprint = Roster.load(folder / "roster.toml").member("owner").fingerprint
        log = await owner.reload()
        assert f"owner has the key {fingerprint} in the roster" in log
        assert f"the previous key of owner is accepted until {until}" in log
        found = await owner.status()
        assert found["previous_key_days"] == {"owner": pytest.approx(365, abs=1)}
        assert found["certificate_days"]["owner"] < 366
        lines = (await asyncio.to_thread(call, "status", folder / "owner.toml", "--metrics")).stdout
        assert 'veilring_next_key_waits{party="owner"} 1.0' in lines
        assert 'veilring_previous_key_days_left{member="owner",party="owner"} 36' in lines
        shown = (await asyncio.to_thread(call, "status", folder / "owner.toml")).stdout
        assert "next key      waits" in shown
        assert "previous keys days left: owner 36" in shown
        await owner.ask(0)
        call("keys", "renew", folder / "owner.toml", "--use")
        assert f"its key is now {fingerprint}, valid until " in await owner.reload()
        found = await owner.status()
        assert found["certificate_days"]["owner"] > 490
        assert not found["next_key"]
        await owner.ask(1)


async def test_a_status_follows_the_configuration(
    deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    """A next key waits beside the key that the party uses now."""
    folder = deploy("owner").folder
    async with serving(folder, caplog) as owner:
        (folder / "keys").mkdir(mode=0o700)
        for name in ("owner.key", "owner.key.new"):
            (folder / "keys" / name).write_bytes((folder / "owner.key").read_bytes())
            (folder / "keys" / name).chmod(0o600)
        owner.edit("owner.toml", '"owner.key"', '"keys/owner.key"')
        assert not (await owner.status())["next_key"]
        await owner.reload()
        assert (await owner.status())["next_key"]


async def test_a_mistake_in_any_file_changes_nothing_and_is_logged(
    deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    """The error has the line of a file that is not TOML, or the key that is wrong."""
    folder = deploy("owner").folder
    roster = Roster.load(folder / "roster.toml")
    async with serving(folder, caplog) as owner:
        kept = {path: path.read_bytes() for path in folder.glob("*.*") if path.is_file()}
        for name, text, says in (
            ("owner.policy.toml", "queries_hour = 1\nqueries_day = =", "at line 2, column 15"),
            ("owner.policy.toml", "queries = 1", "queries"),
            ("owner.policy.toml", 'clients = ["bob"]', "policy.clients: there is no bob"),
            ("owner.policy.toml", 'systems = ["release"]', "it refuses every request"),
            ("roster.toml", "format = 1\nmembers = ]", "at line 2, column 11"),
            ("roster.toml", Roster(roster.members[1:]).to_toml(), "'owner'; allowed: a party"),
            ("owner.key", write_identity(make_identity("owner")).decode(), "is not the roster's"),
            ("owner.toml", "role = ]", "at line 1, column 8"),
            ("roster.toml", roster.to_toml().replace("-----BEGIN", "ä-----BEGIN", 1), "PEM"),
            ("owner.toml", (folder / "analyst-0.toml").read_text(), "must be restarted"),
        ):
            if name == "roster.toml":
                (folder / "owner.policy.toml").write_text("queries_hour = 0")  # not used, either
            (folder / name).write_text(text)
            log = await owner.reload()
            assert "owner has read its files again, and changes nothing" in log
            assert says in log
            assert (await owner.status())["reload_error"] in log
            assert [record.levelname for record in caplog.records] == ["ERROR"], log
            for path, content in kept.items():
                if path.suffix not in {".db", ".lock"}:
                    path.write_bytes(content)
        assert (await owner.status())["reload_error"]
        await owner.reload()
        assert (await owner.status())["reload_error"] == ""
        await owner.ask(0)
        await owner.ask(1)


async def test_what_cannot_change_is_named(
    deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows, terms and all other keys are those of the start; the rest of the change is used."""
    folder = deploy("owner").folder
    async with serving(folder, caplog) as owner:
        owner.edit("owner.toml", "role", 'listen = "0.0.0.0"\nrole')
        owner.edit("terms.toml", "setosa", "Setosa")
        with (folder / "owner.csv").open("a") as rows:
            rows.write("not, a, row\n")
        owner.edit("owner.policy.toml", "10000", "10001")
        log = await owner.reload()
        said = "listen, the file terms, the file rows, which are read only at the start: restart"
        assert f"owner has other values of {said}" in log
        assert "queries_hour: 10000 → 10001" in log


async def test_a_policy_may_come_and_go(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    """Requests that were admitted without a policy are not counted."""
    folder = deploy("owner").folder
    line = next(x for x in (folder / "owner.toml").read_text().splitlines() if "policy" in x)
    Reloading(folder, caplog).edit("owner.toml", f"{line}\n", "")
    async with serving(folder, caplog) as owner:
        assert "owner has no policy" in caplog.text
        await owner.ask(0)
        owner.edit("owner.toml", "role", f"{line}\nrole")
        (folder / "owner.policy.toml").write_text("queries_total = 0\n")
        assert "the policy of owner: queries_total = 0" in await owner.reload()
        with pytest.raises(SessionAborted, match=r"PolicyRefused\.amount"):
            await owner.ask(1)
        owner.edit("owner.toml", f"{line}\n", "")
        assert "owner has no policy" in await owner.reload()
        await owner.ask(1)


async def test_systemd_is_told_of_a_reload(
    deploy: Deploy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It receives the beginning, with the time of the monotonic clock, and the end."""
    folder = deploy("owner").folder
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        async with serving(folder, caplog) as owner:
            assert manager.recv(100) == b"READY=1"
            before = time.monotonic_ns() // 1_000
            await owner.reload()
            began = re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=(\d+)", manager.recv(100))
            assert began is not None
            assert before <= int(began[1]) <= time.monotonic_ns() // 1_000
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"


def run_in_terminal(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command in the terminal that a file names."""
    os.setsid()
    terminal = os.open((folder / "terminal").read_text(), os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    commands.run(folder, words, output)


def run_by_nohup(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `nohup`, which lets it ignore the signal of a terminal that closes."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    commands.run(folder, words, output)


def run_daemon(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command without a terminal."""
    os.setsid()
    commands.run(folder, words, output)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals")
def test_sighup_reads_files_again_and_a_terminal_that_closes_ends_the_party(deploy: Deploy) -> None:
    """With or without a terminal, the signal alone is a request to read the files."""
    owner = deploy("owner")
    for body in (run_daemon, run_by_nohup):
        owner.serve("owner", body=body)
        os.kill(owner.running["owner"].pid, signal.SIGHUP)
        owner.wait_for("owner", ENDED)
        owner.end_in_order("owner")
    ours, theirs = pty.openpty()
    (owner.folder / "terminal").write_text(os.ttyname(theirs))
    owner.serve("owner", body=run_in_terminal)
    os.close(theirs)
    os.kill(owner.running["owner"].pid, signal.SIGHUP)
    owner.wait_for("owner", ENDED)
    os.close(ours)
    assert owner.running["owner"].wait(SECONDS) == 0
    wait_until(lambda: "owner is shutting down" in owner.log("owner"))
