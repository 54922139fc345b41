"""Recommendations by a rule, tuning by a search over parameters, and intervals over splits."""

import tomllib
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import stats

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.promise import Estimate, Facts, Leakage, Promise
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios import make_scenario
from veilring.scenarios.comparison.comparison import (
    CANNOT,
    MAJORITY,
    POOLED,
    RULE,
    SHARE_MIN,
    Choice,
    Line,
    Played,
    choose,
)
from veilring.scenarios.comparison.question import make_question
from veilring.scenarios.comparison.tuning import (
    Interval,
    Search,
    over_splits,
    share_over_splits,
    tune,
)

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
    """This is a search that leaks totals only, then the ring with its leakage, if it is below half.

    Otherwise it is a trusted party. The limit applies to the upper end of the estimate's interval.
    """
    choice = _choose(RING, FAR, OWNED)
    assert (choice.system, choice.epsilon) == ("ring", None)
    assert "10.0% of the messages" in choice.says
    choice = _choose(RING, line("search", 0.95, leak=0.0), FAR, OWNED)
    assert choice.system == "search"
    assert "do not reveal their owners" in choice.says
    for leak in (0.49, 0.6):
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


FACTS = Facts(parties=4, features=4, classes=2, rows=100)
ASKED = {"data": "iris", "parties": 3, "splits": 4, "queries": 10, "seed": 2}
Scores = dict[Any, Sequence[float]]
HALF: Scores = {("auto", 0): (0.5,) * 4}


def _measuring(scores: Scores) -> Mock:
    """Return a function that measures systems by a table of accuracies."""

    def measure(systems: Sequence[Any]) -> list[Floats | None]:
        found = (scores.get((each.radius, each.k), (0.1,) * 4) for each in systems)
        return [np.array(accuracies) if accuracies else None for accuracies in found]

    return Mock(side_effect=measure)


def _search(scores: Scores) -> Search:
    return Search(DataOwner(), FACTS, _measuring(scores))


def test_a_search_finds_the_best_of_each_parameter_in_turn() -> None:
    """A k that is better only at another radius is found after that radius, unless it is set."""
    radius = DataOwner.tunable()["radius"].values(FACTS)[0]
    scale = _measuring(HALF | {(radius, 0): (0.7,) * 4, (radius, 20): (0.9,) * 4})
    search = Search(DataOwner(), FACTS, scale)
    assert search.best().parameters == {"radius": radius, "k": 20}
    assert search.tried[0].mean == 0.9
    asked = [(each.radius, each.k) for call in scale.call_args_list for each in call.args[0]]
    assert len(asked) == len(set(asked))
    assert list(Search(DataOwner(), FACTS, scale, frozenset({"radius"})).values) == ["k"]


def test_a_search_stays_if_a_difference_is_within_its_error() -> None:
    """The best of many equal choices is lucky: a change needs a standard error of gain."""
    better = HALF | {("auto", 20): (0.9, 0.1, 0.9, 0.12)}
    assert _search(better).best().parameters == {}
    surely = better | {("auto", 20): (0.55, 0.51, 0.55, 0.51)}
    assert _search(surely).best().parameters == {"k": 20}


def test_a_search_reports_the_choice_of_the_other_half_of_the_splits() -> None:
    """A choice that is good only on one half is not reported with its lucky accuracy."""
    one, other = (1.0, 0.0, 1.0, 0.0), (0.0, 1.0, 0.0, 1.0)
    search = _search(HALF | {("auto", 20): one, ("auto", 50): other})
    assert search.honest() == (0.0, 0.0, 0.0, 0.0)


def test_a_search_skips_invalid_choices() -> None:
    """A choice without a measurement is never best; an invalid start is refused, and no choice."""
    assert _search(HALF | {("auto", 20): ()}).best().parameters == {}
    with pytest.raises(InputError, match="does not fit the rows"):
        _search({("auto", 0): ()}).best()
    with pytest.raises(InputError, match="radius, k"):
        tune("data-owner", make_question(ASKED), {"k": 0, "radius": 0.2}, workers=1)


def test_tuning_prints_a_table_for_a_scenario() -> None:
    """The pasted table gives the system that was found, with the set parameters."""
    found = tune("ind-knn", make_question(ASKED), {"epsilon": 4.0}, workers=1)
    made = make_scenario({"data": {"source": "iris"}, **tomllib.loads(found.toml)})
    assert made.protocol == found.system
    assert made.protocol.model_dump()["epsilon"] == 4.0
    assert found.tried[0].mean >= found.before.mean
    assert found.accuracy.low <= found.accuracy.mean <= found.accuracy.high
    assert set(found.parameters) <= {"tau", "sigma2"}


@pytest.mark.parametrize("name", ["rank-search", "private-knn", "release", "ldp-bayes"])
def test_every_system_is_tuned(name: str) -> None:
    """The search covers the parameters that each system declares as tunable."""
    assert type(tune(name, make_question(ASKED | {"splits": 2}), workers=1).system).tunable()


@pytest.mark.slow
def test_tuning_is_equal_for_any_number_of_processes() -> None:
    """Results arrive in any order, and are sorted."""
    asked = make_question(ASKED | {"splits": 2})
    one, two = (tune("data-owner", asked, {"k": 0}, workers=count) for count in (1, 2))
    assert one.as_json() == two.as_json()


def test_an_interval_is_students_and_wider_with_overlap_as_published() -> None:
    """For disjoint splits it is SciPy's of a mean; variances grow by (1/J + q/n) / (1/J)."""
    values = np.random.default_rng(1).random(7)
    expected = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    alone, shared = (over_splits(values.tolist(), overlap) for overlap in (0.0, 0.3))
    assert alone.mean == pytest.approx(values.mean())
    assert (alone.low, alone.high) == pytest.approx(expected)
    wider = (shared.high - shared.mean) / (alone.high - alone.mean)
    assert wider == pytest.approx(((1 / 7 + 0.3) / (1 / 7)) ** 0.5)


def test_intervals_of_few_values_are_no_narrower_than_they_may_be() -> None:
    """Equal numbers have no width, equal fractions SciPy's exact interval; others fill [0, 1]."""
    assert over_splits([0.5, 0.5], 0.2) == Interval(0.5, 0.5, 0.5)
    found = share_over_splits([1.0, 1.0], 0.2, 20)
    assert found.high == found.mean == 1.0
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 40, 1))
    assert share_over_splits([0.1, 0.9], 0.2, 20) == Interval(0.5, 0.0, 1.0)
