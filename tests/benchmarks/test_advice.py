"""The advice campaign: agreement per line, and continuation from stored results."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.advice import Advice, campaign, format_line

from benchmarks import advice


def _said(seed: int, epsilon: float | None, gain: float | None = 0.3) -> Advice:
    """Return advice for a release at an ε, or advice that cannot decide."""
    if epsilon is None:
        return Advice("wine", seed, None, "", None, 0.5, can_tell=False, seconds=2.0)
    return Advice("wine", seed, "release", "", epsilon, 0.95, can_tell=True, seconds=1.0, gain=gain)


def test_a_line_counts_agreeing_and_undecided_seeds() -> None:
    """Another ε disagrees; the worst gain on fresh splits is in points."""
    line = format_line("wine", [_said(1, 1.0), _said(2, None), _said(3, 1.0, 0.25), _said(4, 0.5)])
    assert line.split()[:4] == ["wine", "3/4", "25.0", "1.0"]
    assert "release 1 (2)" in line
    assert "cannot tell (1)" in line


def test_stored_advice_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the missing seed is measured and added to the file."""
    kept, asked = tmp_path / "advice.jsonl", list[int]()
    kept.write_text(json.dumps(asdict(_said(1, 1.0))) + "\n")

    def advise(name: str, data: Path | None, seed: int, *, workers: int | None) -> Advice:
        assert (name, data, workers) == ("wine", None, None)
        asked.append(seed)
        return _said(seed, 1.0)

    monkeypatch.setattr(advice, "advise", advise)
    _, line = campaign(["wine"], None, 2, kept, None)
    assert asked == [2]
    assert "2/2" in line
    assert len(kept.read_text().splitlines()) == 2
