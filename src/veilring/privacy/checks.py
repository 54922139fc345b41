"""What every mechanism refuses at its edge."""

import math
from fractions import Fraction
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError


def require(fulfilled: bool, field: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `InputError(field, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise InputError(field, value, allowed)


def require_choice(field: str, value: object, choices: Any) -> None:  # noqa: ANN401  (a `Literal`)
    """Raise `InputError` unless a value is one of those of a `Literal` type."""
    require(value in get_args(choices), field, value, ", ".join(map(str, get_args(choices))))


def require_positive(field: str, value: float | Fraction) -> Fraction:
    """Return a finite number above 0 as the rational that it is; refuse all others."""
    require(math.isfinite(value) and value > 0, field, value, "a finite number above 0")
    return Fraction(value)


def floats(field: str, values: NDArray[Any], allowed: str = "numbers") -> NDArray[np.float64]:
    """Return private values as floats.

    Raises:
        InputError: If one is no real number. It shows no value, where NumPy's own errors quote it.
    """
    try:
        require(values.dtype.kind not in "cmMSV", field, f"of type {values.dtype}", allowed)
        return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
    raise InputError(field, "not a number in some place", allowed)  # without what NumPy has said
