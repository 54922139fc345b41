"""r-N: a batch of queries, each with a radius, labelled under one budget (Algorithms 1 to 3).

What is public: queries, radii, parameters, and all that follows from them, such as who gets which
share of the budget. What is secret: rows, counts, and the generator. What is released: labels.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.radius.algorithm.allocation import Allocation, AllocationRule, allocate
from veilring.protocols.radius.algorithm.balls import count_votes, overlaps, require_width
from veilring.protocols.radius.algorithm.cliques import WORK_MAX
from veilring.protocols.radius.algorithm.voting import Mechanism, vote
from veilring.protocols.rows import Rows


@dataclass(frozen=True, slots=True)
class RNParameters:
    """How a batch is labelled. Public.

    Attributes:
        epsilon: The budget of the batch, above 0, for neighbours that differ by one row more or
            less; under the replacement of a row it is twice that.
        classes: The number of classes.
        allocation: By what a query's share is divided.
        mechanism: How a label is chosen.
        work: The limit of the clique search.
    """

    epsilon: float
    classes: int
    allocation: AllocationRule = "clique"
    mechanism: Mechanism = "permute-and-flip"
    work: int = WORK_MAX

    @classmethod
    def paper(cls, epsilon: float, classes: int) -> Self:
        """Return the paper's solution: largest clique of each component, Laplace noise."""
        return cls(epsilon, classes, "component", "laplace")

    @classmethod
    def baseline(cls, epsilon: float, classes: int) -> Self:
        """Return the paper's baseline: every query gets `epsilon / |X|`."""
        return cls(epsilon, classes, "batch", "laplace")


def plan_batch(
    queries: NDArray[np.float64], radii: NDArray[np.float64], parameters: RNParameters
) -> Allocation:
    """Return what each query may spend: a function of public values alone.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        parameters: How.

    Raises:
        InputError: As `overlaps` and `allocate` do.
    """
    graph = overlaps(queries, radii)
    return allocate(graph, parameters.epsilon, parameters.allocation, work=parameters.work)


def label_batch(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    parameters: RNParameters,
    rng: Generator,
) -> NDArray[np.int64]:
    """Release a label for each query, shape (Q,), all under `parameters.epsilon` (Algorithm 3).

    A ball without rows is answered like any other: with a label at random.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        rows: Of f features. Secret.
        parameters: How.
        rng: Secret.

    Raises:
        InputError: As `plan_batch`, `count_votes` and `vote` do.
    """
    require_width(queries, rows)
    shares = plan_batch(queries, radii, parameters).epsilons
    counts = count_votes(queries, radii, rows, parameters.classes)
    return vote(counts, shares, parameters.mechanism, rng)


def label_openly(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    classes: int,
    rng: Generator,
) -> NDArray[np.int64]:
    """Return what a classifier without privacy answers, shape (Q,) (Definition 9): to compare with.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        rows: Of f features.
        classes: The number of classes.
        rng: Breaks ties, as among the labels of a ball without rows.

    Raises:
        InputError: As `count_votes` does.
    """
    counts = count_votes(queries, radii, rows, classes)
    return np.asarray((counts + rng.random(counts.shape)).argmax(axis=1), dtype=np.int64)
