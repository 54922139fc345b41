"""The simulated TCP beside that of this machine's kernel, over a link that loses packets.

The kernel's connections lead through two network namespaces. A process carries the packets from one
to the other: it delays all of them, and drops segments with data at random, as `tc netem` would,
which many kernels lack. It needs Linux and root. Namespaces and devices vanish with the process.
"""

import ctypes
import fcntl
import heapq
import itertools
import math
import multiprocessing
import os
import select
import socket
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from simpy import Environment

from benchmarks.measurement import Measurement, Skipped, T
from veilring.simulation import Constant, Link, LinkModel, Tcp

_NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_SET_DEVICE: Final = 0x400454CA  # TUNSETIFF
_PLAIN_PACKETS: Final = 0x1001  # IFF_TUN | IFF_NO_PI
_ADDRESSES: Final = ("10.77.0.1", "10.77.0.2")
_PACKET_MAX: Final = 65_536
_MODELLED: Final = 20  # times as many connections as measured, against chance


class Case(NamedTuple):
    """Messages on a few connections, one after the other on each."""

    loss: float
    delay: float
    """One way, in seconds."""
    segments: int
    """The size of a message."""
    messages: int
    connections: int
    window: int = 0
    """Segments that the receiver has room for; 0 for all."""


CASES: Final = (
    Case(0.0, 0.05, 1, 5, 1),
    Case(0.0, 0.05, 30, 1, 5),
    Case(0.0, 0.05, 200, 1, 5),
    Case(0.0, 0.05, 800, 1, 5, window=44),
    Case(0.01, 0.05, 3000, 1, 32),
    Case(0.03, 0.05, 1500, 1, 48),
    Case(0.1, 0.05, 500, 1, 80),
    Case(0.01, 0.1, 1500, 1, 64),
    Case(0.05, 0.05, 1, 100, 60),
    Case(0.05, 0.05, 3, 100, 60),
    Case(0.05, 0.05, 10, 60, 60),
    Case(0.05, 0.05, 100, 10, 60),
)


def measure(*, quick: bool) -> list[Measurement]:
    """Measure the mean time of messages in the simulation, relative to the kernel's Reno.

    Raises:
        Skipped: If there are no network namespaces.
    """
    return [_compare(case) for case in (CASES[:2] if quick else CASES)]


def _compare(case: Case) -> Measurement:
    kernel, model = over_kernel(case), statistics.mean(over_model(case))
    mean = statistics.mean(kernel)
    error = statistics.stdev(kernel) / math.sqrt(len(kernel))
    name = f"TCP: {case.segments} segments, {100 * case.loss:g} % lost, {2e3 * case.delay:g} ms"
    name += f", window {case.window}" if case.window else ""
    detail = f"{model:.4g} s beside {mean:.4g} ± {error:.2g} s"
    return Measurement(name, "x", (model / mean,), detail=detail)


def over_model(case: Case) -> list[float]:
    """Return the seconds of each message over simulated links."""
    window = case.window * Tcp().mss_bytes or Tcp().window_bytes
    model = LinkModel(Constant(case.delay), tcp=Tcp(case.loss, window_bytes=window))
    seconds = []
    for seed in range(_MODELLED * case.connections):
        environment = Environment()
        link = Link(environment, model, partial(np.random.default_rng, seed))
        for _ in range(case.messages):
            start = environment.now
            environment.run(link.send(case.segments * Tcp().mss_bytes))
            seconds.append(environment.now - start)
            environment.run(environment.timeout(case.delay))
    return seconds


def over_kernel(case: Case) -> list[float]:
    """Return the seconds of each message over this machine's TCP."""
    count, clamp = case.connections, case.window * Tcp().mss_bytes
    device, sending = _in_new_network(_ADDRESSES[0], lambda: [_socket() for _ in range(count)])
    other, listening = _in_new_network(
        _ADDRESSES[1], lambda: [_listen(clamp) for _ in range(count)]
    )
    seconds: list[float] = []
    exchanges = [
        threading.Thread(target=_exchange, args=(*ends, case, seconds))
        for ends in zip(sending, listening, strict=True)
    ]
    with _carried((device, other), case):
        for exchange in exchanges:
            exchange.start()
        for exchange in exchanges:
            exchange.join()
    return seconds


def _socket() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _listen(clamp: int) -> socket.socket:
    made = _socket()
    if clamp:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, clamp)
    made.bind((_ADDRESSES[1], 0))
    made.listen()
    return made


def _exchange(
    sender: socket.socket, listener: socket.socket, case: Case, seconds: list[float]
) -> None:
    """Send the messages of a connection, each as soon as the one before was answered."""
    _come_first()
    size = case.segments * Tcp().mss_bytes
    sender.connect(listener.getsockname())
    receiver, _ = listener.accept()
    with sender, receiver, listener:
        for _ in range(case.messages):
            start = time.monotonic()
            sending = threading.Thread(target=sender.sendall, args=(bytes(size),))
            sending.start()
            left = size
            while left:
                left -= len(receiver.recv(_PACKET_MAX))
            seconds.append(time.monotonic() - start)
            sending.join()
            receiver.sendall(b"!")
            sender.recv(1)


def _in_new_network(address: str, make: Callable[[], T]) -> tuple[int, T]:
    """Return the device of a new network namespace, and what was made in it."""
    made: list[tuple[int, T]] = []

    def enter() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
            return
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _SET_DEVICE, struct.pack("16sH22x", b"tun0", _PLAIN_PACKETS))
        for words in (f"addr add {address}/24 dev tun0", "link set tun0 up txqueuelen 10000"):
            subprocess.run(["/usr/sbin/ip", *words.split()], check=True)
        made.append((device, make()))

    # A thread of its own enters the namespace, and the rest of the process stays where it is.
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if not made:
        raise Skipped("there are no network namespaces: it needs Linux, root and a TUN device")
    return made[0]


@contextmanager
def _carried(devices: tuple[int, int], case: Case) -> Iterator[None]:
    """Carry packets between two devices meanwhile, in a process of its own."""
    carrier = multiprocessing.get_context("fork").Process(target=_carry, args=(devices, case))
    carrier.start()
    try:
        yield
    finally:
        carrier.terminate()
        carrier.join()
        for device in devices:
            os.close(device)


def _carry(devices: tuple[int, int], case: Case) -> None:
    _come_first()
    rng, numbers = np.random.default_rng(case.connections), itertools.count()
    waiting: list[tuple[float, int, int, bytes]] = []
    while True:
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(waiting)
            os.write(device, packet)
        until = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for device in select.select(devices, [], [], until)[0]:
            packet = os.read(device, _PACKET_MAX)
            is_forth = device == devices[0]
            if is_forth and _has_data(packet) and rng.random() < case.loss:
                continue
            due = time.monotonic() + case.delay
            heapq.heappush(waiting, (due, next(numbers), devices[is_forth], packet))


def _come_first() -> None:
    """Let no other process on this machine delay what this thread does."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _has_data(packet: bytes) -> bool:
    """Say whether a packet is a TCP segment with data."""
    if packet[0] >> 4 != 4:
        return False
    header = (packet[0] & 15) * 4
    return len(packet) > header + (packet[header + 12] >> 4) * 4
