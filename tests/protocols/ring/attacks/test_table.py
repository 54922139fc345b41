"""The table of attacks: its rows agree with each other and with known facts."""

import numpy as np
import pytest
from tests.protocols.ring.worlds import hoeffding

from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.attacks.posterior import Setting, attack_table
from veilring.protocols.ring.attacks.views import UniformPrior

FALSE_ALARM = 1e-6
TRIALS = 1500

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


@pytest.mark.slow
def test_the_rows_of_the_table_agree_with_each_other() -> None:
    """The optimal attack is never worse than the simple one, nor two neighbours worse than one.

    The accuracy also matches what the posterior states. Relations that hold in expectation hold in
    the sample within Hoeffding's bound (false alarm 1e-6); a successor's simulated posterior is
    allowed another 0.03.
    """
    rows = attack_table(GRID, trials=TRIALS, simulated=4000, rng=np.random.default_rng(1))
    assert [row.setting for row in rows] == [setting for setting in GRID for _ in range(2)]
    for alone, both in zip(rows[::2], rows[1::2], strict=True):
        assert (alone.coalition, both.coalition) == ("successor", "both neighbours")
        parameters = alone.setting.parameters
        most = parameters.rounds * parameters.k  # new entries of a run
        stray = hoeffding(2 * most, TRIALS, FALSE_ALARM / (5 * len(GRID) * 2)) / TRIALS
        for row in (alone, both):
            gained = row.optimal.gain - row.simple.gain
            more = (row.optimal.accuracy - row.simple.accuracy) * row.simple.new
            assert gained == pytest.approx(more)  # unclaimed entries are right or would be wrong
            assert gained >= -stray
            off = abs(row.optimal.accuracy - row.expected) * row.optimal.new
            assert off <= stray + 0.03 * row.optimal.new * (row is alone)
            assert row.optimal.recall <= row.simple.recall
        assert both.optimal.gain - alone.optimal.gain >= -2 * stray
        assert both.simple.new <= alone.simple.new
    without_noise, only_noise = rows[7], rows[9]
    assert without_noise.simple == without_noise.optimal
    assert without_noise.simple.precision == 1
    assert only_noise.simple.precision == 0
    assert only_noise.optimal.accuracy == 1
