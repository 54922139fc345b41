"""Deployed parties that are killed at any time: no charge, answer, record or report is lost."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest
from tests.deployment import collector_crashes, member_crashes, owner_crashes, prediction_crashes

pytestmark = pytest.mark.slow
ROUNDS = 4


@pytest.mark.parametrize("program", [owner_crashes, member_crashes, prediction_crashes])
def test_kills_refund_and_double_no_charge(tmp_path: Path, program: ModuleType) -> None:
    """After any kill, each answer has one charge, and repeating it costs nothing.

    Forgotten records stay forgotten.
    """
    seen = asyncio.run(program.crash_rounds(tmp_path / "deployed", ROUNDS, seed=7))
    assert seen.retried >= seen.answered >= ROUNDS  # each round ends with an answer
    if program is not member_crashes:  # whose client may be told in time by the others
        assert seen.interrupted >= ROUNDS
    if program is prediction_crashes:
        assert seen.changed > 0


def test_kills_lose_and_double_no_report(tmp_path: Path) -> None:
    """After any kill, acknowledged reports are stored; in the end each row counts once."""
    seed = None  # when to kill is the point, not the same again
    seen = asyncio.run(collector_crashes.crash_rounds(tmp_path / "deployed", ROUNDS, seed))
    assert seen.kills == ROUNDS
    assert seen.rows >= 12_000
