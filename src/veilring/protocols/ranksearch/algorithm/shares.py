"""Shamir's secret sharing over a prime field, for many values at once, with products.

Party i of n, from 0, holds a polynomial's value at i + 1; the secret is its value at 0. With degree
t = ⌊(n - 1)/2⌋, any t parties know nothing about it, and 2t + 1 <= n parties suffice for a product.
By four rules, the opened values can be simulated perfectly:

- A product that each party computes from its own shares has degree 2t, and its polynomial is not
  random. It is reshared at degree t, or opened under masks of 2t + 1 parties that add up to 0.
- A secret random element is the sum of elements drawn by t + 1 parties: among any t + 1, one is
  outside the coalition. More parties would not help, because t + 1 parties know all secrets anyway.
- An element that must not be 0 is drawn with a partner: their product is opened, and 0 discards
  both. The opened value reveals nothing about a kept element.
- No drawn element is used twice.

A party is a generator: it yields the values that it deals and announces in a round, and receives
the round's result. The same code runs in one process and over any network. Every sender multiplies
its words by its own weight in Lagrange's interpolation, so a receiver only adds them up. All parts
of a round are shared, masked and added up at once, and independent plays can share rounds.

`Elements` are elements of a field, from 0 to p - 1, or shares of elements, in words that hold a
product. Products are reduced before they are added up.

Source: Ben-Or, Goldwasser and Wigderson, STOC 1988; Gennaro, Rabin and Rabin, PODC 1998, for the
products; Bar-Ilan and Beaver, PODC 1989, for elements that are not 0.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice, takewhile
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.protocols.ranksearch.algorithm.votes import word_for
from veilring.protocols.seedshares import weights_at_zero

PRIMES: Final = (251, 65_521)
"""The largest primes of one and of two bytes, which bound the shared values."""
NOTHING: Final = np.empty(0, np.uint8)
"""No words: together with others, they have the type of the others."""
# A batch lacks nonzero elements with probability at most 2^-60; it then draws again.
LACK_BITS: Final = 60
_BLOCK: Final = 2**14  # values shared at once, so that all temporary arrays fit a cache

Elements: TypeAlias = NDArray[np.integer[Any]]
"""Elements of a field or shares of them, in words that hold a product, or as they are sent."""
ByteStream: TypeAlias = Callable[[int], bytes]
"""Returns the given number of bytes of a secret stream, the next ones at each call."""
Draws: TypeAlias = Callable[[int], Elements]
"""Returns the given number of secret elements, new ones at each call."""
_R = TypeVar("_R")
_S = TypeVar("_S")


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


def product_mod(left: Elements, right: Elements, p: int) -> Ints:
    """Return the product of two matrices reduced modulo p, with fewer than 2^21 summands.

    Floats are exact below 2^53 and have fast products. Quotients by a constant are faster than
    remainders.
    """
    product = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
    product -= product // p * p
    return product


def lagrange_weights(points: Sequence[int], p: int) -> Ints:
    """Return the weights that combine a polynomial's values at points into its value at 0."""
    return np.array(weights_at_zero(points, p))


def reduced(values: Elements, p: int) -> Elements:
    """Return words modulo p; unlike remainders, quotients by a constant are vectorised."""
    quotients: Elements = values // values.dtype.type(p)
    quotients *= values.dtype.type(p)
    return np.subtract(values, quotients, out=quotients)


class Size(NamedTuple):
    """The size of a part of a round."""

    words: int
    """The number of words from each sender to each party."""
    senders: int
    """The number of parties that send: the first of the roster."""
    is_public: bool = False
    """Whether the words are opened rather than dealt."""


Sizes: TypeAlias = Sequence[Size]
"""The parts of a round."""


def words_from(sender: int, sizes: Sizes, *, drawn: bool = False) -> int:
    """Return the number of words that a party sends in a round to one that draws shares or not."""
    return sum(
        words
        for words, senders, is_public in sizes
        if sender < senders and (is_public or not drawn)
    )


@dataclass(frozen=True)
class Scheme:
    """The public parameters of a sharing; the prime p is above the number of parties."""

    p: int
    parties: int

    @cached_property
    def threshold(self) -> int:
        """The number t of parties that together know nothing, and the degree of a sharing."""
        return (self.parties - 1) // 2

    @property
    def drawing(self) -> int:
        """The number of parties that draw values unknown to any coalition."""
        return self.threshold + 1

    @cached_property
    def multiplying(self) -> int:
        """The number of parties whose words define a polynomial of a product's degree."""
        return 2 * self.threshold + 1

    @cached_property
    def word(self) -> np.dtype[Any]:
        """The word type in which an element is sent."""
        return word_for(self.p - 1)

    @cached_property
    def wide(self) -> np.dtype[Any]:
        """The word type of arithmetic: it holds a product of elements plus an element."""
        return np.dtype(f"<u{2 * self.word.itemsize}")

    def drawing_with(self, dealer: int) -> list[int]:
        """Return the t parties that draw their shares from a stream which the dealer shares."""
        return [(dealer + step) % self.parties for step in range(1, self.threshold + 1)]

    def dealing_to(self, party: int) -> list[int]:
        """Return the t parties from which a party draws its shares."""
        return [(party - step) % self.parties for step in range(1, self.threshold + 1)]

    def elements(self, numbers: Elements) -> Elements:
        """Return whole numbers, or products of elements, modulo p."""
        if numbers.dtype == self.wide:
            return reduced(numbers, self.p)
        return (numbers % self.p).astype(self.wide)

    def shares(self, dealer: int, values: Elements, drawn: Elements) -> Elements:
        """Share elements, shape (m,), given drawn shares, (t, m); row i of (n, m) is for party i.

        The drawn shares are those of `drawing_with`. They define a uniform polynomial.
        """
        known = self.drawing_with(dealer)
        others, weights = _interpolation(self.p, self.parties, tuple(known))
        by_value = weights.T.astype(self.wide)[:, :, None]
        shares = np.empty((self.parties, len(values)), self.word)
        shares[known] = drawn
        for start in range(0, len(values), _BLOCK):
            block = slice(start, start + _BLOCK)
            rest = reduced(by_value[0] * values[block], self.p)
            for each, given in zip(by_value[1:], drawn, strict=True):
                rest += reduced(each * given[block], self.p)
            shares[others, block] = reduced(rest, self.p)
        return shares


@cache
def _interpolation(p: int, parties: int, known: tuple[int, ...]) -> tuple[list[int], Ints]:
    """Return the other parties, and the weights of the secret and the known shares in theirs."""
    others = [place for place in range(parties) if place not in known]
    points = [0, *(place + 1 for place in known)]
    weights = [weights_at_zero([(x - place - 1) % p for x in points], p) for place in others]
    return others, np.array(weights)


def uniform_elements(scheme: Scheme, stream: ByteStream, count: int) -> Elements:
    """Return the next elements of a stream; later words replace those that are not below p."""
    spare = count // 32 + 16  # of the bytes, one in 50 is replaced
    words = np.frombuffer(stream((count + spare) * scheme.word.itemsize), scheme.word).copy()
    elements, later = words[:count], words[count:]
    (places,) = (elements >= scheme.p).nonzero()
    instead = later[later < scheme.p]
    if len(places) > len(instead):
        more = uniform_elements(scheme, stream, len(places) - len(instead))
        instead = np.concatenate([instead, more])
    elements[places] = instead[: len(places)]
    return elements


def zero_sums(scheme: Scheme, me: int, drawn: Mapping[int, Elements], count: int) -> Elements:
    """Return a party's masks, which the first 2t + 1 parties add up to 0.

    Each two of them draw the same elements, here by the index of the other party. One of them adds
    these elements, and the other one subtracts them.
    """
    masks = np.zeros(count, scheme.wide)
    for other, elements in drawn.items():
        masks += elements if me < other else elements.dtype.type(scheme.p) - elements
    return reduced(masks, scheme.p)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """A sender's values in a round, which all parties add up to those of other senders.

    Values have the shape (m,); a party that does not send has none. They are dealt, opened, or
    opened under masks.
    """

    size: Size
    values: Elements | None
    is_masked: bool = False


class RoundWords(NamedTuple):
    """The words that a party sends in a round, of all its parts in the order of `Sides`."""

    dealt: Elements
    """Shape (n, m), one row for each party."""
    opened: Elements
    """Shape (m,), the same for all parties."""


class Sides(NamedTuple):
    """The parts of a round that are dealt, and those that are opened, in the order of their words.

    Those with the most senders come first, so the words of any sender are the first of a side.
    Parts under masks, which have the same senders, follow each other.
    """

    dealt: list[Part]
    opened: list[Part]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Self:
        """Sort the parts of a round."""
        each = sorted(parts, key=lambda part: (-part.size.senders, part.is_masked))
        dealt = [part for part in each if not part.size.is_public]
        return cls(dealt, [part for part in each if part.size.is_public])

    def split(self, parts: Sequence[Part], sums: Elements) -> list[Elements]:
        """Return the sums of each part, given those of all words of a round, dealt ones first."""
        found, start = dict[Part, Elements](), 0
        for part in (*self.dealt, *self.opened):
            found[part] = sums[start : start + part.size.words]
            start += part.size.words
        return [found[part] for part in parts]


def joined(values: Iterable[Elements | None]) -> Elements:
    """Return values in one array, without those of parts in which a party does not send."""
    return np.concatenate([NOTHING, *(each for each in values if each is not None)])


Play: TypeAlias = Generator[Sequence[Part], Sequence[Any], _R]
"""A party's actions: a generator that yields the parts of a round and receives their sums."""


def alongside(first: Play[_R], second: Play[_S]) -> Play[tuple[_R, _S]]:
    """Play two plays of one dealer in the same rounds, until both have ended."""
    plays: tuple[Play[Any], ...] = first, second
    results: list[Any] = [None, None]
    heard: dict[int, Any] = dict.fromkeys(range(len(plays)))
    while True:
        parts = dict[int, Sequence[Part]]()
        for place, sums in heard.items():
            try:
                parts[place] = plays[place].send(sums)
            except StopIteration as end:
                results[place] = end.value
        if not parts:
            return results[0], results[1]
        told = iter((yield [*chain.from_iterable(parts.values())]))
        heard = {place: list(islice(told, len(own))) for place, own in parts.items()}


class Dealer:
    """The party with some index that deals shares by a scheme.

    Args:
        draws: The source of uniform elements that only this party knows.
    """

    def __init__(self, scheme: Scheme, me: int, draws: Draws) -> None:
        self.scheme, self._me, self._draws = scheme, me, draws
        self._linear = self._weight(scheme.drawing)
        self._square = self._weight(scheme.multiplying)

    def summed(self, own: Elements) -> Part:
        """Deal the party's own values, shape (m,); the sum is a share of all parties' total."""
        return Part(Size(len(own), self.scheme.parties), self.scheme.elements(own))

    def opened_sum(self, own: Elements) -> Part:
        """Open the party's words, shape (m,), uniform to others; the sum is all parties' total."""
        size = Size(len(own), self.scheme.parties, is_public=True)
        return Part(size, self.scheme.elements(own))

    def pads(self, count: int) -> Elements:
        """Draw uniform elements, known to this party alone."""
        return self._draws(count).astype(self.scheme.wide)

    def random(self, count: int) -> Part:
        """Deal uniform elements; the sum is a share of elements that no coalition knows."""
        values = self.pads(count) if self._me < self.scheme.drawing else None
        return Part(Size(count, self.scheme.drawing), values)

    def reshared(self, products: Elements) -> Part:
        """Reshare products of the party's shares, shape (m,); the sum is a share of degree t."""
        size = Size(len(products), self.scheme.multiplying)
        return Part(size, self._weighted(products, self._square))

    def opened(self, shares: Elements) -> Part:
        """Open the party's shares, shape (m,); the sum is the secret."""
        size = Size(len(shares), self.scheme.drawing, is_public=True)
        return Part(size, self._weighted(shares, self._linear))

    def opened_products(self, products: Elements) -> Part:
        """Open products of the party's shares, shape (m,), under masks; the sum is the secret."""
        size = Size(len(products), self.scheme.multiplying, is_public=True)
        return Part(size, self._weighted(products, self._square), is_masked=True)

    def words(self, sides: Sides, given: Elements, masks: Elements) -> RoundWords:
        """Return the party's words of a round.

        Args:
            given: The shares that `drawing_with` this party draw too of what it deals, shape (t,
                m), in the order of its words.
            masks: The party's masks of products, in this order; none if it does not multiply.
        """
        values, words = (joined(part.values for part in side) for side in sides)
        bare = takewhile(lambda part: not part.is_masked, sides.opened)
        start = sum(part.size.words for part in bare)
        words = words.astype(self.scheme.wide, copy=False)  # also without any
        words[start : start + len(masks)] += masks
        words = reduced(words, self.scheme.p).astype(self.scheme.word)
        return RoundWords(self.scheme.shares(self._me, values, given), words)

    def _weight(self, senders: int) -> int | None:
        """Return the weight of this party's words among those of the first parties."""
        weights = lagrange_weights(range(1, senders + 1), self.scheme.p).tolist()
        return weights[self._me] if self._me < senders else None

    def _weighted(self, values: Elements, weight: int | None) -> Elements | None:
        if weight is None:
            return None
        return self.scheme.elements(self.scheme.elements(values) * self.scheme.wide.type(weight))


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
    """Shares of random elements and of their partners, before zeros are discarded."""

    elements: Elements
    partners: Elements

    @staticmethod
    def to_draw(needed: int, p: int) -> int:
        """Return the number of elements to draw so that enough are nonzero."""
        return drawn(needed, 1 - (1 - 1 / p) ** 2)

    @staticmethod
    def dealt(dealer: Dealer, count: int) -> tuple[Part, Part]:
        """Deal the elements and their partners; the sums are the fields of this class."""
        return dealer.random(count), dealer.random(count)

    def checked(self, dealer: Dealer) -> Part:
        """Open the product of each element with its partner."""
        return dealer.opened_products(self.elements * self.partners)


def shared_powers(
    dealer: Dealer, base: Elements, most: int, along: Sequence[Part]
) -> Play[tuple[Elements, list[Elements]]]:
    """Return the powers of a shared number up to a bound, and the sums of the extra parts."""
    powers, opened = base[None, :], list[Elements]()
    for products in power_levels(most):
        raised = (powers[-1] * powers[:products]).ravel()
        *others, dealt = yield [*along, dealer.reshared(raised)]
        opened, along = [*opened, *others], []
        powers = np.vstack([powers, dealt.reshape(-1, len(base))])
    return powers, opened


def kept_nonzero(dealer: Dealer, needed: int, dealt: Nonzero, products: Elements) -> Play[Elements]:
    """Return the given number of shares of nonzero elements, given the opened products.

    If too few products with partners are nonzero, more elements are drawn, in two rounds.
    """
    kept: Elements = dealt.elements[products != 0]
    while len(kept) < needed:
        more = Nonzero(*(yield Nonzero.dealt(dealer, Nonzero.to_draw(needed, dealer.scheme.p))))
        (products,) = yield [more.checked(dealer)]
        kept = np.append(kept, more.elements[products != 0])
    return kept[:needed]
