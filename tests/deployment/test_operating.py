"""Checks before a start, the status of a running party, and what systemd and logs are told."""

import asyncio
import contextlib
import datetime as dt
import hashlib
import json
import logging
import re
import socket
import stat
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.ports import reserve_ports
from tests.deployment.commands import DEPLOYED, SECONDS, Deploy, Deployment, call
from tests.deployment.members import all_served

from veilring.cli.operate import log_to_stderr
from veilring.deployment import ask, load_config, start
from veilring.deployment.connecting import Client
from veilring.deployment.duties import start_of
from veilring.deployment.metrics import serve_metrics
from veilring.deployment.owner import OwnerConfig, OwnerStart, serve_owner
from veilring.deployment.peers import MemberStart
from veilring.deployment.status import StatusReport, read_status
from veilring.errors import SessionAborted, VeilringError
from veilring.nodes.service import opening
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import open_ledger
from veilring.protocols.prediction.client import request_status
from veilring.protocols.prediction.server import STATUS
from veilring.transport.tls import TlsEndpoint, compare_terms

FIRST = {"ring": "party-0", "rank-search": "party-0", "release": "party-0", "votes": "party-0"}
"""The configuration of a party that serves, if it is not named like the role."""
SERVER = {
    "owner": "owner",
    "prediction": "server",
    "survey": "collector",
    "places": "server",
    "sum": "leader",
}
LOG = logging.getLogger("veilring.test")


def content(folder: Path) -> dict[str, str]:
    """Return the hashes of all files of a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file()
    }


def checked(deployment: Deployment, name: str, *options: str, code: int = 0) -> dict[str, Any]:
    """Run `veilring check`, and return the checks by their names."""
    done = deployment.call("check", f"{name}.toml", "--json", *options, code=code)
    return {each["name"]: each for each in json.loads(done.stdout)["checks"]}


@pytest.mark.parametrize("system", [*FIRST, *SERVER])
def test_a_check_of_each_system_reports_one_line_each_and_changes_nothing(
    system: str, deploy: Deploy
) -> None:
    """A new deployment has no warning but one about a collector's quotas."""
    assert system in DEPLOYED
    made = deploy(system)
    name = (FIRST | SERVER)[system]
    before = content(made.folder)
    lines = made.call("check", f"{name}.toml").stdout.splitlines()
    outcomes = {line.split()[1]: line.split()[0] for line in lines}
    warned = {"quotas"} if system == "survey" else set()
    assert {key for key, each in outcomes.items() if each != "ok"} <= warned
    common = {
        "configuration",
        "identity",
        "clock",
        "terms",
        "certificates",
        "state",
        "port",
        "socket",
    }
    assert len(outcomes) == len(lines) > len(common)
    assert common < outcomes.keys()
    assert content(made.folder) == before
    again = start_of(load_config(made.folder / f"{name}.toml"))
    again.check_again()
    assert content(made.folder) == before


def test_all_errors_are_found_at_once_and_serving_stops_at_the_first(deploy: Deploy) -> None:
    """A check that depends on a failed one is skipped, the others are made; the exit code is 2."""
    owner = deploy("owner")
    owner.edit("owner.toml", "total = 4.0", "total = 5.0")
    config = load_config(owner.folder / "owner.toml")
    assert isinstance(config, OwnerConfig)
    with open_used(owner):
        pass
    port = OwnerStart(config, LOG).server.roster.member("owner").port
    (owner.folder / "owner.csv").unlink()
    with socket.create_server(("127.0.0.1", port)):
        checked(owner, "owner", code=2)
        found = {each.name: each for each in OwnerStart(config, LOG).run()}
    failed = {"rows", "state", "port"}
    assert {name for name, each in found.items() if each.outcome == "failed"} == failed
    assert "another process is listening" in found["port"].found
    assert "the ledger was created with other budgets" in found["state"].found
    with pytest.raises(VeilringError) as first:
        OwnerStart(config, LOG).begin()
    assert str(first.value) == found["rows"].found
    owner.edit("terms.toml", "high = ", "high = -")
    outcomes = {name: each["outcome"] for name, each in checked(owner, "owner", code=2).items()}
    assert (outcomes["terms"], outcomes["rows"], outcomes["state"]) == (
        *("failed", "skipped", "failed"),
    )
    (owner.folder / "terms.toml").unlink()
    assert checked(owner, "owner", code=2).keys() == {"configuration"}


@contextlib.contextmanager
def open_used(owner: Deployment) -> Any:
    """Open the ledger of an owner that has answered once."""
    path, budgets = owner.folder / "owner.db", Budgets("epsilon", 4.0, 2.0)
    with open_ledger(path, budgets, amend=True) as ledger:
        ledger.charge(Charge("analyst-0", "key", b"request", b"answer", 1.0))
        yield ledger


def test_state_that_is_missing_or_in_use_fails_with_the_sentence_of_serving(deploy: Deploy) -> None:
    """A process that is not the party itself, but holds its state, is an error."""
    owner = deploy("owner")
    with open_used(owner):
        said = checked(owner, "owner", code=2)["state"]["found"]
        assert "is locked: another process is writing the" in said
    for path in owner.folder.glob("owner.db*"):
        path.unlink()
    said = checked(owner, "owner", code=2)["state"]["found"]
    assert "there is no ledger" in said
    assert "its disk may not be mounted" in said
    assert not list(owner.folder.glob("owner.db*"))


def test_a_warning_ends_only_a_strict_check(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 0, and 1 with --strict."""
    owner = deploy("owner")
    assert checked(owner, "owner", "--strict")["disk"]["outcome"] == "ok"
    monkeypatch.setattr(start, "FREE_BYTES_LOW", 1 << 80)
    assert checked(owner, "owner")["disk"]["outcome"] == "warning"
    assert "free some space" in checked(owner, "owner", "--strict", code=1)["disk"]["found"]
    monkeypatch.setattr(start, "FREE_BYTES_MIN", 1 << 80)
    assert checked(owner, "owner", code=2)["disk"]["outcome"] == "failed"


def test_an_implausible_clock_and_certificates_that_end_are_found(deploy: Deploy) -> None:
    """Before its own certificate a party does not start; its state must not be from the future."""
    config = load_config(deploy("owner").folder / "owner.toml")
    assert isinstance(config, OwnerConfig)
    identity = OwnerStart(config, LOG).server.identity.certificate

    def outcome(name: str, now: dt.datetime) -> tuple[str, str]:
        (check,) = (c for c in OwnerStart(config, LOG, lambda: now).run() if c.name == name)
        return check.outcome, check.found

    early = identity.not_valid_before_utc - dt.timedelta(days=1)
    assert outcome("clock", early)[0] == "failed"
    with pytest.raises(VeilringError, match="set the clock, and start again"):
        OwnerStart(config, LOG, lambda: early).begin()
    yesterday = identity.not_valid_before_utc
    written = dt.datetime.fromtimestamp(Path(config.state).stat().st_mtime, dt.UTC)
    assert written - yesterday > dt.timedelta(hours=1)
    assert outcome("clock", yesterday)[0] == "warning"
    late = identity.not_valid_after_utc - dt.timedelta(days=6)
    assert outcome("clock", late)[0] == "ok"
    assert outcome("certificates", late)[0] == "warning"
    assert "(days left: 6)" in outcome("certificates", late)[1]


@pytest.mark.parametrize(
    ("path", "why"), [("x" * 200, "the path is too long"), ("no/socket", "missing or read-only")]
)
def test_a_socket_that_cannot_be_made_is_a_warning(path: str, why: str, deploy: Deploy) -> None:
    """The party would run without it, so the check does not fail."""
    owner = deploy("owner")
    owner.configure("owner", f'socket = "{path}"')
    found = checked(owner, "owner", "--strict", code=1)["socket"]
    assert found["outcome"] == "warning"
    assert why in found["found"]
    assert "Set `socket` in the configuration" in found["found"]


async def test_a_party_compares_terms_without_a_connection(deploy: Deploy) -> None:
    """Equal terms pass, other terms fail with the keys, and silence is a warning."""
    folder = deploy("ring").folder
    starts = [member_start(folder, name) for name in ("party-0", "party-1", "party-2")]
    asked = starts[1].server
    other = await TlsEndpoint.start(
        asked.identity, asked.roster, timeout=None, terms=starts[1].terms.keys
    )
    try:
        for each in (starts[0], starts[2]):  # one that dials the asked one, and one it dials
            me = each.server
            compared = await compare_terms(me.identity, me.roster, asked.name, each.terms.keys)
            assert compared is None
        assert (other.connected, other.refused) == ((), 2)
        many = {f"{n} {'x' * 40}": "y" * 100 for n in range(9)}  # more than a refusal shows
        compared = await compare_terms(
            me.identity, me.roster, asked.name, {**starts[0].terms.keys, **many}
        )
        assert compared is not None
        assert compared.reason.startswith("it refused us: the terms differ: 0 xxx")
        assert compared.reason.endswith(" more")
        terms = (folder / "terms.toml").read_text()
        (folder / "terms.toml").write_text(f"{terms}\n[protocol]\nk = 11\n")
        changed = await asyncio.to_thread(member_start(folder, "party-2").run, peers=True)
        found = {each.name: each for each in changed if "peer" in each.name}
        assert found["peer party-1"].outcome == "failed"
        differing = "the terms differ: protocol.k: 11 at party-2, 5 at party-1"
        assert found["peer party-1"].found.endswith(differing)
        assert found["peer party-0"].outcome == "warning"
        assert "party-0 did not answer" in found["peer party-0"].found
    finally:
        await other.close()


def member_start(folder: Path, name: str) -> MemberStart:
    """Return the checks at the start of a member."""
    config: Any = load_config(folder / f"{name}.toml")
    return MemberStart(config)


async def test_metrics_are_served_while_a_party_runs_and_after_it(deploy: Deploy) -> None:
    """A scrape reads the present status, and finds the party down once it has ended."""
    port, there = reserve_ports(), urllib.request.urlopen
    async with serving(deploy("owner").folder) as config:
        path = Path(config.socket)
        serve_metrics(lambda: read_status(path), port)
        url = f"http://127.0.0.1:{port}/metrics"
        with await asyncio.to_thread(there, url) as answer:
            assert 'veilring_ready{party="owner"} 1.0' in answer.read().decode()
    asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
    with await asyncio.to_thread(there, asked) as answer:
        down = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert "veilring_up 0.0" in down
    assert down.endswith("# EOF\n")
    with pytest.raises(VeilringError, match="another process is listening"):
        serve_metrics(lambda: None, port)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[OwnerConfig]:
    """Serve an owner in this process."""
    config = load_config(folder / "owner.toml")
    assert isinstance(config, OwnerConfig)
    ready = asyncio.Event()
    role = asyncio.create_task(serve_owner(config, on_ready=lambda _: ready.set()))
    role.add_done_callback(lambda _: ready.set())
    await ready.wait()
    try:
        yield config
    finally:
        role.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await role


async def status_of(config: OwnerConfig) -> StatusReport:
    """Return the status of a party of this process."""
    found = await asyncio.to_thread(read_status, Path(config.socket))
    assert found is not None
    return found


async def test_a_status_counts_sessions_refusals_and_budgets_and_has_no_rows(
    deploy: Deploy,
) -> None:
    """It shows names, counts, days and budgets: nothing of rows, queries or labels."""
    folder = deploy("owner").folder
    async with serving(folder) as config:
        new = await status_of(config)
        assert (new["ready"], new["waiting_for"], new["refusals"]) == (True, {}, {})
        assert new["sessions"] == {"running": 0, "finished": 0, "failed": {}}
        answer = await ask(folder / "analyst-0.toml", folder / "analyst-0.csv")
        async with Client(load_config(folder / "analyst-1.toml")).connect() as connection:
            with pytest.raises(SessionAborted, match="NotOffered"):
                await connection.run(opening(request_status, STATUS, bytes(32)), [bytes(32)])
        used = await status_of(config)
        assert used["sessions"]["finished"] == 1
        assert used["refusals"] == {"NotOffered": 1}
        assert used["budget"] is not None
        assert used["budget"]["left"] == 3.0
        assert used["budget"]["analysts"] == [
            {"name": "analyst-0", "spent": 1.0, "budget": 2.0, "answers": 1, "left": 1.0}
        ]
        assert used.keys() == StatusReport.__annotations__.keys()
        assert not any(str(label) in json.dumps(used) for label in answer["label"])
        assert set(used["certificate_days"]) == {"owner", "analyst-0", "analyst-1"}
        shown = await asyncio.to_thread(call, "status", folder / "owner.toml")
        assert "owner is ready" in shown.stdout
        shown = await asyncio.to_thread(call, "status", folder / "owner.toml", "--metrics")
        lines = shown.stdout.splitlines()
        assert 'veilring_refusals_total{party="owner",reason="NotOffered"} 1.0' in lines
        assert 'veilring_budget_spent{party="owner",unit="epsilon"} 1.0' in lines
        assert 'veilring_client_budget_left{client="analyst-0",party="owner"} 1.0' in lines


async def test_the_socket_is_private_and_only_a_stale_one_is_replaced(
    deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    """It has mode 600 and is removed at the end. Another file there stays, and the party runs."""
    folder = deploy("owner").folder
    path = folder / "owner.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with serving(folder) as config:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await status_of(config))["ready"]
    assert not path.exists()
    assert read_status(path) is None
    path.write_text("a file")
    async with serving(folder):
        assert "there is no socket for `veilring status`" in caplog.text
    assert path.read_text() == "a file"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(path))
        hanging.listen()
        with pytest.raises(TimeoutError):
            read_status(path, seconds=0.001)


async def test_a_member_that_waits_is_not_ready_and_names_the_missing_parties(
    deploy: Deploy,
) -> None:
    """The exit code of the status is 1 while it waits, and 2 when it does not run."""
    folder = deploy("ring").folder
    config: Any = load_config(folder / "party-0.toml")
    server = MemberStart(config).server
    async with server.meet({}):
        found = await asyncio.to_thread(read_status, Path(config.socket))
        assert found is not None
        assert not found["ready"]
        assert found["waiting_for"].keys() == {"party-1", "party-2"}
        shown = await asyncio.to_thread(call, "status", folder / "party-0.toml", code=1)
        assert "party-0 is waiting" in shown.stdout
        assert "waits for party-2 at 127.0.0.1:" in shown.stdout
    call("status", folder / "party-0.toml", code=2)
    assert "does not run" in call("status", folder / "client.toml", code=2).output


async def test_systemd_is_told_when_a_party_is_ready_and_when_it_stops(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variable NOTIFY_SOCKET has the address; without it, nothing is sent."""
    folder = deploy("owner").folder
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        async with serving(folder):
            pass
        with pytest.raises(BlockingIOError):
            manager.recv(100)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with serving(folder):
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"


async def test_a_request_has_one_session_in_the_logs_of_all_members(
    deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line of a session has its name, as JSON in full and as text in short."""
    ring, root = deploy("ring"), logging.getLogger()
    before, root.handlers = root.handlers, []
    logging.getLogger("veilring").setLevel(logging.INFO)
    try:
        async with all_served(ring.folder) as served:
            for form in ("json", "text"):
                root.handlers = []
                log_to_stderr(form)
                await served.labels(0, 2)
    finally:
        root.handlers = before
        logging.getLogger("veilring").setLevel(logging.NOTSET)
    lines = capsys.readouterr().err.splitlines()
    plain = [json.loads(line) for line in lines if line.startswith("{")]
    (answered,) = (each["session"] for each in plain if "labelled" in each["message"])
    took_part = [each["session"] for each in plain if "took part" in each["message"]]
    assert took_part == [answered] * 2
    assert len(answered) == 32
    ends = {line[-27:] for line in lines if "took part" in line and not line.startswith("{")}
    assert len(ends) == 1
    assert re.fullmatch(r" \[session [0-9a-f]{16}\]", ends.pop())


def test_a_line_of_the_log_can_be_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the time, the level, the logger and the message, and the trace of an error."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        log_to_stderr("json")
        try:
            json.loads("a mistake")
        except ValueError:
            LOG.exception("%s failed", "ä session")
        LOG.warning("line")
    finally:
        root.handlers = before
    failed, line = map(json.loads, capsys.readouterr().err.splitlines())
    assert (failed["level"], failed["message"]) == ("error", "ä session failed")
    assert "JSONDecodeError" in failed["trace"]
    assert line.keys() == {"time", "level", "logger", "message"}
    assert dt.datetime.fromisoformat(line["time"]).tzinfo is not None


def test_a_killed_party_is_not_running_and_its_socket_is_replaced(deploy: Deploy) -> None:
    """A running party checks itself; after a kill its status ends with 2 until it is restarted."""
    owner = deploy("owner")
    words = ("serve", "owner.toml", "--log-format", "json")
    owner.running["owner"] = owner.command(*words, log="owner")
    owner.wait_for("owner", "owner is ready")
    assert owner.call("status", "owner.toml").exit_code == 0
    found = checked(owner, "owner", "--strict")
    assert "the party is running" in found["port"]["found"]
    assert {json.loads(line)["level"] for line in owner.log("owner").splitlines()} == {"info"}
    owner.kill("owner")
    assert (owner.folder / "owner.sock").is_socket()
    owner.call("status", "owner.toml", code=2)
    owner.serve("owner")
    owner.call("status", "owner.toml")
    owner.running["owner"].terminate()
    assert owner.running["owner"].wait(SECONDS) == 0
    assert not (owner.folder / "owner.sock").exists()
