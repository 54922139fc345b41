"""Benchmarks run and return their numbers; no test depends on speed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS

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
