"""The public parameters of noisy votes, and the worst plans they allow.

If radii are found for k, the division of a budget depends on earlier published totals. A statement
about a batch that must hold beforehand, or for any answer, uses the worst plan, in which one row
may be within reach of all queries.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from numbers import Integral
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Rows
from veilring.privacy.checks import require, require_that
from veilring.privacy.divisible import POLYA_SCALE_MAX
from veilring.privacy.exact import float_ceil
from veilring.protocols.radius.algorithm.allocation import (
    WORK_MAX,
    Allocation,
)
from veilring.protocols.radius.algorithm.balls import FEATURES_MAX, require_queries, require_radii
from veilring.protocols.radius.algorithm.conversion import (
    GRID_FEATURES_MAX,
    ByGrid,
    require_candidates,
)
from veilring.protocols.ring.algorithm.sums import SumMethod

_SHARES: Final = SumMethod("shares")
# Noise of a smaller scale is useless: it is 0 except once in e**(2**20) times.
VOTES_EPSILON_MAX: Final = 2**20
# More rows than anybody has. Floats represent all of them, and their ratios, exactly enough.
_ROWS_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class ByAnnuli:
    """Interactive: each query's radius is chosen among candidates by noisy counts.

    The parties count the rows between each candidate and the previous one. A row is in at most one
    such annulus, whereas it would be in all the larger balls: one noise share for each annulus is
    enough, and the counts of balls are sums of them. Without noise the radius is the first
    candidate whose ball contains k rows.

    Attributes:
        number: The number of candidates, from 2 to `CANDIDATES_MAX`. The noise of a ball's count
            grows with the number of annuli in it, so a few are better than many.
    """

    number: int = 5

    def __post_init__(self) -> None:
        require_candidates(self.number)


@dataclass(frozen=True, slots=True)
class WithinRadius:
    """The rows within a public radius of a query vote.

    Attributes:
        radius: The radius of all queries; none if the client gives each query its own.
    """

    radius: float | None = None

    def __post_init__(self) -> None:
        good = self.radius is None or 0 <= self.radius < inf
        require(good, "radius", self.radius, "a finite number of at least 0, or none")


@dataclass(frozen=True, slots=True)
class NearestRows:
    """About the k nearest rows of a query vote: k is first converted to a radius, under a budget.

    Attributes:
        k: The desired number of neighbours, from 1 to 2**53.
        rows: The number of rows of all parties, up to 2**53, if that is public. It is declared
            here, and never computed from the data.
        epsilon_count: The budget for counting the rows, within the same bounds, if `rows` is none;
            otherwise 0.
        conversion: The conversion of k to radii: one noisy grid for all queries, for up to six
            features; or noisy counts around each query.
    """

    k: int
    epsilon_conversion: float
    rows: int | None = None
    epsilon_count: float = 0.0
    conversion: ByGrid | ByAnnuli = field(default_factory=ByGrid)

    def __post_init__(self) -> None:
        _require_whole("k", self.k, 1, _ROWS_MAX)
        _require_budget("epsilon_conversion", self.epsilon_conversion)
        if self.rows is not None:
            _require_whole("rows", self.rows, 0, _ROWS_MAX)
        unpaid = self.epsilon_count == 0
        allowed = "above 0 if the number of rows is not given, otherwise 0"
        require((self.rows is None) != unpaid, "epsilon_count", self.epsilon_count, allowed)
        if not unpaid:
            _require_budget("epsilon_count", self.epsilon_count)


@dataclass(frozen=True, slots=True)
class NoisyVotesParameters:
    """The public parameters of a batch, equal for all parties.

    Attributes:
        epsilon_vote: The budget of the vote, above 2**-15 and at most 2**20.
        tolerated: The number of colluding or missing parties, the observer included, up to which
            epsilon holds: each noise share is one of `parties - tolerated`. So 0 protects from
            outsiders, if all add their noise; 1, the default, protects from any single party as
            well; and each party beyond that may add none.
        sum: The method by which noisy votes are added up; `guarantee` computes the protection of
            each.
    """

    features: int
    classes: int
    epsilon_vote: float
    neighbours: WithinRadius | NearestRows = WithinRadius()
    tolerated: int = 1
    sum: SumMethod = _SHARES
    work: int = WORK_MAX

    def __post_init__(self) -> None:
        most = FEATURES_MAX
        if isinstance(self.neighbours, NearestRows) and isinstance(
            self.neighbours.conversion, ByGrid
        ):
            most = GRID_FEATURES_MAX
        _require_whole("features", self.features, 1, most)
        _require_whole("classes", self.classes, 1)
        _require_budget("epsilon_vote", self.epsilon_vote)
        _require_whole("tolerated", self.tolerated, 0)
        _require_whole("work", self.work, 0)

    @property
    def epsilon(self) -> float:
        """The price of a batch, rounded up, if no more shares are missing than tolerated.

        An observer that is a party counts its own share as missing.
        """
        parts = [self.epsilon_vote]
        if isinstance(self.neighbours, NearestRows):
            parts += [self.neighbours.epsilon_conversion, self.neighbours.epsilon_count]
        return float_ceil(sum((Fraction(float(part)) for part in parts), Fraction()))

    def exponent(self, parties: int) -> Fraction:
        """Return the exponent of each party's share of noise."""
        self.sum.check(parties)
        allowed = f"below the number of parties, {parties}"
        require(self.tolerated < parties, "tolerated", self.tolerated, allowed)
        return Fraction(1, parties - self.tolerated)

    def radii_of(
        self, queries: NDArray[np.float64], radii: NDArray[np.float64] | None
    ) -> NDArray[np.float64] | None:
        """Return the radii that are known without looking at rows; none if k is to be converted.

        Args:
            queries: Shape (Q, features), in [0, 1], at least one.
            radii: Shape (Q,), if the batch comes with them.
        """
        require_queries(queries)
        fits = len(queries) >= 1 and queries.shape[1] == self.features
        allowed = f"(Q, {self.features}), with Q at least 1"
        require_that(
            fits, "queries", f"queries has the shape {queries.shape}; it must be {allowed}"
        )
        near = self.neighbours
        asked = isinstance(near, WithinRadius) and near.radius is None
        missing = "radii are missing; give one for each query"
        message = (
            missing if asked else "the parameters determine which rows vote; leave the radii out"
        )
        require_that((radii is not None) == asked, "radii", message)
        if isinstance(near, WithinRadius) and near.radius is not None:
            radii = np.full(len(queries), near.radius)
        if radii is None:
            return None
        require_radii(queries, radii)
        return np.asarray(radii, dtype=np.float64)

    def check_rows(self, rows: Rows) -> None:
        """Refuse a party's rows if they do not fit the schema; an empty set is allowed."""
        width = rows.features.shape[1]
        require_that(
            width == self.features,
            "rows",
            f"the rows have {width} features; the parameters have {self.features}",
        )
        known = rows.labels.size == 0 or int(rows.labels.max()) < self.classes
        require_that(
            known, "rows.labels", f"labels must be below {self.classes}, the number of classes"
        )


def _require_whole(field_name: str, value: int, least: int, most: float = inf) -> None:
    bounds = f"of at least {least}" if most == inf else f"from {least} to {most:,}"
    good = isinstance(value, Integral) and least <= value <= most
    require(good, field_name, value, f"a whole number {bounds}")


def _require_budget(field_name: str, epsilon: float) -> None:
    """Refuse an invalid budget, or one for which no noise can be drawn."""
    good = 1 / POLYA_SCALE_MAX < epsilon <= VOTES_EPSILON_MAX
    allowed = f"a number above 1/{POLYA_SCALE_MAX}, and at most {VOTES_EPSILON_MAX}"
    require(good, field_name, epsilon, allowed)


def single_run_plan(epsilon: float) -> Allocation:
    """Return the plan of a single run that spends all of a budget."""
    return Allocation(np.ones(1, dtype=np.int64), np.full(1, float(epsilon)), exact=True)


def worst_plans(parameters: NoisyVotesParameters, queries: int) -> tuple[Allocation, ...]:
    """Return a plan for each release with the smallest shares of any plan.

    `guarantee` of these plans is the maximum loss of any batch of that size, for any number of
    missing noise shares: see there for the proof.
    """
    near, voting = parameters.neighbours, _all_overlap(parameters.epsilon_vote, queries)
    if isinstance(near, WithinRadius):
        return (voting,)
    counting = () if near.rows is not None else (single_run_plan(near.epsilon_count),)
    if isinstance(near.conversion, ByGrid):
        finding = single_run_plan(near.epsilon_conversion)
    else:
        finding = _all_overlap(near.epsilon_conversion, queries)
    return (*counting, finding, voting)


def require_shares(parameters: NoisyVotesParameters, queries: int) -> None:
    """Refuse a batch about k in which a later release might have too small a budget for noise.

    Without this check, a batch might publish totals but never be answered.
    """
    if isinstance(parameters.neighbours, NearestRows):
        least = min(plan.epsilons.min() for plan in worst_plans(parameters, queries))
        require_that(
            bool(least * POLYA_SCALE_MAX >= 1),
            "queries",
            f"{queries} queries are too many: each needs 1/{POLYA_SCALE_MAX} of each "
            "budget; ask fewer",
        )


def _all_overlap(epsilon: float, queries: int) -> Allocation:
    shares = np.full(queries, np.nextafter(epsilon / queries, 0))
    return Allocation(np.full(queries, queries, dtype=np.int64), shares, exact=True)
