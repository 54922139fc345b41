"""A member of a roster that means harm to a server, and a server to do it to. Loopback only.

    python -m benchmarks.flooding FOLDER NAME KIND FRAMES SECONDS

sends at most that number of frames of a kind within that time, as a submitter of a collection, and
connects again at once whenever it is cut off. It prints how many frames it sent.
"""

import contextlib
import secrets
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

import psutil

from veilring.data import load_table
from veilring.deployment.examples import COLLECTOR, SurveyExample
from veilring.errors import FrameError
from veilring.nodes.session import Abort, Open
from veilring.protocols.ldp.collector import TASK
from veilring.transport.frames import FRAME_BYTES_MAX, GOODBYE, FrameReader, on_stream, pack
from veilring.transport.handshake import PROTOCOL_VERSION, Hello, Welcome, greeting, read_greeting
from veilring.transport.identity import load_identity
from veilring.transport.listener import bind
from veilring.transport.messages import SESSION_BYTES, Message, encode
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK, client_context

_NO_TERMS: Final = bytes(32)
_WAIT_SECONDS: Final = 60.0  # for what takes milliseconds, on a machine as busy as it may be
_CHUNK: Final = 500  # frames of one write, so that a flood notices that it was cut off


class RawMember:
    """A member over blocking TLS, that sends any bytes after its greeting.

    Args:
        folder: Where the keys and the roster are.
        name: Who it is.
        read_buffer: Bytes that the kernel takes for it; its default unless given.

    Raises:
        OSError: If it was cut off or not let in.
        FrameError: If it was refused.
    """

    def __init__(self, folder: Path, name: str, *, read_buffer: int = 0) -> None:
        roster = Roster.load(folder / "roster.toml")
        self.name = name
        self._reader = FrameReader()
        self._frames: Iterator[bytes] = iter(())
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(load_identity(folder / f"{name}.key"), roster)
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self.socket = socket.socket()
        if read_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, read_buffer)
        self.socket.settimeout(_WAIT_SECONDS)
        try:
            self.socket.connect((LOOPBACK, roster.member(COLLECTOR).port))
            self._greet(roster)
        except BaseException:
            self.socket.close()
            raise

    def _greet(self, roster: Roster) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
        hello = Hello(
            version=PROTOCOL_VERSION, roster=roster.hash, sender=self.name, receiver=COLLECTOR
        )
        self.send(greeting(hello))
        answer = read_greeting(self.frame())
        if not isinstance(answer, Welcome):
            raise FrameError(str(answer))

    def send(self, data: bytes, *, record: int = 1 << 14) -> None:
        """Send bytes in TLS records of at most so many."""
        for start in range(0, len(data), record):
            self._tls.write(data[start : start + record])
        self._flush()

    def _flush(self) -> None:
        self.socket.sendall(self._outgoing.read())

    def _receive(self) -> None:
        some = self.socket.recv(1 << 16)
        if not some:
            raise ConnectionResetError("the server ended the connection")
        self._incoming.write(some)

    def frame(self) -> bytes:
        """Read one frame.

        Raises:
            ConnectionError: If the connection is over.
        """
        while (frame := next(self._frames, None)) is None:
            try:
                self._frames = self._reader.feed(self._tls.read(1 << 16))
            except ssl.SSLWantReadError:
                self._receive()
        return frame

    def drain(self) -> None:
        """Throw away what has come, so that the server can go on answering."""
        self.socket.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                while self.socket.recv(1 << 16):
                    pass
        finally:
            self.socket.settimeout(_WAIT_SECONDS)

    def ask(self) -> None:
        """Open a session and read its answer: a round trip through the whole server."""
        self.send(_said(self.opening()))
        self.frame()

    def opening(self, service: str = TASK) -> Open:
        """Return a frame that asks for a session."""
        return Open(service=service, parties=(self.name, COLLECTOR), terms=_NO_TERMS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class Server:
    """A collector in a process of its own, as `veilring serve` runs it.

    Args:
        submitters: How many members of its roster there are, `submitter-0` and so on.
    """

    def __init__(self, submitters: int = 3) -> None:
        self._at = tempfile.TemporaryDirectory()
        self.folder = Path(self._at.name) / "survey"
        with bind(LOOPBACK, 0) as free:
            port = free.getsockname()[1]
        example = SurveyExample(clients=100, submitters=submitters)
        example.write(load_table("iris"), self.folder, seed=0, port=port)
        self._log = self.folder / "log"
        serve = [sys.executable, "-m", "veilring", "serve", str(self.folder / f"{COLLECTOR}.toml")]
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(serve, stderr=log)  # noqa: S603  (our own module)
        self.address = (LOOPBACK, port)

    def lines(self) -> list[str]:
        """Return the lines of its log."""
        return self._log.read_text(encoding="utf-8").splitlines()

    def resident_mib(self) -> float:
        """Return how much memory it has."""
        resident: int = psutil.Process(self._process.pid).memory_info().rss
        return resident / (1 << 20)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not any("is ready" in line for line in self.lines()):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"the server is not ready: {self.lines()}")
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(_WAIT_SECONDS)
        self._at.cleanup()


def start_flood(
    folder: Path, name: str, kind: str, frames: int, seconds: float
) -> subprocess.Popen[str]:
    """Start a flood in a process of its own, by a member of that name."""
    told = [str(folder), name, kind, str(frames), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.flooding", *told]
    root = Path(__file__).parent.parent
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)  # noqa: S603  (our own module)


@contextlib.contextmanager
def idle(address: tuple[str, int], count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold connections of one address without a key; each says the same, and then nothing."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        for sock in held:
            sock.sendall(said)
        yield held


def _session() -> bytes:
    return secrets.token_bytes(SESSION_BYTES)


def _said(message: Message) -> bytes:
    return on_stream(encode(_session(), message))


def _large() -> bytes:
    """Return a frame of the largest size: a list of a million empty maps."""
    items = FRAME_BYTES_MAX - 64
    head = b"\x93" + pack(_session()) + pack("x") + b"\xdd" + struct.pack(">I", items)
    return on_stream(head + b"\x80" * items)


def _aborted(member: RawMember) -> bytes:
    session = _session()
    said = (member.opening(), Abort(reason="x", culprit=""))
    return b"".join(on_stream(encode(session, each)) for each in said)


_ONE_SESSION: Final = _session()

FLOODS: Final[Mapping[str, Callable[[RawMember], bytes]]] = MappingProxyType(
    {
        "garbage": lambda _: on_stream(b"\xc1"),
        "opens": lambda member: _said(member.opening("x")),
        "unread": lambda member: _said(member.opening("x")),
        "offered": lambda member: _said(member.opening()),
        "aborted": _aborted,
        "early": lambda _: on_stream(pack((_session(), "x"))),
        "large": lambda _: _large(),
        "stragglers": lambda _: on_stream(pack((_ONE_SESSION, "x"))),
        "tiny": lambda _: b"\x00",
        "reconnects": lambda _: GOODBYE,
    }
)
"""By name, what makes a frame of a flood. `unread` reads no answer; `tiny` are bytes of one large
frame, each in a TLS record of its own; `reconnects` says goodbye as soon as it was welcomed."""


def _flood(folder: Path, name: str, kind: str, frames: int, seconds: float) -> int:
    """Send, connecting again when cut off; return how many frames were sent."""
    deadline, sent = time.monotonic() + seconds, 0
    while sent < frames and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError, FrameError),
            RawMember(folder, name, read_buffer=4096 * (kind == "unread")) as member,
        ):
            for count in _pour(member, kind, frames - sent):
                sent += count
                if time.monotonic() > deadline:
                    break
    return sent


def _pour(member: RawMember, kind: str, frames: int) -> Iterator[int]:
    """Send over one connection, and yield how many frames each write had."""
    if kind == "reconnects":
        member.send(GOODBYE)
        yield 1
        return
    if kind == "stragglers":
        member.send(on_stream(encode(_ONE_SESSION, member.opening("x"))))
    if kind == "tiny":
        member.send(struct.pack(">I", FRAME_BYTES_MAX) + bytes(frames), record=1)
        yield frames
        return
    make, chunk = FLOODS[kind], 1 if kind == "large" else _CHUNK
    for start in range(0, frames, chunk):
        count = min(chunk, frames - start)
        member.send(b"".join(make(member) for _ in range(count)))
        if kind != "unread":
            member.drain()
        yield count


if __name__ == "__main__":
    _, _folder, _name, _kind, _frames, _seconds = sys.argv
    sys.stdout.write(f"{_flood(Path(_folder), _name, _kind, int(_frames), float(_seconds))}\n")
