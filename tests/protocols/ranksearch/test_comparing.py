"""Comparisons of shared totals with k, with all parties in one process."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.ranksearch.tables import TABLES, dealings, table
from tests.protocols.ranksearch.worlds import bound

from veilring.arrays import Ints
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm.argmax import label_play, label_scheme
from veilring.protocols.ranksearch.algorithm.comparing import levels_of, plan_of, shared_search
from veilring.protocols.ranksearch.algorithm.search import Asked, Found, clipped_counts
from veilring.protocols.ranksearch.algorithm.shares import Dealer, Play, play_together
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows, own_votes, search_rows
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ring.algorithm.classify import pooled_knn


def accuse() -> None:
    """Fail: honest parties accuse no one."""
    raise AssertionError


def searching(
    rows: Rows, queries: np.ndarray, parameters: SearchParameters, dealer: Dealer
) -> Play[Found]:
    """Return the actions of a party with rows."""
    near = nearest_rows(queries, rows, parameters.system.k).distances

    def count(asked: Asked) -> Ints:
        return clipped_counts(near, asked)

    search = parameters.interval_search(len(queries))
    return shared_search(dealer, count, search, parameters.system.k, accuse)


@pytest.mark.parametrize("k", [*range(1, 130), 1000, 21_839])
def test_a_product_takes_the_rounds_of_a_tree(k: int) -> None:
    """Rounds are ⌈log2(k + 1)⌉, one more if k + 1 is a power of 2, with half the products."""
    plan = plan_of(k)
    tree = math.ceil(math.log2(k + 1))
    assert plan.rounds == tree + ((k + 1).bit_count() == 1)
    assert plan.block * (plan.blocks - 1) < k <= plan.block * plan.blocks
    assert len(levels_of(k)) + 1 == plan.rounds
    assert sum(levels_of(k)) == plan.products <= k / 2 + 1


@given(
    st.integers(3, 9),
    st.sampled_from((1, 2, 3, 4, 5, 7, 8, 20, 40, 100)),
    st.sampled_from((None, 2, 5)),
    st.integers(0, 2**32),
)
@pytest.mark.slow
def test_a_search_by_shares_equals_one_by_totals(
    parties: int, k: int, grid: int | None, seed: int
) -> None:
    """Radii, ends and steps are equal, with ties, empty parties and fewer than k rows."""
    rng = np.random.default_rng(seed)

    def points(count: int) -> np.ndarray:
        drawn = rng.random((count, 2))
        return drawn if grid is None else np.rint(drawn * grid) / grid

    sizes = rng.integers(0, 9, parties)
    parts = [Rows(points(size), np.zeros(size, np.int64)) for size in sizes]
    queries = points(5)
    parameters = bound(2, 1, k=k, reveal="votes")
    scheme = parameters.scheme(parties)
    plays = [
        searching(rows, queries, parameters, Dealer(scheme, me, np.random.default_rng([seed, me])))
        for me, rows in enumerate(parts)
    ]
    expected = search_rows(
        queries, parts, classes=1, k=k, upper=parameters.upper, arity=16, weights="uniform"
    ).found
    for found in play_together(plays, scheme.p):
        assert found.radii.tolist() == expected.radii.tolist()
        assert found.lower.tolist() == expected.lower.tolist()
        assert found.ends.tolist() == expected.ends.tolist()
        assert found.steps == expected.steps


@pytest.mark.parametrize("k", [1, 5, 100])
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_labelled_by_shares_like_the_pooled_classifier(name: str, k: int) -> None:
    """On real tables and tied integers, labels are the pooled ones, for all partitions."""
    rows, every, classes = table(name)
    queries = every[:: len(every) // 10]
    labels = pooled_knn(queries, rows.features, rows.labels, classes, k)
    parameters = bound(queries.shape[1], classes, k=k, reveal="votes")
    for dealt, parts in dealings(rows):
        near = [nearest_rows(queries, part, k) for part in parts]
        scheme = parameters.scheme(len(parts))
        plays = [
            searching(part, queries, parameters, Dealer(scheme, me, np.random.default_rng(me)))
            for me, part in enumerate(parts)
        ]
        found = play_together(plays, scheme.p)[0]
        votes = [
            own_votes(queries, part, own, found, classes=classes, weights="uniform").counts
            for part, own in zip(parts, near, strict=True)
        ]
        most = max(k, int(np.sum(votes, axis=0).sum(axis=1).max()))
        scheme = label_scheme(len(parts), classes, most)
        labelling = [
            label_play(Dealer(scheme, me, np.random.default_rng(me)), own, most)
            for me, own in enumerate(votes)
        ]
        np.testing.assert_array_equal(play_together(labelling, scheme.p)[0], labels, dealt)
