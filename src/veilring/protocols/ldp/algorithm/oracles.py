"""The frequency oracles by name, and the choice of one by exact variance and report size.

- `DirectEncoding`: the client reports its value or another one (k-ary randomised response).
- `OptimisedUnary`: one bit per value, of which only the client's own is set; then each bit is
  flipped at random.
- `SubsetSelection`: a random set of values that is likely to contain the client's (Ye and Barg,
  "Optimal schemes for discrete distribution estimation under locally differential privacy", IEEE
  Transactions on Information Theory 2018; Wang et al. 2016, omega-SS).
- `LocalHashing`: the client reports a hash function, and its value's bucket or another bucket (Wang
  et al., USENIX Security 2017, Section 4.4).
- `HadamardResponse`: one random entry of the value's row of a Hadamard matrix, with a randomised
  sign (Acharya, Sun and Zhang, "Hadamard response", AISTATS 2019, Section 4, high-privacy regime;
  Bassily and Smith, STOC 2015).

`HashFamily` multiplies, adds and takes the high bits, so that its distribution is known exactly
(Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
without primes", STACS 1996). With words of `w` bits and values of `u`, the highest
`k = w - u + 1` bits of `a * x + b` are, over uniform words `a` and `b`, pairwise independent and
uniform. Cutting `[0, 2**k)` into `g` runs of nearly equal length then gives buckets whose
probabilities, alone and in pairs, are known exactly, even if `g` is not a power of two.

Sources: Wang et al., USENIX Security 2017, Section 4; Kairouz, Oh and Viswanath, NeurIPS 2014.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Ints
from veilring.errors import InputError
from veilring.privacy.bounds import binomial_range
from veilring.privacy.checks import require
from veilring.privacy.draws import bernoulli, packed_bernoulli
from veilring.privacy.exact import Dyadic, epsilon_of, exp_floor, log_ceil, unary_epsilon
from veilring.privacy.selection import ResponseDistribution, randomised_response
from veilring.protocols.ldp.algorithm.packing import (
    bit_of,
    bitmap_bytes,
    client_slices,
    column_sums,
    counted,
    decoded,
    encoded,
    is_padded,
    width_of,
)
from veilring.protocols.ldp.algorithm.randomiser import (
    BITS,
    DOMAIN_MAX,
    FrequencyOracle,
    LocalRandomiser,
    PlainOracle,
    PureOracle,
    Reports,
    Sums,
)

_START_BITS: Final = 16  # bits of the coins for an initial set, which need not be exact


@dataclass(frozen=True)
class SubsetSelection(PureOracle):
    """A set of about `w = d / (e^epsilon + 1)` values; the smallest variance of all pure oracles.

    Of the two neighbouring whole numbers, the better one is computed (Ye and Barg, Section IV):
    with the nearest one the variance may be 17 % above the minimum. A set of one value is
    `DirectEncoding`. The set contains the client's value with probability `p`; the rest of it is a
    uniform choice among the other values. A report is a bitmap in the order of `numpy.packbits`,
    or, if that is shorter, the ascending list of the members, each in the minimum number of bytes,
    little-endian.
    """

    name: ClassVar[str] = "ss"

    @cached_property
    def size(self) -> int:
        """The number of values in a set, `w`."""
        below = int(self.domain / (math.exp(self.epsilon) + 1))
        # For a domain of two, rounding may give two; a set of all values carries no information.
        return max((max(1, below), min(below + 1, self.domain - 1)), key=self._information)

    def _information(self, size: int) -> float:
        """Return the information in sets of this size: a constant over the variance at frequency 0.

        The constant, `(e^epsilon - 1)^2 / (d - 1)^2`, is omitted: for a small epsilon it would be a
        difference of nearly equal numbers.
        """
        weight = math.exp(self.epsilon)
        others = self.domain - size
        total = weight * size + others
        q = size * (weight * (size - 1) + others) / ((self.domain - 1) * total)
        return (size * others / total) ** 2 / (q * (1 - q))

    @cached_property
    def _keep(self) -> Dyadic:
        weight = exp_floor(self.epsilon) * self.size
        return Dyadic.floor(weight / (weight + self.domain - self.size), BITS)

    @property
    @override
    def p(self) -> Fraction:
        return self._keep.fraction

    @property
    @override
    def q(self) -> Fraction:
        return (self.size - self.p) / (self.domain - 1)

    @property
    @override
    def _loss(self) -> float:
        # C(d-1, w-1) sets contain v, and C(d-1, w) sets do not.
        return log_ceil(self.p / (1 - self.p) * Fraction(self.domain - self.size, self.size))

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": self._keep.numerator, "size": self.size}

    @property
    def _listed(self) -> bool:
        return self.size * width_of(self.domain) < bitmap_bytes(self.domain)

    @property
    @override
    def report_bytes(self) -> int:
        return min(self.size * width_of(self.domain), bitmap_bytes(self.domain))

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        bitmaps = self._bitmaps(values, rng)
        if not self._listed:
            return bitmaps
        members = np.nonzero(np.unpackbits(bitmaps, axis=1))[1].reshape(-1, self.size)
        return encoded(members, width_of(self.domain)).reshape(len(bitmaps), -1)

    @property
    @override
    def _work_bytes(self) -> int:
        # A list is built from bytes with one bit each.
        return 32 + (self.domain if self._listed else bitmap_bytes(self.domain))

    def _bitmaps(self, own: Ints, rng: Generator) -> NDArray[np.uint8]:
        """Return one set per client.

        All other values are initially in the set with the same probability; then single values,
        drawn uniformly, are added or removed until the size is right. By symmetry, all sets of the
        right size are exactly equally probable.
        """
        bitmaps = packed_bernoulli(self._start, len(own), self.domain, rng)
        clients, (place, bit) = np.arange(len(own)), bit_of(own)
        bitmaps[clients, place] &= ~bit
        keep = bernoulli(self._keep, len(own), rng)
        sizes = np.bitwise_count(bitmaps).sum(axis=1, dtype=np.int64)
        self._resize(bitmaps, own, self.size - keep - sizes, rng)
        bitmaps[clients, place] |= bit * keep
        return bitmaps

    @property
    def _start(self) -> Dyadic:
        """The probability for initial sets, most of which are then slightly too small.

        A uniform draw seldom hits one of few members, so removing is slow if there are few.
        """
        share = self.size / self.domain
        deviations = 1 if share > 1 / 8 else 4
        spread = math.sqrt(self.size * (1 - share))
        return Dyadic.floor(max(0.0, share - deviations * spread / self.domain), _START_BITS)

    def _resize(self, bitmaps: NDArray[np.uint8], own: Ints, missing: Ints, rng: Generator) -> None:
        """Add missing members, drawn uniformly, or remove some; never the client's own value."""
        left = np.flatnonzero(missing)
        missing, own = missing[left], own[left]
        while left.size:  # then no set lacks members
            drawn = rng.integers(self.domain, size=left.size)
            place, bit = bit_of(drawn)
            member = (bitmaps[left, place] & bit) != 0
            change = (member == (missing < 0)) & (drawn != own)
            bitmaps[left, place] ^= bit * change
            missing -= np.sign(missing) * change
            unfinished = np.flatnonzero(missing)
            if unfinished.size < left.size:  # otherwise the copies would be equal
                left, missing, own = left[unfinished], missing[unfinished], own[unfinished]

    @override
    def _fits(self, reports: Reports) -> Bools:
        if self._listed:
            members = decoded(reports.reshape(len(reports), self.size, -1))
            ascending = (members[:, 1:] > members[:, :-1]).all(axis=1)
            return np.asarray(ascending & (members[:, -1] < self.domain))
        sizes = np.bitwise_count(reports).sum(axis=1, dtype=np.int64)
        return np.asarray((sizes == self.size) & is_padded(reports, self.domain))

    @override
    def aggregate(self, reports: Reports) -> Sums:
        if not self._listed:
            return column_sums(reports, self.domain)
        return counted(reports.reshape(-1, width_of(self.domain)), self.domain)


HashWords: TypeAlias = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class HashFamily:
    """Hash functions from `[0, domain)` to `[0, buckets)`, each named by two words.

    Attributes:
        buckets: The number of buckets, `g`; at least 2.
        word_bits: The size of a word: 8, 16, 32 or 64. Small words are for enumeration. The high
            bits and a bucket's number have at most 64 bits together.
    """

    domain: int
    buckets: int
    word_bits: int = 32

    @property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """The type of a word: arithmetic on it is modulo `2**word_bits`."""
        return np.dtype(f"<u{self.word_bits // 8}")

    @property
    def high_bits(self) -> int:
        """The number of bits of a word that choose the bucket, `k`."""
        return self.word_bits + 1 - (self.domain - 1).bit_length()

    @cached_property
    def starts(self) -> HashWords:
        """The smallest word of each bucket; the last entry is the first bucket's again: 0.

        If there are more buckets than high bits can represent, some are empty and start at the same
        word as the next bucket.
        """
        low_bits = self.word_bits - self.high_bits
        edges = [
            -(-(bucket << self.high_bits) // self.buckets) << low_bits
            for bucket in range(self.buckets + 1)
        ]
        return np.array([edge % (1 << self.word_bits) for edge in edges], dtype=self.word)

    @property
    def collision(self) -> Fraction:
        """The exact probability that two given values share a bucket; slightly above `1 / g`."""
        short, longer = divmod(1 << self.high_bits, self.buckets)
        squares = longer * (short + 1) ** 2 + (self.buckets - longer) * short**2
        return Fraction(squares, 1 << 2 * self.high_bits)

    def bucket(self, a: HashWords, b: HashWords, values: Ints) -> Ints:
        """Return the bucket of each value under each function; the arguments are broadcast."""
        words = a * values.astype(self.word) + b
        high = (words >> (self.word_bits - self.high_bits)).astype(np.uint64)
        return (high * np.uint64(self.buckets) >> np.uint64(self.high_bits)).astype(np.int64)

    def add_supported(
        self, sums: Ints, a: HashWords, b: HashWords, buckets: Ints, first: int = 0
    ) -> None:
        """Add to each value's sum the number of functions that map the value to their bucket.

        A bucket is a range of words, so its members are found by one subtraction with wrap-around;
        from one value to the next a word grows by `a`.

        Args:
            sums: One sum per value, from the first on; changed in place.
        """
        words = a * self.word.type(first) + (b - self.starts[buckets])
        length = self.starts[buckets + 1] - self.starts[buckets]
        inside = np.empty(len(words), dtype=np.bool_)
        for place in range(len(sums)):
            np.less(words, length, out=inside)
            sums[place] += np.count_nonzero(inside)
            words += a


def hash_family(domain: int, buckets: int) -> HashFamily:
    """Return the functions for a domain, with words that are long enough for it."""
    return HashFamily(domain, buckets, 32 if domain <= DOMAIN_MAX else 64)


# A bucket's number has two bytes: above epsilon 11.1 there are fewer buckets than optimal.
_MOST_BUCKETS: Final = 1 << 16


class _RandomisedResponse(PureOracle):
    """An oracle whose report is one of some answers: the client's own one, or any other."""

    @property
    @abstractmethod
    def _answers(self) -> int:
        """The number of answers."""

    @cached_property
    def _response(self) -> ResponseDistribution:
        return ResponseDistribution.spending(self.epsilon, self._answers)

    @property
    @override
    def p(self) -> Fraction:
        return self._response.p

    @property
    @override
    def _loss(self) -> float:
        return self._response.epsilon


@dataclass(frozen=True)
class LocalHashing(_RandomisedResponse):
    """A hash function and one of its `g = round(e^epsilon) + 1` buckets, for domains of any size.

    The bucket is that of the client's value with probability `p`, otherwise another one. A report
    is the two words of the function and the number of the bucket, all little-endian. The
    collector's work grows with clients times domain.
    """

    name: ClassVar[str] = "olh"
    _work_bytes = 16  # two hash words, the bucket's length, and a comparison

    @cached_property
    def family(self) -> HashFamily:
        """The hash functions that a client draws from."""
        return hash_family(self.domain, min(round(math.exp(self.epsilon)) + 1, _MOST_BUCKETS))

    @property
    def _seed_bytes(self) -> int:
        """The size of the two words of a function."""
        return 2 * self.family.word.itemsize

    @property
    @override
    def _answers(self) -> int:
        return self.family.buckets

    @property
    @override
    def q(self) -> Fraction:
        # The report has the own value's bucket, which the other value may share, or another bucket.
        lie = self._response.q
        return lie + (self.p - lie) * self.family.collision

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {
            "own": self._response.own,
            "other": self._response.other,
            "buckets": self.family.buckets,
            "word_bits": self.family.word_bits,
            "high_bits": self.family.high_bits,
        }

    @property
    @override
    def report_bytes(self) -> int:
        return self._seed_bytes + width_of(self.family.buckets)

    def _seeds(self, clients: int, rng: Generator) -> HashWords:
        """Return the words of a random function for each client, shape (clients, 2)."""
        most = (1 << self.family.word_bits) - 1
        drawn = rng.integers(0, most, (clients, 2), self.family.word.type, endpoint=True)
        return drawn.astype(self.family.word)

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        words = self._seeds(len(values), rng)
        true = self.family.bucket(words[:, 0], words[:, 1], values)
        said = randomised_response(true, self._response, rng)
        return np.hstack((words.view(np.uint8), encoded(said, width_of(self.family.buckets))))

    @override
    def _fits(self, reports: Reports) -> Bools:
        return decoded(reports[:, self._seed_bytes :]) < self.family.buckets

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return self.support(reports, np.zeros(1, dtype=np.int64), self.domain).reshape(-1)

    def support(self, reports: Reports, firsts: Ints, run: int) -> Ints:
        """Return the number of reports that support each value of some runs, shape (runs, run).

        Args:
            firsts: The first value of each run of consecutive values.
        """
        sums = np.zeros((len(firsts), run), dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            seeds = np.ascontiguousarray(reports[chunk, : self._seed_bytes])
            a, b = np.ascontiguousarray(seeds.view(self.family.word).T)
            buckets = decoded(reports[chunk, self._seed_bytes :])
            for own, first in zip(sums, firsts.tolist(), strict=True):
                self.family.add_supported(own, a, b, buckets, first)
        return sums


@dataclass(frozen=True)
class HadamardResponse(PureOracle):
    """A random row of the matrix, and the sign at the client's value or the opposite sign.

    The matrix has `order = 2^ceil(log2(domain + 1))` rows, and value v has column v + 1, because
    column 0 carries no information. In any other column the signs agree with v's in half of the
    rows, so `q` is exactly 1/2. A report is `2 * row + (sign is plus)` in the minimum number of
    bytes, little-endian. The collector's work hardly depends on the domain.
    """

    name: ClassVar[str] = "hr"
    q: ClassVar[Fraction] = Fraction(1, 2)
    _work_bytes = 32  # a row, its sign, a coin and the code

    @property
    def order(self) -> int:
        """The number of rows of the matrix, `K`."""
        return 1 << self.domain.bit_length()

    @cached_property
    def _keep(self) -> Dyadic:
        weight = exp_floor(self.epsilon)
        return Dyadic.floor(weight / (weight + 1), BITS)

    @property
    @override
    def p(self) -> Fraction:
        return self._keep.fraction

    @property
    @override
    def _loss(self) -> float:
        return epsilon_of(self.p, 1 - self.p)

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": self._keep.numerator, "order": self.order}

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(2 * self.order)

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        rows = rng.integers(self.order, size=len(values), dtype=np.uint32)
        minus = np.bitwise_count(rows & (values + 1).astype(np.uint32)) & 1
        plus = minus != bernoulli(self._keep, len(rows), rng)
        return encoded(rows << 1 | plus, self.report_bytes)

    @override
    def _fits(self, reports: Reports) -> Bools:
        return decoded(reports) < 2 * self.order

    @override
    def aggregate(self, reports: Reports) -> Sums:
        counts = counted(reports, 2 * self.order)
        agreements = walsh_hadamard(counts[1::2] - counts[::2])
        return (len(reports) + agreements[1 : self.domain + 1]) // 2


def walsh_hadamard(numbers: Ints) -> Ints:
    """Return the product of the Sylvester Hadamard matrix and a vector, in `K log K` steps."""
    product = numbers
    for half in (1 << place for place in range(len(numbers).bit_length() - 1)):
        pairs = product.reshape(-1, 2, half)
        both = (pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1])
        product = np.stack(both, axis=1).reshape(-1)
    return product


@dataclass(frozen=True)
class DirectEncoding(_RandomisedResponse):
    """The client's value with probability `p`, and each of the others with probability `q`.

    A report is the number of a value, in the minimum number of bytes, little-endian. It is the best
    oracle for small domains: better than `OptimisedUnary` if `domain < 3 e^epsilon + 2`.
    """

    name: ClassVar[str] = "de"
    _work_bytes = 32  # a value, a draw, another value and the answer

    @property
    @override
    def _answers(self) -> int:
        return self.domain

    @property
    @override
    def q(self) -> Fraction:
        return self._response.q

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"own": self._response.own, "other": self._response.other}

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        return encoded(randomised_response(values, self._response, rng), self.report_bytes)


_COIN_BYTES: Final = 32  # per client: a value, its place and mask, and a coin


@dataclass(frozen=True)
class OptimisedUnary(PureOracle):
    """One bit per value, set with probability `p` for the client's own and `q` for all others.

    All of epsilon is used for the many bits that are not the client's own: `p = 1/2`. A report is
    the bits packed in the order of `numpy.packbits`; padding bits are 0.
    """

    name: ClassVar[str] = "oue"

    @property
    def own(self) -> Dyadic:
        """The probability that the client's own bit is set."""
        return Dyadic(1, 1)

    @cached_property
    def other(self) -> Dyadic:
        """The probability that each other bit is set."""
        return Dyadic.ceil(1 / (exp_floor(self.epsilon) + 1), BITS)

    @property
    @override
    def p(self) -> Fraction:
        return self.own.fraction

    @property
    @override
    def q(self) -> Fraction:
        return self.other.fraction

    @property
    @override
    def _loss(self) -> float:
        return unary_epsilon(self.p, self.q)

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": int(self.p * 2**BITS), "q": self.other.numerator}

    @property
    @override
    def report_bytes(self) -> int:
        return bitmap_bytes(self.domain)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        # The bits of all values are drawn before the clients' own.
        return self._draw(self._checked(values), rng)

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        reports = packed_bernoulli(self.other, len(values), self.domain, rng)
        for chunk in client_slices(len(values), _COIN_BYTES):
            rows, (place, mask) = reports[chunk], bit_of(values[chunk])
            coin = bernoulli(self.own, len(rows), rng)
            clients = np.arange(len(rows))
            rows[clients, place] = rows[clients, place] & ~mask | mask * coin
        return reports

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The minimum and the maximum number of bits set in an honest report."""
        low, high = binomial_range(self.domain - 1, float(self.q))
        return low, high + 1  # the client's own bit

    @override
    def _fits(self, reports: Reports) -> Bools:
        low, high = self.sizes
        sizes = np.bitwise_count(reports).sum(axis=1, dtype=np.int64)
        return np.asarray(is_padded(reports, self.domain) & (sizes >= low) & (sizes <= high))

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return column_sums(reports, self.domain)


ORACLES: Final[Mapping[str, type[FrequencyOracle]]] = {
    oracle.name: oracle
    for oracle in (DirectEncoding, OptimisedUnary, LocalHashing, HadamardResponse, SubsetSelection)
}
"""All oracles by name; each is built from a domain and an epsilon."""
AUTO: Final = "auto"
"""The name that leaves the choice of the oracle to `recommend_oracle`."""
if TYPE_CHECKING:
    OracleName: TypeAlias = str
else:
    OracleName = Literal[(AUTO, *ORACLES)]
    """A name that a parameter `oracle` may have."""
MakeOracle: TypeAlias = Callable[[int], LocalRandomiser]
"""Makes a frequency oracle for a domain of the given size."""

# A variance up to this factor above the smallest counts as equal: 1 % more clients offset it.
_AS_GOOD: Final = 1.01


# A call takes about 10 ms, and the questions of a survey share an epsilon and a few sizes.
@lru_cache(maxsize=64, typed=True)
def oracle_options(domain: int, epsilon: float) -> tuple[FrequencyOracle, ...]:
    """Return all oracles for a domain, in order of increasing variance."""
    oracles = (kind(domain, epsilon) for kind in ORACLES.values())
    return tuple(sorted(oracles, key=lambda oracle: (oracle.mean_variance, oracle.report_bytes)))


def recommend_oracle(
    domain: int, epsilon: float, *, max_bytes: int | None = None
) -> FrequencyOracle:
    """Return the oracle with the shortest reports among those with nearly the smallest variance.

    Args:
        max_bytes: The maximum size of a report; any size by default.
    """
    every = oracle_options(domain, epsilon)
    fitting = [each for each in every if max_bytes is None or each.report_bytes <= max_bytes]
    if not fitting:
        least = min(oracle.report_bytes for oracle in every)
        raise InputError("max_bytes", max_bytes, f"at least {least} for a domain of {domain}")
    good = [each for each in fitting if each.mean_variance <= _AS_GOOD * fitting[0].mean_variance]
    return min(good, key=lambda oracle: (oracle.report_bytes, oracle.mean_variance))


def make_oracle(name: str, epsilon: float) -> MakeOracle:
    """Return a factory of oracles of one kind; without noise if epsilon is infinite."""
    require(name in {AUTO, *ORACLES}, "oracle", name, ", ".join((AUTO, *ORACLES)))
    return PlainOracle if epsilon == math.inf else partial(_make, name, epsilon)


def _make(name: str, epsilon: float, domain: int) -> LocalRandomiser:
    return recommend_oracle(domain, epsilon) if name == AUTO else ORACLES[name](domain, epsilon)
