"""Ports reserved by tests."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.ports import PORTS_MAX, reserve_ports

from veilring.errors import InputError
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK

# Says which ports it has, and keeps them until it may end.
_RESERVE = """
from benchmarks.ports import reserve_ports

print(*(first + each for count in (1, 9, 3, 3, 4, 1) for first in [reserve_ports(count)]
        for each in range(count)), flush=True)
input()
"""


def test_no_two_processes_get_the_same_port() -> None:
    """Processes that reserve ports at the same time have none in common."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _RESERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(3)
    ]
    lines = [process.stdout.readline() for process in started if process.stdout is not None]
    for process in started:
        process.communicate(b"\n")
    ports = [int(port) for line in lines for port in line.split()]
    assert len(ports) == len(set(ports)) == 3 * 21


def test_a_used_port_is_not_given() -> None:
    """Consecutive ports are all free, even if another program listens between."""
    before = reserve_ports(PORTS_MAX)
    with bind(LOOPBACK, before + PORTS_MAX + 3):  # in the ten after these, if they are free
        first = reserve_ports(PORTS_MAX)
        for port in range(first, first + PORTS_MAX):
            bind(LOOPBACK, port).close()


@pytest.mark.parametrize("count", [0, PORTS_MAX + 1])
def test_more_ports_than_a_block_has_are_refused(count: int) -> None:
    """An impossible number of consecutive ports, and zero ports, are errors."""
    with pytest.raises(InputError, match="1 to 9 ports"):
        reserve_ports(count)
