"""A deployed ring: one `veilring serve` per party, and `veilring ask`."""

import csv
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS, Command, Server, call
from tests.deployment.members import all_served, labels_of
from typer.testing import Result

from veilring.arrays import Floats
from veilring.data.sources import load
from veilring.deployment.examples import write_peers
from veilring.protocols.peers import PeerMember
from veilring.protocols.ring.system import PrivateKNN
from veilring.testing.ports import reserve_ports

PARTIES = 3


@dataclass(frozen=True)
class Ring:
    """The folder of a deployed ring, and its parties."""

    folder: Path
    parties: tuple[Server, ...]

    def ask(self, queries: str = "queries.csv", code: int = 0) -> Result:
        """Run the client."""
        return call("ask", self.folder / "client.toml", self.folder / queries, code=code)


@pytest.fixture(params=["private-knn", "rank-search"])
def ring(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ring]:
    """Deploy and start three peers."""
    folder = tmp_path / "ring"
    options = ["--set", f"parties.count={PARTIES}", "--port", str(reserve_ports(PARTIES))]
    deploy = ["deploy", "peers", "wine", "--protocol", request.param, *options]
    call(*deploy, "--out", folder)
    parties = tuple(Server(folder, f"party-{number}") for number in range(PARTIES))
    try:
        for party in parties:
            party.start()
        yield Ring(folder, parties)
    finally:
        for party in parties:
            party.kill()


@pytest.mark.slow
def test_a_deployed_ring_answers_survives_a_crash_and_leaves_in_order(ring: Ring) -> None:
    """It labels queries, also from a pipe, readmits a dead party, and ends on SIGTERM with 0."""
    for party in ring.parties:
        party.wait_until_ready()
    first = ring.ask()
    ring.parties[0].wait_for("party-0 had 44 queries labelled for client")
    labels = [row["label"] for row in csv.DictReader(first.stdout.splitlines())]
    given = (ring.folder / "queries.csv").read_bytes()
    truth = [row["label"] for row in csv.DictReader(given.decode().splitlines())]
    assert len(labels) == len(truth)
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) > 0.9 * len(truth)

    os.mkfifo(ring.folder / "pipe")
    writing = threading.Thread(target=(ring.folder / "pipe").write_bytes, args=(given,))
    writing.start()
    assert ring.ask("pipe").stdout == first.stdout
    writing.join()
    words = [sys.executable, "-m", "veilring", "ask", "client.toml", "-"]
    piped = subprocess.run(words, cwd=ring.folder, input=given, capture_output=True, check=True)
    assert piped.stdout.decode() == first.stdout

    ring.parties[1].kill()
    failed = ring.ask(code=1)
    assert "party-1" in failed.stderr
    assert failed.stdout == ""  # no partial answer

    ring.parties[1].serve()
    assert ring.ask().stdout == first.stdout
    ring.parties[0].wait_for("party-0 is connected to party-1 again")
    again = Command(ring.folder, "serve", "party-1.toml", output=ring.folder / "again.log")
    assert again.wait(SECONDS) in {1, 2}
    if (ring.folder / "party-1.db").exists():  # which is opened before the port
        assert "party-1.db is locked: another process is writing" in again.output
    else:
        assert again.poll() == 1  # and not 2: the port may be free in a moment
        assert "veilring: another process is listening at 127.0.0.1:" in again.output

    for party in ring.parties:
        party.end_in_order()
        assert "is shutting down" in party.log.read_text()


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
    async with all_served(folder, names):
        labels = await labels_of(folder, 0, 44, "queries.csv")
    assert asked == [20, 20, 4]
    assert len(labels) == 44
