"""What every mechanism refuses at its edge."""

import math
from fractions import Fraction
from typing import Final

from veilring.errors import InputError

__all__ = ("require", "require_positive", "require_scale")

# Below it noise is 0 in all but one of e**(2**20) draws.
_LEAST_SCALE: Final = Fraction(1, 2**20)
# Above it, floats leave too many draws in doubt (one in 30).
_GREATEST_SCALE: Final = Fraction(2**40)


def require(fulfilled: bool, field: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `InputError(field, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise InputError(field, value, allowed)


def require_positive(field: str, value: float | Fraction) -> Fraction:
    """Return a finite number above 0 as the rational that it is; refuse all others."""
    require(math.isfinite(value) and value > 0, field, value, "a finite number above 0")
    return Fraction(value)


def require_scale(field: str, value: float | Fraction) -> Fraction:
    """Return a scale of noise as the rational that it is; refuse what is not in [2**-20, 2**40]."""
    require(_LEAST_SCALE <= value <= _GREATEST_SCALE, field, value, "from 2**-20 to 2**40")
    return Fraction(value)
