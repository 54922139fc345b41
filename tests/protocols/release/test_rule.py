"""The rule that chooses a statistic by public numbers only, and its choices."""

import inspect
from math import sqrt
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.protocols.release.schemas import MIXED, NUMERIC, draw_rows, schema

from veilring.data.table import Features
from veilring.errors import InputError
from veilring.protocols.release.algorithm.classifiers import count_columns
from veilring.protocols.release.algorithm.directions import Centre, Discriminant, Moments
from veilring.protocols.release.algorithm.noise import CENTRE_SHARE, Trust, account_of, plan_noise
from veilring.protocols.release.algorithm.rule import (
    Method,
    Plan,
    Rule,
    first_statistic,
    main_statistic,
)
from veilring.protocols.release.algorithm.tallies import SIDE_MAX, SIDE_MIN, grid_side

DELTA = 1e-5
PEERS, OWNER = Trust(8, 3), Trust(1, 0)
CAR = schema(0, (4, 4, 4, 3, 3, 3), 4)
MUSHROOM = schema(0, (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7), 2)


@pytest.mark.parametrize(
    ("features", "rows", "private", "pure"),
    [
        pytest.param(schema(13, classes=3), 134, "means centre", "means middle", id="wine"),
        pytest.param(schema(30, classes=2), 427, "lda centre", "means centre", id="breast-cancer"),
        pytest.param(schema(64, classes=10), 1348, "lda centre", "means centre", id="digits"),
        pytest.param(schema(4, classes=3), 112, "grid middle", "grid middle", id="iris"),
        pytest.param(schema(14, classes=2), 518, "lda centre", "means centre", id="australian"),
        pytest.param(CAR, 1296, "lda moments", "counts middle", id="car"),
        pytest.param(MUSHROOM, 6093, "lda moments", "trees middle", id="mushroom"),
        pytest.param(schema(7, (3,), 3), 3133, "lda moments", "trees middle", id="abalone"),
        pytest.param(schema(384, classes=4), 3749, "means centre", "means middle", id="news"),
    ],
)
def test_the_rules_choice_for_peers_at_epsilon_one(
    features: Features, rows: int, private: str, pure: str
) -> None:
    """Statistic and reference are as expected for known tables, with and without a delta."""
    for delta, expected in ((DELTA, private), (0.0, pure)):
        plan = Rule(features, rows, 1.0, delta, PEERS).plan()
        assert f"{plan.method} {plan.reference}" == expected


@given(
    st.sampled_from([NUMERIC, MIXED, CAR, schema(13), schema(200)]),
    st.integers(1, 10**7),
    st.floats(0.01, 20),
    st.sampled_from([0.0, 1e-6, 1e-5]),
    st.sampled_from([OWNER, PEERS, Trust(1000, 499)]),
)
@example(schema(200), 10**7, 0.01, 0.0, OWNER)
def test_the_rule_has_a_valid_answer_everywhere(
    features: Features, rows: int, epsilon: float, delta: float, trust: Trust
) -> None:
    """Every choice can be built, its bound suits its noise, and equal numbers give equal plans."""

    def plan() -> Plan:
        return Rule(features, rows, epsilon, delta, trust).plan()

    chosen = plan()
    assert chosen == plan()
    assert delta > 0 or chosen.distribution == "laplace"
    first = first_statistic(chosen, features)
    main = main_statistic(chosen, features, np.random.default_rng(0))
    sums = [each.sensitivity for each in (first, main) if each is not None]
    noises = plan_noise(
        chosen.distribution,
        chosen.epsilon,
        chosen.delta,
        chosen.trust,
        sums,
        weights=chosen.weights,
    )
    assert account_of(noises).epsilon(chosen.delta) <= epsilon


def test_the_rule_does_not_use_rows() -> None:
    """All its parameters are public numbers and the schema: none could contain a row."""
    parameters = inspect.signature(Rule).parameters
    assert set(parameters) == {"features", "rows", "epsilon", "delta", "trust", "distribution"}
    assert parameters["rows"].annotation is int
    assert set(inspect.signature(Rule.plan).parameters) == {"self", "statistic"}


@pytest.mark.parametrize("method", get_args(Method))
def test_a_named_statistic_is_released(method: Method) -> None:
    """A named statistic gives its plan, and sums of rows that it decodes."""
    rng = np.random.default_rng(0)
    plan = Rule(NUMERIC, 500, 1.0, DELTA, OWNER).plan(method)
    assert plan.method == method
    statistic = main_statistic(plan, NUMERIC, rng)
    rows, labels = draw_rows(NUMERIC, 50, rng), rng.integers(3, size=50)
    model = statistic.decode(statistic.sum(rows, labels), 0.0)
    assert model.predict(rows).shape == (50,)


def test_first_releases_follow_the_reference() -> None:
    """A discriminant of few rows uses a centre, of many rows moments, with less added."""
    few = Rule(schema(14, classes=2), 400, 1.0, DELTA, OWNER).plan()
    many = Rule(schema(14, classes=2), 40_000, 1.0, DELTA, OWNER).plan()
    assert (few.kappa, many.kappa) == (1.0, 0.3)
    assert isinstance(first_statistic(few, schema(14, classes=2)), Centre)
    assert isinstance(first_statistic(many, schema(14, classes=2)), Moments)
    assert few.weights == (CENTRE_SHARE, 1 - CENTRE_SHARE)
    made = main_statistic(many, schema(14, classes=2), np.random.default_rng(0))
    assert isinstance(made, Discriminant)
    assert made.kappa == 0.3


@pytest.mark.parametrize("places", [2, 6, 12, 40])
def test_tallies_use_the_norm_with_less_noise(places: int) -> None:
    """With a delta, counts of few columns stay pure; for many, Gaussian noise is less."""
    plan = Rule(schema(places), 100, 1.0, DELTA, OWNER).plan("counts")
    laplace, gaussian = sqrt(2) * places, 3.7304 * sqrt(places)
    assert plan.norm == ("l1" if laplace <= gaussian else "l2")


def test_the_side_of_a_grid_follows_its_formula() -> None:
    """(n epsilon / (3 sqrt(f))) ** (2 / (2 + d)), rounded and clipped to 3 to 32."""
    assert grid_side(1029, 4, 1.0, 1.6) == round((1029 / (3 * sqrt(1.6))) ** (1 / 3)) == 6
    assert grid_side(1, 4, 0.01) == SIDE_MIN
    assert grid_side(10**9, 1, 1.0) == SIDE_MAX


@pytest.mark.parametrize("features", [MIXED, schema(5)])
def test_a_grid_of_categories_or_many_columns_is_refused(features: Features) -> None:
    """A grid needs up to four columns of numbers."""
    plan = Rule(features, 10, 1.0, 0.0, OWNER).plan("grid")
    with pytest.raises(InputError, match="all of them numbers"):
        main_statistic(plan, features, np.random.default_rng(0))


def test_a_column_of_categories_counts_once() -> None:
    """Two numbers, a category of three values and one of two are four columns."""
    assert count_columns(MIXED) == 4
