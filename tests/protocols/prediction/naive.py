"""Algorithm 3 literally, record by record, with the exact cost of each."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.filter import FilterParameters

# Votes are rounded down to these steps. One that lies on a step up to `_EITHER` could be rounded
# either way by the error of floats, and counts as the smaller here.
_STEPS = 2.0**24
_EITHER = 1e-4


class NaiveAnswer(NamedTuple):
    """The result of the algorithm for one query.

    Attributes:
        label: The winner.
        lead: A lower bound on its lead.
        costs: The cost of each participating record: its releases have a Rényi divergence of order
            α of at most α times this.
    """

    label: int
    lead: float
    costs: dict[int, float]


def naive_answer(
    parameters: FilterParameters,
    near: Iterable[tuple[int, float, int]],
    left: Sequence[int],
    noise: Sequence[float],
) -> NaiveAnswer:
    """Answer a query.

    Args:
        parameters: The public parameters.
        near: The record, κ and label of each row with κ ≥ τ.
        left: The remaining budget of each record, in units.
        noise: Standard normal numbers: one for the count, and one for each class.
    """
    sigma2, entry = parameters.sigma2, 1 / (2 * parameters.sigma1**2)
    active = [each for each in near if left[each[0]] >= parameters.entry_units]
    K = max(len(active) + parameters.sigma1 * noise[0], 30.0)
    votes = [sigma2 * math.sqrt(K) * each for each in noise[1:]]
    costs = {}
    for record, kappa, label in active:
        z = (left[record] - parameters.entry_units) / UNITS
        f = math.floor(min(kappa, sigma2 * math.sqrt(2 * K * z)) * _STEPS - _EITHER) / _STEPS
        votes[label] += f
        costs[record] = entry + max(f, 0.0) ** 2 / (2 * sigma2**2 * K)
    first, *others = sorted(votes, reverse=True)
    lead = first - others[0] if others else math.inf
    return NaiveAnswer(votes.index(first), lead, costs)
