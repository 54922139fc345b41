"""k-N: a batch labelled by about k neighbours a query, under one budget (Algorithms 4 and 5).

How far the k-th neighbour is can change without limit when one row goes. So k is turned into a
radius first, and r-N labels. The budget has three parts: to count the rows, if their number is not
public; to convert; and to vote.
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
# The paper's w.
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class NearestParameters:
    """How a batch is labelled. Public.

    Attributes:
        k: How many neighbours are wanted, at least 1.
        classes: The number of classes.
        epsilon_conversion: What turning k into radii may spend, above 0.
        epsilon_vote: What voting may spend, above 0.
        rows: How many rows there are, if that is public. It is stated here and never read off the
            data: under neighbours of different size a number that is read off is a release.
        epsilon_count: What counting the rows may spend: above 0 if `rows` is none, else 0.
        conversion: How k is turned into radii.
        allocation: The divisor of a query's share of the vote's budget.
        mechanism: How a label is chosen.
        work: The limit of each clique search.

    Raises:
        InputError: If the rows are neither public nor paid for, or are both.
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
        allowed = "above 0 if the number of rows is not given, else 0"
        require(either, "epsilon_count", self.epsilon_count, allowed)

    @property
    def epsilon(self) -> float:
        """What a batch costs in all, rounded up."""
        parts = (self.epsilon_count, self.epsilon_conversion, self.epsilon_vote)
        exact = sum(map(Fraction, parts))
        total = float(exact)
        return total if Fraction(total) >= exact else nextafter(total, inf)

    @classmethod
    def halves(
        cls, epsilon: float, k: int, classes: int, rows: int, conversion: Conversion | None = None
    ) -> Self:
        """Return half of a budget for converting and half for voting; the rows are public."""
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
    """What is released about a batch, and all that an analyst learns.

    Attributes:
        labels: Class numbers, shape (Q,).
        radii: Shape (Q,), within which rows voted.
    """

    labels: NDArray[np.int64]
    radii: NDArray[np.float64]


def label_nearest(
    queries: NDArray[np.float64], rows: Rows, parameters: NearestParameters, rng: Generator
) -> LabelledBatch:
    """Release a radius and a label for each query, all under `parameters.epsilon` (Algorithm 5).

    Args:
        queries: Shape (Q, f), in [0, 1].
        rows: The table, of f features. Secret.
        parameters: How the batch is labelled.
        rng: The source of randomness. Secret.

    Raises:
        InputError: As `convert_to_radii` and `label_within` do.
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
    """Return the public number of rows, or else their number with noise; at least 1.

    Args:
        rows: The table. Secret.
        parameters: The public number, or the budget for counting.
        rng: The source of randomness. Secret.
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

    The exponential mechanism on the true neighbours' votes, with `epsilon / |X|` each. A row more
    changes each count by one at most, but may raise one and lower another: the factor 2 stays.

    Args:
        queries: Shape (Q, f), in [0, 1].
        rows: The table, of f features. Secret.
        k: The number of neighbours, at least 1.
        classes: The number of classes.
        epsilon: The budget of the batch, above 0.
        rng: The source of randomness. Secret.

    Raises:
        InputError: As `nearest_votes` and `exponential_mechanism` do.
    """
    votes = nearest_votes(queries, rows, k, classes)
    share = np.full(len(queries), np.nextafter(epsilon / max(1, len(queries)), 0))
    return exponential_mechanism(votes, share, rng)


def nearest_votes(
    queries: NDArray[np.float64], rows: Rows, k: int, classes: int
) -> NDArray[np.int64]:
    """Return how the k nearest rows of each query vote, shape (Q, classes) (Definition 11).

    Of rows that are equally far, those that come first vote; with fewer than k rows all do. Secret.

    Args:
        queries: Shape (Q, f), in [0, 1].
        rows: The table, of f features.
        k: The number of neighbours, at least 1.
        classes: The number of classes.

    Raises:
        InputError: If a value does not fit.
    """
    require_queries(queries)
    require_width(queries, rows)
    require(k >= 1, "k", k, "a whole number of at least 1")
    known = rows.labels.size == 0 or int(rows.labels.max()) < classes
    require_that(known, "rows.labels", f"labels must be below {classes}, the number of classes")
    order = np.argsort(pairwise_distances(queries, rows.features), axis=1, kind="stable")[:, :k]
    return np.asarray(np.eye(classes, dtype=np.int64)[rows.labels[order]].sum(axis=1))
