"""The decision of a comparison: the lines as good as the best one, and which of them to use."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.protocols.promise import Estimate, Leakage, Promise
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios.comparison.decision import CANNOT, ERRORS, RULE, Decision, Trust, decide
from veilring.scenarios.comparison.lines import MAJORITY, POOLED, Key, Line, Played
from veilring.scenarios.comparison.tuning import over_splits

QUERIES, TRAIN, SPLITS = 50, 150, 20
OVERLAP = QUERIES / TRAIN
PRIVACY = Promise("rows", "others", "nobody", "one row", 1.0, 0.0, "batch", "pure ε-DP")
TRUST = "the ministry"
TOLERANCE = 0.02


def line(
    system: str, accuracy: float, pooled: float = 0.95, *, spread: float = 0.004, **given: Any
) -> Line:
    """Return a line whose accuracies alternate around a mean from one split to the next."""
    return line_of(system, accuracy + spread * np.resize([-1.0, 1.0], SPLITS), pooled, **given)


def line_of(
    system: str,
    own: Floats,
    pooled: float = 0.95,
    *,
    majority: float = 0.4,
    form: str = "",
    leak: float | None = None,
    size: int = 1000,
    private: bool = True,
    **given: Any,
) -> Line:
    """Return a line with an accuracy for each split."""
    estimate = Estimate(leak or 0.0, 0.01 if leak else 0.0)
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
        guarantee="a guarantee",
        privacy=PRIVACY if private else None,
        leakage=None
        if leak is None
        else Leakage(100, dict.fromkeys(PrivateKNN.measures, estimate)),
        cost=Played(1, 1, size, 0, 0, 0.1, 0.1) if private else None,
        **found,
    )


def _decide(*lines: Line, pooled: float = 0.95, majority: float = 0.4) -> Decision:
    """Return the decision among lines and the two baselines."""
    baselines = (
        line(system, share, pooled, majority=majority, private=False)
        for system, share in ((POOLED, pooled), (MAJORITY, majority))
    )
    return decide((*baselines, *lines), TOLERANCE)


SEARCH = line("search", 0.95, leak=0.0, spread=0.0)
LASTING = {
    epsilon: line("release", accuracy, epsilon=epsilon, lasting=True)
    for epsilon, accuracy in ((0.5, 0.8), (1.0, 0.94), (2.0, 0.945))
}
BATCH = line("votes", 0.95, epsilon=0.5)
OWNED = line("owner", 0.95, epsilon=0.5, trusted=True, lasting=True)


def test_the_line_with_the_least_trust_is_used_then_the_least_epsilon() -> None:
    """Without it, an ε for each batch is next, then a search without an ε, then a trusted party."""
    given = [*LASTING.values(), BATCH, SEARCH, OWNED]
    for trust, key in (
        (Trust.LASTING, ("release", "", 1.0)),
        (Trust.BATCH, ("votes", "", 0.5)),
        (Trust.NO_EPSILON, ("search", "", None)),
        (Trust.OWNER, ("owner", "", 0.5)),
    ):
        decision = _decide(*given)
        assert decision.pick is not None
        assert (decision.key, decision.pick.trust) == (key, trust)
        given = [each for each in given if each.system != key[0]]


def test_delta_and_bytes_decide_between_lines_of_equal_trust_and_epsilon() -> None:
    """The least δ comes before the fewest bytes; equally good accuracies decide nothing."""
    one, other = line("one", 0.945, epsilon=1.0), line("other", 0.95, epsilon=1.0)
    assert _decide(one, other).key == _decide(other, one).key == one.key
    small = line("small", 0.945, epsilon=1.0, size=10)
    assert _decide(small, other).key == small.key
    assert small.privacy is not None
    small = replace(small, privacy=replace(small.privacy, delta=1e-5))
    assert _decide(small, other).key == other.key


def test_a_line_is_compared_with_the_best_one_split_by_split() -> None:
    """It is as good, worse or open as `ERRORS` standard errors of the mean difference show."""
    reach = ERRORS * 0.03 * (SPLITS / (SPLITS - 1)) ** 0.5 / SPLITS**0.5
    for behind, verdict in (
        (TOLERANCE - reach - 1e-4, "as good"),
        (TOLERANCE - reach + 1e-4, "open"),
        (TOLERANCE + reach - 1e-4, "open"),
        (TOLERANCE + reach + 1e-4, "worse"),
    ):
        other = line("votes", 0.95 - behind, epsilon=1.0, spread=0.03)
        decision = _decide(SEARCH, other)
        (standing,) = (each for each in decision.standings if each.key == other.key)
        assert standing.verdict == verdict
        assert standing.behind == pytest.approx((behind, behind - reach, behind + reach))


def test_noise_that_lines_share_does_not_blur_their_difference() -> None:
    """Two lines that vary alike from split to split are compared without that variation."""
    best = line("search", 0.95, leak=0.0, spread=0.2)
    decision = _decide(best, line("votes", 0.94, epsilon=1.0, spread=0.2))
    assert decision.key == ("votes", "", 1.0)


def test_no_line_is_used_if_the_best_is_not_above_the_majority_class() -> None:
    """The tolerance is at most half of the gain, so that a pick is above it as well."""
    poor = line("votes", 0.401, 0.41, epsilon=1.0, spread=0.05)
    decision = _decide(poor, pooled=0.41)
    assert decision.key is None
    assert decision.says[0].startswith("Nothing here clearly beats the majority class")
    assert "40.0%" in decision.says[0]
    assert "A larger ε, more rows or other columns" in decision.says[0]
    same = _decide(line("votes", 1.0, 1.0, epsilon=1.0, spread=0.0, majority=1.0), majority=1.0)
    assert "All queries have the same class; rows of other classes" in same.says[0]
    assert _decide().key is None
    best, close = (
        line("search", 0.42, 0.42, leak=0.0, spread=0.0),
        line("v", 0.405, 0.42, epsilon=1),
    )
    assert _decide(best, close, pooled=0.42).tolerance == pytest.approx(0.01)
    assert _decide(best, close, pooled=0.42).key == best.key


def test_a_system_whose_leakage_may_be_half_does_not_count() -> None:
    """The limit applies to the upper end of the interval of the estimate."""
    ring = line("ring", 0.95, leak=0.1)
    decision = _decide(ring, OWNED)
    assert decision.key == ring.key
    assert "10.0% of the messages" in decision.says[0]
    assert "do not reveal their owners" in _decide(SEARCH).says[0]
    for leak in (0.49, 0.6):
        decision = _decide(line("ring", 0.95, leak=leak), OWNED)
        assert decision.key == OWNED.key
        assert decision.verdict(line("ring", 0.95, leak=leak)) == ""


def test_open_lines_that_would_be_preferred_are_named() -> None:
    """It says how far behind they are, what they cost at most, and how many splits would decide."""
    near = line("release", 0.934, epsilon=1.0, lasting=True, spread=0.01)
    decision = _decide(SEARCH, near)
    assert decision.key == SEARCH.key
    assert [each.key for each in decision.open] == [near.key]
    assert decision.verdict(near) == "open"
    assert decision.verdict(SEARCH) == "use"
    (said,) = (words for words in decision.says if "may do as well" in words)
    assert "after 20 splits, too few to tell: RELEASE, ε = 1 (1.1 to 2.1)" in said
    assert "at most 2.1 points" in said
    assert "--seeds 35 would probably decide" in said
    at = line("release", 0.93, epsilon=1.0, lasting=True, spread=0.01)
    assert any("do not decide" in words for words in _decide(SEARCH, at).says)
    behind = line("z-owner", 0.93, epsilon=1.0, trusted=True, spread=0.01)
    assert not _decide(SEARCH, behind).open


def test_the_decision_says_what_more_trust_or_rows_would_add() -> None:
    """It compares the best line of each other trust, and scales rows to a smaller ε."""
    says = _decide(*LASTING.values(), BATCH, SEARCH, OWNED).says
    assert says[0].startswith(f"Use RELEASE, ε = 1 (trusted: {TRUST}): 94.0%")
    assert "one release in ten is below 93.6%" in says[0]
    assert "0.8 to 1.2 points below the 95.0% of all rows in one place" in says[0]
    text = " ".join(says)
    assert "The best line without an ε, SEARCH, is 0.8 to 1.2 points above the line to use." in text
    assert "The best line with a party that sees all rows, OWNER, ε = 0.5, is 1.0 points" in text
    assert "With about 2 times the rows, ε = 0.5 would do what ε = 1 does here." in text
    says = _decide(BATCH, LASTING[0.5]).says
    assert any(
        "for any number of queries under one ε, RELEASE, ε = 0.5 has 80.0%" in s for s in says
    )


def _allowed(decision: Decision) -> set[Key | None]:
    return {decision.key, *(each.key for each in decision.open)}


def test_comparisons_with_other_splits_do_not_contradict_each_other() -> None:
    """Of 40 simulated comparisons of a table, each pick is another's pick, or open there.

    Each draws 20 of the same 100 splits. The lines are behind by 0, 1, 1.8, 2.5 and 12 points.
    """
    rng = np.random.default_rng(5)
    shared = 0.02 * rng.normal(size=100)
    accuracies = {
        epsilon: 0.95 - behind + shared + 0.015 * rng.normal(size=100)
        for epsilon, behind in ((0.25, 0.12), (0.5, 0.025), (1.0, 0.018), (2.0, 0.01), (4.0, 0.0))
    }
    decisions = []
    for _ in range(40):
        drawn = rng.choice(100, SPLITS, replace=False)
        lines = [
            line_of("release", own[drawn], epsilon=epsilon, lasting=True)
            for epsilon, own in accuracies.items()
        ]
        decisions.append(_decide(*lines))
    assert all(decision.key is not None for decision in decisions)
    assert {decision.key for decision in decisions} <= {("release", "", e) for e in (1.0, 2.0, 4.0)}
    for one, other in combinations(decisions, 2):
        assert other.key in _allowed(one) or one.key in _allowed(other)


def test_different_adjacencies_are_named_with_their_systems() -> None:
    """An ε for an added row is not one for any two rows; a single adjacency is not mentioned."""
    client = replace(PRIVACY, adjacency="any two rows of one client")
    clients = [replace(BATCH, system="ldp", name="LDP", privacy=client, epsilon=e) for e in (1, 2)]
    said = _decide(*LASTING.values(), *clients).cannot
    assert said.startswith(CANNOT)
    assert "one row (RELEASE), any two rows of one client (LDP). " in said
    assert _decide(*LASTING.values(), BATCH).cannot == CANNOT


def test_the_rule_and_what_cannot_be_compared_are_written_down() -> None:
    """A leak is not an ε, guarantees have units, a δ is not zero; the rule has its numbers."""
    assert _decide(SEARCH).cannot == CANNOT
    for word in ("a measured leak", "report", "stream", "batch", "δ"):
        assert word in CANNOT
    for step, number in ((0, "50.0%"), (1, "2.3 standard errors")):
        assert number in RULE[step]
