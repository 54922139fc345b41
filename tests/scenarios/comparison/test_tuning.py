"""The search over parameters, and tuning on public rows."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.promise import Facts
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import System
from veilring.scenarios import make_scenario
from veilring.scenarios.comparison import make_question
from veilring.scenarios.comparison.tuning import Search, tune

FACTS = Facts(parties=4, features=4, classes=2, rows=100)
ASKED = {"data": "iris", "parties": 3, "splits": 4, "queries": 10, "seed": 2}


_Scores = Mapping[Any, Sequence[float]]


class _Scale:
    """Measures systems by a table of accuracies, and counts the calls for each."""

    def __init__(self, scores: _Scores) -> None:
        self.scores = scores
        self.asked: list[tuple[object, object]] = []

    def __call__(self, systems: Sequence[System]) -> list[Floats | None]:
        found: list[Floats | None] = []
        for system in systems:
            assert isinstance(system, DataOwner)
            key = system.radius, system.k
            self.asked.append(key)
            scores = self.scores.get(key, (0.1, 0.1, 0.1, 0.1))
            found.append(np.array(scores) if scores else None)
        return found


def _search(scores: _Scores) -> tuple[Search, _Scale]:
    scale = _Scale(scores)
    return Search(DataOwner(), FACTS, scale), scale


class TestSearch:
    """The search varies one parameter after the other."""

    def test_finds_the_best_of_each_parameter_in_turn(self) -> None:
        """A k that is better only at another radius is found after that radius."""
        radius = DataOwner.tunable()["radius"].values(FACTS)[0]
        search, scale = _search(
            {
                ("auto", 0): (0.5, 0.5, 0.5, 0.5),
                (radius, 0): (0.7, 0.7, 0.7, 0.7),
                (radius, 20): (0.9, 0.9, 0.9, 0.9),
            }
        )
        assert search.best().parameters == {"radius": radius, "k": 20}
        assert search.tried[0].mean == 0.9
        assert len(scale.asked) == len(set(scale.asked))

    def test_stays_if_a_difference_is_within_its_error(self) -> None:
        """The best of many equal choices is lucky: a change needs a standard error of gain."""
        better = {("auto", 20): (0.9, 0.1, 0.9, 0.12), ("auto", 0): (0.5, 0.5, 0.5, 0.5)}
        assert _search(better)[0].best().parameters == {}
        surely = better | {("auto", 20): (0.55, 0.51, 0.55, 0.51)}
        assert _search(surely)[0].best().parameters == {"k": 20}

    def test_reports_the_choice_of_the_other_half_of_the_splits(self) -> None:
        """A choice that is good only on one half is not reported with its lucky accuracy."""
        search, _ = _search(
            {
                ("auto", 0): (0.5, 0.5, 0.5, 0.5),
                ("auto", 20): (1.0, 0.0, 1.0, 0.0),
                ("auto", 50): (0.0, 1.0, 0.0, 1.0),
            }
        )
        assert search.honest() == (0.0, 0.0, 0.0, 0.0)

    def test_skips_invalid_choices(self) -> None:
        """A choice without a measurement is never the best; an invalid start is refused."""
        fitting = {("auto", 0): (0.5,) * 4, ("auto", 20): ()}
        assert _search(fitting)[0].best().parameters == {}
        with pytest.raises(InputError, match="does not fit the rows"):
            _search({("auto", 0): ()})[0].best()

    def test_leaves_fixed_parameters(self) -> None:
        """A parameter that was set is not searched."""
        search = Search(DataOwner(), FACTS, _Scale({}), frozenset({"radius"}))
        assert list(search.values) == ["k"]


class TestTune:
    """Tuning on public rows."""

    def test_prints_a_table_for_a_scenario(self) -> None:
        """The pasted table gives the system that was found, with the set parameters."""
        found = tune("ind-knn", make_question(ASKED), {"epsilon": 4.0}, workers=1)
        made = make_scenario({"data": {"source": "iris"}, **tomllib.loads(found.toml)})
        assert made.protocol == found.system
        assert made.protocol.model_dump()["epsilon"] == 4.0
        assert found.tried[0].mean >= found.before.mean
        assert found.accuracy.low <= found.accuracy.mean <= found.accuracy.high
        assert set(found.parameters) <= {"tau", "sigma2"}

    @pytest.mark.parametrize("name", ["rank-search", "private-knn", "release", "ldp-bayes"])
    def test_is_of_every_system(self, name: str) -> None:
        """The search covers the parameters that each system declares as tunable."""
        asked = make_question(ASKED | {"splits": 2})
        kind = type(tune(name, asked, workers=1).system)
        assert kind.tunable()

    @pytest.mark.slow
    def test_is_equal_for_any_number_of_processes(self) -> None:
        """Results arrive in any order, and are sorted."""
        asked = make_question(ASKED | {"splits": 2})
        one, two = (tune("data-owner", asked, {"k": 0}, workers=count) for count in (1, 2))
        assert one.as_json() == two.as_json()

    def test_refuses_to_search_nothing(self) -> None:
        """The error names the tunable parameters."""
        with pytest.raises(InputError, match="radius, k"):
            tune("data-owner", make_question(ASKED), {"k": 0, "radius": 0.2}, workers=1)
