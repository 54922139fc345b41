"""Parties as processes: deaths, complete cleanup, and the scripts that start them."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.roles import block, chat, pass_on, say

from veilring.errors import ClusterError, InputError, PeerLost, RunFailed, SessionAborted
from veilring.nodes.cluster import Cluster
from veilring.nodes.runtimes import Processes, processes

KILLS = 8  # two of each party


def _named(error: BaseException) -> str:
    """Return the parties that an error reports as dead."""
    match error:
        case PeerLost(peer=peer):
            return peer
        case SessionAborted(culprit=culprit):
            return culprit
    return repr(error)


@pytest.mark.parametrize("point", range(KILLS))
async def test_a_killed_party_is_named_by_every_survivor(point: int) -> None:
    """A kill -9 at any point ends all runs and each later one everywhere, naming the dead party."""
    runtime = Processes()
    async with Cluster(4, runtime=runtime, seed=point) as cluster:
        victim = f"party-{point % 4}"
        pids = runtime.pids
        runs = [asyncio.create_task(cluster.run(chat, rounds=100_000)) for _ in range(2)]
        await asyncio.sleep(0.01 + 0.0125 * point)
        os.kill(pids[victim], signal.SIGKILL)
        ends: list[object] = [*await asyncio.gather(*runs, return_exceptions=True)]
        ends += await asyncio.gather(cluster.run(pass_on), return_exceptions=True)
    for end in ends:
        assert isinstance(end, RunFailed)
        assert set(end.errors) == set(cluster.parties)
        assert {_named(error) for error in end.errors.values()} == {victim}
    assert not [pid for pid in pids.values() if psutil.pid_exists(pid)]


def test_all_preloaded_modules_exist() -> None:
    """The server passes over a name that no module has, and each process would import its own."""
    assert [name for name in processes.PRELOADED if find_spec(name) is None] == []


async def test_a_party_that_blocks_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that does not return cannot be ended: the launcher kills its process and names it."""
    monkeypatch.setattr(processes, "ANSWER_GRACE_SECONDS", 2.0)
    runtime = Processes()
    async with Cluster(2, runtime=runtime) as cluster:
        with pytest.raises(RunFailed, match=r"party-1 did not answer.*computes") as caught:
            await cluster.run(block, seconds=0.2, who="party-1")
        assert isinstance(caught.value.root, ClusterError)
        with pytest.raises(RunFailed, match="party-1"):
            await cluster.run(pass_on)


async def test_output_is_logged_and_nothing_else_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """The launcher streams each process's output with the party's name, and ends them all."""
    caplog.set_level(logging.INFO, logger="veilring.party")
    runtime = Processes()
    async with Cluster(3, runtime=runtime) as cluster:
        pids = runtime.pids.values()
        await cluster.run(say, text="hello from {me}")
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    said = {(record.name, record.getMessage()) for record in caplog.records}
    for name in cluster.parties:
        assert (f"veilring.party.{name}", f"hello from {name}") in said


_LAUNCHER = """
    import asyncio, sys
    from veilring.nodes.cluster import Cluster
    from veilring.nodes.runtimes import Processes
    from tests.roles import chat

    async def main():
        runtime = Processes()
        async with Cluster(3, runtime=runtime) as cluster:
            print(*runtime.pids.values(), flush=True)
            await cluster.run(chat, rounds=10_000_000)

    if __name__ == "__main__":
        asyncio.run(main())
"""


async def test_more_processes_than_the_machine_can_run_are_refused_at_once() -> None:
    """The error gives the number of processes allowed here and suggests another runtime."""
    with pytest.raises(InputError, match="parties is 1000; allowed: at most") as caught:
        async with Cluster(1000, runtime="processes"):
            pass
    assert "simulated or memory" in str(caught.value)


async def test_processes_that_do_not_start_or_stop_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A slow start reports the number of missing processes, and a kill names the killed ones."""

    async def be_killed(worker: Any) -> None:
        worker.was_killed = True

    worker = "veilring.nodes.runtimes.processes._Worker"
    monkeypatch.setattr(f"{worker}.start", lambda *_: asyncio.Event().wait())
    monkeypatch.setattr(f"{worker}.stop", be_killed)
    monkeypatch.setattr(processes, "START_SECONDS", 0.0)
    missing = "12 of 12 processes had not started after 0 s"
    with pytest.raises(ClusterError, match=missing) as caught:
        async with Cluster(12, runtime="processes"):
            pass
    assert "party-7 and 4 more; use fewer, or the runtime simulated" in str(caught.value)
    (line,) = [record.message for record in caplog.records if "killed" in record.message]
    assert line.startswith("these processes did not stop when asked and were killed: party-0, ")
    assert line.endswith("party-7 and 4 more")


@pytest.mark.parametrize(
    "sign", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_parties_end_with_their_launcher(sign: signal.Signals, pytestconfig: pytest.Config) -> None:
    """Neither Ctrl-C at the launcher nor its death leaves a process behind."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_LAUNCHER)],
        cwd=pytestconfig.rootpath,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert launcher.stdout is not None
    pids = [int(word) for word in launcher.stdout.readline().split()]
    assert len(pids) == 3
    launcher.send_signal(sign)
    launcher.wait(10)
    launcher.stdout.close()
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], 5)
    assert not alive


_SCRIPT = """
from dataclasses import dataclass

import veilring as vr

print("read as", __name__)


@dataclass
class Own:
    value: int


class Value(vr.Message, kind="mine.value"):
    value: int


async def add_up(party, own, *, factor):
    party.round(1)
    await vr.broadcast(party, Value(value=own.value))
    total = own.value
    for peer in party.peers:
        total += (await party.receive(Value, sender=peer)).value
    return Own(total * factor)


for runtime in ("memory", "processes"):
    run = vr.run(add_up, [Own(1), Own(2), Own(3)], runtime=runtime, seed=1, factor=2)
    print(run.result, run.transcript)


async def late(party, own):
    return own


vr.run(late, [1, 2, 3], runtime="processes")
"""


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """All above its first run is found in processes; the error for a role below names the place."""
    (tmp_path / "mine.py").write_text(_SCRIPT)
    done = subprocess.run(
        [sys.executable, "mine.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    first, *lines = done.stdout.splitlines()
    assert first == "read as __main__"
    assert len(lines) == 2, done.stderr
    assert set(lines) == {lines[0]}
    assert lines[0].startswith("Own(value=12)")
    assert "cannot find the role" in done.stderr
    assert "of the script itself, before any code that runs it" in done.stderr
