"""Clusters of processes started at the top level of a script."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_SYSTEM = """
import veilring as vr

wine = vr.load("wine")
train, test = wine.split(test_share=0.25, seed=1)
for runtime in ("memory", "tls", "processes", "simulated"):
    run = vr.run(vr.PrivateKNN(), train.partition(3, seed=1), test, runtime=runtime, seed=1)
    print(run.transcript)
"""
_ROLE = """
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


for runtime in ("memory", "tls", "simulated", "processes"):
    run = vr.run(add_up, [Own(1), Own(2), Own(3)], runtime=runtime, seed=1, factor=2)
    print(run.result, run.transcript)
"""
_LATE = """
import veilring as vr

async def first(party, own):
    return own

print(vr.run(first, [1, 2, 3], runtime="processes").result)

async def second(party, own):
    return own

vr.run(second, [1, 2, 3], runtime="processes")
"""


def _run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _script(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "mine.py").write_text(textwrap.dedent(text))
    return _run(folder, "mine.py")


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """A system runs at the top level of a script on all runtimes, with equal transcripts."""
    done = _script(tmp_path, _SYSTEM)
    assert done.returncode == 0, done.stderr
    transcripts = done.stdout.split()
    assert len(transcripts) == 4
    assert len(set(transcripts)) == 1


@pytest.mark.slow
def test_a_role_of_the_script_is_found(tmp_path: Path) -> None:
    """Its messages and classes are found too, and the script starts no cluster in a process."""
    done = _script(tmp_path, _ROLE)
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == "read as __main__"
    assert len(lines) == 4
    assert set(lines) == {lines[0]}
    assert lines[0].startswith("Own(value=12)")


@pytest.mark.slow
def test_a_role_below_the_first_run_is_not_found(tmp_path: Path) -> None:
    """The error names the right place for the role."""
    done = _script(tmp_path, _LATE)
    assert done.stdout == "1\n"
    assert "cannot find the role" in done.stderr
    assert "of the script itself, before any code that runs it" in done.stderr
