"""The opened values of a whole search by shares follow from its published interval."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from scipy import stats
from tests.protocols.ranksearch.worlds import bound
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm.argmax import label_play, label_scheme
from veilring.protocols.ranksearch.algorithm.comparing import shared_search
from veilring.protocols.ranksearch.algorithm.search import (
    Asked,
    End,
    Found,
    IntervalSearch,
    Reach,
    clipped_counts,
)
from veilring.protocols.ranksearch.algorithm.shares import (
    Dealer,
    Part,
    Play,
    Scheme,
    play_together,
    received,
    summed,
)
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows

FALSE_ALARM = 1e-6
Sent = Sequence[Sequence[Part]]


class Unmasked(Dealer):
    """A dealer that adds nothing to the values that it opens."""

    @override
    def zeros(self, count: int) -> Part:
        part = super().zeros(count)
        words = None if part.words is None else np.zeros_like(part.words)
        return Part(part.weights, count, words)


@dataclass(frozen=True, slots=True, eq=False)
class AllReached(Reach):
    """The thresholds that reach k rows, all of them treated as the lowest.

    Attributes:
        owner: For each threshold the position of its query, shape (thresholds,).
    """

    owner: Ints

    @property
    @override
    def lowest(self) -> tuple[Ints, Ints]:
        reached = np.flatnonzero(np.arange(len(self.owner)) >= self.at[self.owner])
        return self.owner[reached], reached


def searching(
    parts: Sequence[Rows],
    queries: Floats,
    watch: Callable[[Sent], None],
    kind: type[Dealer] = Dealer,
) -> Found:
    """Search by shares in this process."""
    scheme = SEARCH.scheme(len(parts))

    def play(me: int) -> Play[Found]:
        near = nearest_rows(queries, parts[me], SEARCH.system.k).distances
        return shared_search(
            kind(scheme, me, np.random.default_rng([7, me])),
            lambda asked: clipped_counts(near, asked),
            SEARCH.interval_search(len(queries)),
            SEARCH.system.k,
            lambda: None,
        )

    return play_together([play(me) for me in range(len(parts))], scheme.p, watch)[0]


def simulated_zeros(found: Found) -> list[list[bool]]:
    """Return which opened values are 0, round by round, given only the published interval.

    T < k holds up to its lower end and nowhere from its upper end on, and T = k at that end if the
    query ended so.
    """
    search, zeros = SEARCH.interval_search(len(found.radii)), []
    equal = np.empty(0, dtype=np.bool_)
    while (asked := search.ask()) is not None:
        of = asked.queries
        below = asked.values <= found.lower[of][asked.owner]
        zeros += [equal.tolist()] * bool(len(equal))
        reach = search.narrow(asked, below)
        ended = of[reach.is_reached]
        at = asked.values[reach.at[reach.is_reached]]
        equal = (found.ends[ended] == End.EXACT) & (found.radii[ended] == at)
        zeros.append(below.tolist())
        search.end(ended[equal])
    return [*zeros, *([equal.tolist()] if len(equal) else [])]


def opened_zeros(sent_rounds: Sequence[Sent], scheme: Scheme) -> list[list[bool]]:
    """Return which opened values were 0, round by round, without the checks of factors."""
    zeros = []
    for sent in sent_rounds:
        told = [place for place, part in enumerate(sent[0]) if part.is_public and part.count]
        is_check = len(sent[0]) == 2 and not sent[0][1].is_public  # along with powers
        for place in told if not is_check else []:
            parts = [party[place] for party in sent]
            opened = summed(parts[0], received(parts, 0), scheme.p)
            zeros.append((opened == 0).tolist())
    return zeros


def some_rows(parties: int, rows: int, queries: int) -> tuple[list[Rows], Floats]:
    """Return rows of parties, with some ties, and queries."""
    rng = np.random.default_rng(parties)
    points = [np.rint(rng.random((rows, 2)) * 40) / 40 for _ in range(parties)]
    parts = [Rows(each, np.zeros(rows, np.int64)) for each in points]
    return parts, rng.random((queries, 2))


SEARCH = bound(2, 1, reveal="votes")


def test_all_comparisons_follow_from_the_interval() -> None:
    """A simulator that knows only the published interval predicts which opened values are 0."""
    parts, queries = some_rows(5, 30, 40)
    rounds: list[Sent] = []
    found = searching(parts, queries, rounds.append)
    assert set(found.ends.tolist()) == {End.EXACT, End.TIED}
    assert opened_zeros(rounds, SEARCH.scheme(5)) == simulated_zeros(found)


def test_opening_all_equalities_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If T = k is opened at each threshold with T >= k, the zeros differ from the simulator's."""
    narrow = IntervalSearch.narrow

    def narrow_and_open_all(search: IntervalSearch, asked: Asked, below: Bools) -> Reach:
        reach = narrow(search, asked, below)
        return AllReached(reach.at, reach.has_below, reach.is_reached, asked.owner)

    monkeypatch.setattr(IntervalSearch, "narrow", narrow_and_open_all)
    parts, queries = some_rows(5, 30, 40)
    rounds: list[Sent] = []
    found = searching(parts, queries, rounds.append)
    assert opened_zeros(rounds, SEARCH.scheme(5)) != simulated_zeros(found)


def least_chance(kind: type[Dealer]) -> tuple[float, int]:
    """Return the least p-value of uniformity, and the number of tests.

    The tests cover the nonzero values that a search opens, the words by which each of three honest
    parties opens them, and random sums of these.
    """
    parts, queries = some_rows(5, 30, 600)
    rounds: list[Sent] = []
    searching(parts, queries, rounds.append, kind)
    scheme, rng = SEARCH.scheme(5), np.random.default_rng(0)
    p, chances = scheme.p, list[float]()
    products = [
        np.array([cast("Ints", party[0].words) for party in sent])
        for sent in rounds
        if len(sent[0]) == 1 and sent[0][0].is_public
    ]
    words = np.hstack(products)
    opened = summed(Dealer(scheme, 0, rng).opened(words[0], product=True), words, p)
    honest = words[2:, opened != 0]
    mixed = rng.integers(1, p, (4, 3)) @ honest % p
    for each in (*honest, *mixed):
        zeros = stats.binomtest(int((each == 0).sum()), len(each), 1 / p).pvalue
        chances += [zeros, stats.chisquare(np.bincount(each, minlength=p)).pvalue]
    nonzero = opened[opened != 0]
    chances.append(stats.chisquare(np.bincount(nonzero, minlength=p)[1:]).pvalue)
    return min(chances), len(chances)


def test_a_search_at_full_size_has_the_simulators_distribution() -> None:
    """With five parties and k = 5, opened values and words are uniform (false alarm 1e-6)."""
    least, taken = least_chance(Dealer)
    assert least > FALSE_ALARM / taken


def test_bare_products_at_full_size_are_caught() -> None:
    """Without sharings of zero, the words of a search are not uniform."""
    least, taken = least_chance(Unmasked)
    assert least < FALSE_ALARM / taken


def least_chance_of_labels(most: int, kind: type[Dealer]) -> tuple[float, int]:
    """Return the least p-value and the number of tests for all words of a labelling."""
    votes = np.random.default_rng(0).multinomial(most, np.full(20, 1 / 20), 400)
    scheme, rounds = label_scheme(5, 4, most), list[Sent]()
    plays = [
        label_play(kind(scheme, me, np.random.default_rng([8, me])), own, most)
        for me, own in enumerate(votes.reshape(400, 5, 4).transpose(1, 0, 2).astype(np.uint64))
    ]
    play_together(plays, scheme.p, rounds.append)
    chances = list[float]()
    told = (part for sent in rounds for party in sent[2:] for part in party if part.is_public)
    for part in told:
        if part.words is not None:
            zeros = int((part.words == 0).sum())
            chances.append(stats.binomtest(zeros, part.count, 1 / scheme.p).pvalue)
            counts = np.bincount(part.words, minlength=scheme.p)
            chances.append(stats.chisquare(counts).pvalue)
    return min(chances), len(chances)


@pytest.mark.parametrize("most", [5, 100], ids=["one-hots", "bits"])
def test_labels_at_full_size_have_the_simulators_distribution(most: int) -> None:
    """The words of a labelling are uniform at each honest party (false alarm 1e-6)."""
    least, taken = least_chance_of_labels(most, Dealer)
    assert least > FALSE_ALARM / taken


def test_bare_squares_at_full_size_are_caught() -> None:
    """Without sharings of zero, the words of a labelling are not uniform."""
    least, taken = least_chance_of_labels(100, Unmasked)
    assert least < FALSE_ALARM / taken
