"""Valid measurements as arithmetic circuits (sections "Validity Circuits" and "Instantiations").

A circuit encodes a measurement as a vector x of field elements, and is 0 at x if the measurement
is valid. Its only multiplications of two secrets are calls of one gadget, a polynomial of degree 2.
The gadget's inputs are called wires. The wires are affine in x, and so is the circuit given the
gadget's outputs: each aggregator computes its share of them from its share of x.

The randomness r of a circuit is the same for prover and aggregators. It combines all conditions on
x into one, which an invalid x fulfils with a probability of about its length over the modulus.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.checks import require, require_that, require_whole
from veilring.protocols.prio.algorithm.fields import FIELD64, FIELD128, Elements, Field
from veilring.protocols.prio.algorithm.polynomials import powers_of

# The encoding of such a measurement has 16 MiB.
LENGTH_MAX: Final = 1 << 20
# A number of 63 bits is below both moduli.
BITS_MAX: Final = 63


@dataclass(frozen=True, kw_only=True)
class Circuit(ABC):
    """A circuit over a field, and the encoding of measurements for it.

    Arguments of all methods:
        x: Encoded measurements or shares of them, shape (words, length, reports).
        r: The joint randomness, shape (words, joint_length, reports).
        shares: The number of shares of which x is one: constants are divided by it.

    Attributes:
        length: The number of elements of an encoded measurement.
        output_length: The number of elements that are summed over reports.
        arity: The number of inputs of the gadget.
        calls: The number of calls of the gadget.
        joint_length: The number of random elements of a circuit.
        largest: The largest number that one report adds to an output.
    """

    field: Field
    length: int
    output_length: int
    arity: int
    calls: int
    joint_length: int
    largest: int = 1

    @abstractmethod
    def encode(self, measurements: NDArray[Any]) -> Elements:
        """Return measurements as vectors, shape (words, length, reports).

        Raises:
            InputError: A measurement has a wrong shape or is out of range.
        """

    @abstractmethod
    def gadget(self, wires: Elements) -> Elements:
        """Return the gadget's outputs for wires of the shape (words, any, arity, reports)."""

    @abstractmethod
    def wires(self, x: Elements, r: Elements, shares: int) -> Elements:
        """Return the wires of all calls, shape (words, calls, arity, reports)."""

    def wires_at(self, basis: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        """Return the sum of the wires of all calls, each call weighted.

        Args:
            basis: The weights, shape (words, calls, reports).

        Returns:
            Shape (words, arity, reports).
        """
        return self.field.matmul(basis[:, None], self.wires(x, r, shares))[:, 0]

    def weights(self, r: Elements) -> Elements | None:
        """Return the factors of the gadget's outputs, shape (words, calls, reports), if not 1."""
        del r
        return None

    @abstractmethod
    def output(self, gadgets: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        """Return the output of the circuit, shape (words, reports).

        Args:
            gadgets: The weighted sum of the outputs of all calls, shape (words, reports).
        """

    def truncate(self, x: Elements) -> Elements:
        """Return the elements to sum over reports, shape (words, output_length, reports)."""
        return x[:, : self.output_length]


class Count(Circuit):
    """A measurement is 0 or 1 (section "Prio3Count")."""

    @override
    def encode(self, measurements: NDArray[Any]) -> Elements:
        return self.field.small(_within(measurements, (), self.largest)[None])

    @override
    def gadget(self, wires: Elements) -> Elements:
        return self.field.mul(wires[:, :, 0], wires[:, :, 1])

    @override
    def wires(self, x: Elements, r: Elements, shares: int) -> Elements:
        return np.stack([x, x], axis=2)

    @override
    def output(self, gadgets: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        return self.field.sub(gadgets, x[:, 0])


class Sum(Circuit):
    """A measurement is a number of a given number of bits (section "Prio3Sum")."""

    @override
    def encode(self, measurements: NDArray[Any]) -> Elements:
        numbers = _within(measurements, (), self.largest)
        return self.field.small(_bits_of(numbers[:, None], self.length))

    @override
    def gadget(self, wires: Elements) -> Elements:
        x = wires[:, :, 0]
        return self.field.sub(self.field.mul(x, x), x)

    @override
    def wires(self, x: Elements, r: Elements, shares: int) -> Elements:
        return x[:, :, None]

    @override
    def weights(self, r: Elements) -> Elements:
        return powers_of(self.field, r, self.calls + 1)[:, 1:]

    @override
    def output(self, gadgets: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        return gadgets

    @override
    def truncate(self, x: Elements) -> Elements:
        return _numbers_of(self.field, x, self.length)


@dataclass(frozen=True, kw_only=True)
class ZerosAndOnes(Circuit):
    """All elements of x are 0 or 1: the part that the circuits of vectors share.

    The gadget `ParallelSum(Mul)` adds `x (x - 1)`, times a power of r, over a chunk of x.
    """

    @property
    def chunk(self) -> int:
        """The number of elements that a call of the gadget checks; absent elements are 0."""
        return self.arity // 2

    @override
    def gadget(self, wires: Elements) -> Elements:
        return self.field.sum(self.field.mul(wires[:, :, ::2], wires[:, :, 1::2]), axis=2)

    @override
    def wires(self, x: Elements, r: Elements, shares: int) -> Elements:
        chunks = self._chunks(x)
        within, across = self._powers(r)
        found = self.field.zeros(self.calls, self.arity, x.shape[-1])
        found[:, :, ::2] = self.field.mul(
            chunks, self.field.mul(across[:, :, None], within[:, None])
        )
        found[:, :, 1::2] = self.field.sub(chunks, self._fraction(shares)[:, None])
        return found

    @override
    def wires_at(self, basis: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        within, across = self._powers(r)
        weights = np.stack([self.field.mul(basis, across), basis], axis=1)
        left, right = np.moveaxis(self.field.matmul(weights, self._chunks(x)), 1, 0)
        ones = self.field.mul(self.field.sum(basis, axis=1)[:, None], self._fraction(shares))
        found = self.field.zeros(self.arity, x.shape[-1])
        found[:, ::2] = self.field.mul(left, within)
        found[:, 1::2] = self.field.sub(right, ones)
        return found

    @override
    def output(self, gadgets: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        return gadgets

    def _chunks(self, x: Elements) -> Elements:
        """Return x with zeros at its end, shape (words, calls, chunk, reports)."""
        padded = self.field.zeros(self.calls * self.chunk, x.shape[-1])
        padded[:, : self.length] = x
        return padded.reshape(len(x), self.calls, self.chunk, x.shape[-1])

    def _powers(self, r: Elements) -> tuple[Elements, Elements]:
        """Return `r, r², ..., r^chunk`, and `1, r^chunk, r^(2 chunk), ...` for the calls."""
        within = powers_of(self.field, r[:, :1], self.chunk + 1)[:, 1:]
        return within, powers_of(self.field, within[:, -1:], self.calls)

    def _fraction(self, shares: int, of: int = 1) -> Elements:
        """Return a share of a constant, shape (words, 1, 1)."""
        return self.field.constant(of * pow(shares, -1, self.field.modulus), axes=3)

    def _and(self, gadgets: Elements, difference: Elements, r: Elements) -> Elements:
        """Return the output of a circuit that also checks that a difference is 0.

        The draft's text has another factor r at the gadgets, but its test vectors do not.
        """
        checks = np.stack([gadgets, difference], axis=1)
        factors = powers_of(self.field, r[:, 1:2], 3)[:, 1:]
        return self.field.sum(self.field.mul(factors, checks), axis=1)


@dataclass(frozen=True, kw_only=True)
class SumVec(ZerosAndOnes):
    """A measurement is a vector of numbers of a given number of bits (section "Prio3SumVec")."""

    bits: int

    @override
    def encode(self, measurements: NDArray[Any]) -> Elements:
        numbers = _within(measurements, (self.output_length,), self.largest)
        return self.field.small(_bits_of(numbers, self.bits))

    @override
    def truncate(self, x: Elements) -> Elements:
        return _numbers_of(self.field, x, self.bits)


class Histogram(ZerosAndOnes):
    """A measurement is the index of a bucket (section "Prio3Histogram")."""

    @override
    def encode(self, measurements: NDArray[Any]) -> Elements:
        buckets = _within(measurements, (), self.length - 1)
        return self.field.small(np.arange(self.length, dtype=np.uint64)[:, None] == buckets)

    @override
    def output(self, gadgets: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        ones = self.field.sum(x, axis=1)
        return self._and(gadgets, self.field.sub(ones, self._fraction(shares)[:, 0]), r)


@dataclass(frozen=True, kw_only=True)
class MultiHotHistogram(ZerosAndOnes):
    """A measurement is a vector of zeros and at most `ones_max` ones.

    This circuit of later drafts has test vectors for draft 08. After the buckets follow the bits of
    the number of ones plus an offset, which makes `ones_max` the largest number that fits.
    """

    ones_max: int

    @property
    def _offset(self) -> int:
        return (1 << self.ones_max.bit_length()) - 1 - self.ones_max

    @override
    def encode(self, measurements: NDArray[Any]) -> Elements:
        buckets = _within(measurements, (self.output_length,), 1)
        ones = buckets.sum(axis=1)
        require_that(
            bool((ones <= self.ones_max).all()),
            "measurements",
            f"a measurement has more than {self.ones_max} ones; leave out some of them",
        )
        bits = _bits_of(ones[:, None] + np.uint64(self._offset), self.length - self.output_length)
        return self.field.small(np.concatenate([buckets.T, bits]))

    @override
    def output(self, gadgets: Elements, x: Elements, r: Elements, shares: int) -> Elements:
        ones = self.field.sum(x[:, : self.output_length], axis=1)
        bits = x[:, self.output_length :]
        claimed = _numbers_of(self.field, bits, bits.shape[1])[:, 0]
        offset = self._fraction(shares, self._offset)[:, 0]
        return self._and(gadgets, self.field.sub(self.field.add(ones, offset), claimed), r)


def count() -> Count:
    """Return the circuit of Prio3Count."""
    return Count(field=FIELD64, length=1, output_length=1, arity=2, calls=1, joint_length=0)


def sum_(bits: int) -> Sum:
    """Return the circuit of Prio3Sum for numbers of 1 to 63 bits."""
    require_whole("bits", bits, BITS_MAX)
    return Sum(
        field=FIELD128,
        length=bits,
        output_length=1,
        arity=1,
        calls=bits,
        joint_length=1,
        largest=(1 << bits) - 1,
    )


def sum_vec(field: Field, length: int, bits: int, chunk_length: int) -> SumVec:
    """Return the circuit of Prio3SumVec for vectors of numbers of 1 to 63 bits."""
    require_whole("bits", bits, BITS_MAX)
    require_whole("length", length, LENGTH_MAX // bits)
    return SumVec(
        field=field,
        **_chunked(length * bits, chunk_length),
        output_length=length,
        joint_length=1,
        bits=bits,
        largest=(1 << bits) - 1,
    )


def histogram(length: int, chunk_length: int) -> Histogram:
    """Return the circuit of Prio3Histogram for a number of buckets."""
    require_whole("length", length, LENGTH_MAX)
    chunked = _chunked(length, chunk_length)
    return Histogram(field=FIELD128, **chunked, output_length=length, joint_length=2)


def multi_hot_histogram(length: int, ones_max: int, chunk_length: int) -> MultiHotHistogram:
    """Return the circuit of Prio3MultiHotHistogram for a number of buckets."""
    require_whole("length", length, LENGTH_MAX - BITS_MAX)
    require_whole("ones_max", ones_max, length)
    return MultiHotHistogram(
        field=FIELD128,
        **_chunked(length + ones_max.bit_length(), chunk_length),
        output_length=length,
        joint_length=2,
        ones_max=ones_max,
    )


def _chunked(length: int, chunk_length: int) -> dict[str, int]:
    """Return the sizes of a circuit that checks an encoded measurement in chunks."""
    require_whole("chunk_length", chunk_length, length)
    return {"length": length, "arity": 2 * chunk_length, "calls": -(-length // chunk_length)}


def _within(measurements: NDArray[Any], shape: tuple[int, ...], most: int) -> NDArray[np.uint64]:
    """Return measurements as unsigned numbers; refuse those out of range."""
    require_that(
        measurements.dtype.kind in "biu" and measurements.shape[1:] == shape,
        "measurements",
        f"measurements are {measurements.dtype} of the shape {measurements.shape}; they must be "
        f"integers of the shape {('reports', *shape)}",
    )
    fits = not measurements.size or (measurements.min() >= 0 and measurements.max() <= most)
    require(bool(fits), "measurements", "out of range", f"integers from 0 to {most:,}")
    return measurements.astype(np.uint64)


def _bits_of(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Return the bits of numbers, the lowest first, shape (numbers · bits, reports)."""
    found = numbers.T[:, None] >> np.arange(bits, dtype=np.uint64)[:, None] & np.uint64(1)
    return found.reshape(numbers.shape[1] * bits, len(numbers))


def _numbers_of(field: Field, x: Elements, bits: int) -> Elements:
    """Return numbers from their bits, or shares of both, shape (words, numbers, reports)."""
    return field.join_bits(x.reshape(field.words, x.shape[1] // bits, bits, x.shape[-1]))
