"""The laboratory in a Python that lacks what a browser's lacks.

Pyodide, the Python of browsers, starts no thread, and its event loop runs as long as the page.
"""

import re
import sys
from collections.abc import Collection
from typing import Any, Final

import pytest
from tests.cli.invoking import python

import veilring as vr
from veilring.errors import InputError
from veilring.randomness import Streams

ABSENT: Final = ("_multiprocessing", "pwd", "randomgen", "resource")
"""Modules that no Pyodide has; `BARE` are those that it has to be asked for, or once lacked."""
BARE: Final = (*ABSENT, "_sqlite3", "_ssl", "multiprocessing", "sqlite3", "ssl")
POOR: Final = """
import _thread, asyncio, sys, threading, time, warnings

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent}:
            raise ModuleNotFoundError(name, name=name)

def refuse(*given, **named):
    raise OSError("a browser has no threads")

warnings.simplefilter("error")
sys.meta_path.insert(0, Absent())
_thread.start_new_thread = threading._start_new_thread = time.pthread_getcpuclockid = refuse
from veilring import watchdog
watchdog.HAS_THREADS = False
import veilring as vr

async def page():
{code}

asyncio.run(page())
"""
SYSTEMS: Final = (
    *("vr.PrivateKNN()", "vr.RankSearch(k=5)", "vr.NoisyVotes(epsilon=1.0)"),
    *("vr.Release(epsilon=1.0)", "vr.LDPBayes(epsilon=1.0)"),
)
RUN: Final = """
train, test = vr.load("iris").split(test_share=0.1, seed=1)
for system in ({systems}):
    for runtime in ("simulated", "memory"):
        run = vr.run(system, train.partition(4, seed=1), test, runtime=runtime, seed=1)
        print(run.transcript)
"""
MEASURED: Final = re.compile(r" seconds=[^)]*")
COMPARE: Final[dict[str, Any]] = {
    "splits": 2,
    "splits_max": 2,
    "hindsight": False,
    "workers": 1,
    "seed": 1,
}


def in_browser(code: str, absent: Collection[str]) -> str:
    """Return the output of code that runs in one step of the page's loop."""
    indented = "\n".join(f"    {line}" for line in code.splitlines())
    return python("-c", POOR.format(absent=absent, code=indented)).stdout


@pytest.mark.slow
def test_a_seeded_run_in_a_browser_has_the_same_transcript() -> None:
    """The systems of parties and of LDP clients need no thread, process, TLS or database."""
    train, test = vr.load("iris").split(test_share=0.1, seed=1)
    parts = train.partition(4, seed=1)
    ring = vr.PrivateKNN(), vr.RankSearch(k=5), vr.NoisyVotes(epsilon=1.0)
    systems = *ring, vr.Release(epsilon=1.0), vr.LDPBayes(epsilon=1.0)
    expected = [vr.run(each, parts, test, seed=1).transcript for each in systems for _ in range(2)]
    assert in_browser(RUN.format(systems=", ".join(SYSTEMS)), BARE).split() == expected


@pytest.mark.slow
def test_a_comparison_in_a_browser_equals_one_on_a_machine() -> None:
    """It needs the database in which two of the systems keep budgets, but no thread or process."""
    here = str(vr.compare("iris", **COMPARE).lines)
    there = in_browser(f"print(vr.compare('iris', **{COMPARE}).lines)", ABSENT).strip()
    assert MEASURED.sub("", there) == MEASURED.sub("", here)


def test_no_generator_is_cryptographic_without_randomgen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw without a seed is refused, and the error asks for one; a seeded draw needs none."""
    monkeypatch.setitem(sys.modules, "randomgen", None)
    assert Streams(1).generator("a").integers(2**62) == Streams(1).generator("a").integers(2**62)
    with pytest.raises(InputError, match="give a seed"):
        Streams().generator("a")
