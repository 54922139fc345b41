"""The audits are audited: a planted mistake is found, and without one nothing is."""

import pytest
from benchmarks.auditing import (
    TWO_SUMS,
    Audit,
    accounted,
    digests_are_compared,
    explored,
    forecast,
    hidden,
    lied,
    noise_is_planned,
    ring_lies,
)
from benchmarks.mistakes import MISTAKES, Mistake, find, planted

QUICK = [mistake for mistake in MISTAKES if mistake.quick]


@pytest.mark.parametrize("mistake", QUICK, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    """By the audit that it is for; `python -m benchmarks --only mistakes` plants all of them."""
    assert find(mistake) is not None


@pytest.mark.parametrize(
    "audit",
    [
        pytest.param(accounted, id="accounts"),
        pytest.param(digests_are_compared, id="digests"),
        pytest.param(forecast(), id="costs"),
        pytest.param(lied(ring_lies), id="lies"),
        *(
            pytest.param(audit, id=name, marks=pytest.mark.slow)
            for name, audit in (
                ("worlds", explored()),
                ("views", hidden(TWO_SUMS)),
                ("noise", noise_is_planned),
            )
        ),
    ],
)
def test_without_a_mistake_nothing_is_found(audit: Audit) -> None:
    """No audit fails on what is right, after a mistake whose block has ended."""
    with planted(QUICK[0]):
        pass
    assert audit() is None


def test_each_mistake_has_a_name_of_its_own() -> None:
    """There are forty at least: of protocols, stores and accounting."""
    assert len(MISTAKES) >= 40
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
