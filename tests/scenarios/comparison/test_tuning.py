"""Tuning by a search over parameters, and intervals over splits."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import stats

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.promise import Facts, Promise
from veilring.protocols.radius.system import DataOwner
from veilring.scenarios import make_scenario
from veilring.scenarios.comparison.question import TableFacts, make_question
from veilring.scenarios.comparison.tuning import (
    Interval,
    Search,
    over_splits,
    score_over_splits,
    tune,
)

QUERIES, TRAIN, SPLITS = 50, 150, 20
OVERLAP = QUERIES / TRAIN
PRIVACY = Promise("rows", "others", "nobody", "one row", 1.0, 0.0, "batch", "pure ε-DP")
TRUST = "whom it may concern"


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
    facts = TableFacts("any", 130, 4, 2, False, 100, 30, 20, 1, "")
    found = score_over_splits([1.0, 1.0], facts, 20)
    assert found.high == found.mean == 1.0
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 40, 1))
    assert score_over_splits([0.1, 0.9], facts, 20) == Interval(0.5, 0.0, 1.0)
    assert score_over_splits([-0.9, -0.1], replace(facts, target="a number"), 20).low < -1
