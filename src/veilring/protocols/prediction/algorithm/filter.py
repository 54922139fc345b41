"""The individual filter: what each record pays for a query, and what it votes (Algorithm 3).

Budgets are whole units, so that what was spent is known exactly and a record can never be
overcharged by rounding. Votes are whole numbers too, so that their sum has no order.
"""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.ledger import UNITS, to_units
from veilring.privacy.ledger.units import AMOUNT_MAX

LEAST_NEIGHBOURS: Final = 30
"""Below it the noise of the count would decide how much noise the votes get."""
QUERIES_MIN: Final = 4
"""The shortest stream: being counted takes 3 B / T of B, and a vote needs some of it, too."""

# Beyond these bounds floats overflow or vanish, for some numbers of neighbours and not for others.
SIGMA_MIN: Final = 1e-9
SIGMA_MAX: Final = 1e12

# A vote is at most 1. Steps this fine are lost in any noise, and 2**28 votes add up exactly.
_VOTE_STEPS: Final = 2.0**24
# Cuts a contribution by more than its payment can be rounded up.
_SHORT_OF: Final = 1 - 2.0**-40


@dataclass(frozen=True, slots=True)
class IndKNN:
    """The public parameters of Ind-KNN.

    Attributes:
        classes: How many there are.
        queries: T, at least 4, for which the noise of counts is made; more may be asked. To be
            counted costs 3 B / T, so that with fewer nothing would be left for a vote.
        budget: B of each record, in the unit of zCDP, up to `AMOUNT_MAX`: see `individual_budget`.
        sigma2: σ2, the noise of a vote per square root of the neighbours, from `SIGMA_MIN` to
            `SIGMA_MAX`; so is σ1, which follows from `queries` and `budget`.

    Raises:
        InputError: If a parameter is not allowed.
    """

    classes: int
    queries: int
    budget: float
    sigma2: float

    def __post_init__(self) -> None:
        for name, least in (("classes", 1), ("queries", QUERIES_MIN)):
            if getattr(self, name) < least:
                raise InputError(name, getattr(self, name), f"a whole number of at least {least}")
        if not 0 < self.budget <= AMOUNT_MAX:
            raise InputError("budget", self.budget, f"a number above 0 and up to {AMOUNT_MAX:,}")
        allowed = f"a number from {SIGMA_MIN:g} to {SIGMA_MAX:g}"
        for name in ("sigma2", "sigma1"):
            if not SIGMA_MIN <= getattr(self, name) <= SIGMA_MAX:
                raise InputError(name, getattr(self, name), allowed)

    @property
    def sigma1(self) -> float:
        """σ1 = sqrt(T / (6 B))."""
        return math.sqrt(self.queries / (6 * self.budget))

    @property
    def entry_units(self) -> int:
        """What a neighbour pays for being counted, 1 / (2 σ1²), in units of the ledger."""
        return int(to_units(1 / (2 * self.sigma1**2)))


class Neighbours(NamedTuple):
    """The records that are near enough to a query, whatever they have left.

    Attributes:
        records: Their positions, shape (m,), each once.
        kernels: κ of each, at least τ.
        labels: The class of each.
    """

    records: NDArray[np.intp]
    kernels: NDArray[np.float64]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A label, and what it costs. All but the label is secret.

    Attributes:
        label: The class.
        payers: The records that pay, each once: positions from `answer_query`, ids from a
            `Predictor`.
        units: What each of them pays.
    """

    label: int
    payers: NDArray[np.int64] = field(repr=False)
    units: NDArray[np.int64] = field(repr=False)


def answer_query(
    parameters: IndKNN,
    near: Neighbours,
    remaining: NDArray[np.int64],
    rng: Generator,
    *,
    released: NDArray[np.float64] | None = None,
) -> Answer:
    """Answer one query, given its neighbours (Algorithm 3, lines 4 to 11).

    Only the label may leave. So float noise is safe here: its low bits, which could give a sum of
    votes away, are lost in the choice of the greatest.

    Args:
        parameters: Public.
        near: The records with κ ≥ τ.
        remaining: The units that each record has left, shape (records,); is charged here.
        rng: The server's secret randomness; as many draws whatever the records are.
        released: Kernels of earlier answers that are neighbours, summed by class, with their number
            as the last entry, shape (classes + 1,): public, so they vote without pay or noise.

    Returns:
        The label and its price, which is to be durable before the label leaves.
    """
    noise = rng.standard_normal(1 + parameters.classes)
    # Who cannot pay for being counted is not counted, and takes no part at all.
    able = remaining[near.records] >= parameters.entry_units
    active, kappa, classes = near.records[able], near.kernels[able], near.labels[able]
    reused = np.zeros(parameters.classes + 1) if released is None else released
    count = len(active) + reused[-1] + parameters.sigma1 * noise[0]
    K = max(count, float(LEAST_NEIGHBOURS))
    left = remaining[active] - parameters.entry_units
    spread = parameters.sigma2 * math.sqrt(K)
    affordable = np.sqrt(left * (2.0 / UNITS)) * (spread * _SHORT_OF)
    votes = np.floor(np.minimum(kappa, affordable) * _VOTE_STEPS)
    price = to_units(np.square(votes * (1 / (_VOTE_STEPS * spread))) / 2)
    units = parameters.entry_units + price
    remaining[active] -= units
    totals = np.bincount(classes, weights=votes, minlength=parameters.classes)
    noisy = totals / _VOTE_STEPS + reused[:-1] + spread * noise[1:]
    return Answer(int(noisy.argmax()), active.astype(np.int64), units)
