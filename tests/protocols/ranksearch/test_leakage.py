"""Leakage of totals: intervals of distances, but not the owners of rows."""

import asyncio
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson
from tests.protocols.ranksearch.worlds import bound

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.cluster import Cluster
from veilring.protocols.masks import MaskedTotals
from veilring.protocols.ranksearch import SearchedRows, rank_search
from veilring.protocols.ranksearch.algorithm.search import End
from veilring.protocols.ranksearch.leakage import (
    Opened,
    interval_widths,
    leakage_of_one,
    leakage_of_totals,
    open_totals,
)

UPPER, ARITY = 2**0.5, 16
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


def opened(tables: list[Rows], k: int = 2) -> Opened:
    """Return the opened values of a search among parties."""
    return open_totals(QUERIES, tables, k=k, upper=UPPER, arity=ARITY)


def kth(tables: list[Rows], k: int) -> Floats:
    """Return the k-th smallest distance of all rows to each query, infinite with fewer rows."""
    rows = np.concatenate([table.features for table in tables])
    none = np.full((len(QUERIES), k), np.inf)
    distances = np.concatenate([pairwise_distances(QUERIES, rows), none], axis=1)
    return np.asarray(np.sort(distances, axis=1)[:, k - 1])


class TestOpened:
    """The record of a search in this process."""

    def test_a_record_equals_the_messages_of_a_star(self) -> None:
        """Step by step, the totals of the record are those sent by the adder."""
        rng = np.random.default_rng(2)
        tables = [Rows(rng.random((20, 2)), np.zeros(20, np.int64)) for _ in range(3)]
        public = bound(2, 1, k=2, sum="star")

        async def play() -> list[Ints]:
            async with Cluster(3, own=[SearchedRows(rows) for rows in tables]) as cluster:
                run = await cluster.run(
                    rank_search,
                    client="party-0",
                    parameters=public,
                    only={"party-0": {"queries": QUERIES}},
                    watch=["party-1"],
                )
            told = [seen.message for seen in run.views["party-1"].received]
            return [m.words[0].astype(np.int64) for m in told if isinstance(m, MaskedTotals)]

        *counts, _votes = asyncio.run(play())
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
        told = leakage_of_totals(found, 1, UPPER)
        assert told["tied"].tolist() == [0.0, 1.0, 0.0]
        assert told["radius"][1] == 0.0
        assert 0 < told["radius"][0] < 0.01
        for query in range(3):
            totals = [total for (at, _), total in found.thresholds.items() if at == query]
            assert told["above"][query] == np.mean([total > 1 for total in totals])

    def test_with_too_few_rows_no_distance_is_known(self) -> None:
        """The width is the whole range."""
        found = opened([Rows(np.array([[0.5, 0.5]]), np.zeros(1, np.int64))] * 3, k=4)
        assert interval_widths(found.found, UPPER).tolist() == [1.0] * 3


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
