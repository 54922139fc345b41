"""The audits are audited: a planted mistake is found, and without one nothing is."""

import pytest
from benchmarks.mistakes import (
    MISTAKES,
    Mistake,
    accounted,
    digests_are_compared,
    find,
    planted,
)

QUICK = [mistake for mistake in MISTAKES if mistake.quick]


@pytest.mark.parametrize("mistake", QUICK, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    """By the audit that it is for; `python -m benchmarks --only mistakes` plants all of them."""
    assert find(mistake) is not None


def test_without_a_mistake_nothing_is_found() -> None:
    """The accounts and the sums are right, and a mistake is gone when its block ends."""
    with planted(QUICK[0]):
        pass
    assert accounted() is None
    assert digests_are_compared() is None


def test_each_mistake_has_a_name_and_a_place_of_its_own() -> None:
    """There are thirty at least: of protocols, stores and accounting."""
    assert len(MISTAKES) >= 30
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
