"""A notebook, typed cell by cell into a real Jupyter kernel."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

SECONDS: Final = 600.0
"""The time limit of a cell on a busy machine, in seconds; the longest takes 7 on an idle one."""
PROGRAM: Final = """
import veilring as vr

wine = vr.load("wine")
train, test = wine.split(test_share=0.25, seed=1)
parts = train.partition(3, seed=1)

system = vr.LDPBayes(epsilon=1.0)
for runtime in ("memory", "tls", "processes", "simulated"):
    run = vr.run(system, parts, test, runtime=runtime, seed=1)
    print(run.transcript)
"""
ROLES: Final = """
import asyncio, threading
import veilring as vr

async def for_ever(party, own):
    print("begun", party.me)
    while True:
        await asyncio.sleep(1.0)

async def mistaken(party, own):
    raise ValueError("the role divides by nothing")
"""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Shown:
    """The output of a notebook cell."""

    printed: str = ""
    result: dict[str, str] = field(default_factory=dict)
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Notebook:
    """A kernel and the client that types into it."""

    manager: KernelManager
    client: BlockingKernelClient

    def cell(self, code: str, *, when_printed: Callable[[], None] = lambda: None) -> Shown:
        """Run a cell to its end, and call a function when it prints for the first time."""
        shown = Shown()

        def show(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    if not shown.printed:
                        when_printed()
                    shown.printed += content["text"]
                case "execute_result":
                    shown.result = content["data"]
                case "error":
                    shown.error = f"{content['ename']}: {content['evalue']}"
                    shown.traceback = _COLOUR.sub("", "\n".join(content["traceback"]))

        self.client.execute_interactive(code, output_hook=show, timeout=SECONDS)
        return shown

    def program(self, text: str) -> Shown:
        """Run each statement of a program in a separate cell; return the last output."""
        for statement in ast.parse(text).body:
            shown = self.cell(ast.unparse(statement))
            assert not shown.error, shown.traceback
        return shown


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """Return a kernel as Jupyter starts one, in which the roles are defined."""
    folder = tmp_path_factory.mktemp("notebook")
    manager = KernelManager(connection_file=str(folder / "kernel.json"))
    manager.start_kernel(cwd=str(folder), extra_arguments=[f"--ipython-dir={folder}"])
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        opened = Notebook(manager, client)
        opened.program(ROLES)
        yield opened
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()


@pytest.mark.slow
def test_a_program_runs_cell_by_cell(notebook: Notebook) -> None:
    """Transcripts are equal on all runtimes; a run is a table, and can be awaited."""
    lines = notebook.program(PROGRAM).printed.splitlines()
    assert len(lines) == 4
    assert len(set(lines)) == 1

    shown = notebook.cell("run").result
    assert shown["text/html"].startswith("<table><tr>")
    assert "LDP naive Bayes (ldp-bayes)" in shown["text/html"]
    assert shown["text/plain"].startswith("SystemRun('ldp-bayes': 44 labels, ")

    call = "vr.run_async(system, parts, test, runtime='processes', seed=1)"
    awaited = notebook.cell(f"(await {call}).transcript == run.transcript")
    assert awaited.result["text/plain"] == "True"


def test_an_error_in_a_cell_is_a_sentence(notebook: Notebook) -> None:
    """Its last line states the mistake, and the error of a role its location in the cell.

    Processes cannot find a role of a cell, and a sentence gives the remedy.
    """
    shown = notebook.cell("vr.PrivateKNN(k=0)")
    assert shown.error == "InputError: k is 0; allowed: a whole number of at least 1"
    assert shown.traceback.splitlines()[-1] == shown.error

    shown = notebook.cell("vr.run(mistaken, [1, 2, 3], runtime='tls')")
    assert shown.error.startswith("RunFailed: party-0: ValueError: the role divides by nothing")
    assert shown.traceback.splitlines()[-1] == shown.error
    assert 'raise ValueError("the role divides by nothing")' in shown.traceback.replace("'", '"')

    shown = notebook.cell("vr.run(mistaken, [1, 2, 3], runtime='processes')")
    assert "mistaken was defined at a prompt or in a notebook" in shown.error
    assert "put it into a module" in shown.error


def test_an_interrupted_cell_ends_its_run(notebook: Notebook) -> None:
    """No thread continues the run."""
    cell = "vr.run(for_ever, [1, 2], runtime='tls')"
    shown = notebook.cell(cell, when_printed=notebook.manager.interrupt_kernel)
    assert shown.error.startswith("KeyboardInterrupt")
    left = notebook.cell("[t.name for t in threading.enumerate() if 'veilring-run' in t.name]")
    assert left.result["text/plain"] == "[]"
