"""Budgets in whole numbers, so that nothing is lost or won by adding them up.

An amount such as an epsilon is counted in millionths of a millionth. A charge is rounded up to the
next whole unit and a budget down, except that the rounding of the float itself, a relative 2**-50,
is forgiven: 0.1 is a tenth, and ten of them fit into 1.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.privacy.checks import require

UNITS: Final = 10**12
"""Units of one whole: fine beside the smallest useful charge, and 64 bits hold nine million."""

# Sums of two amounts must fit into 64 bits, and an epsilon this large protects nobody.
AMOUNT_MAX: Final = 10**6
# Twice the rounding error of an amount that was computed, rounded, and multiplied by `UNITS`.
_FLOAT_ERROR: Final = 2.0**-50


def to_units(amounts: ArrayLike, *, field: str = "amounts") -> NDArray[np.int64]:
    """Return charges in units, rounded up.

    Args:
        amounts: Of any shape, each from 0 to `AMOUNT_MAX`.
        field: How an error calls them; it does not show their values, which may be secret.

    Raises:
        InputError: If an amount is negative, too large or no number.
    """
    return np.ceil(_scaled(amounts, field) * (1 - _FLOAT_ERROR)).astype(np.int64)


def budget_units(amount: float, *, field: str) -> int:
    """Return a budget in units, rounded down.

    Raises:
        InputError: If it is negative, too large or no number.
    """
    return int(np.floor(_scaled(amount, field) * (1 + _FLOAT_ERROR)))


def from_units(units: ArrayLike) -> NDArray[np.float64]:
    """Return the amounts that these units are."""
    return np.asarray(units, np.int64) / float(UNITS)


def _scaled(amounts: ArrayLike, field: str) -> NDArray[np.float64]:
    given = np.asarray(amounts, np.float64)
    valid = bool(np.all((given >= 0) & (given <= AMOUNT_MAX)))
    require(valid, field, "out of range", f"numbers from 0 to {AMOUNT_MAX:,}")
    return given * UNITS
