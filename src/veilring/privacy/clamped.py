"""Laplace noise on a public grid, clamped to a public range, as tables of exact weights.

For reports by the million. What leaves is a whole number from `-bound` to `bound`; how the noise
falls outside is not seen, so clamping costs no privacy. Weights are rounded to 64 bits, and the
noise is made so much wider (by less than a thousandth, usually by a millionth of that) that no
ratio exceeds its claim. That is checked in whole numbers when the tables are made.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.privacy.loss import log_ceil
from veilring.privacy.scales import require_scale
from veilring.privacy.tables import WEIGHT_BITS, TableLaws, greatest_ratio

# So that all outcomes fit 16 bits.
_GREATEST_BOUND: Final = 2**15 - 1
# Rounding changes a weight of at least this by so little that the wider noise makes up for it.
_LEAST_WEIGHT: Final = 2.0**16
# The part of a claim that may go to the rounding.
_MOST_WASTE: Final = 1e-3
# The relative error of a weight computed in floats, and of the one that takes what sums left over.
_FLOAT_ERROR: Final = 2.0**-44


def clamped_laplace(inputs: Sequence[int], scale: float | Fraction, bound: int) -> TableLaws:
    """Return the laws of `clip(input + discrete Laplace noise, -bound, bound)`, nearly.

    The loss of any two inputs u and v is at most `|u - v| / scale`, exactly: the claim of the
    Laplace mechanism. The laws are those of a scale that is larger by less than a thousandth.

    Args:
        inputs: The possible inputs in steps of the grid, rising, from `-bound` to `bound`.
        scale: Of the noise, in steps of the grid, from 2**-20 to 2**40.
        bound: The greatest outcome, from 1 to 32,767.

    Raises:
        InputError: If an argument is outside its range, or if 64 bits are too few for outcomes so
            unlikely: for a bound that is many times the scale.
    """
    exact = require_scale("scale", scale)
    require(1 <= bound <= _GREATEST_BOUND, "bound", bound, f"from 1 to {_GREATEST_BOUND}")
    steps = [after - before for before, after in pairwise(inputs)]
    rising = len(inputs) > 0 and min(steps, default=1) > 0
    right = rising and -bound <= inputs[0] <= inputs[-1] <= bound
    require(right, "inputs", f"{len(inputs)} numbers", f"rising, from {-bound} to {bound}")
    rate = float(1 / exact)
    least = float(_ideal(inputs, rate, bound).min())
    fine = f"at most so many scales that no outcome is less likely than 2**-{WEIGHT_BITS - 16}"
    require(least >= _LEAST_WEIGHT, "bound", bound, fine)
    waste = (4 / least + _FLOAT_ERROR) / min(steps, default=1)
    while waste <= _MOST_WASTE * rate:
        laws = TableLaws(-bound, _whole(_ideal(inputs, rate - waste, bound)))
        if _holds(laws, steps, exact):
            return laws
        waste *= 2
    raise InputError("scale", scale, fine)


def _ideal(inputs: Sequence[int], rate: float, bound: int) -> NDArray[np.float64]:
    """Return the law of each input (rows) in units of `2**-64`, clamped but not yet rounded."""
    outcomes = np.arange(-bound, bound + 1)
    law = np.exp(-rate * np.abs(outcomes - np.array(inputs)[:, None]))
    law[:, 1:-1] *= np.tanh(rate / 2)
    # What falls on the ends or beyond: a geometric sum.
    law[:, [0, -1]] /= 1 + np.exp(-rate)
    return np.asarray(np.ldexp(law, WEIGHT_BITS))


def _whole(laws: NDArray[np.float64]) -> list[list[int]]:
    """Round weights; the likeliest outcome takes what is left of `2**64`."""
    rows = []
    for law in laws:
        row = [int(weight) for weight in np.rint(law)]
        row[int(law.argmax())] += (1 << WEIGHT_BITS) - sum(row)
        rows.append(row)
    return rows


def _holds(laws: TableLaws, steps: Sequence[int], scale: Fraction) -> bool:
    """Return whether each two neighbouring inputs keep the claim; then so do all, by addition."""
    ratios = [greatest_ratio(*rows) for rows in pairwise(laws.weights)]
    return all(
        ratio is not None and Fraction(log_ceil(ratio)) <= step / scale
        for ratio, step in zip(ratios, steps, strict=True)
    )
