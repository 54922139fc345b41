"""A deployed ring: one `veilring serve` per party, and `veilring ask`."""

import asyncio
import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS
from typer.testing import CliRunner

from veilring.arrays import Floats
from veilring.cli.app import app
from veilring.data.sources import load
from veilring.deployment.duties import load_config
from veilring.deployment.examples import write_peers
from veilring.deployment.peers import ClientConfig, MemberConfig, ask_member, serve_member
from veilring.errors import SessionAborted
from veilring.protocols.peers import PeerMember
from veilring.protocols.ring.system import PrivateKNN
from veilring.testing.ports import reserve_ports

PARTIES = 3


class Ring:
    """The processes of a deployed ring and their logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parties: dict[int, subprocess.Popen[bytes]] = {}

    def serve(self, number: int) -> None:
        """Start a party."""
        with self.log(number).open("ab") as log:
            self.parties[number] = subprocess.Popen(
                [sys.executable, "-m", "veilring", "serve", f"party-{number}.toml"],
                cwd=self.folder,
                stderr=log,
            )

    def log(self, number: int) -> Path:
        """Return the path of a party's log."""
        return self.folder / f"party-{number}.log"

    def wait_for(self, number: int, text: str) -> None:
        """Wait until a party's log has a text."""
        deadline = time.monotonic() + SECONDS
        while text not in self.log(number).read_text():
            assert time.monotonic() < deadline, self.log(number).read_text()
            time.sleep(0.05)

    def ask(self, *, queries: str = "queries.csv") -> subprocess.CompletedProcess[str]:
        """Run the client."""
        return self.run("ask", "client.toml", queries)

    def run(self, *command: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command until it ends."""
        return subprocess.run(
            [sys.executable, "-m", "veilring", *command],
            cwd=self.folder,
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.fixture(params=["private-knn", "rank-search"])
def ring(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ring]:
    """Deploy and start three peers."""
    folder = tmp_path / "ring"
    options = ["--set", f"parties.count={PARTIES}", "--port", str(reserve_ports(PARTIES))]
    deploy = ["deploy", "peers", "wine", "--protocol", request.param, *options]
    deployed = CliRunner().invoke(app, [*deploy, "--out", str(folder)])
    assert deployed.exit_code == 0, deployed.output
    running = Ring(folder)
    try:
        for number in range(PARTIES):
            running.serve(number)
        yield running
    finally:
        for party in running.parties.values():
            party.kill()
            party.wait()


@pytest.mark.slow
def test_a_deployed_ring_answers_survives_a_crash_and_leaves_in_order(ring: Ring) -> None:
    """It labels queries, also from a pipe, readmits a dead party, and ends on SIGTERM with 0."""
    for number in range(PARTIES):
        ring.wait_for(number, "is ready")
    first = ring.ask()
    assert first.returncode == 0, first.stderr
    ring.wait_for(0, "party-0 had 44 queries labelled for client")
    labels = [row["label"] for row in csv.DictReader(first.stdout.splitlines())]
    given = (ring.folder / "queries.csv").read_bytes()
    truth = [row["label"] for row in csv.DictReader(given.decode().splitlines())]
    assert len(labels) == len(truth)
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) > 0.9 * len(truth)

    os.mkfifo(ring.folder / "pipe")
    writing = threading.Thread(target=(ring.folder / "pipe").write_bytes, args=(given,))
    writing.start()
    assert ring.ask(queries="pipe").stdout == first.stdout
    writing.join()
    piped = ring.run("ask", "client.toml", "-", given=given.decode())
    assert piped.stdout == first.stdout

    os.kill(ring.parties[1].pid, signal.SIGKILL)
    ring.parties[1].wait()
    failed = ring.ask()
    assert failed.returncode == 1
    assert "party-1" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""  # no partial answer

    ring.log(1).write_text("")
    ring.serve(1)
    ring.wait_for(1, "is ready")
    assert ring.ask().stdout == first.stdout
    ring.wait_for(0, "party-0 is connected to party-1 again")
    again = ring.run("serve", "party-1.toml")
    if (ring.folder / "party-1.db").exists():  # which is opened before the port
        assert "party-1.db is locked: another process is writing" in again.stderr
    else:
        assert again.returncode == 1  # and not 2: the port may be free in a moment
        assert "veilring: another process is listening at 127.0.0.1:" in again.stderr

    for party in ring.parties.values():
        party.send_signal(signal.SIGTERM)
    assert [party.wait(SECONDS) for party in ring.parties.values()] == [0] * PARTIES
    everything = "".join(ring.log(number).read_text() for number in range(PARTIES))
    assert "Traceback" not in everything
    for number in range(PARTIES):
        assert f"party-{number} is shutting down" in ring.log(number).read_text()


@pytest.mark.slow
def test_parties_with_other_terms_refuse_each_other(ring: Ring) -> None:
    """A client with other terms is refused with a reason and gets no answer."""
    for number in range(PARTIES):
        ring.wait_for(number, "is ready")
    terms = ring.folder / "terms.toml"
    text = terms.read_text()
    table = "" if "[protocol]" in text else "\n[protocol]\n"
    terms.write_text(f"{text}{table}k = 7\n")
    refused = ring.ask()
    assert refused.returncode == 1
    assert "the terms differ: protocol.k: 7 at client, 5 at party-0" in refused.stderr


@asynccontextmanager
async def _served(
    folder: Path, names: Iterable[str], *, ready: int = PARTIES
) -> AsyncIterator[None]:
    """Run all parties in this process, wait until some are ready, and stop in order."""
    has_come = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        serving = []
        for name in names:
            config = load_config(folder / f"{name}.toml")
            assert isinstance(config, MemberConfig)
            serving.append(
                group.create_task(serve_member(config, on_ready=lambda _: has_come.release()))
            )
        for _ in range(ready):
            await has_come.acquire()
        yield
        for task in serving:
            task.cancel()


async def test_members_whose_terms_differ_refuse_each_other_and_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The asked member tells the client the missing party, whose terms differ."""
    folder, parties = tmp_path / "ring", [f"party-{number}" for number in range(PARTIES)]
    names = write_peers(
        load("wine"), PrivateKNN(), folder, parties=parties, seed=0, port=reserve_ports(PARTIES)
    )
    terms = (folder / "terms.toml").read_text()
    (folder / "others.toml").write_text(f"{terms}\n[protocol]\nk = 7\n")
    odd = folder / f"{names[1]}.toml"
    odd.write_text(odd.read_text().replace("terms.toml", "others.toml"))
    async with _served(folder, names, ready=0):
        client = load_config(folder / "client.toml")
        assert isinstance(client, ClientConfig)
        while "the terms differ" not in caplog.text:  # noqa: ASYNC110  (a log is no event)
            await asyncio.sleep(0.01)
        with pytest.raises(SessionAborted, match="party-0 is not ready: it is waiting for party-1"):
            await ask_member(client, folder / "queries.csv")
    assert "the terms differ: protocol.k: 5 at party-0, 7 at party-1" in caplog.text


async def test_a_client_batches_queries_as_the_terms_require(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `protocol.batch` of 20, a ring of five on two cycles gets 44 queries as 20, 20 and 4."""
    asked: list[int] = []
    usual = PeerMember.ask

    async def counting(member: PeerMember, queries: Floats, client: str) -> object:
        asked.append(len(queries))
        return await usual(member, queries, client)

    monkeypatch.setattr(PeerMember, "ask", counting)
    protocol = PrivateKNN(sum="cycles", cycles=2, batch=20)
    folder, parties = tmp_path / "ring", [f"party-{number}" for number in range(5)]
    names = write_peers(
        load("wine"), protocol, folder, parties=parties, seed=0, port=reserve_ports(5)
    )
    async with _served(folder, names, ready=5):
        client = load_config(folder / "client.toml")
        assert isinstance(client, ClientConfig)
        labels = await ask_member(client, folder / "queries.csv")
    assert asked == [20, 20, 4]
    assert len(labels["label"]) == 44
