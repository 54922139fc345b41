"""The effect of a flooding member on a server and its members: round trips, memory and log.

The server is a collector as `veilring serve` runs it, over mutual TLS on loopback. One member sends
100,000 frames of a kind from its own process and connects again whenever it is cut off. An honest
member opens one session after the other, and a third one keeps reconnecting. A round trip lasts
from the request for a session to its answer; the reference is its median just before.

    python -m benchmarks.flood FOLDER NAME KIND FRAMES SECONDS

is the process that floods: it sends at most that number of frames of a kind within that time, as a
survey client of a collection, and prints how many frames it sent.
"""

import contextlib
import functools
import secrets
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

import psutil

from benchmarks.measurement import Bound, Measurement
from benchmarks.ports import reserve_ports
from veilring.data.sources import load
from veilring.deployment.examples.example import NewDeployment
from veilring.deployment.examples.folder import COLLECTOR
from veilring.deployment.examples.surveys import SurveyExample
from veilring.errors import FrameError
from veilring.nodes.session import Abort, Open
from veilring.protocols.ldp.collector import TASK
from veilring.transport.frames import FRAME_BYTES_MAX, GOODBYE, FrameReader, on_stream, pack
from veilring.transport.handshake import PROTOCOL_VERSION, Hello, Welcome, greeting, read_greeting
from veilring.transport.messages import SESSION_BYTES, Message, encode
from veilring.transport.roster import Roster, load_identity
from veilring.transport.tls import LOOPBACK, client_context

_NO_TERMS: Final = bytes(32)
_WAIT_SECONDS: Final = 60.0  # for what takes milliseconds, on a machine as busy as it may be
_CHUNK: Final = 500  # frames of one write, so that a flood notices that it was cut off


class RawMember:
    """A member over blocking TLS, that sends any bytes after its greeting.

    Args:
        folder: The folder of the keys and the roster.
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
        """Send bytes in TLS records of at most `record` bytes."""
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
        """Discard everything received, so that the server can keep answering."""
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
        survey_clients: The number of members of its roster, `survey-client-0` and so on.
    """

    def __init__(self, survey_clients: int = 3) -> None:
        self._at = tempfile.TemporaryDirectory()
        self.folder = Path(self._at.name) / "survey"
        port = reserve_ports()
        example = SurveyExample(reports=100, survey_clients=survey_clients)
        example.write(load("iris"), NewDeployment(self.folder, 0, port))
        self._log = self.folder / "log"
        serve = [sys.executable, "-m", "veilring", "serve", str(self.folder / f"{COLLECTOR}.toml")]
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(serve, stderr=log)
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


def let_in(server: Server, name: str) -> RawMember:
    """Connect, and retry until the server has noticed the end of an earlier connection."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return RawMember(server.folder, name)
        except FrameError as refused:
            if "again=True" not in str(refused) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def start_flood(
    folder: Path, name: str, kind: str, frames: int, seconds: float
) -> subprocess.Popen[str]:
    """Start a flood in a process of its own, by a member of that name."""
    told = [str(folder), name, kind, str(frames), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.flood", *told]
    root = Path(__file__).parent.parent
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


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


def _send_flood(folder: Path, name: str, kind: str, frames: int, seconds: float) -> int:
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


FRAMES = 100_000
IDLE_CONNECTIONS = 200
SECONDS = 10.0
# The honest member's own rate stays below what a server hears from one.
PAUSE_SECONDS = 0.008
LEAST_TRIPS = 100
CONNECT_PAUSE_SECONDS = 0.6
HONEST, MALICIOUS, NEWCOMER = "survey-client-0", "survey-client-1", "survey-client-2"
SLOWER_MAX = 10.0
MIB_MAX = 64.0
LINES_MAX = 100.0
CONNECT_SECONDS_MAX = 10.0  # `veilring ask` waits so long

Attack = Callable[[Server], AbstractContextManager[Callable[[], bool]]]
"""Attacks a server, and returns what says whether it still does."""


def measure(*, quick: bool) -> list[Measurement]:
    """Flood a fresh server in each of the ways."""
    frames, seconds = (5_000, 2.0) if quick else (FRAMES, SECONDS)
    results = []
    for name, attack in _attacks(frames, seconds).items():
        with Server() as server:
            results += _under(server, name, attack, seconds)
    return results


def _attacks(frames: int, seconds: float) -> dict[str, Attack]:
    floods = {kind: _flood(kind, frames, seconds) for kind in FLOODS}
    hello = b"\x16\x03\x01\x02\x00\x01"
    strangers = {
        "idle": _strangers(b"", seconds),
        "half a greeting": _strangers(hello, seconds),
        "no TLS": _strangers(b"GET / HTTP/1.1\r\n\r\n", seconds),
        "stalled handshakes": _strangers(_client_hello(), seconds),
    }
    return {"nothing": _nothing(seconds), **floods, **strangers}


def _flood(kind: str, frames: int, seconds: float) -> Attack:
    @contextlib.contextmanager
    def attack(server: Server) -> Iterator[Callable[[], bool]]:
        count = min(frames, 200) if kind == "large" else frames
        process = start_flood(server.folder, MALICIOUS, kind, count, seconds)
        try:
            yield lambda: process.poll() is None
        finally:
            process.kill()
            process.wait()

    return attack


def _nothing(seconds: float) -> Attack:
    @contextlib.contextmanager
    def attack(_server: Server) -> Iterator[Callable[[], bool]]:
        end = time.monotonic() + seconds
        yield lambda: time.monotonic() < end

    return attack


def _strangers(said: bytes, seconds: float) -> Attack:
    """Hold 200 connections, and replace those that are dropped."""

    @contextlib.contextmanager
    def attack(server: Server) -> Iterator[Callable[[], bool]]:
        stop = threading.Event()
        holding = threading.Thread(target=_hold, args=(server, said, stop))
        holding.start()
        end = time.monotonic() + seconds
        try:
            yield lambda: time.monotonic() < end
        finally:
            stop.set()
            holding.join()

    return attack


def _hold(server: Server, said: bytes, stop: threading.Event) -> None:
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(idle(server.address, IDLE_CONNECTIONS, said))
        while not stop.wait(0.2):
            for number, sock in enumerate(held):
                if _is_over(sock):
                    sock.close()
                    held[number] = stack.enter_context(idle(server.address, 1, said))[0]


def _is_over(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return not sock.recv(1 << 12)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _client_hello() -> bytes:
    """Return the first message of a TLS client, which then says nothing more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def _under(server: Server, name: str, attack: Attack, seconds: float) -> list[Measurement]:
    with RawMember(server.folder, HONEST) as honest:
        end = time.monotonic() + seconds
        before = _trips(honest, lambda: time.monotonic() < end)
        mib, lines = [server.resident_mib()], len(server.lines())
        admitted: list[float] = []
        stop = threading.Event()
        joining = threading.Thread(target=_join, args=(server, stop, admitted, mib))
        with attack(server) as goes_on:
            joining.start()
            during = _trips(honest, goes_on)
            stop.set()
            joining.join()
    usual = statistics.median(before)
    result = functools.partial(_result, name)
    return [
        result(
            "round trip, median",
            "x",
            (statistics.median(during) / usual, SLOWER_MAX),
            f"{usual * 1e3:.2f} ms before; {len(during):,} trips",
        ),
        result(
            "round trip, 99th of 100",
            "x",
            (_high(during) / usual, SLOWER_MAX),
            f"{_high(before) / usual:.1f} x before",
        ),
        result("memory", "MiB", (max(mib) - mib[0], MIB_MAX)),
        result("log", "lines", (len(server.lines()) - lines, LINES_MAX)),
        result(
            "a member connects, slowest",
            "s",
            (max(admitted), CONNECT_SECONDS_MAX),
            f"{len(admitted)} times",
        ),
    ]


def _result(
    name: str, what: str, unit: str, values: tuple[float, float], detail: str = ""
) -> Measurement:
    value, bound = values
    return Measurement(f"{name}: {what}", unit, (value,), Bound("at most", bound), detail)


def _high(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1]


def _trips(member: RawMember, goes_on: Callable[[], bool]) -> list[float]:
    """Return the seconds of each round trip while something goes on."""
    found: list[float] = []
    while goes_on() or len(found) < LEAST_TRIPS:
        start = time.perf_counter()
        member.ask()
        found.append(time.perf_counter() - start)
        time.sleep(PAUSE_SECONDS)
    return found


def _join(server: Server, stop: threading.Event, admitted: list[float], mib: list[float]) -> None:
    """Connect and leave again and again, and watch the server's memory.

    A failed attempt counts from its begin to the end of one that went well.
    """
    begun = time.perf_counter()
    while not stop.wait(CONNECT_PAUSE_SECONDS) or not admitted:
        mib.append(server.resident_mib())
        with contextlib.suppress(OSError, FrameError):
            RawMember(server.folder, NEWCOMER).socket.close()
            admitted.append(time.perf_counter() - begun - CONNECT_PAUSE_SECONDS)
            begun = time.perf_counter()


if __name__ == "__main__":
    _, _folder, _name, _kind, _frames, _seconds = sys.argv
    sys.stdout.write(f"{_send_flood(Path(_folder), _name, _kind, int(_frames), float(_seconds))}\n")
