"""Chromium in headless mode, driven through its debugging pipe: real keys, sizes and colours."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest

CHROMIUM: Final = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
)
# For one answer; it is there at once unless the machine does something else.
ANSWER_SECONDS: Final = 200
PHONE, SCREEN = 390, 1280

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on PATH")

# What an event of a key says beside its name: Chromium moves a slider or a caret by the code.
_CODES: Final = {"End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, " ": 32}
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and writes answers to 4. Both ends are moved out of the
# way first, as one may have the other's number.
_TURNED: Final = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A browser with one page.

    Its complaints about the page are errors of scripts, violations of its policy, and resources
    that could not be loaded, since the page was opened.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._read = b""
        self._events: deque[dict[str, Any]] = deque()
        self.complaints: list[str] = []
        self._session: dict[str, str] = {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(
        self,
        where: Path | str,
        *,
        width: int = SCREEN,
        colours: Literal["light", "dark"] = "light",
        scripts: bool = True,
    ) -> None:
        """Open a file or an address, and wait until it is loaded; scripts may run by default."""
        self.resize(width, colours)
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        url = where.resolve().as_uri() if isinstance(where, Path) else where
        # From an empty page: one address after another on the same page would load nothing.
        self._load("about:blank")
        self.complaints.clear()
        self._load(url)

    def resize(self, width: int, colours: Literal["light", "dark"] = "light") -> None:
        """Change the page's width, in CSS pixels, and the reader's preference."""
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": colours}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in JavaScript, awaited if it is a promise."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, as a keyboard does."""
        event = {"key": key, "windowsVirtualKeyCode": _CODES.get(key, ord(key[0].upper()))}
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str) -> None:
        """Click on the middle of an element, like a pointer."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        place = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        for event in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=event, **place)

    def disconnect(self, *, is_offline: bool) -> None:
        """Take the network away from the page, or give it back."""
        speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._call("Network.enable")
        self._call("Network.emulateNetworkConditions", offline=is_offline, **speed)

    def close(self) -> None:
        """Close the browser."""
        self._session = {}
        self._call("Browser.close")

    def _load(self, url: str) -> None:
        self._events.clear()
        answer = self._call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._listen()

    def _call(self, method: str, **given: object) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": given, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self._listen()).get("id") != self._number:
            pass
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _listen(self) -> dict[str, Any]:
        """Return the next answer or event."""
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], ANSWER_SECONDS)
            assert ready, "the browser does not answer"
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser has ended"
            self._read += more
        text, _, self._read = self._read.partition(b"\0")
        said: dict[str, Any] = json.loads(text)
        if "method" in said:
            self._events.append(said)
            self._note(said["method"], said["params"])
        return said

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                self.complaints.append(params["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])


@contextmanager
def open_browser(profile: Path, *options: str) -> Iterator[Browser]:
    """Start a browser with the folder of its profile and more options, and end it."""
    assert CHROMIUM is not None
    (their_commands, commands), (answers, their_answers) = os.pipe(), os.pipe()
    given = [CHROMIUM, *_OPTIONS, *options, f"--user-data-dir={profile}", "about:blank"]
    ends = (str(their_commands), str(their_answers))
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", _TURNED, *ends, *given],
        pass_fds=(their_commands, their_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_commands)
    os.close(their_answers)
    try:
        browser = Browser(commands, answers)
        yield browser
        browser.close()
        process.wait(ANSWER_SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(answers)
