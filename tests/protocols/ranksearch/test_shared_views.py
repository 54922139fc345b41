"""Views of shared counts and votes follow from the output, exactly and at full size.

The simulator gets the output and the shares dealt to the coalition. An opened number is 0 where the
output says so, and uniform on the other numbers elsewhere; opened words are uniform subject to
that. Shares of random polynomials are uniform, by `test_shares`; the exact distributions here are
conditioned on the shares dealt, on tiny fields, over all draws of the honest parties.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.ranksearch.worlds import Sent, bound, play_together, received, search_by_shares
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm import argmax, comparing
from veilring.protocols.ranksearch.algorithm.argmax import label_play, label_scheme
from veilring.protocols.ranksearch.algorithm.comparing import shared_search
from veilring.protocols.ranksearch.algorithm.search import (
    Asked,
    End,
    Found,
    IntervalSearch,
    pattern_of,
)
from veilring.protocols.ranksearch.algorithm.shares import (
    Dealer,
    Nonzero,
    Part,
    Play,
    Scheme,
    kept_nonzero,
    summed,
)

FALSE_ALARM = 1e-6


class Unmasked(Dealer):
    """A dealer that adds nothing to the values that it opens."""

    @override
    def zeros(self, count: int) -> Part:
        part = super().zeros(count)
        words = None if part.words is None else np.zeros_like(part.words)
        return Part(part.weights, count, words)


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


def zeros_of_a_search() -> tuple[list[list[bool]], list[list[bool]]]:
    """Return which values a search opens as 0, and which the published interval predicts."""
    parts, queries = some_rows(5, 30, 40)
    rounds: list[Sent] = []
    found = search_by_shares(queries, parts, SEARCH, watch=rounds.append)[0]
    assert set(found.ends.tolist()) == {End.EXACT, End.TIED}
    return opened_zeros(rounds, SEARCH.scheme(5)), simulated_zeros(found)


def test_all_comparisons_follow_from_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that knows only the published interval predicts which opened values are 0.

    If T = k is opened at each threshold with T >= k, the zeros differ from the simulator's.
    """
    opened, simulated = zeros_of_a_search()
    assert opened == simulated
    narrow = IntervalSearch.narrow

    def narrow_and_open_all(search: IntervalSearch, asked: Asked, below: Bools) -> object:
        reach = narrow(search, asked, below)
        at, owner = reach.at, asked.owner
        reached = np.flatnonzero(np.arange(len(owner)) >= at[owner])
        told = {"has_below": reach.has_below, "is_reached": reach.is_reached}
        return SimpleNamespace(at=at, lowest=(owner[reached], reached), **told)

    monkeypatch.setattr(IntervalSearch, "narrow", narrow_and_open_all)
    opened, simulated = zeros_of_a_search()
    assert opened != simulated


def chances_of(words: Ints, p: int) -> list[float]:
    """Return the p-values of the number of zeros, and of the numbers of all elements."""
    counts = np.bincount(words, minlength=p)
    zeros = stats.binomtest(int(counts[0]), len(words), 1 / p).pvalue
    return [zeros, stats.chisquare(counts).pvalue]


def chance_of_search(kind: type[Dealer]) -> float:
    """Return the least p-value of uniformity times the number of tests.

    The tests cover the nonzero values that a search opens, the words by which each of three honest
    parties opens them, and random sums of these.
    """
    parts, queries = some_rows(5, 30, 600)
    rounds: list[Sent] = []
    search_by_shares(queries, parts, SEARCH, kind=kind, seed=7, watch=rounds.append)
    scheme, rng = SEARCH.scheme(5), np.random.default_rng(0)
    p = scheme.p
    words = np.hstack(
        [
            np.array([cast("Ints", party[0].words) for party in sent])
            for sent in rounds
            if len(sent[0]) == 1 and sent[0][0].is_public
        ]
    )
    opened = summed(Dealer(scheme, 0, rng).opened(words[0], product=True), words, p)
    honest = words[2:, opened != 0]
    mixed = rng.integers(1, p, (4, 3)) @ honest % p
    chances = [chance for each in (*honest, *mixed) for chance in chances_of(each, p)]
    chances.append(stats.chisquare(np.bincount(opened[opened != 0], minlength=p)[1:]).pvalue)
    return min(chances) * len(chances)


def chance_of_labels(kind: type[Dealer], most: int) -> float:
    """Return the least p-value times the number of tests for all words of a labelling."""
    votes = np.random.default_rng(0).multinomial(most, np.full(20, 1 / 20), 400)
    scheme, rounds = label_scheme(5, 4, most), list[Sent]()
    plays = [
        label_play(kind(scheme, me, np.random.default_rng([8, me])), own, most)
        for me, own in enumerate(votes.reshape(400, 5, 4).transpose(1, 0, 2).astype(np.uint64))
    ]
    play_together(plays, scheme.p, rounds.append)
    told = (part for sent in rounds for party in sent[2:] for part in party if part.is_public)
    words = (part.words for part in told if part.words is not None)
    chances = [chance for each in words for chance in chances_of(each, scheme.p)]
    return min(chances) * len(chances)


@pytest.mark.parametrize(
    ("chance", "shows"),
    [
        (chance_of_search, True),
        pytest.param(partial(chance_of_labels, most=5), False, id="one-hots"),
        pytest.param(partial(chance_of_labels, most=100), True, id="bits"),
    ],
)
def test_words_at_full_size_have_the_simulators_distribution(
    chance: Callable[[type[Dealer]], float], *, shows: bool
) -> None:
    """With five parties, opened values and words are uniform (false alarm 1e-6).

    Bare products, without sharings of zero, show at this size, except for one-hots.
    """
    assert chance(Dealer) > FALSE_ALARM
    assert (chance(Unmasked) < FALSE_ALARM) == shows


PARTIES = 3


def keep_all(_dealer: Dealer, needed: int, dealt: Nonzero, _products: Ints) -> Play[Ints]:
    """Keep elements even if they are 0."""
    yield from ()
    return dealt.elements[:needed]


class OneStep(IntervalSearch):
    """A search that asks one threshold per query, once."""

    @override
    def ask(self) -> Asked | None:
        if not self.is_first:
            return None
        every = np.arange(len(self._ends))
        return Asked(every, every, np.full(len(every), pattern_of(1.0)))


def dealer_of(kind: type[Dealer], scheme: Scheme, me: int, *arrays: Ints) -> Dealer:
    """Return a dealer that draws the given values, one array after another, and then zeros."""
    left = list(arrays)

    def integers(_low: int, _high: int, shape: int | tuple[int, int]) -> Ints:
        size = np.zeros(shape, dtype=np.int64)
        return size + left.pop(0) if left else size

    return kind(scheme, me, cast("np.random.Generator", SimpleNamespace(integers=integers)))


def linear(value: Ints, share: Ints, point: int, p: int) -> Ints:
    """Return the coefficient for which a value has a given share."""
    return (share - value) * pow(point, -1, p) % p


def through_zero(top: Ints, share: int, point: int, p: int) -> Ints:
    """Return the coefficients of a sharing of zero of degree 2 with a given share."""
    low = (share - top * point**2) * pow(point, -1, p) % p
    return np.vstack([low, top])


def are_uniform(keys: Sequence[Ints], p: int, allowed: int) -> bool:
    """Return whether elements jointly take the given number of values, all equally often."""
    counts = np.bincount(np.ravel_multi_index(tuple(keys), (p,) * len(keys)))
    often = counts[counts > 0]
    return len(often) == allowed and np.ptp(often) == 0


def told_words(told: list[Ints], count: int) -> Callable[[Sent], None]:
    """Return a function that records the words opened by all parties in parts of a given size."""

    def watch(sent: Sent) -> None:
        told.extend(
            np.array([cast("Ints", party[place].words) for party in sent])
            for place, part in enumerate(sent[0])
            if part.is_public and part.count == count
        )

    return watch


def opened_by(words: Ints, p: int) -> Ints:
    """Return the values opened by three parties' words, by Lagrange's polynomial of degree 2."""
    return np.asarray((3 * words[0] - 3 * words[1] + words[2]) % p)


def step_is_simulated(
    counts: Sequence[int],
    coalition: int,
    p: int,
    seed: int,
    *,
    kind: type[Dealer] = Dealer,
    lowest: int = 1,
) -> bool:
    """Return whether a party's view of a step with k = 1 has exactly the simulator's distribution.

    One honest dealer draws all its possible values, and the others draw fixed values known to the
    coalition, which is one of the three parties with these counts. The elements R are at least
    `lowest`.
    """
    scheme, total, point = Scheme(p, PARTIES), sum(counts), coalition + 1
    free = min({0, 1} - {coalition})
    ranges = [range(lowest, p), range(p), range(lowest, p), range(p)]
    element, top, other, other_top = np.array(list(itertools.product(*ranges))).T
    size = len(element)
    spare = np.ones(Nonzero.to_draw(2 * size, p) - 2 * size, dtype=np.int64)
    rng = np.random.default_rng(seed)
    to_see, (fixed, known, *others) = rng.integers(0, p, 5), rng.integers(0, p, (8, PARTIES))
    nothing, one = np.array(0), np.array(1)
    scripts: dict[int, tuple[Ints, ...]] = {
        me: (fixed[me], known[me], others[0][me], nothing, others[1][me], nothing, others[2][me])
        for me in range(scheme.drawing)
    } | {2: (fixed[2],)}
    known_sum = sum(known[me] for me in range(scheme.drawing) if me != free)
    own = (np.concatenate([element, other, spare]) - known_sum) % p
    scripts[free] = (
        linear(np.array(counts[free]), to_see[0], point, p),
        own,
        linear(own, np.append(np.repeat(to_see[1:3], size), 0 * spare), point, p),
        one,
        nothing,
        nothing,
        through_zero(top, to_see[3], point, p),
        through_zero(other_top, to_see[4], point, p),
    )

    def play(me: int) -> Play[Found]:
        dealer = dealer_of(kind, scheme, me, *scripts[me])
        search = OneStep(size, 1.0, 2)
        return shared_search(
            dealer, lambda asked: np.full(len(asked), counts[me]), search, 1, lambda: None
        )

    told: list[Ints] = []
    play_together([play(me) for me in range(PARTIES)], p, told_words(told, size))
    if len(told) != min(total, 1) + 1:
        return False
    keys, allowed = [], 1
    for words, is_zero in zip(told, [total < 1, total == 1], strict=False):
        keys += [opened_by(words, p), words[free]]
        allowed *= p * (1 if is_zero else p - 1)
        if (keys[-2] == 0).any() != is_zero or np.ptp(words[coalition]):
            return False
    return are_uniform(keys, p, allowed)


WORLDS = [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 1, 0), (0, 2, 1), (2, 0, 2)]
EVERY = list(itertools.product(WORLDS, range(PARTIES)))


@pytest.mark.parametrize("p", [5, 7])
def test_a_step_has_the_simulators_distribution(p: int) -> None:
    """Given the output, the words of T < k and T = k have exactly the simulator's distribution."""
    for counts, coalition in EVERY:
        assert all(step_is_simulated(counts, coalition, p, seed) for seed in range(3))


def test_broken_steps_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a bare product differ in every world, because they reveal its factors.

    If a factor R may be 0, the view's distribution differs in exactly the worlds with T >= k.
    """
    for counts, coalition in EVERY:
        assert not step_is_simulated(counts, coalition, 5, 0, kind=Unmasked)
    monkeypatch.setattr(comparing, "kept_nonzero", keep_all)
    for counts, coalition in EVERY:
        assert step_is_simulated(counts, coalition, 5, 0, lowest=0) == (sum(counts) < 1)


@pytest.mark.parametrize("p", [5, 7])
def test_a_kept_factor_stays_uniform(p: int) -> None:
    """Given its whole view, an unopened element is uniform on 1 … p - 1."""
    scheme, draws = Scheme(p, PARTIES), range(p)
    value, slope, partner, partner_slope, low, top = np.array(
        list(itertools.product(draws, repeat=6))
    ).T
    script = value, slope, partner, partner_slope, np.vstack([low, top])
    fixed = tuple(np.random.default_rng(p).integers(0, p, 5))
    told: list[Ints] = []
    seen: list[Ints] = []

    def watch(sent: Sent) -> None:
        told_words(told, len(value))(sent)
        if not sent[1][0].is_public:
            seen.extend(cast("Ints", part.words)[0] for part in sent[1])

    def play(me: int, *arrays: Ints) -> Play[Ints]:
        dealer = dealer_of(Dealer, scheme, me, *arrays)
        dealt = Nonzero(*(yield Nonzero.dealt(dealer, len(value))))
        (products,) = yield [dealt.checked(dealer)]
        kept = yield from kept_nonzero(dealer, int((products != 0).sum()), dealt, products)
        (opened,) = yield [dealer.opened(kept)]
        return opened

    opened = play_together([play(0, *fixed), play(1, *script), play(2)], p, watch)[0]
    (words,) = told
    kept = opened_by(words, p) != 0
    keys = [opened, *(each[kept] for each in (*seen, words[1], opened_by(words, p)))]
    assert are_uniform(keys, p, (p - 1) ** 2 * p**4)


def label_is_simulated(
    votes: NDArray[np.uint64], coalition: int, kind: type[Dealer] = Dealer, lowest: int = 1
) -> bool:
    """Return whether a party's view of a labelling of two classes has the simulator's distribution.

    The votes of three parties, shape (3, 2), have a total of at most 1. The elements R_c are at
    least `lowest`.
    """
    p, point = 5, coalition + 1
    scheme = Scheme(p, PARTIES)
    free = min({0, 1} - {coalition})
    (second,) = {0, 1, 2} - {coalition, free}
    of_both = np.indices((p, p, p - lowest, p) * 2).reshape(2, 4, -1)
    pad, other_pad, element, top = of_both.transpose(1, 2, 0).reshape(4, -1)
    element = element + lowest
    spare = np.ones(Nonzero.to_draw(len(pad), p) - len(pad), dtype=np.int64)
    rng = np.random.default_rng(coalition)
    to_see, known = rng.integers(0, p, 4), rng.integers(0, p, (6, PARTIES))
    nothing, one = np.array(0), np.array(1)
    scripts: dict[int, tuple[Ints, ...]] = {
        me: (known[0][me], known[1][me], *dealt)
        for me in range(PARTIES)
        for dealt in [
            (known[2][me], known[3][me], nothing, known[4][me], nothing, known[5][me])
            if me < scheme.drawing
            else ()
        ]
    }
    scripts[second] = (other_pad, linear(other_pad, to_see[0], point, p), *scripts[second][2:])
    own = (np.append(element, spare) - sum(known[2][me] for me in (0, 1) if me != free)) % p
    scripts[free] = (
        pad,
        linear(pad, to_see[1], point, p),
        own,
        linear(own, to_see[2], point, p),
        one,
        nothing,
        nothing,
        through_zero(top, to_see[3], point, p),
    )
    told: list[Ints] = []

    def play(me: int) -> Play[Ints]:
        dealer = dealer_of(kind, scheme, me, *scripts[me])
        every = np.repeat(votes[me][None], len(pad) // 2, axis=0)
        return label_play(dealer, every, 1)

    play_together([play(me) for me in range(PARTIES)], p, told_words(told, len(pad)))
    masked, words = told
    label, opened = int(votes.sum(axis=0).argmax()), opened_by(words, p).reshape(-1, 2)
    if ((opened == 0).any(axis=0) != (np.arange(2) == label)).any():
        return False
    honest = [masked[free], masked[second], words[free]]
    keys = [*(each.reshape(-1, 2)[:, c] for each in honest for c in range(2)), *opened.T]
    return are_uniform(keys, p, p**6 * (p - 1))


VOTES = np.zeros((PARTIES, PARTIES, 2), np.uint64)
"""The vote of one party, in each of three worlds; their labels are 0, 1 and 1."""
VOTES[range(PARTIES), range(PARTIES), [0, 1, 1]] = 1


@pytest.mark.slow
@pytest.mark.parametrize("coalition", range(PARTIES))
def test_a_label_has_the_simulators_distribution(coalition: int) -> None:
    """Given the label, all opened words have exactly the simulator's distribution."""
    assert all(label_is_simulated(votes, coalition) for votes in VOTES)


@pytest.mark.slow
def test_broken_labels_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of a bare product `R_c · L_c` do not have the simulator's distribution.

    Neither do they if R_c may be 0: then a losing class can look like the winner.
    """
    assert not label_is_simulated(VOTES[1], 0, kind=Unmasked)
    monkeypatch.setattr(argmax, "kept_nonzero", keep_all)
    assert not label_is_simulated(VOTES[1], 0, lowest=0)
