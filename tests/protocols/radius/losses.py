"""The exact privacy loss of k-N, by enumeration."""

from itertools import product

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.privacy.selection import permute_and_flip_probabilities
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    candidate_qualities,
    candidate_radii,
    plan_conversion,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.nearest import NearestParameters, plan_batch
from veilring.protocols.radius.leakage import batch_probabilities


def nearest_loss(
    queries: Floats, tables: tuple[Rows, Rows], parameters: NearestParameters
) -> float:
    """Return the exact privacy loss of a k-N batch by candidates: of its radii and its labels.

    All combinations of radii are enumerated, and each has its own allocation of the vote.

    Args:
        queries: Shape (Q, f), in [0, 1]; few, since there are `number ** Q` combinations.
        tables: Two neighbours.
        parameters: With `rows` given and conversion by candidates.
    """
    how = parameters.conversion
    assert isinstance(how, ByCandidates)
    assert parameters.rows is not None
    plan = plan_conversion(
        queries, parameters.k, how, epsilon=parameters.parts.converting, known_rows=parameters.rows
    )
    r_unif = uniform_radius(parameters.k, parameters.rows, queries.shape[1])
    candidates = candidate_radii(r_unif, how.number)
    one, other = (
        np.log(
            permute_and_flip_probabilities(
                candidate_qualities(queries, candidates, rows, parameters.k), plan.epsilons
            )
        )
        for rows in tables
    )
    return max(
        _joint(candidates, np.array(chosen), sign * (one - other), queries, pair, parameters)
        for chosen in product(range(how.number), repeat=len(queries))
        for sign, pair in ((1, tables), (-1, tables[::-1]))
    )


def _joint(  # noqa: PLR0917  (one combination of radii, on two tables)
    candidates: Floats,
    chosen: Ints,
    ratios: Floats,
    queries: Floats,
    tables: tuple[Rows, Rows],
    parameters: NearestParameters,
) -> float:
    """Return the greatest log-ratio of these radii together with any labels."""
    radii = candidates[chosen]
    shares = plan_batch(queries, radii, parameters.parts.voting)
    one, other = (
        batch_probabilities(queries, radii, rows, parameters.classes, shares) for rows in tables
    )
    labels = (np.log(one) - np.log(other)).max(axis=1).sum()
    return float(ratios[np.arange(len(queries)), chosen].sum() + labels)
