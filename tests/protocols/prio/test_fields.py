"""Fields: arithmetic on arrays agrees with Python's integers."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilring.protocols.prio.algorithm.fields import FIELD64, FIELD128, Elements, Field
from veilring.protocols.prio.algorithm.polynomials import (
    between,
    evaluate,
    interpolate,
    lagrange,
    powers_of,
)

FIELDS = pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=["64", "128"])
PRIMES = {FIELD64: 2**32 * 4294967295 + 1, FIELD128: 2**66 * 4611686018427387897 + 1}


def edges(field: Field) -> list[int]:
    """Return numbers at which carries, borrows and folds begin or end, and random ones."""
    p = field.modulus
    bits = (26, 32, 52, 64, 78, 96, 104, p.bit_length() // 2, p.bit_length() - 1)
    near = [0, 1, *(1 << bit for bit in bits if bit < p.bit_length()), p >> 1, field.c << 32]
    drawn = np.random.default_rng(0).bytes(100 * field.element_bytes)
    size = field.element_bytes
    random = [int.from_bytes(drawn[i : i + size]) for i in range(0, len(drawn), size)]
    return sorted({(x + d) % p for x in near for d in (-2, -1, 0, 1, 2)} | {x % p for x in random})


def of(field: Field, numbers: list[int]) -> Elements:
    """Return numbers as a vector of one report."""
    return field.elements(numbers)[..., None]


def ints(field: Field, elements: Elements) -> list[int]:
    """Return a vector of one report as numbers."""
    return field.integers(elements[..., 0])


@FIELDS
def test_moduli_and_roots_are_those_of_the_draft(field: Field) -> None:
    """The modulus is the draft's prime, and the generator's order is its power of two."""
    assert field.modulus == PRIMES[field]
    order = 1 << field.order_bits
    generator = field.root(order)
    assert generator == pow(7, (field.modulus - 1) // order, field.modulus)
    assert pow(generator, order // 2, field.modulus) == field.modulus - 1


@FIELDS
@pytest.mark.parametrize(
    ("name", "exact"),
    [("add", int.__add__), ("sub", int.__sub__), ("mul", int.__mul__)],
    ids=["add", "sub", "mul"],
)
def test_operations_agree_with_integers_at_all_edges(
    field: Field, name: str, exact: Callable[[int, int], int]
) -> None:
    """Each pair of edge values gives the canonical result of Python's integers."""
    numbers = edges(field)
    left, right = field.elements(numbers)[:, :, None], field.elements(numbers)[:, None]
    found = getattr(field, name)(left, right)
    expected = [exact(a, b) % field.modulus for a in numbers for b in numbers]
    assert field.integers(found.reshape(field.words, -1)) == expected


@FIELDS
def test_sums_and_matrix_products_agree_with_integers(field: Field) -> None:
    """Sums, and products of matrices of the largest and of random numbers, are exact."""
    rng, p = np.random.default_rng(1), field.modulus
    numbers = edges(field)
    assert ints(field, field.sum(of(field, numbers), axis=1)[:, None]) == [sum(numbers) % p]
    choices = [p - 1, p - 1, *numbers]
    rows, inner, columns, reports = 2, 40, 3, 2
    left = rng.choice(len(choices), (rows, inner, reports))
    right = rng.choice(len(choices), (inner, columns, reports))
    left[0, :, 0] = right[:, 0, 0] = 0
    table = field.elements(choices)
    found = field.matmul(table[:, left], table[:, right])
    for r, c, n in np.ndindex(rows, columns, reports):
        pairs = zip(left[r, :, n], right[:, c, n], strict=True)
        expected = sum(choices[a] * choices[b] for a, b in pairs) % p
        assert field.integers(found[:, r, c, n, None]) == [expected]


@FIELDS
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_encoding_is_the_drafts(field: Field, data: st.DataObject) -> None:
    """Elements are little-endian, decode to themselves, and numbers from the modulus on do not."""
    size, p = field.element_bytes, field.modulus
    numbers = data.draw(st.lists(st.integers(0, p - 1), min_size=1, max_size=5))
    encoded = b"".join(number.to_bytes(size, "little") for number in numbers)
    elements, canonical = field.decode(np.frombuffer(encoded, dtype=np.uint8)[None])
    assert canonical.all()
    assert ints(field, elements) == numbers
    assert field.encode(elements).tobytes() == encoded
    beyond = data.draw(st.integers(p, (1 << 8 * size) - 1)).to_bytes(size, "little")
    _, canonical = field.decode(np.frombuffer(encoded + beyond, dtype=np.uint8)[None])
    assert not canonical.any()


@FIELDS
@pytest.mark.parametrize("size", [1, 2, 4, 8, 32])
def test_transforms_agree_with_their_definition(field: Field, size: int) -> None:
    """Values at the roots of unity are those of the polynomial, and interpolate to it."""
    rng, p, root = np.random.default_rng(size), field.modulus, field.root(size)
    for count in (size, 2 * size - 1):
        coefficients = rng.choice(np.array(edges(field), dtype=object), count).tolist()
        expected = [
            sum(a * pow(root, i * k, p) for i, a in enumerate(coefficients)) % p
            for k in range(size)
        ]
        values = evaluate(field, of(field, coefficients), size)
        assert ints(field, values) == expected
        if count == size:
            assert ints(field, interpolate(field, values)) == coefficients
            denser = ints(field, evaluate(field, of(field, coefficients), 2 * size))
            assert ints(field, between(field, values)) == denser[1::2]


@FIELDS
@pytest.mark.parametrize("size", [2, 16])
def test_basis_evaluates_a_polynomial_from_its_values(field: Field, size: int) -> None:
    """The basis gives a polynomial's value at any point, also at a root of unity."""
    rng, p = np.random.default_rng(size), field.modulus
    coefficients = rng.choice(np.array(edges(field), dtype=object), size).tolist()
    values = ints(field, evaluate(field, of(field, coefficients), size))
    for t in (0, 1, field.root(size), 12345678901234567 % p):
        powers = powers_of(field, of(field, [t]), size)
        assert ints(field, powers) == [pow(t, i, p) for i in range(size)]
        basis = ints(field, lagrange(field, powers))
        expected = sum(a * pow(t, i, p) for i, a in enumerate(coefficients)) % p
        assert sum(a * b for a, b in zip(basis, values, strict=True)) % p == expected
