"""Checks of totals and votes: they pass all honest runs, and detect every visible lie."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.arrays import Bools
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm.search import End, Found, TotalsSearch, clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import (
    WEIGHT_BITS,
    Votes,
    could_be_votes,
    nearest_rows,
    no_votes,
    own_votes,
)
from veilring.protocols.ring.algorithm.classify import Weights

QUERY = np.zeros((1, 1))


def search_of(parties: int, k: int, queries: int = 1) -> TotalsSearch:
    """Return a search of one feature before its first step."""
    return TotalsSearch(queries, k=k, upper=1.0, arity=4, parties=parties)


def at(*distances: float, label: int = 0) -> Rows:
    """Return rows of one feature at the given distances from the query."""
    return Rows(np.array(distances)[:, None], np.full(len(distances), label))


def total(parts: list[Votes], k: int, tied: Bools) -> Votes:
    """Add up votes in the words in which they are sent."""
    arrays = zip(*(part.arrays(tied, k) for part in parts), strict=True)
    return Votes.of([np.add.reduce(each) for each in arrays], tied)


@given(st.data())
def test_no_honest_run_fails_a_check(data: st.DataObject) -> None:
    """For any rows, ties and weights, totals and votes pass at every party."""
    parties, k = data.draw(st.integers(3, 5)), data.draw(st.integers(1, 4))
    steps = data.draw(st.integers(1, 4))  # few values, so there are many ties
    weights: Weights = data.draw(st.sampled_from(["uniform", "distance"]))
    values = st.integers(0, steps).map(lambda value: value / steps)
    rows = [
        Rows(np.array(held)[:, None].reshape(-1, 1), np.arange(len(held)) % 2)
        for held in data.draw(
            st.lists(st.lists(values, max_size=8), min_size=parties, max_size=parties)
        )
    ]
    queries = np.array(data.draw(st.lists(values, min_size=1, max_size=3)))[:, None]
    near = [nearest_rows(queries, held, k) for held in rows]
    search = search_of(parties, k, len(queries))
    while (asked := search.ask()) is not None:
        totals = sum(clipped_counts(own.distances, asked) for own in near)
        assert all(search.could_be(asked, np.asarray(totals), own.distances) for own in near)
        search.take(asked, np.asarray(totals))
    found = search.found()
    votes = [
        own_votes(queries, held, own, found, classes=2, weights=weights)
        for held, own in zip(rows, near, strict=True)
    ]
    both = total(votes, k, found.tied)
    for own in votes:
        assert could_be_votes(both, own, found, search.at_radius, search.at_least)


class TestTotals:
    """Totals of three parties, checked by one of them: the others' part must rise."""

    NEAR = nearest_rows(QUERY, at(0.3, 0.6), 2).distances
    """The party's own, whose counts are clipped at 3."""

    def verdict(self, others: Callable[[float], int], search: TotalsSearch | None = None) -> bool:
        """Return whether a total could be honest, given the others' part by radius."""
        search = search_of(parties=3, k=2) if search is None else search
        asked = search.ask()
        assert asked is not None
        left = np.array([others(radius) for radius in asked.values.tolist()])
        return search.could_be(asked, left + clipped_counts(self.NEAR, asked), self.NEAR)

    def test_possible_counts_of_others_pass(self) -> None:
        """Zero, the maximum, and any number that rises from one to the other pass."""
        for others in (lambda _: 0, lambda _: 6, lambda radius: int(6 * radius)):
            assert self.verdict(others)

    @pytest.mark.parametrize("others", [-1, 7])
    def test_negative_and_excessive_counts_are_detected(self, others: int) -> None:
        """Two other parties count at most three rows each."""
        assert not self.verdict(lambda _: others)

    def test_a_fall_hidden_by_own_rows_is_detected(self) -> None:
        """If the total is constant while the party's own count rises, the others' has fallen."""
        assert not self.verdict(lambda radius: 2 - (radius >= 0.3) - (radius >= 0.6))

    def test_counts_outside_the_interval_are_detected(self) -> None:
        """Later steps are between two radii at which the others' counts are known."""

        def later(others: int) -> bool:
            search = search_of(parties=3, k=2)
            asked = search.ask()
            assert asked is not None
            search.take(asked, 4 * (asked.values == 1.0))  # two own ones, and two of others
            return self.verdict(lambda _: others, search)

        assert [later(others) for others in (-1, 0, 2, 3)] == [False, True, True, False]


class TestVotes:
    """Vote totals of three parties, checked by one without rows near the query."""

    @pytest.fixture
    def found(self) -> Found:
        """Return a search that ended with two rows within 0.5, and one within 0.25."""
        return Found(
            np.array([0.5]), np.array([0.25]), np.array([End.EXACT], dtype=np.uint8), (), ()
        )

    def verdict(
        self, found: Found, counts: list[int], weights: list[float] | None = None, least: int = 0
    ) -> bool:
        """Return whether totals could be honest with two rows within the radius."""
        totals = Votes(np.array([counts], dtype=np.uint64))
        if weights is not None:
            fixed = np.array([weights]) * 2.0**WEIGHT_BITS
            totals = Votes(totals.counts, fixed.astype(np.uint64))
        own = no_votes(1, len(counts), "uniform" if weights is None else "distance")
        return could_be_votes(totals, own, found, np.array([2]), np.array([least]))

    def test_votes_add_up_to_the_rows(self, found: Found) -> None:
        """They equal the number of rows, or exceed it for ties, since counts are clipped."""
        assert [self.verdict(found, [votes, 1]) for votes in (0, 1, 2)] == [False, True, False]
        tied = replace(found, ends=np.array([End.TIED], dtype=np.uint8))
        assert [self.verdict(tied, [votes, 1]) for votes in (0, 1, 9)] == [False, True, True]

    def test_a_weight_is_at_least_one(self, found: Found) -> None:
        """Each row with a weight has a weight of at least one, even if rows tie."""
        for ends in (End.EXACT, End.TIED):
            ended = replace(found, ends=np.array([ends], dtype=np.uint8))
            assert self.verdict(ended, [0, 0], [1.0, 1.5])
            assert not self.verdict(ended, [0, 0], [1.0, 0.5])

    def test_rows_at_distance_0_are_within_the_lowest_threshold(self, found: Found) -> None:
        """A false one would decide alone, and is detected if the lowest total is 0."""
        assert self.verdict(found, [1, 0], [0.0, 1.5], least=1)
        assert not self.verdict(found, [1, 0], [0.0, 1.5], least=0)
