"""The thresholds of a search, its votes, what both leak, and checks that detect visible lies."""

import math
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from docs.examples.totals_information import counts_of_missing, leakage_of_one
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import poisson
from tests.protocols.ranksearch.worlds import (
    TABLES,
    bound,
    dealings,
    label,
    ready,
    table,
    votes_at,
    votes_within,
)

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.protocols.masks import MaskedTotals
from veilring.protocols.ranksearch import Reveal
from veilring.protocols.ranksearch.algorithm.search import (
    ARITY_MAX,
    ARITY_MIN,
    OCTAVES,
    SPARSE_BY,
    End,
    Found,
    Spacing,
    TotalsSearch,
    clipped_counts,
    cuts_between,
    first_cuts,
    pattern_of,
    run_search,
    steps_at_most,
)
from veilring.protocols.ranksearch.algorithm.votes import (
    WEIGHT_BITS,
    Ranked,
    Votes,
    could_be_votes,
    nearest_rows,
    no_votes,
    own_votes,
)
from veilring.protocols.ranksearch.leakage import (
    Opened,
    interval_widths,
    leakage_of_totals,
    open_totals,
)
from veilring.protocols.ring.algorithm.classify import Weights, pooled_knn

_ARITIES = st.integers(ARITY_MIN, ARITY_MAX)
_BOUNDS = st.floats(min_value=5e-324, max_value=1.7e308)


@given(_BOUNDS, _ARITIES)
def test_the_first_step_ends_at_the_bound(upper: float, arity: int) -> None:
    """Its thresholds ascend to the bound, at most one per part, and none is too far below.

    They divide octaves evenly: distances grow by equal numbers of bit patterns. After the step at
    most 2^63 patterns remain, and each further step divides them by m.
    """
    asked = first_cuts(Spacing(upper, arity)).view(np.float64)
    assert 1 <= len(asked) <= arity
    assert asked[-1] == upper
    assert (np.diff(asked) > 0).all()
    assert asked[0] >= upper * 2.0**-OCTAVES
    widths = np.diff(first_cuts(Spacing(1.0, arity)))
    assert np.ptp(widths) <= 1
    assert widths.max() == -(-OCTAVES * 2**52 // arity)
    assert len(steps_at_most(Spacing(upper, arity))) <= 1 + math.ceil(63 / math.log2(arity))


@given(_BOUNDS, _ARITIES)
def test_a_sparse_first_step_asks_fewer_thresholds(upper: float, arity: int) -> None:
    """It asks all thresholds of the upper half of the octaves, and one in four of the others."""
    full, fewer = Spacing(upper, arity), Spacing(upper, arity, is_sparse=True)
    every, sparse = first_cuts(full)[::-1], first_cuts(fewer)[::-1]
    half = arity // 2
    np.testing.assert_array_equal(sparse[:half], every[:half])
    np.testing.assert_array_equal(sparse[half:], every[half::SPARSE_BY])
    assert len(steps_at_most(fewer)) <= 1 + math.ceil(63 / math.log2(arity))


@given(
    _BOUNDS,
    _ARITIES,
    st.integers(1, 4),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.lists(st.sampled_from([5e-324, 1e-323, 2.3e-308]), max_size=3),
)
@example(1.7e308, 16, 2, [0.0, 1.0], [5e-324, 1e-323, 2.3e-308])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_any_distance_is_found_exactly(  # noqa: PLR0917  (drawn values)
    is_sparse: bool, upper: float, arity: int, k: int, shares: list[float], tiny: list[float]
) -> None:
    """A radius contains the k nearest rows, and more only if they tie with the k-th."""
    distances = np.sort(np.minimum([*(upper * np.array(shares)), *tiny], upper))
    smallest = np.full((1, k + 1), np.inf)
    kept = distances[: k + 1]
    smallest[0, : len(kept)] = kept
    spacing = Spacing(upper, arity, is_sparse)
    search = TotalsSearch(1, spacing, k=k, parties=3)
    found = run_search(search, lambda asked: clipped_counts(smallest, asked))
    within = int((distances <= found.radii[0]).sum())
    assert len(found.steps) <= len(steps_at_most(spacing))
    if len(distances) < k:
        assert found.ends[0] == End.FEW
        assert found.radii[0] == upper
    elif found.ends[0] == End.EXACT:
        assert within == k
    else:
        assert found.ends[0] == End.TIED
        assert found.radii[0] == distances[k - 1] == distances[k]


_LOWEST, _HIGHEST = -1, int(pattern_of(1.7e308))
_WIDTHS = st.integers(2, 300) | st.integers(2, _HIGHEST - _LOWEST)
_ENDS = st.tuples(st.integers(_LOWEST, _HIGHEST - 2), _WIDTHS)


@given(st.lists(_ENDS, min_size=1, max_size=5), _ARITIES)
def test_cuts_equal_those_of_exact_integers(ends: list[tuple[int, int]], arity: int) -> None:
    """No product overflows: cuts ascend between the ends, and no piece is wider than necessary."""
    lows = [low for low, _ in ends]
    highs = [min(low + width, _HIGHEST) for low, width in ends]
    owner, patterns = cuts_between(np.array(lows), np.array(highs), arity)
    assert (np.diff(owner) >= 0).all()
    for number, (low, high) in enumerate(zip(lows, highs, strict=True)):
        width, cuts = high - low, patterns[owner == number].tolist()
        pieces = min(width, arity)
        assert cuts == [
            low + width // pieces * j + width % pieces * j // pieces for j in range(1, pieces)
        ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(
            ({"upper": upper}, "upper is .*; allowed: a positive, finite number")
            for upper in (0.0, -0.0, -1.0, math.nan, math.inf)
        ),
        *(({"arity": arity}, f"arity is {arity}") for arity in (ARITY_MIN - 1, ARITY_MAX + 1)),
    ],
)
def test_an_invalid_bound_or_arity_is_refused(wrong: dict[str, Any], said: str) -> None:
    """A bound is a finite number above 0, and an interval is divided into at least two parts."""
    with pytest.raises(InputError, match=said):
        Spacing(**{"upper": 1.0, "arity": 16, **wrong})


KS = (1, 5, 20, 100)


def ranked(queries: Floats, parts: list[Rows], classes: int, k: int, **options: Any) -> Ranked:
    """Search the rows of some parties."""
    return bound(queries.shape[1], classes, k=k, **options).answer(queries, parts)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("name", TABLES)
def test_votes_equal_those_of_the_pooled_classifier(name: str, k: int) -> None:
    """For any partition of the rows, each query has the pooled votes and label."""
    rows, queries, classes = table(name)
    votes = votes_within(queries, rows, classes, k)
    labels = pooled_knn(queries, rows.features, rows.labels, classes, k)
    for dealt, parts in dealings(rows):
        found = ranked(queries, parts, classes, k)
        np.testing.assert_array_equal(found.votes.values, votes, dealt)
        np.testing.assert_array_equal(found.votes.labels, labels, dealt)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("name", TABLES)
def test_weighted_votes_do_not_depend_on_the_partition(name: str, k: int) -> None:
    """They equal one party's to the last bit, and 1/distance up to rounding.

    Each vote is rounded by at most half a unit of the fixed point.
    """
    rows, queries, classes = table(name)
    alone = ranked(queries, [rows], classes, k, weights="distance")
    for dealt, parts in dealings(rows):
        found = ranked(queries, parts, classes, k, weights="distance")
        np.testing.assert_array_equal(found.votes.values, alone.votes.values, dealt)
        np.testing.assert_array_equal(found.found.radii, alone.found.radii, dealt)
    distances, radii = pairwise_distances(queries, rows.features), alone.found.radii
    matched = (distances == 0).any(axis=1)
    weights = np.divide(radii[:, None], distances, out=np.ones_like(distances), where=distances > 0)
    votes = votes_at(distances, rows.labels, classes, np.where(matched, 0.0, radii), weights)
    voters = (distances <= radii[:, None]).sum(axis=1)
    off = np.abs(alone.votes.values - votes) - 1e-12 * votes
    assert (off <= voters[:, None] * 2.0 ** -(WEIGHT_BITS + 1)).all()


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_fewer_rows_than_k_all_vote(weights: Weights) -> None:
    """The radius is then the bound, even if no party has a row."""
    rng = np.random.default_rng(1)
    queries = rng.random((20, 2))
    for sizes in ((2, 0, 1), (0, 0, 0)):
        few = [Rows(rng.random((count, 2)), np.ones(count, np.int64)) for count in sizes]
        found = ranked(queries, few, 2, 5, weights=weights)
        assert (found.found.ends == End.FEW).all()
        assert (found.found.radii == np.sqrt(2.0)).all()
        assert (found.votes.values[:, 0] == 0).all()
        assert ((found.votes.values[:, 1] > 0) == any(sizes)).all()
        assert (found.votes.labels == any(sizes)).all()


def test_exactly_k_rows_end_in_the_first_step() -> None:
    """All rows are the k nearest, at any distance."""
    rng = np.random.default_rng(2)
    rows = Rows(np.repeat(rng.random((1, 2)), 5, axis=0), np.array([0, 1, 1, 0, 1]))
    found = ranked(rng.random((9, 2)), [rows], 2, 5)
    assert len(found.found.steps) == 1
    assert (found.found.ends == End.EXACT).all()
    assert (found.votes.labels == 1).all()


@pytest.mark.parametrize("apart", [5e-324, 1e-310, 1e-200, 2.0**-53])
def test_rows_may_be_at_the_smallest_distances(apart: float) -> None:
    """Rows whose squared distances round to 0 tie at 0, and all others are distinguished."""
    places = np.array([[0.0], [apart], [2 * apart], [1.0]])
    rows = Rows(places, np.arange(4))
    for k in (1, 2, 3, 4):
        found = ranked(np.zeros((1, 1)), [rows], 4, k)
        np.testing.assert_array_equal(
            found.votes.values, votes_within(np.zeros((1, 1)), rows, 4, k)
        )


def test_the_sign_of_zero_does_not_matter() -> None:
    """A query or a row at -0.0 is equal to one at 0.0."""
    rows = Rows(np.array([[-0.0], [0.0], [0.5]]), np.array([1, 1, 0]))
    for query in (-0.0, 0.0):
        found = ranked(np.array([[query]]), [rows], 2, 1, weights="distance")
        assert found.found.ends[0] == End.TIED
        assert found.found.radii[0] == 0.0
        assert found.votes.values.tolist() == [[0.0, 2.0]]


def test_the_farthest_corner_is_within_the_bound() -> None:
    """No distance in the unit cube is rounded above the root of its dimension."""
    for features in range(1, 300):
        rows = Rows(np.ones((1, features)), np.array([1]))
        found = ranked(np.zeros((1, features)), [rows], 2, 1)
        assert found.votes.labels[0] == 1


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_memory_does_not_grow_with_rows_times_queries(weights: Weights) -> None:
    """With ties of all rows for each query, distances and weights would take 320 MB at once."""
    rows = Rows(np.full((50_000, 1), 0.5), np.arange(50_000) % 3)
    ranked(np.zeros((1, 1)), [rows], 3, 5, weights=weights)  # loads the imports
    tracemalloc.start()
    found = ranked(np.linspace(0, 1, 400)[:, None], [rows], 3, 5, weights=weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.found.tied.all()
    assert peak < 80_000_000


QUERY = np.zeros((1, 1))


def search_of(parties: int, k: int, queries: int = 1) -> TotalsSearch:
    """Return a search of one feature before its first step."""
    return TotalsSearch(queries, Spacing(1.0, 4), k=k, parties=parties)


@given(st.data())
def test_no_honest_run_fails_a_check(data: st.DataObject) -> None:
    """For any rows, ties and weights, totals and votes pass at every party."""
    parties, k = data.draw(st.integers(3, 5)), data.draw(st.integers(1, 4))
    steps = data.draw(st.integers(1, 4))  # few values, so there are many ties
    weights: Weights = data.draw(st.sampled_from(["uniform", "distance"]))
    values = st.integers(0, steps).map(lambda value: value / steps)
    tables = st.lists(st.lists(values, max_size=8), min_size=parties, max_size=parties)
    rows = [
        Rows(np.array(held).reshape(-1, 1), np.arange(len(held)) % 2) for held in data.draw(tables)
    ]
    queries = np.array(data.draw(st.lists(values, min_size=1, max_size=3)))[:, None]
    near = [nearest_rows(queries, held, k) for held in rows]
    search = search_of(parties, k, len(queries))
    while (asked := search.ask()) is not None:
        counts = [clipped_counts(each.distances, asked) for each in near]
        totals = np.add.reduce(counts)
        for each, counted in zip(near, counts, strict=True):
            assert search.could_be(asked, totals, counted, each.distances)
        search.take(asked, totals)
    found = search.found()
    votes = [
        own_votes(queries, held, own, found, classes=2, weights=weights)
        for held, own in zip(rows, near, strict=True)
    ]
    sent = zip(*(own.arrays(found.tied, k) for own in votes), strict=True)
    both = Votes.of([np.add.reduce(each) for each in sent], found.tied)
    for own in votes:
        assert could_be_votes(both, own, found, search.at_radius, search.at_least)


NEAR = nearest_rows(QUERY, Rows(np.array([[0.3], [0.6]]), np.zeros(2, int)), 2).distances
"""The distances of a party's own rows, whose counts are clipped at 3."""


@pytest.mark.parametrize(
    ("others", "later", "possible"),
    [
        (lambda _: 0, False, True),
        (lambda _: 6, False, True),
        (lambda radius: int(6 * radius), False, True),
        (lambda _: -1, False, False),
        (lambda _: 7, False, False),  # two parties count at most three rows each
        (lambda radius: 2 - (radius >= 0.3) - (radius >= 0.6), False, False),  # hidden by own rows
        # Later steps are between two radii at which the others' counts are known: 0 and 2.
        (lambda _: -1, True, False),
        (lambda _: 0, True, True),
        (lambda _: 2, True, True),
        (lambda _: 3, True, False),
    ],
)
def test_totals_of_three_parties_rise(
    others: Callable[[float], int], *, later: bool, possible: bool
) -> None:
    """The part of two other parties rises from 0 or more to at most 6, or the total is a lie."""
    search = search_of(parties=3, k=2)
    asked = search.ask()
    if later and asked is not None:
        search.take(asked, 4 * (asked.values == 1.0))  # two own rows, and two of others
        asked = search.ask()
    assert asked is not None
    left = np.array([others(radius) for radius in asked.values.tolist()])
    own = clipped_counts(NEAR, asked)
    assert search.could_be(asked, left + own, own, NEAR) == possible


@pytest.mark.parametrize(
    ("end", "counts", "weights", "least", "possible"),
    [
        # Votes add up to the rows, or to more for ties, since counts are clipped.
        *((End.EXACT, [votes, 1], None, 0, votes == 1) for votes in (0, 1, 2)),
        *((End.TIED, [votes, 1], None, 0, votes > 0) for votes in (0, 1, 9)),
        # A weight is at least one.
        *((end, [0, 0], [1.0, 1.5], 0, True) for end in (End.EXACT, End.TIED)),
        *((end, [0, 0], [1.0, 0.5], 0, False) for end in (End.EXACT, End.TIED)),
        # A false row at distance 0 would decide alone; it is within the lowest threshold.
        (End.EXACT, [1, 0], [0.0, 1.5], 1, True),
        (End.EXACT, [1, 0], [0.0, 1.5], 0, False),
    ],
)
def test_impossible_votes_are_detected(
    *, end: End, counts: list[int], weights: list[float] | None, least: int, possible: bool
) -> None:
    """With two rows within the radius, a party without rows near the query checks the votes."""
    ends = np.array([end], dtype=np.uint8)
    found = Found(np.array([0.5]), np.array([0.25]), ends, (), ())
    fixed = None if weights is None else (np.array([weights]) * 2.0**WEIGHT_BITS).astype(np.uint64)
    totals = Votes(np.array([counts], dtype=np.uint64), fixed)
    own = no_votes(1, 2, "uniform" if weights is None else "distance")
    assert could_be_votes(totals, own, found, np.array([2]), np.array([least])) == possible


PLACES = np.array([[0.2, 0.3], [0.7, 0.7], [0.5, 0.0]])
UPPER = 2**0.5
_PLACE = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda place: np.array(place) / 8)


def unlabelled(places: Any) -> Rows:
    """Return rows of two features and one class."""
    features = np.array(places, np.float64).reshape(-1, 2)
    return Rows(features, np.zeros(len(features), np.int64))


def opened(tables: Sequence[Rows], k: int = 2, queries: Floats = PLACES) -> Opened:
    """Return the opened values of a search among parties."""
    return open_totals(queries, tables, Spacing(UPPER, 16), k=k)


async def test_a_record_of_a_search_equals_the_messages_of_a_star() -> None:
    """Step by step, the totals of the record are those sent by the adder."""
    rng = np.random.default_rng(2)
    tables = [unlabelled(rng.random((20, 2))) for _ in range(3)]
    setup = ready(tables, classes=1, k=2, sum="star")
    run = await label(setup, {}, PLACES, watch=["party-1"])
    told = [seen.message for seen in run.views["party-1"].received]
    *counts, _votes = [m.words[0].astype(np.int64) for m in told if isinstance(m, MaskedTotals)]
    found = opened(tables)
    assert [total.tolist() for total in counts] == [total.tolist() for total in found.totals]
    assert sum(map(len, counts)) == len(found.thresholds)


@given(st.tuples(*[st.lists(_PLACE, max_size=6).map(unlabelled)] * 3), st.integers(1, 4))
def test_only_the_interval_of_the_kth_distance_is_opened(tables: tuple[Rows, ...], k: int) -> None:
    """The distance is above its lower end and at most the upper end, and equals it for ties.

    If parties swap all their rows, the opened values are equal: guessing an owner is optimal.
    """
    one = opened(tables, k)
    rows = np.concatenate([table.features for table in tables])
    every = np.hstack([pairwise_distances(PLACES, rows), np.full((len(PLACES), k), np.inf)])
    truth, few = np.sort(every, axis=1)[:, k - 1], one.found.ends == End.FEW
    np.testing.assert_array_equal(few, np.isinf(truth))
    assert (one.found.lower < truth)[~few].all()
    assert (truth <= one.found.radii)[~few].all()
    np.testing.assert_array_equal(one.found.radii[one.found.tied], truth[one.found.tied])
    for swapped in permutations(tables):
        other = opened(swapped, k)
        assert one.thresholds == other.thresholds
        np.testing.assert_array_equal(one.found.radii, other.found.radii)


def test_the_measures_of_a_report_are_counted_query_by_query() -> None:
    """The example has one row near the first query, two tied near the second, and k = 1.

    With too few rows no distance is known: the width is the whole range.
    """
    found = opened([unlabelled(row) for row in ([0.2, 0.31], [0.7, 0.6], [0.7, 0.6], [0, 1])], k=1)
    told = leakage_of_totals(found, 1, UPPER)
    assert told["tied"].tolist() == [0.0, 1.0, 0.0]
    assert told["radius"][1] == 0.0
    assert 0 < told["radius"][0] < 0.01
    for query in range(3):
        totals = [total for (at, _), total in found.thresholds.items() if at == query]
        assert told["above"][query] == np.mean([total > 1 for total in totals])
    few = opened([unlabelled([0.5, 0.5])] * 3, k=4)
    assert interval_widths(few.found, UPPER).tolist() == [1.0] * 3


@pytest.mark.parametrize("reveal", ["totals", "votes", "label"])
def test_the_reported_leakage_is_that_of_the_searches_of_a_run(reveal: Reveal) -> None:
    """The mean width of the published intervals is that of the intervals which the parties find."""
    rng = np.random.default_rng(5)
    tables, queries = [unlabelled(rng.random((30, 2))) for _ in range(4)], rng.random((40, 2))
    setup = ready(tables, classes=1, k=1, reveal=reveal)
    found = setup.search(queries, tables).found
    told = setup.leakage(queries, len(queries), rng).published["radius"]
    assert told.value == interval_widths(found, setup.parameters.upper).mean()


def test_the_leakage_about_one_party_equals_that_of_the_joint_distribution() -> None:
    """For two parties and k = 1, the distribution of counts 0, 1 and 2 or more is explicit."""
    pmf = [poisson.pmf(0, 1.5), poisson.pmf(1, 1.5), poisson.sf(1, 1.5)]
    joint = {(a, a + b): pmf[a] * pmf[b] for a in range(3) for b in range(3)}
    totals = [sum(p for (_, t), p in joint.items() if t == total) for total in range(5)]
    expected = sum(p * np.log2(p / pmf[a] / totals[t]) for (a, t), p in joint.items())
    found = leakage_of_one(2, 1, 1.5)
    assert found.by_total == pytest.approx(expected)
    assert found.whole == pytest.approx(-sum(p * np.log2(p) for p in pmf))


def test_two_searches_differ_by_the_counts_of_the_missing_party() -> None:
    """They differ at every threshold that both asked, at least in the first step."""
    rng = np.random.default_rng(4)
    tables, queries = [unlabelled(rng.random((20, 2))) for _ in range(5)], rng.random((30, 2))
    everyone, fewer = opened(tables, 3, queries), opened(tables[:-1], 3, queries)
    found = counts_of_missing(everyone, fewer)
    assert len(found) >= 16 * len(queries)
    near = nearest_rows(queries, tables[-1], 3).distances
    for asked in everyone.asked:
        own = clipped_counts(near, asked)
        for place in zip(asked.queries[asked.owner], asked.patterns, own, strict=True):
            query, pattern, count = map(int, place)
            assert found.get((query, pattern), count) == count
