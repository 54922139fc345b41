"""The benchmark of releases: what it prints, and that a seed prints it again."""

import numpy as np
import pytest
from benchmarks.releases import (
    DELTA,
    TARGETS,
    TRUST,
    Trial,
    at_hand,
    draw_noise,
    format_line,
    header,
    measure_table,
)

from veilring.errors import InputError
from veilring.protocols.release.algorithm.laws import Law, Sensitivity, Trust, plan_noise


def test_a_table_is_measured_in_four_kinds_and_again_by_its_seed() -> None:
    """A line has the accuracy, its error, the target and the statistic of each kind of release."""
    trial = Trial(splits=2)
    found = measure_table("wine", None, trial)
    assert found == measure_table("wine", None, trial)
    assert [each.method for each in found][:3] == ["means centre", "means centre", "means"]
    line = format_line("wine", found, 1.0)
    assert line.startswith("wine")
    assert "(target 87.2) means centre" in line
    assert len(header(1.0).split("pure")) == 3


def test_shipped_tables_need_no_folder_and_others_do() -> None:
    """Four tables are always at hand; others need a folder, and unknown ones are refused."""
    assert at_hand(None) == ["wine", "breast-cancer", "digits", "iris"]
    with pytest.raises(InputError, match="--data"):
        measure_table("car", None, Trial())
    with pytest.raises(InputError, match="allowed: wine"):
        measure_table("cars", None, Trial())
    assert len(TARGETS) == 12


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("trust", TRUST.values())
def test_noise_has_the_deviation_that_decoders_are_told(law: Law, trust: Trust) -> None:
    """The variance of 200,000 draws is that of all parties' shares.

    A relative deviation of 3 % is 9 standard errors for Gaussian noise and 6 for Laplace noise:
    false alarms are rarer than 1e-6.
    """
    row = Sensitivity("l1" if law == "laplace" else "l2", 10_000, 200_000)
    (noise,) = plan_noise(law, 0.5, 0.0 if law == "laplace" else DELTA, trust, [row])
    drawn = draw_noise(noise, np.random.default_rng(0))
    assert drawn.var() == pytest.approx(noise.deviation() ** 2, rel=0.03)
