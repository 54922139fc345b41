"""A deployed ring: one `veilring serve` per party, and `veilring ask`."""

import csv
import os
import subprocess
import sys
import threading

import pytest
from tests.deployment.commands import PARTIES, SECONDS, Deploy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("system", ["ring", "rank-search"])
def test_a_deployed_ring_answers_survives_a_crash_and_leaves_in_order(
    deploy: Deploy, system: str
) -> None:
    """It labels queries, also from a pipe, readmits a dead party, and ends on SIGTERM with 0."""
    ring = deploy(system)
    folder, words = ring.folder, ("ask", "client.toml", "queries.csv")
    ring.serve(*PARTIES)
    first = ring.call(*words)
    ring.wait_for("party-0", "party-0 had 44 queries labelled for client")
    labels = [row["label"] for row in csv.DictReader(first.stdout.splitlines())]
    given = (folder / "queries.csv").read_bytes()
    truth = [row["label"] for row in csv.DictReader(given.decode().splitlines())]
    assert len(labels) == len(truth)
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) > 0.9 * len(truth)

    os.mkfifo(folder / "pipe")
    writing = threading.Thread(target=(folder / "pipe").write_bytes, args=(given,))
    writing.start()
    assert ring.call("ask", "client.toml", "pipe").stdout == first.stdout
    writing.join()
    command = [sys.executable, "-m", "veilring", "ask", "client.toml", "-"]
    piped = subprocess.run(command, cwd=folder, input=given, capture_output=True, check=True)
    assert piped.stdout.decode() == first.stdout

    ring.kill("party-1")
    failed = ring.call(*words, code=1)
    assert "party-1" in failed.stderr
    assert failed.stdout == ""  # no partial answer

    ring.serve("party-1")
    assert ring.call(*words).stdout == first.stdout
    ring.wait_for("party-0", "party-0 is connected to party-1 again")
    again = ring.command("serve", "party-1.toml", log="again")
    assert again.wait(SECONDS) in {1, 2}
    if (folder / "party-1.db").exists():  # which is opened before the port
        assert "party-1.db is locked: another process is writing" in again.output
    else:
        assert again.poll() == 1  # and not 2: the port may be free in a moment
        assert "veilring: another process is listening at 127.0.0.1:" in again.output
    ring.end_in_order()
