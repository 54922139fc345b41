"""Named streams, and randomness in forked processes."""

import hashlib
import sys

import numpy as np
import pytest
from numpy.random import PCG64DXSM, Generator, SeedSequence
from tests.cli.invoking import python

from veilring.randomness import Streams

# The child prints its draws from each generator of the parent, and then the parent does.
_FORK = """
import os
from veilring.randomness import Streams

streams = Streams({seed})
generators = [streams.generator("x", number) for number in range(2)]
[generator.bytes(3) for generator in generators]
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*(generator.bytes(16).hex() for generator in generators), flush=True)
"""


def _drawn(seed: int | None) -> list[str]:
    """Return the draws of a process and of its fork, from each of their generators."""
    return python("-c", _FORK.format(seed=seed)).stdout.split()


@pytest.mark.skipif(sys.platform == "win32", reason="no system call forks there")
def test_a_forked_process_has_its_own_secrets() -> None:
    """A secret stream continues with another key in the child; a seeded one is equal."""
    assert len(set(_drawn(None))) == 4
    assert len(set(_drawn(1))) == 2


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1, 2**128 - 1, 2**128, 2**200 + 7])
def test_a_stream_is_spawned_from_the_seed_by_its_name(seed: int) -> None:
    """A stream is a child of NumPy's seed sequence, with the hash of its name as the spawn key."""
    name = b"\0\0\0\x04link" + b"\0\0\0\x0212"
    key = np.frombuffer(hashlib.sha256(name).digest(), dtype="<u4").tolist()
    child = Generator(PCG64DXSM(SeedSequence(seed, spawn_key=key)))
    stream = Streams(seed).generator("link", 12)
    assert stream.bytes(64) == child.bytes(64)
    assert stream.spawn(2)[1].bytes(64) == child.spawn(2)[1].bytes(64)
