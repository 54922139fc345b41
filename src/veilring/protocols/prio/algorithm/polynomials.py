"""Polynomials over a field, by their coefficients or by their values at roots of unity.

Coefficients stand along the axis after the words, the constant one first. Values at the roots of
unity `1, w, w², ...` of an order that is a power of two stand along the same axis.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from veilring.arrays import Ints
from veilring.protocols.prio.algorithm.fields import Elements, Field

# With so many points and few words, the matrix of a transform costs less than its steps.
_MATRIX_MIN: Final = 4
_MATRIX_MAX: Final = 32
_FEW: Final = 1 << 10


def next_power_of_two(number: int) -> int:
    """Return the least power of two that is at least a positive number."""
    return 1 << (number - 1).bit_length()


def evaluate(field: Field, coefficients: Elements, size: int) -> Elements:
    """Return the values of polynomials at the roots of unity of order `size`.

    Args:
        coefficients: Shape (words, number, ...). If there are more than `size`, they fold:
            `x^size` is 1 at a root of unity.
        size: A power of two.
    """
    padded = field.zeros(size, *coefficients.shape[2:])
    head = coefficients[:, :size]
    padded[:, : head.shape[1]] = head
    for start in range(size, coefficients.shape[1], size):
        piece = coefficients[:, start : start + size]
        padded[:, : piece.shape[1]] = field.add(padded[:, : piece.shape[1]], piece)
    return _transform(field, padded)


def interpolate(field: Field, values: Elements) -> Elements:
    """Return the coefficients of the polynomials with these values at the roots of unity."""
    size = values.shape[1]
    turned = np.concatenate([values[:, :1], values[:, :0:-1]], axis=1)
    scale = field.constant(pow(size, -1, field.modulus), values.ndim)
    return field.mul(_transform(field, turned), scale)


def between(field: Field, values: Elements) -> Elements:
    """Return the polynomials' values at the odd powers of the root of twice the order."""
    turns = _odd_turns(field, values.shape[1])
    return evaluate(
        field, field.mul(interpolate(field, values), _spread(turns, values.ndim)), values.shape[1]
    )


def lagrange(field: Field, powers: Elements) -> Elements:
    """Return the Lagrange basis of the roots of unity at a point.

    The value at t of the polynomial with values v at the roots is `Σ basis[k] v[k]`. Interpolation
    is a symmetric matrix, so the basis is the interpolation of the powers of t.

    Args:
        powers: The powers `1, t, t², ...`, one for each root.
    """
    return interpolate(field, powers)


def sum_values(field: Field, coefficients: Elements, size: int, number: int) -> Elements:
    """Return the sums of polynomials' values at `w, w², ...`, shape (words, reports).

    Args:
        coefficients: Shape (words, any, reports).
        size: The order of the root of unity w.
        number: The number of values in a sum.
    """
    weights = _sums_of_powers(field, size, number, coefficients.shape[1])
    return field.matmul(weights[:, None, :, None], coefficients[:, :, None])[:, 0, 0]


def powers_of(field: Field, base: Elements, number: int) -> Elements:
    """Return `1, x, x², ...` along the axis after the words, for a base of length 1 there."""
    found = field.zeros(number, *base.shape[2:])
    found[0, 0] = 1
    if number > 1:
        found[:, 1:2] = base
    known = 2
    while known < number:
        more = min(known - 1, number - known)
        top = found[:, known - 1 : known]
        found[:, known : known + more] = field.mul(found[:, 1 : 1 + more], top)
        known += more
    return found


def _transform(field: Field, values: Elements) -> Elements:
    """Return the number-theoretic transform of vectors, by the method of Cooley and Tukey.

    Few short vectors are multiplied by the matrix instead, which takes a fraction of the calls.
    """
    words, size, *rest = values.shape
    if _MATRIX_MIN <= size <= _MATRIX_MAX and values.size <= _FEW:
        columns = values.reshape(words, size, -1, 1)
        return field.matmul(_matrix(field, size), columns).reshape(values.shape)
    found = values[:, _reversed_bits(size)]
    half = 1
    while half < size:
        pairs = found.reshape(words, size // (2 * half), 2, half, *rest)
        left, right = pairs[:, :, 0], pairs[:, :, 1]
        if half > 1:  # the first factor is 1
            turned = field.mul(right[:, :, 1:], _spread(_twiddles(field, half), right.ndim))
            right = np.concatenate([right[:, :, :1], turned], axis=2)
        found = np.stack([field.add(left, right), field.sub(left, right)], axis=2)
        half *= 2
    return found.reshape(values.shape)


def _spread(constants: Elements, axes: int) -> Elements:
    """Return constants with axes of length 1 at the end, up to a number of axes."""
    return constants.reshape(*constants.shape, *(1,) * (axes - constants.ndim))


@lru_cache(maxsize=64)
def _odd_turns(field: Field, size: int) -> Elements:
    """Return the first powers of the root of twice an order, shape (words, size)."""
    root = field.root(2 * size)
    return field.elements(pow(root, k, field.modulus) for k in range(size))


@lru_cache(maxsize=256)
def _twiddles(field: Field, half: int) -> Elements:
    """Return the roots of unity of order `2 half` from 1 to half, shape (words, 1, half - 1)."""
    root = field.root(2 * half)
    return field.elements(pow(root, k, field.modulus) for k in range(1, half))[:, None]


@lru_cache(maxsize=64)
def _sums_of_powers(field: Field, size: int, number: int, exponents: int) -> Elements:
    """Return `Σ w^(i k)` over k from 1 to a number, for each exponent i, shape (words, i)."""
    root, p = field.root(size), field.modulus
    sums = [number]
    for i in range(1, size):  # a geometric series
        ratio = pow(root, i, p)
        sums.append(ratio * (pow(ratio, number, p) - 1) * pow(ratio - 1, -1, p))
    return field.elements(sums[i % size] for i in range(exponents))


@lru_cache(maxsize=64)
def _matrix(field: Field, size: int) -> Elements:
    """Return the powers of a root of unity that transform vectors, shape (words, size, size, 1)."""
    roots = [pow(field.root(size), k, field.modulus) for k in range(size)]
    powers = (roots[j * k % size] for j in range(size) for k in range(size))
    return field.elements(powers).reshape(field.words, size, size, 1)


@lru_cache(maxsize=64)
def _reversed_bits(size: int) -> Ints:
    order = np.zeros(1, dtype=np.int64)
    while len(order) < size:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order
