"""Comparisons of shared totals with k, by all parties in one process."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm.comparing import levels_of, plan_of, shared_search
from veilring.protocols.ranksearch.algorithm.search import Asked, Found, clipped_counts
from veilring.protocols.ranksearch.algorithm.shares import Dealer, Ints, Play, play_together
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows, search_rows
from veilring.protocols.ranksearch.parameters import SearchParameters


def accuse() -> None:
    """Fail: honest parties accuse nobody."""
    raise AssertionError


def searching(
    rows: Rows, queries: np.ndarray, parameters: SearchParameters, dealer: Dealer
) -> Play[Found]:
    """Return what a party does that holds rows."""
    near = nearest_rows(queries, rows, parameters.k).distances

    def count(asked: Asked) -> Ints:
        return clipped_counts(near, asked)

    search = parameters.interval_search(len(queries))
    return shared_search(dealer, count, search, parameters.k, accuse)


@pytest.mark.parametrize("k", [*range(1, 130), 1000, 21_839])
def test_a_product_takes_as_few_rounds_as_a_tree(k: int) -> None:
    """Rounds are ⌈log2(k + 1)⌉, one more where k + 1 is a power of 2; products half as many."""
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
def test_a_search_by_shares_finds_what_one_by_totals_finds(
    parties: int, k: int, grid: int | None, seed: int
) -> None:
    """Radii, ends and steps are the same, with ties, empty parties and fewer than k rows."""
    rng = np.random.default_rng(seed)

    def points(count: int) -> np.ndarray:
        drawn = rng.random((count, 2))
        return drawn if grid is None else np.rint(drawn * grid) / grid

    sizes = rng.integers(0, 9, parties)
    parts = [Rows(points(size), np.zeros(size, np.int64)) for size in sizes]
    queries = points(5)
    parameters = SearchParameters(
        features=2,
        classes=1,
        k=k,
        arity=16,
        reveal="votes",
        sum="all-to-all",
        weights="uniform",
        again=False,
    )
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
