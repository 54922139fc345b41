"""Labels by noisy votes: private r-N (Algorithm 3) within radii, and k-N (4 and 5) about k rows.

The distance of the k-th neighbour has unbounded sensitivity: it can change by any amount when one
row is removed. Therefore k is first converted into a radius, and r-N labels the queries. The budget
has three parts: for counting the rows, if their number is not public, for the conversion, and for
the votes.

Each row has one label, so a row changes one count by one, and the budget of a query covers all its
labels. Adding a row never decreases a count, so permute-and-flip, which chooses labels, does not
need the factor of 2 of the paper's exponential mechanism.

Queries, radii, parameters and functions of them, such as each query's share of the budget, are
public. Rows, counts and the generator are secret. Labels are released.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.privacy.checks import require
from veilring.privacy.exact import float_ceil
from veilring.privacy.noise import discrete_laplace
from veilring.privacy.selection import permute_and_flip
from veilring.protocols.radius.algorithm.allocation import WORK_MAX, Allocation, allocate_budget
from veilring.protocols.radius.algorithm.balls import (
    count_votes,
    overlap_graph,
    require_queries,
    require_width,
)
from veilring.protocols.radius.algorithm.conversion import ByGrid, Conversion, convert_to_radii


def label_within(
    queries: Floats,
    radii: Floats,
    rows: Rows,
    rng: Generator,
    *,
    epsilon: float,
    classes: int,
    work: int = WORK_MAX,
    batches: int = 1,
) -> Ints:
    """Release a label for each query, shape (batches · Q,), all under one budget (Algorithm 3).

    For a ball without rows, the label is random.

    Args:
        epsilon: The budget of the batch, above 0, if a row is added or removed; twice as much if a
            row is replaced.
        batches: The number of releases, one after the other, each of which spends the budget.
    """
    require_width(queries, rows)
    shares = plan_batch(queries, radii, epsilon, work=work).epsilons
    counts = count_votes(queries, radii, rows, classes)
    every = np.tile(counts, (batches, 1)), np.tile(shares, batches)
    return permute_and_flip(*every, rng, monotone=True)


def plan_batch(
    queries: Floats, radii: Floats, epsilon: float, *, work: int = WORK_MAX
) -> Allocation:
    """Return the share of the budget of each query, from public values alone."""
    return allocate_budget(overlap_graph(queries, radii), epsilon, work=work)


class BudgetParts(NamedTuple):
    """The parts of the ε of a batch with k: for counting rows, for radii, and for the votes."""

    counting: float
    converting: float
    voting: float

    @classmethod
    def of(cls, epsilon: float, count_share: float, conversion_share: float) -> Self:
        """Divide an ε.

        Args:
            count_share: The share that pays for counting the rows; 0 if their number is public.
            conversion_share: The share of the rest that pays for converting k; the paper's w.
        """
        counting = epsilon * count_share
        converting = (epsilon - counting) * conversion_share
        # Rounded down, so that the parts together do not exceed the price of a batch.
        voting = -float_ceil(Fraction(counting) + Fraction(converting) - Fraction(epsilon))
        return cls(counting, converting, voting)


DEFAULT_CONVERSION: Final = ByGrid()


@dataclass(frozen=True, slots=True)
class NearestParameters:
    """The public parameters of a batch with k.

    Attributes:
        parts: The parts of the ε, above 0; `counting` is 0 if `rows` is given.
        rows: The number of rows, if it is public. It is stated here, never computed from the data,
            because neighbouring tables differ in size and their size would be a release.
    """

    k: int
    classes: int
    parts: BudgetParts
    rows: int | None = None
    conversion: Conversion = DEFAULT_CONVERSION
    work: int = WORK_MAX

    def __post_init__(self) -> None:
        counting = self.parts.counting
        either = 0 < counting < inf if self.rows is None else counting == 0
        allowed = "above 0 if the number of rows is not given, otherwise 0"
        require(either, "counting", counting, allowed)

    @property
    def epsilon(self) -> float:
        """The total ε of a batch, rounded up."""
        exact = sum(map(Fraction, self.parts))
        total = float(exact)
        return total if Fraction(total) >= exact else nextafter(total, inf)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledBatch:
    """The released answer to a batch. An analyst learns nothing else.

    Attributes:
        labels: The label of each query, a class number, shape (Q,).
        radii: The radii within which rows voted, shape (Q,).
    """

    labels: Ints
    radii: Floats


def label_nearest(
    queries: Floats, rows: Rows, parameters: NearestParameters, rng: Generator
) -> LabelledBatch:
    """Release a radius and a label for each query, all under `parameters.epsilon` (Algorithm 5)."""
    require_queries(queries)
    radii = convert_to_radii(
        queries,
        rows,
        parameters.k,
        parameters.conversion,
        rng,
        epsilon=parameters.parts.converting,
        known_rows=release_row_count(rows, parameters, rng),
        work=parameters.work,
    )
    labels = label_within(
        queries,
        radii,
        rows,
        rng,
        epsilon=parameters.parts.voting,
        classes=parameters.classes,
        work=parameters.work,
    )
    return LabelledBatch(labels, radii)


def release_row_count(rows: Rows, parameters: NearestParameters, rng: Generator) -> int:
    """Return the number of rows if it is public, otherwise that number with noise; at least 1."""
    if parameters.rows is not None:
        return max(1, parameters.rows)
    noise = discrete_laplace(1 / Fraction(parameters.parts.counting), 1, rng)
    return max(1, len(rows) + int(noise[0]))
