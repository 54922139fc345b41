"""Attacks on the published results of rank search, compared with the real rows."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.ranksearch.worlds import bound

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows
from veilring.nodes.cluster import Cluster
from veilring.protocols.ranksearch import SearchedRows, rank_search
from veilring.protocols.ranksearch.algorithm.search import Asked, Found, clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows, search_rows
from veilring.protocols.ranksearch.leakage import (
    Opened,
    counts_of_missing,
    distances_by_weight,
    find_crossings,
    intersect_shells,
    locate,
    open_totals,
)
from veilring.protocols.ranksearch.parameters import Reveal

K, ARITY = 3, 16
UPPER = 3**0.5


def deal(parties: int, rows: int, seed: int = 4) -> list[Rows]:
    """Return rows in three dimensions and two classes."""
    rng = np.random.default_rng(seed)
    return [Rows(rng.random((rows, 3)), rng.integers(0, 2, rows)) for _ in range(parties)]


def draw(points: int, seed: int = 5) -> Floats:
    """Return points of the unit cube."""
    return np.random.default_rng(seed).random((points, 3))


def opened(queries: Floats, tables: list[Rows]) -> Opened:
    """Return the opened values of a search among parties."""
    return open_totals(queries, tables, k=K, upper=UPPER, arity=ARITY)


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
        tables, queries = deal(3, 30), draw(50)
        answer = search_rows(
            queries, tables, classes=2, k=1, upper=UPPER, arity=ARITY, weights="distance"
        )
        rows = np.concatenate([table.features for table in tables])
        nearest = np.linalg.norm(queries[:, None] - rows, axis=2).min(axis=1)
        found = distances_by_weight(answer.found.radii, answer.votes.values.max(axis=1))
        np.testing.assert_allclose(found, nearest, rtol=2.0**-25 * 1.01)


@pytest.mark.parametrize("reveal", ["totals", "votes", "label"])
def test_radii_are_published_in_every_mode(reveal: Reveal) -> None:
    """Each mode publishes the same intervals, so that lines can be followed in each."""
    tables, queries = deal(5, 12), draw(6)
    public = bound(3, 2, k=1, reveal=reveal)

    async def play() -> Found:
        async with Cluster(5, own=[SearchedRows(rows) for rows in tables]) as cluster:
            client = {"party-0": {"queries": queries}}
            run = await cluster.run(rank_search, client="party-0", parameters=public, only=client)
        found: Found = run.result.found
        return found

    found = asyncio.run(play())
    plain = open_totals(queries, tables, k=1, upper=UPPER, arity=ARITY).found
    np.testing.assert_array_equal(found.radii, plain.radii)
    np.testing.assert_array_equal(found.lower, plain.lower)


class TestCounts:
    """Attacks on the rows of one party."""

    def test_all_others_together_learn_the_counts_of_the_last_party(self) -> None:
        """The totals minus the others' counts are its own, at every threshold asked."""
        tables, queries = deal(4, 20), draw(30)
        found = opened(queries, tables)
        for asked, totals in zip(found.asked, found.totals, strict=True):
            others = sum(own_counts(queries, rows, asked) for rows in tables[:-1])
            np.testing.assert_array_equal(totals - others, own_counts(queries, tables[-1], asked))

    def test_two_searches_differ_by_the_counts_of_the_missing_party(self) -> None:
        """They differ at every threshold that both asked, at least in the first step."""
        tables, queries = deal(5, 20), draw(30)
        everyone, fewer = opened(queries, tables), opened(queries, tables[:-1])
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
