"""Audits of the audits: a planted mistake is found, and otherwise nothing is."""

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
from benchmarks.strangers import PRIME, collected, handed_in, shared

QUICK = [mistake for mistake in MISTAKES if mistake.quick]


@pytest.mark.parametrize("mistake", QUICK, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    """Its audit finds it; `python -m benchmarks --only mistakes` plants all mistakes."""
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
                ("shares", shared(PRIME)),
                ("pads", handed_in(PRIME)),
                ("numbers", collected()),
            )
        ),
    ],
)
def test_without_a_mistake_nothing_is_found(audit: Audit) -> None:
    """No audit fails on correct code, even after the block of a planted mistake."""
    with planted(QUICK[0]):
        pass
    assert audit() is None


def test_each_mistake_has_a_unique_name() -> None:
    """There are at least forty mistakes, in protocols, stores and accounting."""
    assert len(MISTAKES) >= 40
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
