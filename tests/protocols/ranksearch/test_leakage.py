"""Leakage of totals: distances and counts, but not the owners of rows; and attacks that use it."""

from itertools import permutations

import numpy as np
import pytest
from docs.examples.locate_by_totals import (
    distances_by_weight,
    find_crossings,
    intersect_shells,
    locate,
)
from docs.examples.totals_information import counts_of_missing, leakage_of_one
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson
from tests.protocols.ranksearch.worlds import ask, bound

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.protocols.masks import MaskedTotals
from veilring.protocols.ranksearch.algorithm.search import Asked, End, clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows
from veilring.protocols.ranksearch.leakage import (
    Opened,
    interval_widths,
    leakage_of_totals,
    open_totals,
)

ARITY, K, ROOT = 16, 3, 2**0.5
QUERIES = np.array([[0.2, 0.3], [0.7, 0.7], [0.5, 0.0]])


@st.composite
def parts(draw: st.DrawFn) -> list[Rows]:
    """Draw the rows of three parties on a grid with many ties."""
    place = st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=2, max_size=2)
    tables = draw(st.lists(st.lists(place, max_size=6), min_size=3, max_size=3))
    return [
        Rows(np.array(table, np.float64).reshape(-1, 2), np.zeros(len(table), np.int64))
        for table in tables
    ]


def opened(tables: list[Rows], k: int = 2, queries: Floats = QUERIES) -> Opened:
    """Return the opened values of a search among parties."""
    upper = queries.shape[1] ** 0.5
    return open_totals(queries, tables, k=k, upper=upper, arity=ARITY)


def kth(tables: list[Rows], k: int) -> Floats:
    """Return the k-th smallest distance of all rows to each query, infinite with fewer rows."""
    rows = np.concatenate([table.features for table in tables])
    none = np.full((len(QUERIES), k), np.inf)
    distances = np.concatenate([pairwise_distances(QUERIES, rows), none], axis=1)
    return np.asarray(np.sort(distances, axis=1)[:, k - 1])


class TestOpened:
    """The record of a search in this process."""

    async def test_a_record_equals_the_messages_of_a_star(self) -> None:
        """Step by step, the totals of the record are those sent by the adder."""
        rng = np.random.default_rng(2)
        tables = [Rows(rng.random((20, 2)), np.zeros(20, np.int64)) for _ in range(3)]
        run = await ask(tables, QUERIES, bound(2, 1, k=2, sum="star"), watch=["party-1"])
        told = [seen.message for seen in run.views["party-1"].received]
        *counts, _votes = [m.words[0].astype(np.int64) for m in told if isinstance(m, MaskedTotals)]
        found = opened(tables)
        assert [total.tolist() for total in counts] == [total.tolist() for total in found.totals]
        assert sum(map(len, counts)) == len(found.thresholds)

    @given(tables=parts(), k=st.integers(1, 4))
    def test_the_interval_contains_the_kth_distance(self, tables: list[Rows], k: int) -> None:
        """It is above the lower end and at most the upper end, and equals it for ties."""
        found, truth = opened(tables, k).found, kth(tables, k)
        few = found.ends == End.FEW
        np.testing.assert_array_equal(few, np.isinf(truth))
        assert (found.lower < truth)[~few].all()
        assert (truth <= found.radii)[~few].all()
        np.testing.assert_array_equal(found.radii[found.tied], truth[found.tied])

    @given(tables=parts(), k=st.integers(1, 4))
    def test_nothing_reveals_the_owner_of_a_row(self, tables: list[Rows], k: int) -> None:
        """If parties swap all their rows, the opened values are equal: guessing is optimal."""
        one = opened(tables, k)
        for swapped in permutations(tables):
            other = opened(list(swapped), k)
            assert one.thresholds == other.thresholds
            np.testing.assert_array_equal(one.found.radii, other.found.radii)


class TestMeasures:
    """The measures of a report."""

    def test_they_are_counted_query_by_query(self) -> None:
        """The example has one row near the first query, two tied near the second, and k = 1."""
        rows = [[0.2, 0.31], [0.7, 0.6], [0.7, 0.6], [0.0, 1.0]]
        tables = [Rows(np.array([row]), np.zeros(1, np.int64)) for row in rows]
        found = opened(tables, k=1)
        told = leakage_of_totals(found, 1, ROOT)
        assert told["tied"].tolist() == [0.0, 1.0, 0.0]
        assert told["radius"][1] == 0.0
        assert 0 < told["radius"][0] < 0.01
        for query in range(3):
            totals = [total for (at, _), total in found.thresholds.items() if at == query]
            assert told["above"][query] == np.mean([total > 1 for total in totals])

    def test_with_too_few_rows_no_distance_is_known(self) -> None:
        """The width is the whole range."""
        found = opened([Rows(np.array([[0.5, 0.5]]), np.zeros(1, np.int64))] * 3, k=4)
        assert interval_widths(found.found, ROOT).tolist() == [1.0] * 3


class TestLeakageOfOne:
    """The information in a total about one of its parties."""

    def test_the_leakage_equals_that_of_the_joint_distribution(self) -> None:
        """For two parties and k = 1, the distribution of counts 0, 1 and 2 or more is explicit."""
        pmf = [poisson.pmf(0, 1.5), poisson.pmf(1, 1.5), poisson.sf(1, 1.5)]
        joint = {(a, a + b): 0.0 for a in range(3) for b in range(3)}
        for a, b in ((a, b) for a in range(3) for b in range(3)):
            joint[a, a + b] += pmf[a] * pmf[b]
        totals = [sum(p for (_, t), p in joint.items() if t == total) for total in range(5)]
        expected = sum(p * np.log2(p / pmf[a] / totals[t]) for (a, t), p in joint.items())
        found = leakage_of_one(2, 1, 1.5)
        assert found.by_total == pytest.approx(expected)
        assert found.whole == pytest.approx(-sum(p * np.log2(p) for p in pmf))

    @pytest.mark.parametrize("rows", [0.5, 2.0, 5.0])
    def test_one_party_is_fully_revealed_and_more_hide_each_other(self, rows: float) -> None:
        """Of several parties less is revealed, and totals reveal more than comparisons."""
        found = [leakage_of_one(honest, 5, rows) for honest in (1, 2, 3, 7)]
        assert found[0].by_total == pytest.approx(found[0].whole)
        by_total = [each.by_total for each in found]
        assert by_total == sorted(by_total, reverse=True)
        assert all(each.by_reaching <= each.by_total for each in found)


def some_rows(parties: int, rows: int, seed: int = 4) -> list[Rows]:
    """Return rows in three dimensions and two classes."""
    rng = np.random.default_rng(seed)
    return [Rows(rng.random((rows, 3)), rng.integers(0, 2, rows)) for _ in range(parties)]


def draw(points: int, seed: int = 5) -> Floats:
    """Return points of the unit cube."""
    return np.random.default_rng(seed).random((points, 3))


class TestPlaces:
    """Attacks on the position of a row."""

    @given(seed=st.integers(0, 200), more=st.integers(0, 4))
    def test_distances_locate(self, seed: int, more: int) -> None:
        """Distances to at least four points, never in one plane here, locate a row."""
        point, queries = draw(1, seed)[0], draw(4 + more, seed + 1000)
        found = locate(queries, np.linalg.norm(queries - point, axis=1))
        assert np.linalg.norm(found - point) < 1e-9

    @given(seed=st.integers(0, 50))
    def test_shells_are_intersected(self, seed: int) -> None:
        """The centre of shells of width 0.02 is within all of them, and near the row."""
        point, queries = 0.25 + draw(1, seed)[0] / 2, draw(12, seed + 1000)
        far = np.linalg.norm(queries - point, axis=1)
        offset = np.random.default_rng(seed).random(12) * 0.02
        found = intersect_shells(queries, far - offset, far + 0.02 - offset, point + 0.01)
        at = np.linalg.norm(queries - found, axis=1)
        assert (far - offset - 1e-6 <= at).all()
        assert (at <= far + 0.02 - offset + 1e-6).all()
        assert np.linalg.norm(found - point) < 0.05

    @pytest.mark.parametrize(("arity", "steps"), [(2, 40), (16, 10)])
    def test_lines_leave_a_ball_at_its_radius(self, arity: int, steps: int) -> None:
        """Each crossing is at the radius, to the last interval."""
        point = np.array([0.4, 0.5, 0.6])
        ways = np.vstack([np.eye(3), -np.eye(3)])
        asked = []

        def within(queries: Floats) -> Bools:
            asked.append(len(queries))
            return np.asarray(np.linalg.norm(queries - point, axis=1) <= 0.1)

        found = find_crossings(within, point + 0.01, ways, 0.2, steps=steps, arity=arity)
        assert asked == [6 * (arity - 1)] * steps
        np.testing.assert_allclose(np.linalg.norm(found - point, axis=1), 0.1, atol=1e-11)

    def test_a_lone_weighted_vote_reveals_its_distance(self) -> None:
        """It is exact to the 24 fractional bits: with k = 1 every row votes alone."""
        tables, queries = some_rows(3, 30), draw(50)
        answer = bound(3, 2, k=1, weights="distance").answer(queries, tables)
        rows = np.concatenate([table.features for table in tables])
        nearest = np.linalg.norm(queries[:, None] - rows, axis=2).min(axis=1)
        found = distances_by_weight(answer.found.radii, answer.votes.values.max(axis=1))
        np.testing.assert_allclose(found, nearest, rtol=2.0**-25 * 1.01)


class TestCounts:
    """Attacks on the rows of one party."""

    def test_all_others_together_learn_the_counts_of_the_last_party(self) -> None:
        """The totals minus the others' counts are its own, at every threshold asked."""
        tables, queries = some_rows(4, 20), draw(30)
        found = opened(tables, K, queries)
        for asked, totals in zip(found.asked, found.totals, strict=True):
            others = sum(own_counts(queries, rows, asked) for rows in tables[:-1])
            np.testing.assert_array_equal(totals - others, own_counts(queries, tables[-1], asked))

    def test_two_searches_differ_by_the_counts_of_the_missing_party(self) -> None:
        """They differ at every threshold that both asked, at least in the first step."""
        tables, queries = some_rows(5, 20), draw(30)
        everyone, fewer = opened(tables, K, queries), opened(tables[:-1], K, queries)
        found = counts_of_missing(everyone, fewer)
        assert len(found) >= ARITY * len(queries)
        for asked in everyone.asked:
            own = own_counts(queries, tables[-1], asked)
            places = zip(asked.queries[asked.owner], asked.patterns, own, strict=True)
            for query, pattern, count in places:
                assert found.get((int(query), int(pattern)), count) == count


def own_counts(queries: Floats, rows: Rows, asked: Asked) -> Ints:
    """Return a party's own counts."""
    return clipped_counts(nearest_rows(queries, rows, K).distances, asked)
