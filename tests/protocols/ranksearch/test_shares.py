"""Shares over a prime field: their arithmetic and views; labels and comparisons by shares."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.protocols.ranksearch.worlds import (
    Sent,
    bound,
    dealers_of,
    draws_of,
    play_together,
    search_by_shares,
)

from veilring.arrays import Ints
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.protocols.ranksearch.algorithm import argmax
from veilring.protocols.ranksearch.algorithm.argmax import (
    ONE_HOT_MAX,
    VOTES_MAX,
    draw_masks,
    has_masks,
    label_play,
    label_rounds,
    label_scheme,
    mask_rounds,
    vote_bounds,
)
from veilring.protocols.ranksearch.algorithm.comparing import levels_of, plan_of
from veilring.protocols.ranksearch.algorithm.shares import (
    LACK_BITS,
    PRIMES,
    Dealer,
    Elements,
    Nonzero,
    Play,
    Scheme,
    Size,
    Sizes,
    drawn,
    kept_nonzero,
    lagrange_weights,
    prime_above,
    product_mod,
    uniform_elements,
    words_from,
    zero_sums,
)
from veilring.protocols.ranksearch.algorithm.votes import Votes

FALSE_ALARM = 1e-6


def test_the_smallest_sufficient_prime_is_chosen() -> None:
    """A number is below its prime; a number above all primes is refused."""
    assert [prime_above(bound) for bound in (0, 250, 251, 65_520)] == [251, 251, 65_521, 65_521]
    with pytest.raises(InputError, match="65,521"):
        prime_above(65_521)


@given(st.sampled_from((5, 7, *PRIMES)), st.integers(0, 2**32))
def test_products_of_matrices_are_exact(p: int, seed: int) -> None:
    """The product in floats equals that in integers of any size."""
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, p, (3, 40)), rng.integers(0, p, (40, 5))
    exact = (left.astype(object) @ right.astype(object)) % p
    assert (product_mod(left, right, p) == exact).all()
    worst = np.full((1, 40), p - 1)
    assert product_mod(worst, worst.T, p) == 40 * (p - 1) ** 2 % p


@pytest.mark.parametrize("parties", [3, 4, 5, 8, 30])
@pytest.mark.parametrize("p", PRIMES)
def test_enough_shares_give_the_secret(parties: int, p: int) -> None:
    """Any t + 1 parties' shares give the secret, and any 2t + 1 parties' shares a product."""
    scheme, rng = Scheme(p, parties), np.random.default_rng(parties)
    a, b = rng.integers(0, p, (2, 7))
    t = scheme.threshold
    drawn_ = draws_of(p, parties)(2 * t * 7).reshape(2, t, 7)
    ours, theirs = (
        scheme.shares(dealer, scheme.elements(secret), drawn_[dealer]).astype(np.int64)
        for dealer, secret in enumerate((a, b))
    )
    for count, words, secret in ((t + 1, ours, a), (2 * t + 1, ours * theirs % p, a * b % p)):
        for some in itertools.islice(itertools.combinations(range(parties), count), 100):
            weights = lagrange_weights([place + 1 for place in some], p)
            assert (product_mod(weights[None], words[list(some)], p)[0] == secret).all()


@pytest.mark.parametrize(("p", "parties"), [(5, 3), (7, 4), (7, 5)])
def test_a_coalition_of_t_sees_uniform_shares(p: int, parties: int) -> None:
    """Over all polynomials, any t shares take each value equally often, for any secret."""
    scheme = Scheme(p, parties)
    t = scheme.threshold
    every = np.array(list(itertools.product(range(p), repeat=t)), dtype=np.uint8).T
    for secret in range(p):
        secrets = np.full(p**t, secret, scheme.wide)
        shares = scheme.shares(secret % parties, secrets, every)
        for coalition in itertools.combinations(range(parties), t):
            seen = {tuple(view) for view in shares[list(coalition)].T}
            assert len(seen) == p**t


@pytest.mark.parametrize("parties", [3, 5, 8])
def test_random_elements_are_drawn_by_one_party_more_than_may_collude(parties: int) -> None:
    """Each of t + 1 parties deals elements of its own, different ones for each call.

    Twenty elements below 2**16 of two parties or calls are equal with a probability below 1e-90.
    """
    scheme = Scheme(PRIMES[-1], parties)
    dealt = []
    for dealer in dealers_of(scheme, 0):
        for part in dealer.sent([dealer.random(20), dealer.random(20)]):
            if part.words is not None:
                enough = part.words[: scheme.drawing]
                weights = lagrange_weights(range(1, scheme.drawing + 1), scheme.p)
                dealt.append(tuple(product_mod(weights[None], enough, scheme.p)[0].tolist()))
    assert len(dealt) == len(set(dealt)) == 2 * (scheme.threshold + 1)


@given(st.integers(3, 9), st.sampled_from(PRIMES), st.integers(0, 2**32))
def test_sums_products_and_openings_are_correct(parties: int, p: int, seed: int) -> None:
    """Totals are shared, products are reshared and opened, and all parties agree."""
    scheme, rng = Scheme(p, parties), np.random.default_rng(seed)
    own = rng.integers(0, p, (2, parties, 5))

    def play(dealer: Dealer, mine: Ints) -> Play[list[Elements]]:
        a, b = yield [*map(dealer.summed, mine)]
        (product,) = yield [dealer.reshared(a * b)]
        square = dealer.opened_products(product * a)
        return list((yield [dealer.opened_sum(mine[0]), square, dealer.opened(product)]))

    seats = dealers_of(scheme, seed)
    plays = [play(dealer, own[:, me]) for me, dealer in enumerate(seats)]
    a, b = own.sum(axis=1) % p
    for opened in play_together(plays, seats):
        np.testing.assert_equal(opened, [a, a * b % p * a % p, a * b % p])


@pytest.mark.parametrize("p", PRIMES)
def test_drawn_elements_are_uniform(p: int) -> None:
    """All elements are equally likely (false alarm 1e-6), and follow from the stream.

    The lowest are not drawn more often, as remainders of words would be.
    """
    scheme = Scheme(p, 3)
    first, again, other = (
        partial(uniform_elements, scheme, np.random.default_rng(seed).bytes) for seed in (1, 1, 2)
    )
    drawn_ = first(20 * p)
    assert stats.chisquare(np.bincount(drawn_, minlength=p)).pvalue > FALSE_ALARM
    assert len(np.bincount(drawn_)) == p
    above = 2 ** (8 * scheme.word.itemsize) - p  # words that are no elements
    lowest = int((drawn_ < above).sum())
    assert stats.binomtest(lowest, len(drawn_), above / p).pvalue > FALSE_ALARM
    assert (again(20 * p) == drawn_).all()
    assert (other(100) != drawn_[:100]).any()
    assert (first(100) != drawn_[:100]).any()
    assert first(0).size == 0


def test_a_stream_with_few_elements_is_read_on() -> None:
    """If most words are outside the field, later ones replace them, each once."""
    scheme = Scheme(PRIMES[-1], 3)
    numbers = iter(range(1, PRIMES[-1]))

    def stream(size: int) -> bytes:
        each = [next(numbers) if place % 4 == 0 else scheme.p for place in range(size // 2)]
        return np.array(each, dtype=scheme.word).tobytes()

    elements = uniform_elements(scheme, stream, 300)
    assert len(np.unique(elements)) == len(elements) == 300
    assert elements.max() < scheme.p


@pytest.mark.parametrize("parties", [3, 4, 5, 8])
def test_each_two_parties_that_multiply_share_masks(parties: int) -> None:
    """One adds the elements of the two to its masks, and the other one subtracts them."""
    scheme = Scheme(PRIMES[0], parties)
    elements = np.arange(scheme.p, dtype=scheme.word)
    for pair in itertools.combinations(range(scheme.multiplying), 2):

        def masks(me: int, pair: tuple[int, ...] = pair) -> Elements:
            others = set(range(scheme.multiplying)) - {me}
            drawn_ = {other: elements * ({me, other} == set(pair)) for other in others}
            return zero_sums(scheme, me, drawn_, len(elements))

        adding, subtracting = map(masks, pair)
        np.testing.assert_array_equal(adding, elements)
        np.testing.assert_array_equal((adding + subtracting) % scheme.p, 0)


@pytest.mark.parametrize(("needed", "p"), [(1, 251), (40, 251), (17_000, 251), (17_000, 65_521)])
def test_enough_spares_are_drawn(needed: int, p: int) -> None:
    """Too few elements remain with probability at most 2^-60, and spares cost a few per cent."""
    chance = 1 - (1 - 1 / p) ** 2
    count = drawn(needed, chance)
    lacking = stats.binom.logsf(count - needed, count, chance) / math.log(2)
    assert lacking <= -LACK_BITS
    assert count <= 1.02 * needed + 21
    assert drawn(0, chance) == 0


def test_no_kept_element_is_zero_even_with_too_few_draws() -> None:
    """Elements with a zero product are dropped, and more are drawn if too few remain."""
    scheme, needed = Scheme(5, 3), 200
    together = dealers_of(scheme, 0)

    def play(dealer: Dealer) -> Play[Elements]:
        dealt = Nonzero(*(yield Nonzero.dealt(dealer, needed)))
        (products,) = yield [dealt.checked(dealer)]
        assert (products == 0).any()
        kept = yield from kept_nonzero(dealer, needed, dealt, products)
        (opened,) = yield [dealer.opened(kept)]
        return np.asarray(opened)

    (opened, *others) = play_together([play(dealer) for dealer in together], together)
    assert len(opened) == needed
    assert set(opened.tolist()) == {1, 2, 3, 4}
    assert all((other == opened).all() for other in others)
    assert stats.chisquare(np.bincount(opened, minlength=5)[1:]).pvalue > FALSE_ALARM


def test_own_words_are_not_shown() -> None:
    """No text for a log contains the dealt, drawn or voted words of a party."""
    secret = np.array([987654321], dtype=np.uint32)
    for held in (
        dealers_of(Scheme(251, 3), 0)[0].opened_sum(secret),
        Nonzero(secret, secret),
        Votes(secret[None].astype(np.uint64)),
    ):
        assert "987654321" not in repr(held)


def sizes_of(parts: Sizes) -> list[int]:
    """Return the number of words that each party sends, to those that draw shares and to others."""
    each = itertools.product(range(8), (False, True))
    return [words_from(sender, parts, drawn=drawn) for sender, drawn in each]


def labels_together(
    votes: np.ndarray, most: int, scheme: Scheme, seed: int = 0, *, in_advance: bool = False
) -> list[int]:
    """Return the labels that all parties learn from votes of shape (n, Q, classes)."""
    rounds: list[list[Size]] = []
    _, queries, classes = votes.shape

    def watch(sent: Sent) -> None:
        rounds.append([part.size for part in sent[0] if part.size.words])

    def play(dealer: Dealer, own: np.ndarray) -> Play[Ints]:
        masks = (yield from draw_masks(dealer, own.shape, most)) if in_advance else None
        return (yield from label_play(dealer, own, most, masks))

    seats = dealers_of(scheme, seed)
    plays = [play(seat, own) for seat, own in zip(seats, votes.astype(np.uint64), strict=True)]
    first, *others = play_together(plays, seats, watch)
    assert all((labels == first).all() for labels in others)
    drawn = mask_rounds(queries * classes, most, scheme) if in_advance else []
    sent = drawn + label_rounds(queries, classes, most, scheme, has_drawn=in_advance)
    assert [sizes_of(each) for each in rounds] == [sizes_of(each) for each in sent]
    return list(first.tolist())


def dealt_votes(totals: np.ndarray, parties: int, rng: np.random.Generator) -> np.ndarray:
    """Return the votes of parties, shape (n, Q, classes), with the given totals."""
    shares = rng.multinomial(totals, np.full(parties, 1 / parties))
    return np.moveaxis(shares, -1, 0)


@pytest.mark.parametrize("parties", [3, 4])
def test_all_small_votes_have_their_label(parties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any totals up to K, the label is the lowest class with the most votes.

    By one-hots for three classes and K up to 3; by bits for two and three classes and each total up
    to 6, in the smallest field for them.
    """
    for most, classes, scheme in (
        *((most, 3, label_scheme(parties, 3, most)) for most in (1, 2, 3)),
        *((6, classes, Scheme(13, parties)) for classes in (2, 3)),
    ):
        every = itertools.product(range(most + 1), repeat=classes)
        by_bits = most == 6
        totals = np.array([each for each in every if by_bits or sum(each) <= most])
        monkeypatch.setattr(argmax, "ONE_HOT_MAX", 0 if by_bits else ONE_HOT_MAX)
        votes = dealt_votes(totals, parties, np.random.default_rng(most + classes))
        for in_advance in {False, not by_bits}:
            labels = labels_together(votes, most, scheme, in_advance=in_advance)
            assert labels == totals.argmax(axis=1).tolist()


@given(
    st.integers(3, 8),
    st.integers(1, 11),
    st.sampled_from((1, 2, 5, 20, 64, 65, 125, 126, VOTES_MAX)),
    st.integers(0, 2**32),
)
def test_labels_equal_those_of_the_totals(parties: int, classes: int, most: int, seed: int) -> None:
    """For any number of votes, including ties and no votes, labels are the pooled ones."""
    rng = np.random.default_rng(seed)
    some = rng.multinomial(rng.integers(0, most + 1, 4), np.full(classes, 1 / classes))
    even = np.full((1, classes), most // classes)
    totals = np.vstack([some, even, np.zeros_like(even), most * np.eye(classes, dtype=np.int64)])
    votes = dealt_votes(totals, parties, rng)
    scheme, in_advance = label_scheme(parties, classes, most), has_masks(classes, most)
    labels = labels_together(votes, most, scheme, seed, in_advance=in_advance)
    assert labels == totals.argmax(axis=1).tolist()


def test_the_field_fits_parties_classes_and_votes() -> None:
    """It has one byte if possible, and fits twice the votes if they are compared by bits."""
    for prime, *fitting in (
        (PRIMES[0], (8, 10, ONE_HOT_MAX), (8, 10, 125)),
        (PRIMES[1], (8, 10, 126), (8, 251, 5), (251, 2, 5), (8, 10, VOTES_MAX)),
    ):
        assert {label_scheme(*each).p for each in fitting} == {prime}
    with pytest.raises(InputError, match='use reveal = "votes"'):
        label_scheme(8, 10, VOTES_MAX + 1)


def test_masks_of_votes_share_the_field_of_counts() -> None:
    """It fits the classes as well if masks are drawn during the search."""
    for classes, k, reveal, prime in (
        (250, 5, "label", PRIMES[0]),
        (251, 5, "label", PRIMES[1]),
        (251, 5, "votes", PRIMES[0]),
        (251, ONE_HOT_MAX + 1, "label", PRIMES[0]),
    ):
        public = bound(2, classes, k=k, reveal=reveal)
        assert public.scheme(3).p == prime
        assert public.draws_masks(k) == (reveal == "label" and k <= ONE_HOT_MAX)
        if public.draws_masks(k):
            assert public.vote_scheme(3, k) == public.scheme(3)


def test_queries_are_labelled_with_at_most_three_bounds() -> None:
    """Tied queries share a bound with those whose votes are compared in the same way."""
    tied = np.array([False, True, True, False, True, True])
    bounds = vote_bounds(tied, np.array([7, 65, 64, 900]), k=5)
    assert bounds.tolist() == [5, 64, 900, 5, 64, 900]
    assert vote_bounds(np.zeros(2, np.bool_), np.empty(0, np.int64), k=3).tolist() == [3, 3]


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
    expected = parameters.answer(queries, parts).found
    for found in search_by_shares(queries, parts, parameters, seed=seed):
        assert found.radii.tolist() == expected.radii.tolist()
        assert found.lower.tolist() == expected.lower.tolist()
        assert found.ends.tolist() == expected.ends.tolist()
        assert found.steps == expected.steps
