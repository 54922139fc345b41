"""A `veilring` that starts at once, for tests that start it a hundred times; and so do modules.

A server imports everything once and forks. A small program on the PATH hands it arguments, folder,
environment and open files, passes signals on, and ends as the command does. It has two names:
`veilring WORDS` is the command, and `module NAME` is `python -m NAME`.
"""

import gc
import importlib.util
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.abc import InspectLoader
from pathlib import Path
from types import ModuleType
from typing import Final, Self

import veilring
from veilring.cli import main

_SECONDS: Final = 200.0  # to import everything, on a busy machine
# What commands import when they need it.
_LATE: Final = ("matplotlib.backends.backend_agg", "polars", "rich.table", "sklearn.datasets")
_NUMBER: Final = 4  # bytes
_CLIENT: Final = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    said = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(said).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(said)
    pid = int.from_bytes(server.recv(4), "big")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda sign, frame: os.kill(pid, sign))
    code = server.recv(1)
sys.exit(code[0] if code else 1)
"""


class Starter:
    """The server, for as long as it is entered."""

    def __enter__(self) -> Self:
        """Start it, and wait until it has imported everything."""
        # A short path: a socket's may have some hundred bytes.
        self._folder = tempfile.TemporaryDirectory()
        words = [sys.executable, "-m", __name__, self._folder.name]
        # Threads do not outlive a fork.
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            words, env=alone, stdin=subprocess.PIPE, start_new_session=True
        )
        deadline = time.monotonic() + _SECONDS
        while not (self.path / "veilring").exists():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server does not start")
            time.sleep(0.02)
        return self

    def __exit__(self, *_error: object) -> None:
        """End it, and all processes that it started."""
        self._server.communicate()  # it ends when nobody holds its input: also if we are killed
        self._folder.cleanup()

    @property
    def path(self) -> Path:
        """The folder that `veilring` and `module` are in, for the PATH."""
        return Path(self._folder.name)


def _serve(folder: Path) -> socket.socket:
    """Fork for each request; return, in the new process, the connection that it came by."""
    inside = (each.name for each in pkgutil.walk_packages(veilring.__path__, "veilring."))
    for name in (*_LATE, *inside):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    gc.freeze()  # no command has to look at all that was imported when it ends
    with socket.socket(socket.AF_UNIX) as listening:
        address = str(folder / "socket")
        listening.bind(address)
        listening.listen()
        written = folder / "written"
        written.write_text(_CLIENT.format(python=sys.executable, address=address))
        written.chmod(0o700)
        (folder / "module").symlink_to(folder / "veilring")
        written.rename(folder / "veilring")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                os.killpg(0, signal.SIGKILL)
            connection, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return connection
            connection.close()


def _become(connection: socket.socket) -> None:
    """Fork the command that was asked for, and return in it; here, tell how it ended."""
    size, files, _, _ = socket.recv_fds(connection, _NUMBER, 3)
    said = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    if pid := os.fork():
        connection.sendall(pid.to_bytes(_NUMBER, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
        os._exit(0)
    connection.close()
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    (program, *words), folder, environment = json.loads(said)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [Path(program).name, *words]


def _run(name: str) -> None:
    """Run a module as `python -m` does."""
    spec, module = importlib.util.find_spec(name), ModuleType("__main__")
    if spec is None or not isinstance(spec.loader, InspectLoader):
        raise ImportError(name)
    module.__spec__, module.__file__ = spec, spec.origin
    # The second name is that by which processes that it starts know its classes.
    sys.modules |= dict.fromkeys(("__main__", "__mp_main__"), module)
    code = spec.loader.get_code(name)
    exec(code or "", vars(module))  # noqa: S102  (an example of the pages)


if __name__ == "__main__":
    _become(_serve(Path(sys.argv[1])))
    if sys.argv[0] == "module":
        sys.argv.pop(0)
        _run(sys.argv[0])
    else:
        main()
