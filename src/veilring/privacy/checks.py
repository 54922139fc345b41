"""Checks of the arguments of mechanisms and accounts."""

import math
from fractions import Fraction
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.errors import InputError


def require(fulfilled: bool, field: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `InputError(field, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise InputError(field, value, allowed)


def require_that(fulfilled: bool, field: str, message: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `InputError.because(message, field=field)` unless the condition is fulfilled."""
    if not fulfilled:
        raise InputError.because(message, field=field)


def require_whole(field: str, value: int, most: int) -> None:
    """Refuse a number that is not from 1 to a maximum."""
    require(1 <= value <= most, field, value, f"a whole number from 1 to {most:,}")


def require_choice(field: str, value: object, choices: Any) -> None:  # noqa: ANN401  (a `Literal`)
    """Raise `InputError` unless a value belongs to a `Literal` type."""
    require(value in get_args(choices), field, value, ", ".join(map(str, get_args(choices))))


def require_positive(field: str, value: float | Fraction) -> Fraction:
    """Return a finite number above 0 as an exact rational; refuse all others."""
    require(math.isfinite(value) and value > 0, field, value, "a finite number above 0")
    return Fraction(value)


def floats(field: str, values: NDArray[Any], allowed: str = "numbers") -> Floats:
    """Return private values as floats."""
    try:
        require_that(
            values.dtype.kind not in "cmMSV",
            field,
            f"{field} has the type {values.dtype}; it must be {allowed}",
        )
        return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
    raise InputError.because(f"{field} must be {allowed}", field=field)  # without NumPy's message


# A mechanism that publishes each row with this probability satisfies (0, delta)-DP: beyond one in a
# thousand nobody should call that private, however few rows there are.
DELTA_DOUBTFUL: Final = 1e-3


def doubt_of_delta(delta: float, rows: int = 1) -> str:
    """Return a warning about a too large delta, which tells the number of rows, or no text."""
    most = min(DELTA_DOUBTFUL, 1 / max(1, rows))
    if delta <= most:
        return ""
    return (
        f"delta is {delta:g}, the probability with which a row may be revealed in full: choose a"
        f" value below {most:.2g}, and below 1 divided by the number of rows"
    )


def require_loss(field: str, value: float) -> None:
    """Refuse an invalid privacy loss: negative, or not a number. Infinity is valid."""
    require(value >= 0, field, value, "a number of at least 0")


def require_epsilon(epsilon: float, field: str = "epsilon") -> None:
    """Refuse an epsilon that is below 0, infinite, or not a number."""
    require(0 <= epsilon < math.inf, field, epsilon, "a finite number of at least 0")


def require_delta(delta: float, *, zero: bool = False) -> None:
    """Refuse a delta outside (0, 1), or outside [0, 1) if 0 stands for a pure guarantee."""
    allowed = "a number in [0, 1)" if zero else "a number in (0, 1)"
    require(0 < delta < 1 or (zero and delta == 0), "delta", delta, allowed)


def require_count(count: int) -> None:
    """Refuse a negative number of repetitions."""
    require(count >= 0, "count", count, "a whole number of at least 0")


def require_noise(sigma: float, sensitivity: float) -> None:
    """Refuse a standard deviation or a sensitivity that is not finite and above 0."""
    allowed = "a finite number above 0"
    require(0 < sigma < math.inf, "sigma", sigma, allowed)
    require(0 < sensitivity < math.inf, "sensitivity", sensitivity, allowed)
