"""Consequences of public numbers: guarantees, forecasts, and the distance at which rows vote."""

import re
from itertools import combinations
from math import dist, exp, log
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilring as vr
from veilring.data.table import pairwise_distances
from veilring.nodes.journal import Traffic
from veilring.privacy.accounting import GaussianDP
from veilring.protocols.nearness import NEAR_QUERIES_MIN, near_share, smallest_among
from veilring.protocols.promise import batch_sizes, in_batches
from veilring.protocols.radius.neighbourhood import (
    public_k,
    public_radius,
    radius_among,
    radius_share,
)
from veilring.protocols.radius.system import OwnerSetup

FEATURES, ROWS = 5, 400
FACTS = vr.Facts(parties=3, features=FEATURES, classes=2, rows=ROWS)


def queries(number: int, spread: float = 1.0) -> np.ndarray:
    """Return independent random queries in a part of the cube around its middle."""
    drawn = np.random.default_rng(7).random((number, FEATURES))
    return np.asarray(0.5 + spread * (drawn - 0.5))


@pytest.mark.parametrize("rows", [1, 2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_person_with_several_rows_has_the_bound_of_groups(rows: int, epsilon: float) -> None:
    """ε is multiplied; δ covers Gaussian noise whose sensitivity is multiplied, and is 0 for 0."""
    each = vr.Release(epsilon=epsilon).promise(parties=8)
    person = each.of_person(rows)
    assert person.epsilon == rows * epsilon
    noise = GaussianDP.calibrate(epsilon, each.delta)
    assert GaussianDP(rows * noise.mu).delta(rows * epsilon) <= person.delta * (1 + 1e-9)
    assert person.adjacency == f"a person with up to {rows} rows added or removed"
    pure = vr.NoisyVotes(epsilon=epsilon, delta=0.0).promise(parties=8)
    assert pure.of_person(rows).delta == 0.0


def test_a_bound_of_groups_is_refused_where_it_does_not_apply() -> None:
    """No ε, an adjacency of clients, and no rows at all are refused; δ never exceeds 1."""
    for promise in (vr.RankSearch().promise(), vr.LDPBayes().promise()):
        with pytest.raises(vr.InputError, match="do not apply"):
            promise.of_person(2)
    release = vr.Release(epsilon=200.0).promise()
    with pytest.raises(vr.InputError, match="rows is 0"):
        release.of_person(0)
    assert release.of_person(10**6).delta == 1.0
    assert vr.Release(epsilon=1000.0).promise().of_person(1).delta == 1e-5


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (vr.PrivateKNN(), ["measured leakage, no ε", "other 4 parties", "do not collude"]),
        (vr.RankSearch(), ["no ε", "of which up to 3 collude", "the radius, the votes"]),
        (
            vr.Release(epsilon=0.5, tolerated=2),
            ["ε = 0.5, δ = 1e-05 for each release", "at most 2 of the 5 collude", "m rows has m·ε"],
        ),
        (vr.Release(trusted=True, delta=0.0), ["ε = 1 for each release", "an owner trusted"]),
        (
            vr.NoisyVotes(epsilon=2.0, tolerated=2),
            ["ε = 2, δ = 1e-05 for each batch", "at most 2 of the 5 collude", "m rows has m·ε"],
        ),
        (vr.NoisyVotes(epsilon=2.0, delta=0.0), ["ε = 2 for each batch", "ε = 20 for 10 rows"]),
        (
            vr.LDPBayes(epsilon=3.0),
            ["ε = 3 for each report", "no trusted party", "Each further report of the same person"],
        ),
        (vr.DataOwner(epsilon=2.0), ["ε = 2 for each batch", "an owner trusted with all rows"]),
        (
            vr.IndKNN(),
            ["ε = 1, δ = 1e-05 for each stream", "a server trusted", "m records has m·ε"],
        ),
        (vr.TreeWalk(epsilon=4.0), ["ε = 4 for each query", "a malicious server"]),
    ],
    ids=lambda case: case.name if isinstance(case, vr.System) else "",
)
def test_a_paragraph_says_all_that_an_assessment_needs(system: vr.System, said: list[str]) -> None:
    """It has ε and δ, their unit and a person's share, the threat model, and what is learned."""
    promise = system.promise(parties=5)
    text = promise.paragraph(system.name, budget=7.0 if promise.epsilon else None)
    for words in (*said, promise.protects, promise.against, promise.note, "Not covered are"):
        assert words in text
    assert ("Semi-honest parties run" in text) == ("semi-honest" in promise.threat_model)
    assert ("refuses a total ε above 7." in text) == (promise.epsilon is not None)
    assert ("up to δ" in text) == (promise.delta > 0)
    is_of_rows = not isinstance(system, vr.TreeWalk)
    assert ("must not be taken from rows" in text) == ("facts about a group" in text) == is_of_rows
    assert ("Nothing bounds" in text) == (promise.epsilon is None)


@pytest.mark.parametrize(("epsilon", "most"), [(1.0, "23.2%"), (5.0, "94.3%"), (20.0, "100.0%")])
def test_a_paragraph_bounds_a_suspicion(epsilon: float, most: str) -> None:
    """By Bayes' rule, odds of 1 to 9 grow by at most a factor of e^ε."""
    text = vr.LDPBayes(epsilon=epsilon).promise().paragraph("ldp-bayes")
    assert f"from 10% to at most {most}" in text


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_a_paragraph_says_with_which_probability_delta_exceeds_a_suspicion(epsilon: float) -> None:
    """Odds above 2·e^ε have at most 2·δ, also by Gaussian noise; those above e^ε have more than δ.

    The privacy loss of Gaussian noise is normal, with the mean μ²/2 and the variance μ².
    """
    promise = vr.Release(epsilon=epsilon).promise()
    mu, delta = GaussianDP.calibrate(epsilon, promise.delta).mu, promise.delta
    loss = NormalDist(mu**2 / 2, mu)
    assert 1 - loss.cdf(epsilon + log(2)) <= 2 * delta
    assert 1 - loss.cdf(epsilon) > delta
    odds = 2 * exp(epsilon) / 9
    said = re.search(r"it exceeds ([\d.]+)% with a probability", promise.paragraph("release"))
    assert said is not None
    assert float(said[1]) / 100 == pytest.approx(odds / (1 + odds), abs=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_paragraph_covers_any_epsilon_and_the_content_of_a_row(delta: float) -> None:
    """A row whose presence is known counts as two; beyond the range of floats, δ is 1."""
    text = vr.Release(delta=delta).promise().paragraph("release")
    assert ("known to be among the data has ε = 2, δ = 3.7e-05" in text) == (delta > 0)
    text = vr.Release(epsilon=1000.0, delta=delta).promise().paragraph("release")
    assert "one release can raise" in text
    assert "to at most 100.0%" in text
    assert ("ε = 10000, δ = 1 for 10 rows" in text) == (delta > 0)


@pytest.mark.parametrize("tolerated", [0, 1])
def test_a_threshold_of_one_is_no_coalition(tolerated: int) -> None:
    """The threat model then says that no two parties collude, as a 0 means a threshold of 1."""
    for system in (vr.Release(tolerated=tolerated), vr.NoisyVotes(tolerated=tolerated)):
        assert "no two of them collude" in system.promise(parties=5).threat_model


def test_a_delta_that_is_too_large_for_the_rows_is_named() -> None:
    """A number of rows, and the rows of a run, are compared with δ once."""
    promise = vr.Release().promise()
    assert "δ is too large for 50,000,000 rows" in promise.among(50_000_000).note
    assert "too large" not in promise.among(9_999).note
    assert "too large" not in vr.Release(delta=0.0).promise().among(50_000_000).note
    train, test = vr.load("iris").split(seed=1)
    run = vr.run(vr.Release(delta=0.01, statistic="means"), train.partition(3, seed=1), test)
    assert run.promise.note.count("δ is too large for 112 rows") == 1


@given(st.integers(0, 1000), st.integers(1, 100))
def test_batches_are_full_except_the_last(queries: int, size: int) -> None:
    """Together they have all queries, none is empty, and all but the last have the full size."""
    sizes = batch_sizes(queries, size)
    assert sum(sizes) == queries
    assert all(count == size for count in sizes[:-1])
    assert all(1 <= count <= size for count in sizes[-1:])


def test_each_size_is_forecast_once_and_counted_for_each_batch() -> None:
    """Of 25 queries in batches of 10, the full size counts twice; no queries cost nothing."""
    asked = list[int]()

    def cost(count: int) -> vr.Forecast:
        asked.append(count)
        return vr.Forecast(1, Traffic(2, count))

    assert in_batches(cost, 25, 10) == vr.Forecast(3, Traffic(6, 25))
    assert sorted(asked) == [5, 10]
    assert in_batches(cost, 0, 10) == vr.Forecast(0, Traffic())
    assert sorted(asked) == [5, 10]


def test_forecasts_add_up() -> None:
    """A sum adds rounds, traffic and set-up; the most of one adds to the cost of the other."""
    one = vr.Forecast(1, Traffic(2, 3), setup=Traffic(4, 5))
    two = vr.Forecast(1, Traffic(1, 1), most=vr.Forecast(2, Traffic(9, 9)))
    most = vr.Forecast(3, Traffic(11, 12), Traffic(4, 5))
    assert one + two == vr.Forecast(2, Traffic(3, 4), Traffic(4, 5), most)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (vr.Spent(1.0, 0.0, 1, "release").what, "for one release"),
        (vr.Spent(1.0, 0.0, 2, "release").what, "for 2 releases"),
        (vr.Spent(1.0, 0.0, 2, "batch").what, "for 2 batches"),
        (vr.Spent(1.0, 0.0, 3, "query").what, "for 3 queries"),
        (vr.Forecast(1, Traffic(1, 1)), "1 round, 1 message, 1 byte"),
        (vr.Forecast(2, Traffic(2, 20)), "2 rounds, 2 messages, 20 bytes"),
    ],
)
def test_one_unit_is_singular_and_several_are_plural(shown: object, said: str) -> None:
    """This holds for what is spent, and for the rounds, messages and bytes of a forecast."""
    assert str(shown) == said


@given(rows=st.integers(1, 10**9), features=st.integers(1, 10**4), factor=st.floats(0.01, 10))
def test_a_fraction_falls_with_rows_and_grows_with_features(
    rows: int, features: int, factor: float
) -> None:
    """It is at most 0.6, and below that it follows the formula."""
    share = near_share(rows, features, factor)
    assert 0 < share <= 0.6
    assert near_share(rows + 1, features, factor) <= share <= near_share(rows, features + 1, factor)
    assert share == pytest.approx(min(0.6, factor * rows ** (-4 / (min(features, 8) + 4))))


@given(share=st.floats(0, 1), number=st.integers(2, 9))
def test_the_fraction_of_all_pairs_is_within(share: float, number: int) -> None:
    """The given fraction of the distances of all pairs is at most the threshold."""
    points = queries(number)
    found = smallest_among(pairwise_distances(points, points), share)
    pairs = sorted(dist(*pair) for pair in combinations(points.tolist(), 2))
    below = sum(each <= found + 1e-12 for each in pairs)
    assert below >= share * (len(pairs) - 1)
    assert below - 1 <= share * (len(pairs) - 1) + 1e-9


def test_a_radius_follows_the_queries_scale_and_falls_with_epsilon() -> None:
    """It is in proportion to the spread of the queries, and less noise needs fewer votes."""
    wide = radius_among(queries(100), FACTS, 1.0)
    assert radius_among(queries(100, 0.75), FACTS, 1.0) == pytest.approx(0.75 * wide)
    radii = [radius_among(queries(100), FACTS, epsilon) for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert radii == sorted(radii, reverse=True)
    assert radius_share(FEATURES, ROWS, 1.0) == pytest.approx(1.7 * ROWS ** (-4 / 9))


def test_a_radius_is_bounded() -> None:
    """Queries in one spot, or in two corners, change it by at most a factor of 1/4 or 2.

    Repeated queries add nothing: for few, only the numbers of features and rows decide.
    """
    alone = public_radius(FEATURES, ROWS)
    assert radius_among(queries(50, 1e-3), FACTS, 1.0) == alone / 4
    corners = np.where(np.arange(50)[:, None] % 2, 0.0, 1.0) + queries(50, 1e-3) * [1e-3]
    few = vr.Facts(parties=3, features=FEATURES, classes=2, rows=2)
    assert radius_among(np.clip(corners, 0, 1), few, 1.0) <= 2 * public_radius(FEATURES, 2)
    for number in (1, NEAR_QUERIES_MIN - 1):
        repeated = np.repeat(queries(number), 5, axis=0)
        assert radius_among(repeated, FACTS, 1.0) == alone


def test_k_grows_with_the_rows_but_stays_below_most_of_them() -> None:
    """It follows the formula; a given k is kept, and 0 selects a radius."""
    counts = [public_k("auto", FEATURES, rows) for rows in (1, 10, 100, 10_000, 10**6)]
    assert counts == sorted(counts)
    assert counts[3] == round(0.8 * 10_000 ** (5 / 9))
    assert counts[0] == 1
    assert public_k("auto", 100, 10) < 5
    assert [public_k(k, FEATURES, None) for k in (0, 7)] == [0, 7]


@pytest.mark.parametrize(
    ("system", "parameter"),
    [
        (vr.DataOwner(), "radius"),
        (vr.DataOwner(k="auto"), "k"),
        (vr.NoisyVotes(), "rows"),
        (vr.NoisyVotes(k="auto"), "rows"),
    ],
    ids=str,
)
def test_a_rule_needs_a_public_number_of_rows(system: vr.System, parameter: str) -> None:
    """With a declared number the guarantee calls it public; otherwise the error requires one."""
    rng = np.random.default_rng(1)
    parts = {f"p{n}": vr.Rows(rng.random((20, 2)), rng.integers(2, size=20)) for n in range(3)}
    assert "number of rows is public" in system.promise().note
    setup = system.setup(parts, vr.Facts(3, 2, 2, rows=60))
    assert setup.label(rng.random((12, 2)), rng).shape == (12,)
    with pytest.raises(
        vr.InputError, match=r"public(?: here; give a number|, is missing)"
    ) as refused:
        system.setup(parts, vr.Facts(3, 2, 2))
    assert refused.value.field == parameter


def test_with_k_by_rule_no_count_is_charged() -> None:
    """The owner uses the rule's number, and does not count its rows with noise."""
    parts = {"ann": vr.Rows(np.random.default_rng(1).random((60, 2)), np.zeros(60, np.int64))}
    setup = vr.DataOwner(k="auto").setup(parts, vr.Facts(1, 2, 2, rows=60))
    assert isinstance(setup, OwnerSetup)
    assert (setup.k, setup.rules.facts.rows) == (public_k("auto", 2, 60), 60)
