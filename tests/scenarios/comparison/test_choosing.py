"""The recommendation rule, each step tested on artificial lines."""

from typing import Any

import numpy as np
import pytest

from veilring.protocols.promise import Estimate, Leakage, Promise
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios.comparison import Choice, Line
from veilring.scenarios.comparison.comparison import (
    CANNOT,
    MAJORITY,
    POOLED,
    RULE,
    SHARE_MIN,
    Played,
    choose,
)
from veilring.scenarios.comparison.tuning import over_splits

QUERIES, TRAIN, SPLITS = 50, 150, 20
OVERLAP = QUERIES / TRAIN
PRIVACY = Promise("rows", "others", "nobody", "one row", 1.0, 0.0, "batch", "pure ε-DP")
TRUST = "whom it may concern"


def line(  # noqa: PLR0913  (the settings of a line)
    system: str,
    accuracy: float,
    pooled: float = 0.95,
    majority: float = 0.4,
    *,
    form: str = "",
    leak: float | None = None,
    size: int = 1000,
    private: bool = True,
    spread: float = 0.02,
    **given: Any,
) -> Line:
    """Return a line whose accuracies alternate around a mean from one split to the next."""
    estimate = Estimate(leak or 0.0, 0.01 if leak else 0.0)
    own = accuracy + spread * np.resize([-1.0, 1.0], SPLITS)
    found: dict[str, Any] = {"epsilon": None, "trusted": False, "lasting": False, **given}
    for mean, each, values in (
        ("accuracy", "accuracies", own),
        ("loss", "losses", pooled - own),
        ("gain", "gains", own - majority),
    ):
        found |= {mean: over_splits(values.tolist(), OVERLAP), each: tuple(values.tolist())}
    return Line(
        system=system,
        name=f"{system.upper()}, {form}" if form else system.upper(),
        form=form,
        queries=QUERIES,
        overlap=OVERLAP,
        trust=TRUST,
        guarantee="what it may be",
        privacy=PRIVACY if private else None,
        leakage=None
        if leak is None
        else Leakage(100, dict.fromkeys(PrivateKNN.measures, estimate)),
        cost=Played(1, 1, size, 0, 0, 0.1, 0.1) if private else None,
        **found,
    )


def _choose(*lines: Line, pooled: float = 0.95, majority: float = 0.4) -> Choice:
    """Return the choice among lines and the two baselines of their systems."""
    baselines = (
        line(system, share, pooled, majority, private=False)
        for system, share in ((POOLED, pooled), (MAJORITY, majority))
    )
    return choose((*baselines, *lines), np.random.default_rng(1))


RING = line("ring", 0.95, leak=0.1)
FAR = line("votes", 0.6, epsilon=2.0)
OWNED = line("owner", 0.92, epsilon=1.0, trusted=True)


def test_first_is_the_smallest_epsilon_that_is_close() -> None:
    """A smaller ε that falls behind and a larger ε that does not are both passed over."""
    lines = [line("votes", a, epsilon=e) for e, a in ((0.5, 0.7), (1.0, 0.91), (2.0, 0.94))]
    choice = _choose(RING, *lines, line("owner", 0.95, epsilon=0.5, trusted=True))
    assert (choice.system, choice.epsilon) == ("votes", 1.0)
    assert all(words in choice.says for words in ("VOTES, ε = 1", "91.0%", TRUST))


def test_of_equal_epsilon_is_the_one_that_lasts_then_the_more_accurate_then_the_smaller() -> None:
    """An ε for any number of queries is preferred; bytes decide between equal accuracies only."""
    one, other = line("one", 0.92, epsilon=1.0), line("other", 0.93, epsilon=1.0, size=9000)
    assert _choose(one, other).system == "other"
    assert _choose(one, line("small", 0.92, epsilon=1.0, size=10)).system == "small"
    lasting = _choose(line("once", 0.92, epsilon=1.0, lasting=True), other)
    assert lasting.system == "once"
    assert "any number of queries" in lasting.says


def test_first_is_not_beaten_at_a_smaller_epsilon() -> None:
    """A line with the same trust, a smaller ε and a higher accuracy rules out a recommendation.

    That line is not recommended on its own, because its accuracy varies between splits.
    """
    calm = line("calm", 0.93, majority=0.8, epsilon=1.0)
    for trusted, system in ((False, None), (True, "calm")):
        wild = line("wild", 0.95, majority=0.8, epsilon=0.5, spread=0.9, trusted=trusted)
        assert _choose(wild, calm, majority=0.8).system == system


def test_first_is_corrected_for_the_number_of_lines() -> None:
    """A gain that is significant for one line is not significant for the best of fifty."""
    lucky = line("lucky", 0.44, 0.45, epsilon=1.0)
    others = [line(f"n{n}", 0.3, 0.45, epsilon=2.0) for n in range(49)]
    assert lucky.gain.low > 0
    assert _choose(lucky, pooled=0.45).system == "lucky"
    assert _choose(lucky, *others, pooled=0.45).system is None


def test_without_a_close_epsilon_the_least_leakage_is_next() -> None:
    """The ring is recommended with its leakage, and a search that leaks totals only before it."""
    choice = _choose(RING, FAR, OWNED)
    assert (choice.system, choice.epsilon) == ("ring", None)
    assert "10.0% of the messages" in choice.says
    choice = _choose(RING, line("search", 0.95, leak=0.0), FAR, OWNED)
    assert choice.system == "search"
    assert "do not reveal their owners" in choice.says


@pytest.mark.parametrize("leak", [0.49, 0.6])
def test_a_trusted_party_is_next_if_the_ring_leaks_much(leak: float) -> None:
    """The limit of one half applies to the upper end of the estimate's interval."""
    choice = _choose(line("ring", 0.95, leak=leak), FAR, OWNED)
    assert (choice.system, choice.epsilon) == ("owner", 1.0)
    assert "if all parties trust one party" in choice.says


def test_none_is_chosen_if_none_is_close_or_all_are_at_the_majority() -> None:
    """None is if all fall behind, or the pooled rows or a line close to them gain too little."""
    choice = _choose(FAR, line("owner", 0.7, epsilon=2.0, trusted=True))
    assert (choice.system, choice.epsilon) == (None, None)
    assert choice.says.startswith("None of the private systems is useful here")
    assert "95.0%" in choice.says
    ring, votes = line("ring", 0.41, 0.41, leak=0.1), line("votes", 0.4, 0.41, epsilon=1.0)
    choice = _choose(ring, votes, pooled=0.41)
    assert choice.system is None
    assert "not significantly different from the 40.0%" in choice.says
    poor = line("votes", 0.43, 0.44, 0.43, epsilon=1.0)
    assert _choose(poor, pooled=0.44, majority=0.43).system is None


def test_resamples_agree_if_nothing_is_close_to_a_limit() -> None:
    """Their fraction is in the sentence, and two forms of a system at one ε count together."""
    choice = _choose(line("votes", 0.93, epsilon=1.0))
    assert choice.share == 1.0
    assert "100.0% of 1,000 resamples" in choice.says
    other = line("once", 0.9301, epsilon=1.0, spread=0.03)
    choice = _choose(line("once", 0.93, epsilon=1.0, form="pure"), other)
    assert (choice.system, choice.epsilon, choice.share) == ("once", 1.0, 1.0)
    assert len(choice.shares) == 2


@pytest.mark.parametrize("accuracy", [0.901, 0.899])
def test_a_choice_is_undecided_at_the_limit(accuracy: float) -> None:
    """A line barely close here is not in many resamples, which depend on the generator only."""
    lines = line("votes", accuracy, epsilon=1.0), line("votes", 0.94, epsilon=2.0)
    choice = _choose(*lines)
    assert choice.system is None
    assert choice.share < SHARE_MIN
    assert "inconclusive" in choice.says
    assert {name for name, _ in choice.shares} == {"VOTES, ε = 1", "VOTES, ε = 2"}
    assert sum(share for _, share in choice.shares) == pytest.approx(1.0)
    assert _choose(*lines).shares == choice.shares


def test_the_gain_from_a_trusted_party_is_stated() -> None:
    """The best lines with and without one are compared at the largest ε."""
    lines = [RING, line("votes", 0.5, epsilon=1.0), FAR]
    said = _choose(*lines, line("owner", 0.9, epsilon=2.0, trusted=True)).owner
    assert "30.0 points at ε = 2" in said
    assert "and VOTES, the best system without such a party, has 60.0%" in said
    poor = line("owner", 0.55, epsilon=2.0, trusted=True)
    assert "would gain nothing" in _choose(*lines, poor).owner
    assert "No system" in _choose(RING).owner


def test_the_rule_and_what_cannot_be_compared_are_written_down() -> None:
    """A leak is not an ε, guarantees have units, a δ is not zero; the rule has its numbers."""
    assert _choose(RING).cannot == CANNOT
    for word in ("a measured leak", "report", "stream", "batch", "δ"):
        assert word in CANNOT
    for step, number in ((0, "5 points"), (2, "50.0%"), (4, "90%")):
        assert number in RULE[step]
