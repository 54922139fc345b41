"""The scale of noise: one number for all draws, or one for each."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import require

# An array holds one for each draw. A float is the fraction that it is.
Scale: TypeAlias = float | Fraction | NDArray[np.float64]

# Below it noise is 0 in all but one of e**(2**20) draws.
_LEAST: Final = Fraction(1, 2**20)
# Above it floats leave too many draws in doubt (one in 30).
_GREATEST: Final = Fraction(2**40)


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Scales as floats to compute with, and as the exact fractions that they stand for.

    Attributes:
        floats: One for each draw, in one dimension.
        common: The exact scale if it is the same for all; else each is its own float.
    """

    floats: NDArray[np.float64]
    common: Fraction | None

    @classmethod
    def of(cls, field: str, scale: Scale, shape: int | tuple[int, ...]) -> Self:
        """Return the scales of as many draws as a shape has.

        Raises:
            InputError: If one is out of range, or an array does not fit the shape.
        """
        size = int(np.prod(shape))
        if not isinstance(scale, np.ndarray):
            exact = require_scale(field, scale)
            return cls(np.broadcast_to(np.float64(exact), size), exact)
        inside = bool(((scale >= float(_LEAST)) & (scale <= float(_GREATEST))).all())
        require(inside, field, f"an array of shape {scale.shape}", "from 2**-20 to 2**40")
        try:
            spread = np.broadcast_to(scale, shape)
        except ValueError:
            raise InputError(field, f"of shape {scale.shape}", f"what fits {shape}") from None
        return cls(spread.reshape(-1).astype(np.float64), None)

    def exact(self, index: int) -> Fraction:
        """Return the exact scale of one draw."""
        return Fraction(float(self.floats[index])) if self.common is None else self.common

    def take(self, indices: NDArray[np.intp]) -> "Scales":
        """Return the scales of some of the draws."""
        if self.common is None:
            return Scales(self.floats[indices], None)
        return Scales(self.floats[: indices.size], self.common)


def require_scale(field: str, value: float | Fraction) -> Fraction:
    """Return a scale as the fraction that it is; refuse what is not in [2**-20, 2**40]."""
    require(_LEAST <= value <= _GREATEST, field, value, "from 2**-20 to 2**40")
    return Fraction(value)
