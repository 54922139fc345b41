"""The class with the most votes, computed from secret-shared totals; nothing else is opened.

Votes are whole numbers up to a public K. If K is at most `ONE_HOT_MAX`, each total v has a one-hot
encoding. `v + r` is opened for an unknown uniform r, whose shared powers give those of v, and [v =
j] is linear in these for each j. Whether one class beats another is a product of one-hots. `L_c`,
the number of classes that beat c, is a sum of such products, of which each class reshares one.
Exactly one L_c is 0: that of the class with the most votes, or of the lowest such class in a tie.
Then `R_c · L_c` is opened, with R_c never 0. Masks, their powers and R_c depend on no votes: for
queries without ties, whose K is k, the parties prepare them in the first rounds of the search.

With more votes, pairs of totals are compared bitwise, in a tournament of classes. The difference
d = v_a - v_b is negative iff 2d mod p is odd, since `|d| < p/2`. To find this parity, `2d + r` is
opened. Its lowest bit is xored with the lowest bit of r, and with whether the sum exceeded p. No
party knows the bits of r: each is the sign of a random element whose square is opened. Bits that
give r >= p are discarded.

Sources: Damgård, Fitzi, Kiltz, Nielsen and Toft, TCC 2006, for random bits; Nishide and Ohta, PKC
2007, for comparisons by the lowest bit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Ints
from veilring.errors import InputError
from veilring.protocols.ranksearch.algorithm.shares import (
    PRIMES,
    Dealer,
    Elements,
    Nonzero,
    Part,
    Play,
    Scheme,
    Size,
    Sizes,
    drawn,
    kept_nonzero,
    power_levels,
    prime_above,
    product_mod,
    shared_powers,
    times_root,
)

ONE_HOT_MAX: Final = 64
"""The maximum number of votes for one-hots, which need a product per vote and class."""
WORDS_A_CLASS: Final = ONE_HOT_MAX // 2
"""The maximum number of words that a party deals at once for one class of a query."""
VOTES_MAX: Final = (PRIMES[-1] - 1) // 2
"""The maximum number of votes to compare: twice their difference must be below the largest
prime."""
NO_LABEL: Final = -1
"""The label if honest votes cannot have the opened values."""

_R = TypeVar("_R")
_TABLES: Final = 8  # caches of values that depend only on public parameters


def vote_bounds(tied: Bools, tied_rows: Ints, k: int) -> Ints:
    """Return a bound on the votes on each query, shape (Q,), with at most three different values.

    Queries with one bound are labelled together, so few different bounds need few rounds.
    """
    has_one_hot = tied_rows <= ONE_HOT_MAX
    bounds = np.full(len(tied_rows), tied_rows.max(initial=0))
    bounds[has_one_hot] = tied_rows[has_one_hot].max(initial=0)
    most = np.full(len(tied), k)
    most[tied] = bounds
    return most


def label_scheme(parties: int, classes: int, most: int) -> Scheme:
    """Return the sharing scheme in which up to `most` votes per query are compared."""
    if most > VOTES_MAX:
        raise InputError.because(
            f"{most:,} rows would vote on a query, but at most {VOTES_MAX:,} votes can be compared"
            ' without revealing them; use reveal = "votes"',
            field="reveal",
        )
    votes = most if most <= ONE_HOT_MAX else 2 * most
    return Scheme(prime_above(max(parties, classes, votes)), parties)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VoteMasks:
    """A party's part in the masks of votes, drawn before it knows any; one for each class of Q.

    Attributes:
        pads: Its own summands of the masks, shape (Q, classes).
        powers: Its shares of the masks' powers from 1 to K, shape (K, Q, classes).
        factors: Its shares of the nonzero elements R_c, shape (Q, classes).
    """

    pads: Ints
    powers: Elements
    factors: Elements

    def only(self, chosen: Bools) -> "VoteMasks":
        """Return the masks of some queries, of shape (Q,); each may be used once."""
        return VoteMasks(self.pads[chosen], self.powers[:, chosen], self.factors[chosen])


def has_masks(classes: int, most: int) -> bool:
    """Return whether up to `most` votes are compared by masks that can be drawn in advance."""
    return classes > 1 and most <= ONE_HOT_MAX


def draw_masks(dealer: Dealer, shape: tuple[int, int], most: int) -> Play[VoteMasks]:
    """Play a party that draws masks of up to `most` votes on each of (Q, classes) totals."""
    pads = dealer.pads(math.prod(shape)).astype(np.int64)
    masks, _ = yield from _in_ints(_draw_masks(dealer, pads.reshape(shape), most, []))
    return masks


def label_play(
    dealer: Dealer, votes: NDArray[np.uint64], most: int, masks: VoteMasks | None = None
) -> Play[Ints]:
    """Play a party with (Q, classes) votes that learns only the class with the most of each query.

    `most`, at least 1, bounds the total of all parties' votes for a query. The label is `NO_LABEL`
    if honest votes cannot have the opened values. Masks, if given, are of this bound.
    """
    own = votes.astype(np.int64)
    if own.shape[1] == 1:
        return _alone(len(own))
    if not has_masks(own.shape[1], most):
        return _in_ints(_by_bits(dealer, own))
    return _in_ints(_by_one_hots(dealer, own, most, masks))


def mask_rounds(totals: int, most: int, scheme: Scheme) -> list[Sizes]:
    """Return the parts of each round of drawing masks."""
    every, few, many = scheme.parties, scheme.drawing, scheme.multiplying
    spare = Nonzero.to_draw(totals, scheme.p)
    first, *levels = [[Size(totals * products, many)] for products in power_levels(most)]
    checked = Size(spare, many, is_public=True)
    return [[Size(totals, every), Size(2 * spare, few)], [checked, *first], *levels]


def label_rounds(
    queries: int, classes: int, most: int, scheme: Scheme, *, has_drawn: bool = False
) -> list[Sizes]:
    """Return the parts of each round of labelling queries, whose masks may have been drawn."""
    if classes == 1:
        return []
    if not has_masks(classes, most):
        return _bit_rounds(queries, classes, scheme)
    totals, many = queries * classes, scheme.multiplying
    masked = Size(totals, scheme.parties, is_public=True)
    last: list[Sizes] = [[Size(totals, many)], [Size(totals, many, is_public=True)]]
    if has_drawn:
        return [[masked], *last]
    first, second, *others = mask_rounds(totals, most, scheme)
    return [first, [masked, *second], *others, *last]


def _in_ints(play: Play[_R]) -> Play[_R]:
    """Play with sums in 64 bits, whose differences may be negative: there are few of them."""
    parts = next(play)
    while True:
        sums = yield parts
        try:
            parts = play.send([each.astype(np.int64) for each in sums])
        except StopIteration as end:
            result: _R = end.value
            return result


def _alone(queries: int) -> Play[Ints]:
    yield from ()
    return np.zeros(queries, dtype=np.int64)


def _draw_masks(
    dealer: Dealer, pads: Ints, most: int, along: Sequence[Part]
) -> Play[tuple[VoteMasks, list[Elements]]]:
    """Draw masks with these pads, and return the sums of parts in the second round, too."""
    drawn = Nonzero.to_draw(pads.size, dealer.scheme.p)
    mask, *dealt = yield [dealer.summed(pads.ravel()), *Nonzero.dealt(dealer, drawn)]
    nonzero = Nonzero(*dealt)
    second = [nonzero.checked(dealer), *along]
    powers, (products, *sums) = yield from shared_powers(dealer, mask, most, second)
    factors = yield from kept_nonzero(dealer, pads.size, nonzero, products)
    shape = pads.shape
    return VoteMasks(pads, powers.reshape(most, *shape), factors.reshape(shape)), sums


def _by_one_hots(dealer: Dealer, own: Ints, most: int, masks: VoteMasks | None) -> Play[Ints]:
    if masks is None:
        pads = dealer.pads(own.size).astype(np.int64).reshape(own.shape)
        along = [dealer.opened_sum((own + pads).ravel())]
        masks, (masked,) = yield from _draw_masks(dealer, pads, most, along)
    else:
        (masked,) = yield [dealer.opened_sum((own + masks.pads).ravel())]
    hot = _one_hots(masks.powers.reshape(most, -1), masked, dealer.scheme.p)
    (beaten,) = yield [dealer.reshared(_beaten_by(hot.reshape(most + 1, *own.shape)).ravel())]
    (opened,) = yield [dealer.opened_products(masks.factors.ravel() * beaten)]
    wins = opened.reshape(own.shape) == 0
    return np.where(wins.sum(axis=1) == 1, wins.argmax(axis=1), NO_LABEL)


def _one_hots(powers: Elements, masked: Elements, p: int) -> Ints:
    """Return shares of [v = j], shape (K + 1, totals), of v = masked - r and the powers of r.

    By the binomial theorem, `v^m / m!` is the sum of `masked^i / i! · (-r)^(m-i) / (m-i)!`.
    """
    degree = len(powers)
    signs = np.where(np.arange(degree + 1) % 2, p - 1, 1)
    inverse = np.array([pow(math.factorial(i), -1, p) for i in range(degree + 1)])
    ones = np.ones_like(masked)
    minus = np.vstack([ones, powers]) * (signs * inverse % p)[:, None] % p
    known = [ones]
    for _ in range(degree):
        known.append(known[-1] * masked % p)
    plus = np.array(known) * inverse[:, None] % p
    raised = np.array([(plus[: m + 1] * minus[m::-1]).sum(axis=0) % p for m in range(degree + 1)])
    weights = _indicators(degree, p) * np.array([math.factorial(i) % p for i in range(degree + 1)])
    return product_mod(weights % p, raised, p)


@lru_cache(maxsize=_TABLES)
def _indicators(degree: int, p: int) -> Ints:
    """Return the polynomials that are 1 at one of 0 … K and 0 at the others, one in each row."""
    rows = []
    for point in range(degree + 1):
        polynomial, below = [1], 1
        for other in range(degree + 1):
            if other != point:
                polynomial = times_root(polynomial, other, p)
                below = below * (point - other) % p
        rows.append([coefficient * pow(below, -1, p) % p for coefficient in polynomial])
    table = np.array(rows)
    table.setflags(write=False)
    return table


def _beaten_by(hot: Ints) -> Ints:
    """Return the number of classes that beat each class, as products of degree 2t, (Q, classes).

    A class is beaten by a lower class with the same number of votes, and by a higher class with
    more; one-hots have the shape (K + 1, Q, classes).
    """
    at_least = np.cumsum(hot[::-1], axis=0)[::-1]
    more = np.concatenate([at_least[1:], np.zeros_like(at_least[:1])])
    lower = np.cumsum(at_least, axis=2) - at_least
    higher = more.sum(axis=2, keepdims=True) - np.cumsum(more, axis=2)
    beaten: Ints = (hot * (lower + higher)).sum(axis=0)
    return beaten


def _by_bits(dealer: Dealer, own: Ints) -> Play[Ints]:
    queries, classes = own.shape
    scheme, games = dealer.scheme, queries * (classes - 1)
    masks, elements = _to_draw(games, scheme.p)
    total, element = yield [dealer.summed(own.ravel()), dealer.random(elements)]
    bits = yield from _random_bits(dealer, masks * _width(scheme.p), element)
    bits = yield from _below_prime(dealer, games, bits.reshape(_width(scheme.p), masks))
    votes = total.reshape(queries, classes)
    index = np.broadcast_to(np.arange(classes), votes.shape)
    while votes.shape[1] > 1:
        size = queries * (votes.shape[1] // 2)
        votes, index = yield from _play_off(dealer, votes, index, bits[:, :size])
        bits = bits[:, size:]
    (opened,) = yield [dealer.opened(index.ravel())]
    labels: Ints = np.where(opened < classes, opened, NO_LABEL)
    return labels


def _bit_rounds(queries: int, classes: int, scheme: Scheme) -> list[Sizes]:
    linear, square, p = scheme.drawing, scheme.multiplying, scheme.p
    masks, elements = _to_draw(queries * (classes - 1), p)
    rounds: list[Sizes] = [
        [Size(queries * classes, scheme.parties), Size(elements, linear)],
        [Size(elements, square, is_public=True)],
        *([Size(masks * products, square)] for products in _tree_levels(p)),
        [Size(masks, linear, is_public=True)],
    ]
    left = classes
    while left > 1:
        size = queries * (left // 2)
        rounds += [
            [Size(size, linear, is_public=True)],
            *([Size(size * products, square)] for products in _tree_levels(p)),
            [Size(size, square)],
            [Size(2 * size, square)],
        ]
        left -= left // 2
    return [*rounds, [Size(queries, linear, is_public=True)]]


def _width(p: int) -> int:
    """Return the number of bits of an element, a power of 2."""
    return p.bit_length()


def _to_draw(games: int, p: int) -> tuple[int, int]:
    """Return the numbers of masks to draw for comparisons and of elements for their bits."""
    masks = drawn(games, 1 - p / 2 ** _width(p))
    return masks, drawn(masks * _width(p), 1 / p)


def _random_bits(dealer: Dealer, needed: int, elements: Ints) -> Play[Ints]:
    """Return shares of random bits: the signs of elements whose squares are opened."""
    p = dealer.scheme.p
    roots = _half_roots(p)
    bits = np.empty(0, dtype=np.int64)
    while True:
        (squares,) = yield [dealer.opened_products(elements**2)]
        kept = squares != 0
        signs = elements[kept] * roots[squares[kept]] + (p + 1) // 2
        bits = np.append(bits, signs % p)
        if len(bits) >= needed:
            return bits[:needed]
        (elements,) = yield [dealer.random(len(elements))]


@lru_cache(maxsize=_TABLES)
def _half_roots(p: int) -> Ints:
    """Return 1/(2√x) of each square x, for one of its two roots, shape (p,)."""
    table = np.zeros(p, dtype=np.int64)
    halves = np.arange(1, (p + 1) // 2)
    table[halves**2 % p] = [pow(2 * half, -1, p) for half in halves.tolist()]
    table.setflags(write=False)
    return table


def _below_prime(dealer: Dealer, needed: int, bits: Ints) -> Play[Ints]:
    """Return the bits of masks below p, shape (width, needed), the lowest first."""
    p = dealer.scheme.p
    kept = bits[:, :0]
    while True:
        greatest = np.full(bits.shape[1], p - 1)
        passed = yield from _is_less(dealer, greatest, bits)
        (opened,) = yield [dealer.opened(passed)]
        kept = np.hstack([kept, bits[:, opened == 0]])
        if kept.shape[1] >= needed:
            return kept[:, :needed]
        (elements,) = yield [dealer.random(2 * bits.size)]
        more = yield from _random_bits(dealer, bits.size, elements)
        bits = more.reshape(bits.shape)


def _tree_levels(p: int) -> list[int]:
    """Return the products of a comparison of bits in each round."""
    pairs = [2**level for level in reversed(range(_width(p).bit_length() - 1))]
    return [2 * number for number in pairs[:-1]] + [1]


def _is_less(dealer: Dealer, known: Ints, bits: Ints) -> Play[Ints]:
    """Return shares of [known < number] for public numbers and shared bits, lowest bit first."""
    digits = known >> np.arange(len(bits))[:, None] & 1
    less, equal = bits * (1 - digits), 1 - digits - bits + 2 * digits * bits
    while len(less) > 1:
        low, high = slice(0, None, 2), slice(1, None, 2)
        below, same = equal[high] * less[low], equal[high] * equal[low]
        products = below if len(below) == 1 else np.vstack([below, same])
        (dealt,) = yield [dealer.reshared(products.ravel())]
        halves = dealt.reshape(-1, *below.shape)
        less, equal = less[high] + halves[0], halves[-1]
    return np.asarray(less[0], dtype=np.int64)


def _play_off(dealer: Dealer, votes: Ints, index: Ints, bits: Ints) -> Play[tuple[Ints, Ints]]:
    """Return the votes and classes that win against their neighbours; the lower class wins a tie.

    Shares of votes and of classes, ascending, have the shape (Q, classes left); the bits of a mask
    for each pair, the lowest first, (width, pairs).
    """
    p, pairs = dealer.scheme.p, votes.shape[1] // 2
    lower, upper = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    differences = (votes[:, lower] - votes[:, upper]).ravel() % p
    (mask,) = product_mod(2 ** np.arange(len(bits))[None, :] % p, bits, p)
    (opened,) = yield [dealer.opened(2 * differences + mask)]
    passed = yield from _is_less(dealer, opened, bits)
    odd = np.where(opened % 2, 1 - bits[0], bits[0])
    (both,) = yield [dealer.reshared(odd * passed)]
    wins = (1 - odd - passed + 2 * both) % p
    steps = (index[:, lower] - index[:, upper]).ravel() % p
    (dealt,) = yield [dealer.reshared(np.concatenate([wins * differences, wins * steps]))]
    gained, stepped = dealt.reshape(2, len(votes), pairs)
    rest = slice(2 * pairs, None)
    return (
        np.hstack([votes[:, upper] + gained, votes[:, rest]]),
        np.hstack([index[:, upper] + stepped, index[:, rest]]),
    )
