"""Failing worlds are minimised, and their files fail again."""

import pytest
from benchmarks.mistakes import MISTAKES
from benchmarks.shrinking import FAULTS_MOST, PARTIES_MOST, SHRUNK, make_smaller

NAMES = ("labels of the nearest rows are reversed", "a sum omits late parties")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_failing_world_becomes_small_and_its_file_fails_again(name: str) -> None:
    """It fails only with the mistake; `python -m benchmarks --only shrinking` does all ten."""
    (mistake,) = (each for each in MISTAKES if each.name == name)
    made = make_smaller(mistake)
    assert made.after.parties <= PARTIES_MOST
    assert made.after.faults <= FAULTS_MOST
    assert made.after.faults <= made.before.faults
    assert made.fails_again


def test_each_of_ten_is_a_planted_mistake() -> None:
    """The ten names are in the list of mistakes."""
    assert len(SHRUNK) == 10
    assert SHRUNK.keys() <= {mistake.name for mistake in MISTAKES}
