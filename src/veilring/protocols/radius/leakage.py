"""What the answers to a batch give away: exact losses, and the batches that a careless owner fails.

The answers to a batch are independent given the rows. So the greatest log-ratio of the probability
of any answer to the whole batch, on one table and on another, is a sum of one maximum a query; no
answer need be enumerated. `veilring.privacy.audits` has the membership attacks on these laws.

An analyst chooses queries and radii, and can compute in the same floats as the data owner:
`collinear` and `hostile_batch` are where floats, or the clique search, would fail a careless owner.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.privacy.selection import exponential_probabilities, permute_and_flip_probabilities
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    candidate_qualities,
    candidate_radii,
    plan_conversion,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.nearest import NearestParameters
from veilring.protocols.radius.algorithm.voting import (
    Mechanism,
    RNParameters,
    label_law,
    plan_batch,
)


def batch_law(  # noqa: PLR0917  (a batch, a table, and how it is labelled)
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    classes: int,
    allocation: Allocation,
    mechanism: Mechanism,
) -> NDArray[np.float64]:
    """Return the law of each query's label, shape (Q, classes), under any allocation.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,).
        rows: The table.
        classes: The number of classes.
        allocation: What each query spends, whether that is safe or not.
        mechanism: How a label is chosen.
    """
    counts = count_votes(queries, radii, rows, classes)
    return label_law(counts, allocation.epsilons, mechanism)


def greatest_loss(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the greatest absolute log-ratio of the probabilities of any joint answer.

    Args:
        one: The law of each answer on one table, shape (Q, answers), all above 0.
        other: The same on another table.
    """
    ratios = np.log(one) - np.log(other)
    return float(max(ratios.max(axis=1).sum(), (-ratios).max(axis=1).sum()))


def batch_loss(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    tables: tuple[Rows, Rows],
    parameters: RNParameters,
    allocation: Allocation | None = None,
) -> float:
    """Return the exact privacy loss of an r-N batch between two tables.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,).
        tables: Two neighbours.
        parameters: How the batch is labelled.
        allocation: What each query spends; by default what `parameters` says.
    """
    shares = allocation or plan_batch(queries, radii, parameters)
    one, other = (
        batch_law(queries, radii, rows, parameters.classes, shares, parameters.mechanism)
        for rows in tables
    )
    return greatest_loss(one, other)


def nearest_loss(
    queries: NDArray[np.float64], tables: tuple[Rows, Rows], parameters: NearestParameters
) -> float:
    """Return the exact privacy loss of a k-N batch by candidates: of its radii and its labels.

    All combinations of radii are enumerated, and each has its own allocation of the vote.

    Args:
        queries: Shape (Q, f), in [0, 1]; few, since there are `number ** Q` combinations.
        tables: Two neighbours.
        parameters: With `rows` given and conversion by candidates.

    Raises:
        InputError: If the parameters are for another conversion.
    """
    how = parameters.conversion
    if not isinstance(how, ByCandidates) or parameters.rows is None:
        allowed = "conversion by candidates with a public number of rows"
        raise InputError("parameters", "for something else", allowed)
    plan = plan_conversion(
        queries,
        parameters.k,
        how,
        epsilon=parameters.epsilon_conversion,
        known_rows=parameters.rows,
    )
    r_unif = uniform_radius(parameters.k, parameters.rows, queries.shape[1])
    candidates = candidate_radii(r_unif, how.number, how.spacing)
    exponential = how.chooser == "exponential"
    law = exponential_probabilities if exponential else permute_and_flip_probabilities
    one, other = (
        np.log(law(candidate_qualities(queries, candidates, rows, parameters.k), plan.epsilons))
        for rows in tables
    )
    voting = RNParameters(
        parameters.epsilon_vote, parameters.classes, parameters.allocation, parameters.mechanism
    )
    return max(
        _joint(candidates, np.array(chosen), sign * (one - other), queries, pair, voting)
        for chosen in product(range(how.number), repeat=len(queries))
        for sign, pair in ((1, tables), (-1, tables[::-1]))
    )


def _joint(  # noqa: PLR0917  (one combination of radii, on two tables)
    candidates: NDArray[np.float64],
    chosen: NDArray[np.int64],
    ratios: NDArray[np.float64],
    queries: NDArray[np.float64],
    tables: tuple[Rows, Rows],
    voting: RNParameters,
) -> float:
    """Return the greatest log-ratio of these radii together with any labels."""
    radii = candidates[chosen]
    shares = plan_batch(queries, radii, voting)
    one, other = (
        batch_law(queries, radii, rows, voting.classes, shares, voting.mechanism) for rows in tables
    )
    labels = (np.log(one) - np.log(other)).max(axis=1).sum()
    return float(ratios[np.arange(len(queries)), chosen].sum() + labels)


class Crafted(NamedTuple):
    """Pairs of queries with a point on the line between them.

    Attributes:
        first: Shape (P, f).
        second: Shape (P, f).
        target: Shape (P, f): a place that a row may have.
        radii: Shape (P, 2): the computed distances to the target, so that both balls hold it.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    target: NDArray[np.float64]
    radii: NDArray[np.float64]


def collinear(pairs: int, features: int, rng: Generator) -> Crafted:
    """Return pairs of queries whose balls just meet in a point, in real numbers.

    Args:
        pairs: P, the number of pairs.
        features: The number of features.
        rng: The source of the places.
    """
    first, second = rng.random((2, pairs, features))
    share = rng.random((pairs, 1))
    target = np.clip(first + share * (second - first), 0.0, 1.0)
    radii = np.column_stack([_paired(first, target), _paired(second, target)])
    return Crafted(first, second, target, radii)


def broken_by_plain_test(crafted: Crafted) -> NDArray[np.bool_]:
    """Return for which pairs `dist <= r + s` sees no edge, shape (P,); both balls hold the target.

    Each of the two queries would then be answered under the whole budget.
    """
    apart = _paired(crafted.first, crafted.second)
    return np.asarray(apart > crafted.radii.sum(axis=1))


def hostile_batch(
    queries: int, features: int, share: float, rng: Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a batch and its radii on which exact clique search does not come to an end.

    In many dimensions all distances are alike, so that edges are nearly those of a random graph.

    Args:
        queries: Q, the number of queries.
        features: The number of features; many.
        share: The share of all pairs that meet.
        rng: The source of the places.

    Returns:
        Places, shape (Q, f), and radii, shape (Q,).
    """
    points = rng.random((queries, features))
    pairs = pairwise_distances(points, points)[np.triu_indices(queries, 1)]
    return points, np.full(queries, np.quantile(pairs, share) / 2)


def _paired(points: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each point to its other, in the floats that counting uses."""
    pairs = zip(points[:, None], others[:, None], strict=True)
    return np.array([pairwise_distances(point, other)[0, 0] for point, other in pairs])
