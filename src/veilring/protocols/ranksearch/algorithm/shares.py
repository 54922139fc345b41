"""Shamir's secret sharing over a prime field, for many values at once, with products.

Party i of n, from 0, holds a polynomial's value at i + 1; the secret is its value at 0. With degree
t = ⌊(n - 1)/2⌋, any t parties know nothing about it, and 2t + 1 <= n parties suffice for a product.
By four rules, the opened values can be simulated perfectly:

- A product that each party computes from its own shares has degree 2t, and its polynomial is not
  random. It is reshared at degree t, or opened with a fresh sharing of zero of degree 2t added.
- A secret random element is the sum of elements drawn by t + 1 parties: among any t + 1, one is
  outside the coalition. More parties would not help, because t + 1 parties know all secrets anyway.
- An element that must not be 0 is drawn with a partner: their product is opened, and 0 discards
  both. The opened value reveals nothing about a kept element.
- No drawn element is used twice.

A party is a generator: it yields the values that it deals and announces in a round, and receives
the round's result. The same code runs in one process and over any network. `Ints` are elements of a
field, from 0 to p - 1, or shares of elements.

Source: Ben-Or, Goldwasser and Wigderson, STOC 1988; Gennaro, Rabin and Rabin, PODC 1998, for the
products; Bar-Ilan and Beaver, PODC 1989, for elements that are not 0.
"""

import math
from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.random import Generator as Draws

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.protocols.ranksearch.algorithm.votes import word_for
from veilring.protocols.seedshares import weights_at_zero

PRIMES: Final = (251, 65_521)
"""The largest primes of one and of two bytes, which bound the shared values."""
# A batch lacks nonzero elements with probability at most 2^-60; it then draws again.
LACK_BITS: Final = 60

Sizes: TypeAlias = Sequence[tuple[int, int]]
"""The parts of a round: the number of words from each sender to each party, and of senders."""

_R = TypeVar("_R")


def prime_above(bound: int) -> int:
    """Return the smallest available prime above a bound."""
    for prime in PRIMES:
        if prime > bound:
            return prime
    raise InputError.because(
        f"{bound:,} cannot be shared; numbers must be below {PRIMES[-1]:,}", field="reveal"
    )


def power_levels(most: int) -> list[int]:
    """Return the number of powers up to a bound that each round adds, starting from one."""
    known = [min(2**level, most) for level in range(math.ceil(math.log2(most)) + 1)]
    return list(map(int, np.diff(known))) or [0]


def times_root(polynomial: Sequence[int], root: int, p: int) -> list[int]:
    """Multiply a polynomial, lowest coefficient first, by x - root."""
    shifted = zip([0, *polynomial], [*polynomial, 0], strict=True)
    return [(raised - root * same) % p for raised, same in shifted]


def product_mod(left: Ints, right: Ints, p: int) -> Ints:
    """Return the product of two matrices reduced modulo p, with fewer than 2^21 summands.

    Floats are exact below 2^53 and have fast products. Integer quotients of floats are exact too,
    unlike remainders.
    """
    product = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
    product -= product // p * p
    return product


def lagrange_weights(points: Sequence[int], p: int) -> Ints:
    """Return the weights that combine a polynomial's values at points into its value at 0."""
    return np.array(weights_at_zero(points, p))


@cache
def _powers(parties: int, degree: int, p: int) -> Ints:
    """Return the powers of each party's point up to the degree, shape (n, degree + 1)."""
    exponents = range(degree + 1)
    return np.array([[pow(x, e, p) for e in exponents] for x in range(1, parties + 1)])


@dataclass(frozen=True, slots=True)
class Scheme:
    """The public parameters of a sharing; the prime p is above the number of parties."""

    p: int
    parties: int

    @property
    def threshold(self) -> int:
        """The number t of parties that together know nothing, and the degree of a sharing."""
        return (self.parties - 1) // 2

    @property
    def drawing(self) -> int:
        """The number of parties that draw values unknown to any coalition."""
        return self.threshold + 1

    @property
    def multiplying(self) -> int:
        """The number of parties whose words define a polynomial of a product's degree."""
        return 2 * self.threshold + 1

    @property
    def word(self) -> np.dtype[Any]:
        """The word type in which an element is sent."""
        return word_for(self.p - 1)

    def shares(self, values: Ints, degree: int, draws: Draws) -> Ints:
        """Share values, shape (m,), by random polynomials; row i of (n, m) is for party i."""
        random = draws.integers(0, self.p, (degree, len(values)))
        powers = _powers(self.parties, degree, self.p)
        return product_mod(powers, np.concatenate([values[None, :], random]), self.p)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """The words that the first parties send in a round, and the sum that a party computes.

    This sender's words have the shape (n, m), one row for each party, or (m,), the same words for
    all. A party that does not send has none. In the sum, each sender has a weight.
    """

    weights: Ints
    count: int
    words: Ints | None
    is_public: bool = False

    @property
    def senders(self) -> int:
        """The number of parties that send: the first of the roster."""
        return len(self.weights)

    def to(self, party: int) -> Ints:
        """Return a sender's words for a party."""
        if self.words is None:
            return np.empty(0, dtype=np.int64)
        return self.words if self.is_public else self.words[party]


Play: TypeAlias = Generator[Sequence[Part], Sequence[Ints], _R]
"""A party's actions: a generator that yields the parts of a round and receives their sums."""


class Dealer:
    """The party with some index that deals shares by a scheme, from its own secret randomness."""

    def __init__(self, scheme: Scheme, me: int, draws: Draws) -> None:
        self.scheme, self._me, self._draws = scheme, me, draws
        self._all = np.ones(scheme.parties, dtype=np.int64)
        self._drawing = np.ones(scheme.drawing, dtype=np.int64)
        self._linear = lagrange_weights(range(1, scheme.drawing + 1), scheme.p)
        self._square = lagrange_weights(range(1, scheme.multiplying + 1), scheme.p)

    def summed(self, own: Ints) -> Part:
        """Deal the party's own values, shape (m,); the sum is a share of all parties' total."""
        return Part(self._all, len(own), self._shares(own % self.scheme.p))

    def opened_sum(self, own: Ints) -> Part:
        """Open the party's words, shape (m,), uniform to others; the sum is all parties' total."""
        return Part(self._all, len(own), own % self.scheme.p, is_public=True)

    def pads(self, count: int) -> Ints:
        """Draw uniform elements, known to this party alone."""
        return self._draws.integers(0, self.scheme.p, count)

    def random(self, count: int) -> Part:
        """Deal uniform elements; the sum is a share of elements that no coalition knows."""
        is_sender = self._me < self.scheme.drawing
        return Part(self._drawing, count, self._shares(self.pads(count)) if is_sender else None)

    def zeros(self, count: int) -> Part:
        """Deal sharings of zero of degree 2t; each is added to one product before it is opened."""
        is_sender = self._me < self.scheme.drawing
        nothing, degree = np.zeros(count, dtype=np.int64), 2 * self.scheme.threshold
        return Part(self._drawing, count, self._shares(nothing, degree) if is_sender else None)

    def reshared(self, products: Ints) -> Part:
        """Reshare products of the party's shares, shape (m,); the sum is a share of degree t."""
        is_sender = self._me < self.scheme.multiplying
        shares = self._shares(products % self.scheme.p) if is_sender else None
        return Part(self._square, len(products), shares)

    def opened(self, shares: Ints, *, product: bool = False) -> Part:
        """Open the party's shares, shape (m,); the sum is the secret.

        A product of shares has degree 2t, and a sharing of zero must have been added to it.
        """
        weights = self._square if product else self._linear
        words = shares % self.scheme.p if self._me < len(weights) else None
        return Part(weights, len(shares), words, is_public=True)

    def _shares(self, values: Ints, degree: int | None = None) -> Ints:
        degree = self.scheme.threshold if degree is None else degree
        return self.scheme.shares(values, degree, self._draws)


def summed(part: Part, words: Ints, p: int) -> Ints:
    """Return the sum that a party computes from the words sent to it by all senders of a part."""
    total: Ints = product_mod(part.weights[None, :], words, p)[0]
    return total


def drawn(needed: int, chance: float) -> int:
    """Return the number of elements to draw so that enough remain, if each is lost by `chance`.

    Fewer than `needed` remain with probability at most 2^-60, by Chernoff's bound.
    """

    def is_enough(count: int) -> bool:
        share = (count - needed + 1) / count  # of discarded elements, if one too few remains
        if share <= chance:
            return False
        left = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
        return count * (share * math.log(share / chance) + left) >= LACK_BITS * math.log(2)

    if not needed:
        return 0
    counts = range(needed, 32 * (needed + LACK_BITS))  # enough for any chance up to 1/2
    return counts[bisect_left(counts, x=True, key=is_enough)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nonzero:
    """Shares of random elements and of their partners, before zeros are discarded.

    The product of each element with its partner is opened, with a sharing of zero of degree 2t.
    """

    elements: Ints
    partners: Ints
    zeros: Ints

    @staticmethod
    def to_draw(needed: int, p: int) -> int:
        """Return the number of elements to draw so that enough are nonzero."""
        return drawn(needed, 1 - (1 - 1 / p) ** 2)

    @staticmethod
    def dealt(dealer: Dealer, count: int) -> tuple[Part, Part, Part]:
        """Deal the elements, partners and zeros; the sums are the fields of this class."""
        return dealer.random(count), dealer.random(count), dealer.zeros(count)

    def checked(self, dealer: Dealer) -> Part:
        """Open the product of each element with its partner."""
        return dealer.opened(self.elements * self.partners + self.zeros, product=True)


def shared_powers(
    dealer: Dealer, base: Ints, most: int, along: Sequence[Part]
) -> Play[tuple[Ints, list[Ints]]]:
    """Return the powers of a shared number up to a bound, and the sums of the extra parts."""
    powers, opened = base[None, :], list[Ints]()
    for products in power_levels(most):
        raised = (powers[-1] * powers[:products]).ravel()
        *others, dealt = yield [*along, dealer.reshared(raised)]
        opened, along = [*opened, *others], []
        powers = np.vstack([powers, dealt.reshape(-1, len(base))])
    return powers, opened


def kept_nonzero(dealer: Dealer, needed: int, dealt: Nonzero, products: Ints) -> Play[Ints]:
    """Return the given number of shares of nonzero elements, given the opened products.

    If too few products with partners are nonzero, more elements are drawn, in two rounds.
    """
    kept: Ints = dealt.elements[products != 0]
    while len(kept) < needed:
        more = Nonzero(*(yield Nonzero.dealt(dealer, Nonzero.to_draw(needed, dealer.scheme.p))))
        (products,) = yield [more.checked(dealer)]
        kept = np.append(kept, more.elements[products != 0])
    return kept[:needed]
