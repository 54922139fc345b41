"""Measurements in processes apart: of a benchmark, a collection, and of this machine."""

import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.collecting import Drive, drive_collection
from benchmarks.measurement import apart, describe_machine, peak_mib
from tests.deployment.commands import SECONDS


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


_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_quick_benchmark_writes_its_numbers(tmp_path: Path) -> None:
    """A single benchmark prints its table, and its file has ratios with their spread."""
    output = tmp_path / "results.json"
    options = ("--quick", "--only", "simulated", "--output", str(output))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    document = json.loads(output.read_text(encoding="utf-8"))
    assert document["quick"] is True
    assert list(document["results"]) == ["simulated"]
    for measured in document["results"]["simulated"]:
        assert measured["name"] in done.stdout
        assert measured["unit"] == "x"
        assert 0 < measured["min"] <= measured["median"] <= measured["max"]
        assert len(measured["values"]) == 3
        assert measured["verdict"] in {"held", "missed"}


@pytest.mark.slow
def test_every_report_of_a_driven_collection_is_durable() -> None:
    """One collector stores a survey client's reports over TLS; bytes and memory include both."""
    seen = list[int]()

    def spent(process: int) -> float:
        seen.append(process)
        return 10.0 * len(seen)

    found = drive_collection(200, Drive(survey_clients=1, at_once=64, spent=spent))
    assert found.reports == 200
    assert found.seconds > 0
    # An id of 16 bytes each, and its report.
    assert found.wire_bytes > 200 * 16 < found.disk_bytes
    assert found.mib > 10
    assert found.spent == 10.0
    assert seen[0] == seen[1] != os.getpid()
