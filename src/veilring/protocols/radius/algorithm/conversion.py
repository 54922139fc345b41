"""From k to a radius for each query of a batch, under a budget of its own (Algorithms 6 and 7)."""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.privacy.selection import exponential_mechanism, permute_and_flip
from veilring.protocols.radius.algorithm.allocation import (
    Allocation,
    AllocationRule,
    allocate,
    require_rule,
)
from veilring.protocols.radius.algorithm.balls import distances, overlaps, require_width
from veilring.protocols.radius.algorithm.candidates import (
    Spacing,
    candidate_qualities,
    candidate_radii,
    require_candidates,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.cliques import WORK_MAX
from veilring.protocols.radius.algorithm.grid import (
    GAMMA,
    grid_radii,
    grid_side,
    noisy_grid,
    require_gamma,
)
from veilring.protocols.rows import Rows

Chooser = Literal["permute-and-flip", "exponential"]
"""How a candidate is chosen; both halve their rate, since the quality is not monotone."""


@dataclass(frozen=True, slots=True)
class ByCandidates:
    """Interactive: each query's radius is chosen among candidates (Algorithm 6).

    Attributes:
        number: How many candidates, from 2 to `CANDIDATES_MAX`.
        spacing: How they lie up to twice the radius that would be right for evenly spread rows.
        allocation: By what a query's share of the budget is divided, on the overlap graph of the
            largest candidates' balls; the paper divides by the size of the batch.
        chooser: How one is chosen.

    Raises:
        InputError: If a choice is unknown, or `number` out of range.
    """

    number: int = 10
    spacing: Spacing = "geometric"
    allocation: AllocationRule = "clique"
    chooser: Chooser = "permute-and-flip"

    def __post_init__(self) -> None:
        require_candidates(self.number, self.spacing)
        require_rule(self.allocation)
        require(self.chooser in get_args(Chooser), "chooser", self.chooser, _choosers())

    @classmethod
    def paper(cls) -> Self:
        """Return the paper's: ten candidates, equal steps, equal shares, exponential mechanism."""
        return cls(10, "linear", "batch", "exponential")


@dataclass(frozen=True, slots=True)
class ByGrid:
    """Non-interactive: all radii are read from one noisy grid (Algorithm 7).

    Attributes:
        gamma: The step of radii, as a share of the domain's diagonal, from `GAMMA_MIN` to 1.

    Raises:
        InputError: If `gamma` is out of range.
    """

    gamma: float = GAMMA

    def __post_init__(self) -> None:
        require_gamma(self.gamma)


Conversion = ByCandidates | ByGrid
"""How k becomes a radius: by the grid, unless there are too many features or very few queries."""


def convert(
    queries: NDArray[np.float64],
    rows: Rows,
    k: int,
    conversion: Conversion,
    rng: Generator,
    *,
    epsilon: float,
    known_rows: int,
    work: int = WORK_MAX,
) -> NDArray[np.float64]:
    """Release a radius for each query, shape (Q,), all under `epsilon`.

    Args:
        queries: Shape (Q, f), in [0, 1].
        rows: Of f features. Secret.
        k: How many neighbours are wanted, at least 1.
        conversion: How.
        rng: Secret.
        epsilon: The budget, above 0.
        known_rows: About how many rows there are: public, or released before with noise.
        work: The limit of the clique search.

    Raises:
        InputError: If an argument does not fit, or the grid would have too many cells.
    """
    require_width(queries, rows)
    features = queries.shape[1]
    if isinstance(conversion, ByGrid):
        side = grid_side(known_rows, features, epsilon)
        return grid_radii(noisy_grid(rows, side, epsilon, rng), queries, k, conversion.gamma)
    plan = plan_conversion(
        queries, k, conversion, epsilon=epsilon, known_rows=known_rows, work=work
    )
    candidates = _candidates(k, known_rows, features, conversion)
    qualities = candidate_qualities(queries, candidates, rows, k)
    choose = permute_and_flip if conversion.chooser == "permute-and-flip" else exponential_mechanism
    return candidates[choose(qualities, plan.epsilons, rng)]


def plan_conversion(
    queries: NDArray[np.float64],
    k: int,
    conversion: ByCandidates,
    *,
    epsilon: float,
    known_rows: int,
    work: int = WORK_MAX,
) -> Allocation:
    """Return what each query's conversion may spend: a function of public values alone.

    A row outside the largest candidate's ball changes no count of the query. So the balls that
    matter are those, and one row is in no more of them than the largest clique has.

    Args:
        queries: Shape (Q, f), in [0, 1].
        k: At least 1.
        conversion: How.
        epsilon: The budget, above 0.
        known_rows: As `convert`.
        work: As `convert`.

    Raises:
        InputError: As `overlaps` and `allocate` do.
    """
    largest = _candidates(k, known_rows, queries.shape[-1], conversion)[-1]
    graph = overlaps(queries, np.full(len(queries), largest))
    return allocate(graph, epsilon, conversion.allocation, work=work)


def true_radii(
    queries: NDArray[np.float64], features: NDArray[np.float64], k: int
) -> NDArray[np.float64]:
    """Return the distance of each query to its k-th nearest row, shape (Q,): to compare with.

    Args:
        queries: Shape (Q, f).
        features: Of the rows, shape (N, f), N at least k.
        k: At least 1.

    Raises:
        InputError: If there are fewer rows than k.
    """
    require(1 <= k <= len(features), "k", k, f"a whole number from 1 to {len(features)}")
    return np.partition(distances(queries, features), k - 1, axis=1)[:, k - 1]


def _candidates(
    k: int, known_rows: int, features: int, conversion: ByCandidates
) -> NDArray[np.float64]:
    r_unif = uniform_radius(k, known_rows, features)
    return candidate_radii(r_unif, conversion.number, conversion.spacing)


def _choosers() -> str:
    return ", ".join(get_args(Chooser))
