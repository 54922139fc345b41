"""MPyC parties as processes on loopback that find the smallest of all values."""

import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from benchmarks.measurement import Skipped
from veilring.arrays import Ints

# Among more parties MPyC is faster without pseudo-random sharing: each of nine has 70 keys for it,
# and finds the five smallest of batched queries in a quarter of the time without.
_PRSS_PARTIES_MAX = 5
_PARTY = Path(__file__).with_name("mpyc_party.py")


class Smallest(NamedTuple):
    """The result and the cost of MPyC's parties.

    Attributes:
        values: The k smallest values of each query, shape (queries, k).
        bytes: The bytes sent by all parties.
    """

    values: Ints
    bytes: int


class MpycParties:
    """A context manager over running parties that are connected with each other.

    Raises:
        Skipped: If MPyC is not installed.
    """

    def __init__(self, count: int) -> None:
        if importlib.util.find_spec("mpyc") is None:
            raise Skipped("MPyC is not installed; pip install '.[benchmark]'")
        self._count = count
        self._stack = ExitStack()
        self._parties: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        with self._stack:
            home = self._stack.enter_context(tempfile.TemporaryDirectory())
            addresses = [
                word for port in _ports(self._count) for word in ("-P", f"localhost:{port}")
            ]
            prss = () if self._count <= _PRSS_PARTIES_MAX else ("--no-prss",)
            for index in range(self._count):
                options = ("--no-log", *prss, *addresses, "-I", str(index))
                process = subprocess.Popen(
                    [sys.executable, "-P", str(_PARTY), *options],  # its folder hides `numbers`
                    cwd=home,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                self._parties.append(self._stack.enter_context(process))
                # Closing all inputs ends all parties; Popen waits for each.
            for process in self._parties:
                if _read(process) != "ready":
                    raise RuntimeError("a party of MPyC did not start")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._parties:
            if process.stdin is not None:
                process.stdin.close()
        self._stack.close()

    def smallest(self, own: Ints) -> Smallest:
        """Return the k smallest of all values for each query.

        Args:
            own: Each party's values, shape (parties, queries, k), ascending for each query.
        """
        for process, values in zip(self._parties, own, strict=True):
            if process.stdin is not None:
                process.stdin.write(json.dumps(values.tolist()) + "\n")
                process.stdin.flush()
        answers: list[dict[str, Any]] = [json.loads(_read(process)) for process in self._parties]
        values = np.array([answer["smallest"] for answer in answers])
        if (values != values[0]).any():
            raise RuntimeError("parties of MPyC have found different values")
        return Smallest(values[0], sum(answer["bytes"] for answer in answers))


def _read(process: subprocess.Popen[str]) -> str:
    return "" if process.stdout is None else process.stdout.readline().strip()


def _ports(count: int) -> list[int]:
    """Return free ports; MPyC takes no sockets, so that another program may be faster."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]
