"""Networks that fail under deployed processes: all weathers, and a host that vanishes."""

import asyncio
import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.deployment.commands import PARTIES, SECONDS, Deploy, run, wait_until
from tests.deployment.weather import BAD, Storm

from veilring.transport.roster import Roster

FAR: Final = "veilring-far"
ADDRESSES: Final = ("10.231.77.1", "10.231.77.2")
CLONE_NEWNET: Final = 0x40000000  # see setns(2)
LINKS: Final = ("veilring-0", "veilring-1")


@pytest.mark.slow
def test_bad_networks_cost_nothing_but_time(tmp_path: Path) -> None:
    """No answer changes, no report is lost or counted twice, no charge comes back, nothing grows.

    After each weather all members are connected again, and their status says so.
    """
    found = asyncio.run(Storm(tmp_path, seed=1).run(seconds=1.0))
    assert found.weathers == dict.fromkeys(BAD, 1)
    assert found.asked > len(found.answers) > len(BAD)


def ip(*words: str) -> int:
    """Run `ip`, and return its exit code."""
    command = shutil.which("ip") or "false"
    return subprocess.run((command, *words), check=False, capture_output=True).returncode


@pytest.fixture
def far() -> Iterator[None]:
    """Provide a network namespace behind a virtual cable."""
    made = ip("netns", "add", FAR) == 0
    try:
        made = made and all(
            ip(*words.split()) == 0
            for words in (
                f"link add {LINKS[0]} type veth peer name {LINKS[1]}",
                f"link set {LINKS[1]} netns {FAR}",
                f"addr add {ADDRESSES[0]}/24 dev {LINKS[0]}",
                f"link set {LINKS[0]} up",
                f"-n {FAR} addr add {ADDRESSES[1]}/24 dev {LINKS[1]}",
                f"-n {FAR} link set {LINKS[1]} up",
                f"-n {FAR} link set lo up",
            )
        )
        if not made:
            pytest.skip("network namespaces need Linux, iproute2 and root")
        yield
    finally:
        ip("link", "del", LINKS[0])
        ip("netns", "del", FAR)


def run_far(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `run`, in the other namespace."""
    with Path(f"/var/run/netns/{FAR}").open() as place:
        assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) == 0
    run(folder, words, output)


@pytest.mark.slow
@pytest.mark.usefixtures("far")
def test_a_host_that_vanishes_is_named_and_comes_back(deploy: Deploy) -> None:
    """Its connections are not closed; the request that waits for it ends and blames it."""
    ring = deploy("ring")
    limits = ("session_seconds = 10.0", "answer_seconds = 2.0")
    for name in PARTIES:
        ring.configure(name, 'listen = "0.0.0.0"', *limits)
    ring.configure("client", *limits)
    roster = Roster.load(ring.folder / "roster.toml")
    hosts = dict(zip(PARTIES, (ADDRESSES[0], ADDRESSES[1], ADDRESSES[0]), strict=True))
    places = {name: (hosts[name], roster.member(name).port) for name in PARTIES}
    roster.at(places).save(ring.folder / "roster.toml")
    ring.start("party-0", "party-2")
    ring.start("party-1", body=run_far)
    for name in PARTIES:
        ring.wait_for(name, "is ready")
    ask = partial(ring.call, "ask", "client.toml", "queries.csv")
    labels = ask().stdout
    ip("link", "set", LINKS[0], "down")
    lost = ask(code=1).stderr
    assert "party-1" in lost
    ip("link", "set", LINKS[0], "up")

    def answers() -> bool:
        done = ring.command("ask", "client.toml", "queries.csv", log="again")
        return done.wait(SECONDS) == 0

    wait_until(answers)
    assert ask().stdout == labels
