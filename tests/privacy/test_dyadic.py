"""Binary probabilities: rounded in the requested direction, then exact."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError
from veilring.privacy.exact import Dyadic

PROBABILITIES = st.floats(0, 1) | st.fractions(0, 1)
BITS = st.integers(0, 64)


@given(PROBABILITIES, BITS)
def test_a_probability_is_between_its_neighbours(x: float | Fraction, bits: int) -> None:
    """Floor and ceil enclose the exact number, and are one step apart unless it is on the grid."""
    below, above = Dyadic.floor(x, bits).fraction, Dyadic.ceil(x, bits).fraction
    step = Fraction(1, 2**bits)
    assert below <= Fraction(x) <= above
    assert above - below == (0 if Fraction(x) % step == 0 else step)


@given(PROBABILITIES, BITS)
def test_the_complement_adds_up_to_one(x: float | Fraction, bits: int) -> None:
    """A probability and its complement add up to exactly 1."""
    p = Dyadic.floor(x, bits)
    assert p.fraction + p.complement.fraction == 1
    assert float(p) == float(p.fraction)


@pytest.mark.parametrize(
    ("numerator", "bits"), [(-1, 3), (9, 3), (0, -1), (0, 65), (2**64 + 1, 64)]
)
def test_an_invalid_probability_is_refused(numerator: int, bits: int) -> None:
    """A numerator outside [0, 2**bits] and more bits than a word are refused."""
    with pytest.raises(InputError, match=r"numerator|bits"):
        Dyadic(numerator, bits)


@pytest.mark.parametrize("x", [-1e-9, 1.0000001, float("nan"), Fraction(-1, 3)])
def test_values_outside_are_not_rounded_in(x: float | Fraction) -> None:
    """A number outside [0, 1] is refused in both directions."""
    for rounded in (Dyadic.floor, Dyadic.ceil):
        with pytest.raises(InputError, match="x is"):
            rounded(x, 16)
