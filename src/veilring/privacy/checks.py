"""What every mechanism refuses at its edge."""

import math
from fractions import Fraction

from veilring.errors import InputError

__all__ = ("require", "require_positive")


def require(fulfilled: bool, field: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `InputError(field, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise InputError(field, value, allowed)


def require_positive(field: str, value: float | Fraction) -> Fraction:
    """Return a finite number above 0 as the rational that it is; refuse all others."""
    require(math.isfinite(value) and value > 0, field, value, "a finite number above 0")
    return Fraction(value)
