"""Private k-N: labels by about k neighbours per query, under one budget (Algorithms 4 and 5).

The distance of the k-th neighbour has unbounded sensitivity: it can change by any amount when one
row is removed. Therefore k is first converted into a radius, and r-N labels the queries. The budget
has three parts: for counting the rows, if their number is not public, for the conversion, and for
the votes.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter
from typing import Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.checks import require, require_that
from veilring.privacy.noise import discrete_laplace
from veilring.privacy.selection import exponential_mechanism
from veilring.protocols.radius.algorithm.allocation import WORK_MAX, AllocationRule
from veilring.protocols.radius.algorithm.balls import require_queries, require_width
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    ByGrid,
    Conversion,
    convert_to_radii,
)
from veilring.protocols.radius.algorithm.voting import Mechanism, RNParameters, label_within

DEFAULT_CONVERSION: Final = ByGrid()
# The conversion share of the paper, w.
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class NearestParameters:
    """The public parameters of a batch with k.

    Attributes:
        k: The number of neighbours, at least 1.
        epsilon_conversion: The ε of the conversion of k into radii, above 0.
        epsilon_vote: The ε of the votes, above 0.
        rows: The number of rows, if it is public. It is stated here, never computed from the data,
            because neighbouring tables differ in size and their size would be a release.
        epsilon_count: The ε of counting the rows: above 0 if `rows` is none, otherwise 0.
    """

    k: int
    classes: int
    epsilon_conversion: float
    epsilon_vote: float
    rows: int | None = None
    epsilon_count: float = 0.0
    conversion: Conversion = DEFAULT_CONVERSION
    allocation: AllocationRule = "clique"
    mechanism: Mechanism = "permute-and-flip"
    work: int = WORK_MAX

    def __post_init__(self) -> None:
        paid = 0 < self.epsilon_count < inf
        either = paid if self.rows is None else self.epsilon_count == 0
        allowed = "above 0 if the number of rows is not given, otherwise 0"
        require(either, "epsilon_count", self.epsilon_count, allowed)

    @property
    def epsilon(self) -> float:
        """The total ε of a batch, rounded up."""
        parts = (self.epsilon_count, self.epsilon_conversion, self.epsilon_vote)
        exact = sum(map(Fraction, parts))
        total = float(exact)
        return total if Fraction(total) >= exact else nextafter(total, inf)

    @classmethod
    def halves(
        cls, epsilon: float, k: int, classes: int, rows: int, conversion: Conversion | None = None
    ) -> Self:
        """Return parameters with half of a budget for the conversion; the row count is public."""
        how = conversion or DEFAULT_CONVERSION
        return cls(k, classes, epsilon * _HALF, epsilon * _HALF, rows, conversion=how)

    @classmethod
    def paper(
        cls, epsilon: float, k: int, classes: int, rows: int, conversion: Conversion | None = None
    ) -> Self:
        """Return the paper's solution, w = 1/2 (Algorithm 5)."""
        how, half = conversion or ByCandidates.paper(), epsilon * _HALF
        return cls(k, classes, half, half, rows, 0.0, how, "component", "laplace")


@dataclass(frozen=True, slots=True, eq=False)
class LabelledBatch:
    """The released answer to a batch. An analyst learns nothing else.

    Attributes:
        labels: The label of each query, a class number, shape (Q,).
        radii: The radii within which rows voted, shape (Q,).
    """

    labels: NDArray[np.int64]
    radii: NDArray[np.float64]


def label_nearest(
    queries: NDArray[np.float64], rows: Rows, parameters: NearestParameters, rng: Generator
) -> LabelledBatch:
    """Release a radius and a label for each query, all under `parameters.epsilon` (Algorithm 5).

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        rows: The secret table with f features.
        rng: The secret source of randomness.
    """
    require_queries(queries)
    radii = convert_to_radii(
        queries,
        rows,
        parameters.k,
        parameters.conversion,
        rng,
        epsilon=parameters.epsilon_conversion,
        known_rows=release_row_count(rows, parameters, rng),
        work=parameters.work,
    )
    voting = RNParameters(
        parameters.epsilon_vote,
        parameters.classes,
        parameters.allocation,
        parameters.mechanism,
        parameters.work,
    )
    return LabelledBatch(label_within(queries, radii, rows, voting, rng), radii)


def release_row_count(rows: Rows, parameters: NearestParameters, rng: Generator) -> int:
    """Return the number of rows if it is public, otherwise that number with noise; at least 1.

    Args:
        rows: The secret table.
        rng: The secret source of randomness.
    """
    if parameters.rows is not None:
        return max(1, parameters.rows)
    noise = discrete_laplace(1 / Fraction(parameters.epsilon_count), 1, rng)
    return max(1, len(rows) + int(noise[0]))


def label_nearest_baseline(  # noqa: PLR0917  (a query, a data set, a classifier and its budget)
    queries: NDArray[np.float64],
    rows: Rows,
    k: int,
    classes: int,
    epsilon: float,
    rng: Generator,
) -> NDArray[np.int64]:
    """Release a label for each query by the paper's baseline, shape (Q,) (Algorithm 4).

    It applies the exponential mechanism to the votes of the true neighbours, with `epsilon / |X|`
    for each query. An additional row changes each count by at most one, but may raise one count and
    lower another, so the factor 2 is needed.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        rows: The secret table with f features.
        k: The number of neighbours, at least 1.
        epsilon: The budget of the batch, above 0.
        rng: The secret source of randomness.
    """
    votes = nearest_votes(queries, rows, k, classes)
    share = np.full(len(queries), np.nextafter(epsilon / max(1, len(queries)), 0))
    return exponential_mechanism(votes, share, rng)


def nearest_votes(
    queries: NDArray[np.float64], rows: Rows, k: int, classes: int
) -> NDArray[np.int64]:
    """Return the votes of the k nearest rows of each query, shape (Q, classes) (Definition 11).

    The first of equally distant rows vote; with fewer than k rows, all vote. The votes are secret.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        k: The number of neighbours, at least 1.
    """
    require_queries(queries)
    require_width(queries, rows)
    require(k >= 1, "k", k, "a whole number of at least 1")
    known = rows.labels.size == 0 or int(rows.labels.max()) < classes
    require_that(known, "rows.labels", f"labels must be below {classes}, the number of classes")
    order = np.argsort(pairwise_distances(queries, rows.features), axis=1, kind="stable")[:, :k]
    return np.asarray(np.eye(classes, dtype=np.int64)[rows.labels[order]].sum(axis=1))
