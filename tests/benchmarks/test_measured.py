"""Measurements of this machine, and in processes apart."""

import math
import os
import platform

from benchmarks.measurement import apart, describe_machine, peak_mib


def test_a_separate_process_computes_in_one_thread() -> None:
    """Its environment, restored afterwards, sets one thread; peak memory is its own."""
    before = os.environ.get("OMP_NUM_THREADS")
    assert apart(os.getenv, "OMP_NUM_THREADS") == "1"
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert 0 < apart(peak_mib) < peak_mib()
    assert math.isnan(peak_mib(2**22 + 1))


def test_the_machine_is_described_without_its_name() -> None:
    """Cores, kind and Python version are described; the host's name is not."""
    line = describe_machine()
    assert f"{os.cpu_count()} cores" in line
    assert platform.python_version() in line
    assert "\n" not in line
    assert platform.node() not in line.split()
