"""The benchmark of releases: its output, and reproducibility by seed."""

import pytest
from benchmarks.releases import TARGETS, Trial, at_hand, format_line, header, measure_table

from veilring.errors import InputError


def test_a_table_is_measured_in_four_kinds_reproducibly() -> None:
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
    """Four tables are included; others need a folder, and unknown ones are refused."""
    assert at_hand(None) == ["wine", "breast-cancer", "digits", "iris"]
    with pytest.raises(InputError, match="--data"):
        measure_table("car", None, Trial())
    with pytest.raises(InputError, match="allowed: wine"):
        measure_table("cars", None, Trial())
    assert len(TARGETS) == 12
