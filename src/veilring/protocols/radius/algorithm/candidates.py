"""From k to a radius, query by query: candidates, and how well each would do (Algorithm 6).

If rows were spread evenly, a ball of radius `r_unif` would hold k of them. The candidates lie at
and below twice that. A row changes the count of a candidate by one at most, and that of none if it
lies outside the largest one: so conversions are allocated by the overlap graph of the largest
balls.
"""

from math import exp, lgamma, log, pi
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.protocols.radius.algorithm.balls import distances, require_queries, require_width
from veilring.protocols.rows import Rows

__all__ = ("Spacing", "candidate_qualities", "candidate_radii", "uniform_radius")

Spacing = Literal["geometric", "linear"]
"""Equal ratios from 2 r_unif down to an eighth of r_unif, or the paper's equal steps up from 0."""

# The largest candidate, in r_unif, and how many times smaller the smallest is.
_LARGEST: Final = 2.0
_SPAN: Final = 16.0
_CHUNK_ENTRIES: Final = 2**22


def uniform_radius(k: int, rows: int, features: int) -> float:
    """Return the radius of a ball that holds k of so many rows spread evenly over the unit cube.

    It solves `k = rows * pi^(f/2) / Gamma(f/2 + 1) * r^f` (Section 4.3).

    Args:
        k: At least 1.
        rows: Public, or released with noise; less than 1 counts as 1.
        features: f, at least 1.

    Raises:
        InputError: If `k` or `features` is less than 1.
    """
    require(k >= 1, "k", k, "a whole number of at least 1")
    require(features >= 1, "features", features, "a whole number of at least 1")
    volume = log(k / max(rows, 1)) + lgamma(features / 2 + 1)
    return float(exp(volume / features) / pi**0.5)


def candidate_radii(r_unif: float, number: int, spacing: Spacing) -> NDArray[np.float64]:
    """Return the candidates, ascending, shape (number,); the last is twice `r_unif`.

    Args:
        r_unif: As `uniform_radius` gives it.
        number: At least 2.
        spacing: `"linear"`: `2 j r_unif / n` (Algorithm 6, line 4). `"geometric"`: equal ratios, so
            that dense places, where radii are far below `r_unif`, have candidates too.

    Raises:
        InputError: If `number` is less than 2 or `spacing` is unknown.
    """
    require(number >= 2, "candidates", number, "a whole number of at least 2")  # noqa: PLR2004  (a choice)
    require(spacing in get_args(Spacing), "spacing", spacing, ", ".join(get_args(Spacing)))
    if spacing == "linear":
        return _LARGEST * np.arange(1, number + 1) * r_unif / number
    return _LARGEST * r_unif * _SPAN ** (np.arange(1 - number, 1) / (number - 1))


def candidate_qualities(
    queries: NDArray[np.float64], candidates: NDArray[np.float64], rows: Rows, k: int
) -> NDArray[np.int64]:
    """Return `-|count - k|` for each query and candidate, shape (Q, n) (Algorithm 6, line 6).

    Secret. Its sensitivity is 1, and a row more may raise one candidate's and lower another's: it
    is not monotone, and a mechanism has to halve its rate for that.

    Args:
        queries: Shape (Q, f), in [0, 1].
        candidates: Shape (n,), radii.
        rows: Of f features.
        k: At least 1.

    Raises:
        InputError: If a shape or a value does not fit.
    """
    require_queries(queries)
    require_width(queries, rows)
    counts = np.zeros((len(queries), len(candidates)), dtype=np.int64)
    step = max(1, _CHUNK_ENTRIES // max(1, len(queries)))
    for first in range(0, len(rows), step):
        near = distances(queries, rows.features[first : first + step])
        for place, radius in enumerate(candidates):
            counts[:, place] += np.count_nonzero(near <= radius, axis=1)
    return -np.abs(counts - k)
