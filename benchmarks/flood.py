"""What one member that floods a server does to the others: their round trips, its memory and log.

The server is a collector as `veilring serve` runs it, over mutual TLS on loopback. One member sends
100,000 frames of a kind from a process of its own and connects again whenever it is cut off. An
honest member opens one session after the other, and a third connects again and again. A round trip
is from asking for a session to its answer; the reference is its median just before.
"""

import contextlib
import functools
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from benchmarks.flooding import FLOODS, RawMember, Server, idle, start_flood
from benchmarks.measurement import Bound, Measurement
from veilring.errors import FrameError

FRAMES = 100_000
IDLE_CONNECTIONS = 200
SECONDS = 10.0
# The honest member's own rate stays below what a server hears from one.
PAUSE_SECONDS = 0.008
LEAST_TRIPS = 100
CONNECT_PAUSE_SECONDS = 0.6
HONEST, MALICIOUS, NEWCOMER = "submitter-0", "submitter-1", "submitter-2"
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
