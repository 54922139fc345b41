"""A server that a page starts, which goes on while the rest of the page is typed."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Final, NoReturn

SECONDS: Final = 1000.0
"""The most that the commands of a block may take, or a server until it is ready: thirty times what
the longest block takes on an idle machine, because a shared one may be as slow."""
_PATIENCE: Final = 5.0  # with a server that is to be ended anyhow


class Mistyped(AssertionError):
    """A page shows something that is not so."""


class Served:
    """A `veilring serve` in the background, from its start.

    Args:
        config: Its configuration.
        folder: Where it runs, and keeps its log.
        environment: Where `veilring` is found.
    """

    def __init__(self, config: str, folder: Path, environment: dict[str, str]) -> None:
        self.config = config
        self._log = folder / f"{config.replace('/', '-')}.log"
        with self._log.open("wb") as log:
            words = ["veilring", "serve", config]
            self._process = subprocess.Popen(
                words, cwd=folder, env=environment, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + SECONDS
        while " is ready" not in self._log.read_text(encoding="utf-8"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._raise("does not become ready")
            time.sleep(0.02)

    def stop(self) -> None:
        """Tell it to leave, as Ctrl-C does, and hold it to doing so in order."""
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._raise("does not leave")
        if code or "Traceback" in self._log.read_text(encoding="utf-8"):
            self._raise(f"left with {code}")

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _raise(self, what: str) -> NoReturn:
        log = self._log.read_text(encoding="utf-8")
        raise Mistyped(f"veilring serve {self.config} {what}:\n{log}")
