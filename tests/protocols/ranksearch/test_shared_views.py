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
from typing import NamedTuple, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.ranksearch.worlds import (
    Seat,
    Sent,
    bound,
    dealers_of,
    play_together,
    search_by_shares,
    summed,
)
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm import argmax, comparing
from veilring.protocols.ranksearch.algorithm.argmax import draw_masks, label_play, label_scheme
from veilring.protocols.ranksearch.algorithm.comparing import shared_search
from veilring.protocols.ranksearch.algorithm.search import (
    Asked,
    End,
    Found,
    IntervalSearch,
    Reach,
    Spacing,
    clipped_counts,
    pattern_of,
)
from veilring.protocols.ranksearch.algorithm.shares import (
    PRIMES,
    Dealer,
    Draws,
    Elements,
    Nonzero,
    Play,
    Scheme,
    alongside,
    kept_nonzero,
)

FALSE_ALARM = 1e-6


class Unmasked(Seat):
    """A dealer that adds nothing to the products that it opens."""

    @override
    def __init__(self, scheme: Scheme, me: int, draws: Draws, given: Draws, masks: Draws) -> None:
        super().__init__(scheme, me, draws, given, lambda count: 0 * masks(count))


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


def compared_at(sent: Sent) -> int | None:
    """Return the place of the comparisons among the parts of a round, if it opens any.

    Checks of factors come before dealt products, or after comparisons.
    """
    opens = [part.size.is_public for part in sent[0][:2]]
    return 0 if opens == [True, True] else 1 if opens == [False, True] else None


def opened_zeros(sent_rounds: Sequence[Sent], scheme: Scheme) -> list[list[bool]]:
    """Return which opened values were 0, round by round, without the checks of factors."""
    zeros = []
    for sent in sent_rounds:
        place = compared_at(sent)
        if place is not None and sent[0][place].size.words:
            opened = summed((party[place] for party in sent), 0, scheme)
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


def chance_of_search(kind: type[Seat]) -> float:
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
            np.array([cast("Elements", party[0].words) for party in sent], dtype=np.int64)
            for sent in rounds
            if compared_at(sent) == 0
        ]
    )
    opened = words.sum(axis=0) % p
    honest = words[2:, opened != 0]
    mixed = rng.integers(1, p, (4, 3)) @ honest % p
    chances = [chance for each in (*honest, *mixed) for chance in chances_of(each, p)]
    chances.append(stats.chisquare(np.bincount(opened[opened != 0], minlength=p)[1:]).pvalue)
    return min(chances) * len(chances)


def chance_of_labels(kind: type[Seat], most: int) -> float:
    """Return the least p-value times the number of tests for all words of a labelling."""
    votes = np.random.default_rng(0).multinomial(most, np.full(20, 1 / 20), 400)
    scheme, rounds = label_scheme(5, 4, most), list[Sent]()
    each = votes.reshape(400, 5, 4).transpose(1, 0, 2).astype(np.uint64)
    seats = dealers_of(scheme, 8, kind)
    plays = [label_play(seat, own, most) for seat, own in zip(seats, each, strict=True)]
    play_together(plays, seats, rounds.append)
    told = (part for sent in rounds for party in sent[2:] for part in party if part.size.is_public)
    words = (part.words for part in told if part.words is not None)
    chances = [chance for each in words for chance in chances_of(each.astype(np.int64), scheme.p)]
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
    chance: Callable[[type[Seat]], float], *, shows: bool
) -> None:
    """With five parties, opened values and words are uniform (false alarm 1e-6).

    Bare products, without masks, show at this size, except for one-hots.
    """
    assert chance(Seat) > FALSE_ALARM
    assert (chance(Unmasked) < FALSE_ALARM) == shows


PARTIES = 3
SPACING = Spacing(1.0, 2, is_sparse=True)


def keep_all(_dealer: Dealer, needed: int, dealt: Nonzero, _products: Elements) -> Play[Elements]:
    """Keep elements even if they are 0."""
    yield from ()
    return dealt.elements[:needed]


class Numbered(Seat):
    """A dealer that draws 1, 2, 3 … if it is the first party, and zeros otherwise."""

    @override
    def __init__(self, scheme: Scheme, me: int, draws: Draws, given: Draws, masks: Draws) -> None:
        numbers = itertools.count(1)

        def draw(count: int) -> Elements:
            return np.array([next(numbers) * (me == 0) for _ in range(count)], dtype=scheme.word)

        super().__init__(scheme, me, draw, given, masks)


def test_no_drawn_element_is_used_twice() -> None:
    """A batch opens values under different elements: of its counts, and of votes after them."""
    k, rng, classes = 2, np.random.default_rng(0), np.arange(3)
    smallest = [np.sort(rng.random((40, k + 1)), axis=1) for _ in range(PARTIES)]
    votes = rng.multinomial(k, np.full(len(classes), 1 / len(classes)), len(smallest[0]))
    scheme, multiples = Scheme(PRIMES[-1], PARTIES), list[Ints]()

    class Watched(IntervalSearch):
        """A search that notes the number by which each opened element is multiplied."""

        @override
        def narrow(self, asked: Asked, below: Bools) -> Reach:
            reach = super().narrow(asked, below)
            totals = np.sum([clipped_counts(near, asked) for near in smallest], axis=0)
            multiples.append(totals * (totals - 1))
            multiples.append(totals[reach.lowest[1]] - k)
            return reach

    def play(me: int) -> Play[Ints]:
        search = (Watched if me == 0 else IntervalSearch)(len(votes), SPACING)
        count, own = partial(clipped_counts, smallest[me]), votes.astype(np.uint64) * (me == 1)
        searching = shared_search(seats[me], count, search, k, pytest.fail)
        _, masks = yield from alongside(searching, draw_masks(seats[me], votes.shape, k))
        return (yield from label_play(seats[me], own, k, masks))

    rounds: list[Sent] = []
    seats = dealers_of(scheme, 0, Numbered)
    play_together([play(me) for me in range(PARTIES)], seats, rounds.append)
    *search_rounds, masked, _, labelled = rounds
    places = [(sent, compared_at(sent)) for sent in search_rounds]
    told = [
        summed((party[place] for party in sent), 0, scheme).astype(np.int64)
        for sent, place in [*places, (labelled, 0), (masked, 0)]
        if place is not None
    ]
    *opened, pads = (each for each in told if len(each))
    this, other = votes[:, :, None], votes[:, None, :]
    beaten = (other > this) | (other == this) & (classes < classes[:, None])
    multiples.append(beaten.sum(axis=2).ravel())
    used = [(pads - votes.ravel()) % scheme.p]
    for values, times in zip(opened, [each for each in multiples if len(each)], strict=True):
        inverse = [pow(each, -1, scheme.p) for each in times[times != 0].tolist()]
        used.append(values[times != 0] * inverse % scheme.p)
    every = np.concatenate(used)
    assert every.min() > 0
    assert len(np.unique(every)) == len(every)


class OneStep(IntervalSearch):
    """A search that asks one threshold per query, once."""

    @override
    def ask(self) -> Asked | None:
        if not self.is_first:
            return None
        every = np.arange(len(self._ends))
        return Asked(every, every, np.full(len(every), pattern_of(1.0)))


class Script(NamedTuple):
    """The values that a dealer draws, in order; those shared with others, for a round at once.

    After them it draws ones of its own, and zeros.
    """

    draws: Sequence[Ints] = ()
    given: Sequence[Ints] = ()
    masks: Sequence[Ints] = ()

    def dealer(self, kind: type[Seat], scheme: Scheme, me: int) -> Seat:
        """Return the dealer with some index, in a scheme for three parties."""

        def source(values: Sequence[Ints], after: int = 0) -> Draws:
            left = list(values)

            def draw(count: int) -> Elements:
                drawn = left.pop(0) if left and count else np.array(after)
                # `np.resize` would concatenate as many copies
                repeated = drawn.ravel()[np.arange(count) % drawn.size]
                return np.asarray(repeated % scheme.p, dtype=scheme.word)

            return draw

        given = source(self.given)
        draws, masks = source(self.draws, after=1), source(self.masks)
        return kind(scheme, me, draws, lambda count: given(count)[None], masks)


def share_to_draw(scheme: Scheme, dealer: int, value: Ints, coalition: int, seen: Ints) -> Ints:
    """Return the share that is drawn for a value, if a party is to see a given share of it."""
    slope = (seen - value) * pow(coalition + 1, -1, scheme.p)
    (drawn,) = scheme.drawing_with(dealer)
    return np.asarray((value + slope * (drawn + 1)) % scheme.p)


def are_uniform(keys: Sequence[Ints], p: int, allowed: int) -> bool:
    """Return whether elements jointly take the given number of values, all equally often."""
    counts = np.bincount(np.ravel_multi_index(tuple(keys), (p,) * len(keys)))
    often = counts[counts > 0]
    return len(often) == allowed and np.ptp(often) == 0


def told_words(told: list[Ints], count: int) -> Callable[[Sent], None]:
    """Return a function that records the words opened by all parties in parts of a given size."""

    def watch(sent: Sent) -> None:
        told.extend(
            np.array([cast("Elements", party[place].words) for party in sent], dtype=np.int64)
            for place, part in enumerate(sent[0])
            if part.size.is_public and part.size.words == count
        )

    return watch


def opened_by(words: Ints, p: int) -> Ints:
    """Return the values opened by three parties' words, which have Lagrange's weights."""
    return np.asarray(words.sum(axis=0) % p)


def step_is_simulated(
    counts: Sequence[int],
    coalition: int,
    p: int,
    seed: int,
    *,
    kind: type[Seat] = Seat,
    lowest: int = 1,
) -> bool:
    """Return whether a party's view of a step with k = 1 has exactly the simulator's distribution.

    One honest dealer draws all its possible values, and the others draw fixed values known to the
    coalition, which is one of the three parties with these counts. The elements R are at least
    `lowest`.
    """
    scheme, total = Scheme(p, PARTIES), sum(counts)
    free = min({0, 1} - {coalition})
    (second,) = {0, 1, 2} - {coalition, free}
    ranges = [range(lowest, p), range(p), range(lowest, p), range(p)]
    element, mask, other, other_mask = np.array(list(itertools.product(*ranges))).T
    size = len(element)
    spare = np.ones(Nonzero.to_draw(2 * size, p) - 2 * size, dtype=np.int64)
    rng = np.random.default_rng(seed)
    to_see, known = rng.integers(0, p, 3), rng.integers(0, p, PARTIES)
    nothing, one = np.array(0), np.array(1)
    masks = nothing, mask, other_mask
    scripts = {me: Script((known[me], nothing), [rng.integers(0, p, 1)]) for me in range(PARTIES)}
    scripts[second] = scripts[second]._replace(masks=[-each for each in masks])
    known_sum = sum(known[me] for me in range(scheme.drawing) if me != free)
    own = (np.concatenate([element, other, spare]) - known_sum) % p
    seen = np.append(np.repeat(to_see[1:], size), 0 * spare)
    given = (
        share_to_draw(scheme, free, np.full(size, counts[free]), coalition, to_see[0]),
        share_to_draw(scheme, free, own, coalition, seen),
        np.ones_like(own),
    )
    scripts[free] = Script((own, one), [np.concatenate(given)], masks)
    seats = [scripts[me].dealer(kind, scheme, me) for me in range(PARTIES)]

    def play(me: int) -> Play[Found]:
        dealer, search = seats[me], OneStep(size, SPACING)
        return shared_search(
            dealer, lambda asked: np.full(len(asked), counts[me]), search, 1, lambda: None
        )

    told: list[Ints] = []
    play_together([play(me) for me in range(PARTIES)], seats, told_words(told, size))
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
    value, share, partner, partner_share, mask = np.array(
        list(itertools.product(draws, repeat=5))
    ).T
    fixed = np.random.default_rng(p).integers(0, p, 4)
    scripts = (
        Script((*fixed[:2],), (fixed[2:3],)),
        Script((value, partner), [np.concatenate([share, partner_share])], (mask,)),
        Script(masks=(-mask,)),
    )
    told: list[Ints] = []
    seen: list[Ints] = []

    def watch(sent: Sent) -> None:
        told_words(told, len(value))(sent)
        if not sent[1][0].size.is_public:
            seen.extend(cast("Elements", part.words)[0].astype(np.int64) for part in sent[1])

    seats = [script.dealer(Seat, scheme, me) for me, script in enumerate(scripts)]

    def play(dealer: Dealer) -> Play[Ints]:
        dealt = Nonzero(*(yield Nonzero.dealt(dealer, len(value))))
        (products,) = yield [dealt.checked(dealer)]
        kept = yield from kept_nonzero(dealer, int((products != 0).sum()), dealt, products)
        (opened,) = yield [dealer.opened(kept)]
        return np.asarray(opened)

    opened = play_together([play(seat) for seat in seats], seats, watch)[0]
    (words,) = told
    kept = opened_by(words, p) != 0
    keys = [opened, *(each[kept] for each in (*seen, words[1], opened_by(words, p)))]
    assert are_uniform(keys, p, (p - 1) ** 2 * p**3)


def label_is_simulated(
    votes: NDArray[np.uint64],
    coalition: int,
    kind: type[Seat] = Seat,
    lowest: int = 1,
    *,
    in_advance: bool = True,
) -> bool:
    """Return whether a party's view of a labelling of two classes has the simulator's distribution.

    The votes of three parties, shape (3, 2), have a total of at most 1. The elements R_c are at
    least `lowest`. The masks are drawn in advance or with the votes.
    """
    p = 5
    scheme = Scheme(p, PARTIES)
    free = min({0, 1} - {coalition})
    (second,) = {0, 1, 2} - {coalition, free}
    of_both = np.indices((p, p, p - lowest, p) * 2).reshape(2, 4, -1)
    pad, other_pad, element, mask = of_both.transpose(1, 2, 0).reshape(4, -1)
    element = element + lowest
    spare = np.ones(Nonzero.to_draw(len(pad), p) - len(pad), dtype=np.int64)
    rng = np.random.default_rng(coalition)
    to_see, known = rng.integers(0, p, 3), rng.integers(0, p, (3, PARTIES))
    nothing, one = np.array(0), np.array(1)
    deals = range(scheme.drawing)
    scripts = {
        me: Script((known[0][me], known[1][me], nothing), [known[2][me]]) for me in range(PARTIES)
    }
    own = (np.append(element, spare) - sum(known[1][me] for me in deals if me != free)) % p
    others = np.resize(known[2][second], len(own) if second in deals else 0)
    given = [share_to_draw(scheme, second, other_pad, coalition, to_see[0]), others, others]
    drawn = (other_pad, known[1][second], nothing)
    scripts[second] = Script(drawn, [np.concatenate(given)], (nothing, -mask))
    given = [
        share_to_draw(scheme, free, pad, coalition, to_see[1]),
        share_to_draw(scheme, free, own, coalition, to_see[2]),
        np.ones_like(own),
    ]
    scripts[free] = Script((pad, own, one), [np.concatenate(given)], (nothing, mask))
    seats = [scripts[me].dealer(kind, scheme, me) for me in range(PARTIES)]
    told: list[Ints] = []

    def play(me: int) -> Play[Ints]:
        every = np.repeat(votes[me][None], len(pad) // 2, axis=0)
        masks = (yield from draw_masks(seats[me], every.shape, 1)) if in_advance else None
        return (yield from label_play(seats[me], every, 1, masks))

    play_together([play(me) for me in range(PARTIES)], seats, told_words(told, len(pad)))
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
    """Given the label, all opened words have exactly the simulator's distribution.

    Masks are drawn in advance, or with the votes.
    """
    for votes, in_advance in zip(VOTES, (True, False, True), strict=True):
        assert label_is_simulated(votes, coalition, in_advance=in_advance)


@pytest.mark.slow
def test_broken_labels_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of a bare product `R_c · L_c` do not have the simulator's distribution.

    Neither do they if R_c may be 0: then a losing class can look like the winner.
    """
    assert not label_is_simulated(VOTES[1], 0, kind=Unmasked)
    monkeypatch.setattr(argmax, "kept_nonzero", keep_all)
    assert not label_is_simulated(VOTES[1], 0, lowest=0)
