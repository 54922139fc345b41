"""The table of attacks: its rows agree with each other and with what is known."""

import numpy as np
import pytest

from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.attacks import Setting, UniformPrior, attack_table

GRID = [
    Setting(n, victim, TopKParameters(k, P0, 0.5, rounds, 0.1, 1.0), UniformPrior(50))
    for n, victim, k, P0, rounds in (
        (4, 0, 3, 1.0, 2),
        (4, 2, 3, 1.0, 2),
        (8, 4, 1, 0.5, 3),
        (5, 4, 5, 0.0, 1),
        (5, 2, 5, 1.0, 1),
    )
]


def test_rows_are_consistent() -> None:
    """Optimal is never below simple, colluders never get less, and promises are kept."""
    rows = attack_table(GRID, trials=1500, simulated=4000, rng=np.random.default_rng(1))
    assert [row.setting for row in rows] == [setting for setting in GRID for _ in range(2)]
    for alone, both in zip(rows[::2], rows[1::2], strict=True):
        assert (alone.coalition, both.coalition) == ("successor", "both neighbours")
        for row in (alone, both):
            assert row.optimal.accuracy >= row.simple.accuracy
            assert row.optimal.gain >= row.simple.gain
            assert row.optimal.accuracy == pytest.approx(row.expected, abs=0.03)
            assert row.optimal.recall <= row.simple.recall
        assert both.optimal.gain >= alone.optimal.gain
        assert both.simple.new <= alone.simple.new
    without_noise, only_noise = rows[7], rows[9]
    assert without_noise.simple == without_noise.optimal
    assert without_noise.simple.precision == 1
    assert only_noise.simple.precision == 0
    assert only_noise.optimal.accuracy == 1
