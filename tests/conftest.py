"""Fixtures and settings of all tests."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import settings
from tests.browser import Browser, open_browser

from veilring.nodes.cluster import RUNTIMES
from veilring.nodes.runtimes import processes
from veilring.protocols.registry import BUILT_IN
from veilring.testing import ProtocolRunner

# The same cases each time, and none fails because the machine is busy.
settings.register_profile("veilring", derandomize=True, deadline=None)
settings.load_profile("veilring")

# Tests start hundreds of processes. If the environment forbids bytecode, each would compile all its
# imports, which takes longer than most of its work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Workers share the cores: threads of a matrix product, or of a tree that is grown, would spin while
# they wait for each other.
for library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Typer builds all commands again for each call.
pytest.MonkeyPatch().setattr(typer.testing, "_get_command", cache(typer.main.get_command))

# A worker forks its processes from one server: what this has imported, none of them imports.
pytest.MonkeyPatch().setattr(
    processes,
    "PRELOADED",
    (
        *processes.PRELOADED,
        *(place.partition(":")[0] for place in BUILT_IN.values()),
        "veilring.cli.console",
        "veilring.deployment",
        "veilring.deployment.owner",
        "veilring.deployment.peers",
        "veilring.deployment.prediction",
        "veilring.deployment.surveys.aggregators",
        "veilring.deployment.surveys.collector",
        "veilring.deployment.surveys.upload",
        "veilring.privacy.upgrade",
        "veilring.protocols.ldp.collector",
        "encodings.idna",
        "pydantic.type_adapter",
        "rich.progress",
        "rich.table",
        "hypothesis",
        "pytest",
        "tests.deployment.commands",
        "tests.roles",
    ),
)

# A shell ignores Ctrl-C for background processes, and `nohup` the end of a terminal; tests of these
# would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze everything imported and collected, so that the garbage collector skips it.

    It also looks at the rest rarely: what tests leave behind fits into memory.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Let each worker begin its collection elsewhere: no two compile the same tests at once."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args == config.getini("testpaths"):
        here = Path(__file__).parent
        places = sorted(map(str, (*here.glob("[!_]*/"), *here.glob("test_*.py"))))
        first = len(places) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args[:] = [*places[first:], *places[:first]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the site, which takes longest to build: one worker is given all of its tests."""
    items.sort(key=lambda item: (item.path.name != "test_site.py", item.path))


def pytest_xdist_auto_num_workers() -> int:
    """Run one worker more than there are cores: many tests wait for processes."""
    return 1 + (os.cpu_count() or 1)


@pytest.fixture(params=RUNTIMES)
def run_everywhere(request: pytest.FixtureRequest) -> ProtocolRunner:
    """Run a protocol as `run_protocol` does, and in processes.

    Processes differ only in how parties are started: tests of the runtimes need them, and one test
    of each protocol, which for a system is in `test_served`.
    """
    return ProtocolRunner(request.param)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return one browser for all tests of a process; each opens a separate page."""
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened
