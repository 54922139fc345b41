"""Randomness in processes that are forked."""

import subprocess
import sys

import pytest

# The child says what it draws from each generator of the parent, and then the parent does.
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
    told = [sys.executable, "-c", _FORK.format(seed=seed)]
    done = subprocess.run(told, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(sys.platform == "win32", reason="no system call forks there")
def test_a_forked_process_has_secrets_of_its_own() -> None:
    """A secret stream goes on with another key in the child; a seeded one is the same."""
    assert len(set(_drawn(None))) == 4
    assert len(set(_drawn(1))) == 2
