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
from veilring.protocols.radius.algorithm.balls import (
    chunks,
    distances,
    require_queries,
    require_width,
)
from veilring.protocols.rows import Rows

Spacing = Literal["geometric", "linear"]
"""Equal ratios from 2 r_unif down to an eighth of r_unif, or the paper's equal steps up from 0."""

# More are no better: two neighbouring ones then differ by less than one in a hundred. Each has a
# count for each query of a batch, 16 MiB in all.
CANDIDATES_MAX: Final = 512
_CANDIDATES_MIN: Final = 2  # a choice
# The largest candidate, in r_unif, and how many times smaller the smallest is.
_LARGEST: Final = 2.0
_SPAN: Final = 16.0


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
        number: From 2 to `CANDIDATES_MAX`.
        spacing: `"linear"`: `2 j r_unif / n` (Algorithm 6, line 4). `"geometric"`: equal ratios, so
            that dense places, where radii are far below `r_unif`, have candidates too.

    Raises:
        InputError: If `number` is out of range or `spacing` is unknown.
    """
    require_candidates(number, spacing)
    if spacing == "linear":
        return _LARGEST * np.arange(1, number + 1) * r_unif / number
    return _LARGEST * r_unif * _SPAN ** (np.arange(1 - number, 1) / (number - 1))


def require_candidates(number: int, spacing: Spacing) -> None:
    """Refuse a number or a spacing of candidates that there is not."""
    allowed = f"a whole number from {_CANDIDATES_MIN} to {CANDIDATES_MAX}"
    require(_CANDIDATES_MIN <= number <= CANDIDATES_MAX, "candidates", number, allowed)
    require(spacing in get_args(Spacing), "spacing", spacing, ", ".join(get_args(Spacing)))


def candidate_counts(
    queries: NDArray[np.float64], candidates: NDArray[np.float64], rows: Rows
) -> NDArray[np.int64]:
    """Return how many rows each candidate's ball holds, shape (Q, n). Secret.

    Args:
        queries: Shape (Q, f), in [0, 1].
        candidates: Shape (n,), radii.
        rows: Of f features.

    Raises:
        InputError: If a shape or a value does not fit.
    """
    require_queries(queries)
    require_width(queries, rows)
    counts = np.zeros((len(queries), len(candidates)), dtype=np.int64)
    for chunk in chunks(len(rows), len(queries)):
        near = distances(queries, rows.features[chunk])
        for place, radius in enumerate(candidates):
            counts[:, place] += np.count_nonzero(near <= radius, axis=1)
    return counts


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
    return -np.abs(candidate_counts(queries, candidates, rows) - k)
