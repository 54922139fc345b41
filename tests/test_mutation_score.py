"""The mutation score is estimated without bias from a sample that its seed determines."""

import itertools
import json
import runpy
from pathlib import Path
from statistics import fmean, pvariance
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SCRIPT: Final = runpy.run_path(str(ROOT / ".ci/mutation.py"))


@pytest.mark.parametrize(("noticed", "sampled"), [(5, 2), (5, 3), (1, 4), (7, 6)])
def test_the_standard_error_is_unbiased(noticed: int, sampled: int) -> None:
    """Its square is, on average over all samples of seven changes, the variance of their shares."""
    changes = [True] * noticed + [False] * (7 - noticed)
    samples = [sum(each) for each in itertools.combinations(changes, sampled)]
    errors = [SCRIPT["standard_error"](each, sampled, len(changes)) for each in samples]
    shares = [each / sampled for each in samples]
    assert fmean(error**2 for error in errors) == pytest.approx(pvariance(shares), abs=1e-12)


def test_a_sample_of_all_changes_has_no_error() -> None:
    """The score of all changes is exact."""
    assert SCRIPT["standard_error"](5, 7, 7) == 0


def test_the_seed_determines_the_sample() -> None:
    """Equal seeds draw equal samples from any order of the changes, and no change twice."""
    changes = [f"change {number}" for number in range(50)]
    drawn = SCRIPT["draw"](changes, 20, 7)
    assert drawn == SCRIPT["draw"](changes[::-1], 20, 7)
    assert drawn != SCRIPT["draw"](changes, 20, 8)
    assert len(set(drawn)) == 20
    assert set(SCRIPT["draw"](changes, 99, 7)) == set(changes)


def test_hangs_and_crashes_are_noticed() -> None:
    """A change without tests counts against the score, and one that hangs or crashes for it."""
    name = "veilring.privacy.bounds.x_part__mutmut_"
    statuses = ("killed", "timeout", "segfault", "survived", "no tests", "suspicious")
    results = {f"{name}{number}": status for number, status in enumerate(statuses)}
    counts = {"sampled": 6, "noticed": 3}
    assert SCRIPT["score"](results, 9) == {"changes": 9, **counts, "modules": {"bounds": counts}}


def test_the_record_adds_up() -> None:
    """The counts of the modules in `.ci/mutation.json` add up to those of the package."""
    record = json.loads((ROOT / ".ci/mutation.json").read_text(encoding="utf-8"))
    for key in ("sampled", "noticed"):
        assert record[key] == sum(module[key] for module in record["modules"].values())
