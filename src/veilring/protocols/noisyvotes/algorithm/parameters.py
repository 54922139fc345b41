"""The public parameters of noisy votes, their worst plans, and the epsilon that remains.

If radii are found for k, the division of a budget depends on earlier published totals. A statement
about a batch that must hold beforehand, or for any answer, uses the worst plan, in which one row
may be within reach of all queries.

The epsilon that remains if noise shares are missing, or known to a coalition:

Loss of one count with pure noise
    `g(epsilon)`: epsilon if the total exponent A of the noise is at least 1, and for A < 1 what
    `privacy.shares` derives, with its p, c and `x = e**(-2 epsilon)`.

Loss of a batch
    A row's queries are a clique S, and `omega(i) >= |S|` for i in S. g rises with epsilon: a
    ratio of two power series rises with x where the ratios of their coefficients, here
    `c[j + 1] / c[j]`, rise with j (Biernacki and Krzyz 1955), and q rises with x too, so that
    `p(1) / p(0)` falls as epsilon rises. Let i be the query of S with the least omega, and so with
    the greatest share: all of S together lose at most `|S| g(epsilon_i) <= omega(i) g(epsilon_i)`.

Loss of a batch for any outcome
    Where radii are found for k, omega is part of the answer. For A < 1 no plan of pure noise loses
    more than that of a clique of the whole batch, `worst_plans`: `m g(epsilon / m)` rises with m,
    that is, h = g / t falls as t = epsilon rises. p(d) is in proportion to the integral over a
    period of `(cosh t - cos x)**-A cos(d x)`, and integration by parts gives

        sinh(t) g' = A e**g + (1 - A) e**-g - cosh t.

    So h' has the sign of E(t, h), where E(t, s) is

        A e**(s t) - (s + 1) / 2 e**t + (s - 1) / 2 e**-t + (1 - A) e**(-s t).

    For s > 1 its coefficients, by falling exponents, change signs twice: E has two zeros at most
    (Descartes). One is at t = 0, after which E falls, and for large t it is positive: so from its
    other zero on it stays so. If h' were not negative somewhere, h would rise from there on, since
    h > 1 always; but h comes down to 1, as `g <= t + ln(1 / A)`.

    With Gaussian noise the plan of one run of each omega has the greatest square of mu and the
    greatest slack of any plan.

Shares that protect a row
    A coalition knows its own shares, and learns the sum of the others' shares in each group that
    `ring.algorithm.sums.leaked_groups` finds. A row is protected only by the shares of its own
    group. With `shares`, all honest parties form one group. On a single ring, a party between two
    colluders is protected only by its own share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from numbers import Integral
from typing import Final, NamedTuple

import numpy as np

from veilring.arrays import Floats
from veilring.extras import require_extra
from veilring.privacy.checks import require, require_that
from veilring.privacy.divisible import POLYA_SCALE_MAX
from veilring.privacy.exact import float_ceil
from veilring.privacy.shares import DELTA_MAX
from veilring.protocols.noisyvotes.algorithm.noise import Plan, gaussian_plan, plan_loss
from veilring.protocols.radius.algorithm.allocation import WORK_MAX, Allocation
from veilring.protocols.radius.algorithm.balls import FEATURES_MAX, require_queries, require_radii
from veilring.protocols.radius.algorithm.conversion import (
    GRID_FEATURES_MAX,
    ByGrid,
    require_candidates,
)
from veilring.protocols.ring.algorithm.sums import SumMethod, walecki_cycles

_PAIR: Final = 2  # colluders that enclose a party of a ring


def remaining_epsilon(
    spent: Sequence[Plan], parties: int, *, tolerated: int, missing: int
) -> float:
    """Return the epsilon of a batch in which some noise shares are missing, rounded up.

    It holds at the sum of the deltas of the plans, 0 for pure noise.

    A share is missing if its party did not add it, lied about it, or revealed it; for a party as
    observer its own share is missing, too, and `guarantee` of a coalition of one includes it.
    Observers that learn only totals learn no more than this. If radii were found for k, it is the
    loss for the actual answer: if more shares are missing than tolerated, only the loss of a clique
    of the whole batch bounds all answers.

    Args:
        tolerated: The number of shares that may be missing without loss.
        missing: The number of shares that are missing for the observer, from 0 to n - 1.
    """
    require(0 <= tolerated < parties, "tolerated", tolerated, f"0 to {parties - 1}")
    require(0 <= missing < parties, "missing", missing, f"0 to {parties - 1}")
    there, shares = parties - missing, parties - tolerated
    return float_ceil(sum((plan_loss(plan, there, shares) for plan in spent), Fraction()))


def guarantee(
    spent: Sequence[Plan],
    parties: int,
    coalition: int,
    method: SumMethod,
    *,
    tolerated: int,
    missing: int = 0,
) -> float:
    """Return the epsilon that protects each honest party, wherever colluders are in a ring.

    Of the parties outside of the coalition, `missing` others than the victim add no noise.
    """
    there = max(1, protecting_shares(parties, coalition, method) - missing)  # the victim's own is
    return remaining_epsilon(spent, parties, tolerated=tolerated, missing=parties - there)


def protecting_shares(parties: int, coalition: int, method: SumMethod) -> int:
    """Return the number of honest shares of noise that protect each honest row, in the worst case.

    With `shares` and `masks`, these are the shares of all honest parties. The same holds on cycles
    if the coalition is too small to separate the honest parties; otherwise only the victim's own
    share counts, because its neighbours may be the coalition. For every number of parties that was
    tried, 2s colluders, the neighbours of one party, are needed to separate s edge-disjoint cycles
    of `walecki_cycles`; this function computes the number.
    """
    method.check(parties)
    require(0 <= coalition < parties, "coalition", coalition, f"0 to {parties - 1} of {parties}")
    if not method.goes_round or coalition < _PAIR:
        return parties - coalition
    if coalition >= 2 * method.cycles or coalition >= _connectivity(parties, method):
        return 1
    return parties - coalition


@lru_cache
def _connectivity(parties: int, method: SumMethod) -> int:
    """Return the number of parties whose removal disconnects the union of the cycles."""
    require_extra("networkx")
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    for cycle in walecki_cycles(parties)[: method.cycles]:
        nx.add_cycle(graph, cycle)
    return int(nx.node_connectivity(graph))


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


class ReleaseBudget(NamedTuple):
    """The budget of a release.

    Attributes:
        delta: The most that its noise may use: 0 unless queries share its epsilon, because pure
            noise is smaller for a single run.
        is_shared: Whether queries share its epsilon.
    """

    epsilon: float
    delta: float = 0.0
    is_shared: bool = False


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
        delta: The most that Gaussian noise may use in a batch, up to `DELTA_MAX`; with 0, noise is
            pure.
    """

    features: int
    classes: int
    epsilon_vote: float
    neighbours: WithinRadius | NearestRows = WithinRadius()
    tolerated: int = 1
    sum: SumMethod = _SHARES
    work: int = WORK_MAX
    delta: float = 0.0

    def __post_init__(self) -> None:
        most = FEATURES_MAX
        near = self.neighbours
        if isinstance(near, NearestRows) and isinstance(near.conversion, ByGrid):
            most = GRID_FEATURES_MAX
        _require_whole("features", self.features, 1, most)
        _require_budget("epsilon_vote", self.epsilon_vote)
        require(0 <= self.delta <= DELTA_MAX, "delta", self.delta, f"from 0 to {DELTA_MAX}")

    @property
    def budgets(self) -> tuple[ReleaseBudget, ...]:
        """The budget of each release in turn: it counts rows, converts k, or votes."""
        near, delta = self.neighbours, self.delta
        if isinstance(near, WithinRadius):
            return (ReleaseBudget(self.epsilon_vote, delta, is_shared=True),)
        by_annuli = isinstance(near.conversion, ByAnnuli)
        finding, voting = (delta / 2, delta / 2) if by_annuli else (0.0, delta)
        counting = () if near.rows is not None else (ReleaseBudget(near.epsilon_count),)
        converting = ReleaseBudget(near.epsilon_conversion, finding, is_shared=by_annuli)
        return (*counting, converting, ReleaseBudget(self.epsilon_vote, voting, is_shared=True))

    @property
    def epsilon(self) -> float:
        """The price of a batch, rounded up, if no more shares are missing than tolerated.

        An observer that is a party counts its own share as missing.
        """
        parts = (Fraction(float(budget.epsilon)) for budget in self.budgets)
        return float_ceil(sum(parts, Fraction()))

    def shares(self, parties: int) -> int:
        """Return the number of shares that make up the noise."""
        self.sum.check(parties)
        allowed = f"below the number of parties, {parties}"
        require(self.tolerated < parties, "tolerated", self.tolerated, allowed)
        return parties - self.tolerated

    def exponent(self, parties: int) -> Fraction:
        """Return the exponent of each party's share of pure noise."""
        return Fraction(1, self.shares(parties))

    def radii_of(self, queries: Floats, radii: Floats | None) -> Floats | None:
        """Return the radii that are known without looking at rows; none if k is to be converted.

        Queries have the shape (Q, features), in [0, 1]. Radii with the batch have the shape (Q,).
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


def _require_whole(field_name: str, value: int, least: int, most: int) -> None:
    good = isinstance(value, Integral) and least <= value <= most
    require(good, field_name, value, f"a whole number from {least} to {most:,}")


def _require_budget(field_name: str, epsilon: float) -> None:
    """Refuse an invalid budget, or one for which no noise can be drawn."""
    good = 1 / POLYA_SCALE_MAX < epsilon <= VOTES_EPSILON_MAX
    allowed = f"a number above 1/{POLYA_SCALE_MAX}, and at most {VOTES_EPSILON_MAX}"
    require(good, field_name, epsilon, allowed)


def single_run_plan(epsilon: float) -> Allocation:
    """Return the plan of a single run that spends all of a budget."""
    return Allocation(np.ones(1, dtype=np.int64), np.full(1, float(epsilon)), exact=True)


def worst_loss(parameters: NoisyVotesParameters, parties: int, queries: int) -> float:
    """Return the maximum epsilon that protects each row, for any batch and answer, at its delta.

    A coalition of the tolerated size, or of one party, observes the batch.
    """
    shares = parameters.shares(parties)
    coalition = max(1, parameters.tolerated)
    there = protecting_shares(parties, coalition, parameters.sum)
    losses, crowds = [], np.arange(1, queries + 1)
    for pure, budget in zip(worst_plans(parameters, queries), parameters.budgets, strict=True):
        either = pure, gaussian_plan(crowds, budget.epsilon, budget.delta, shares)
        losses.append(max(plan_loss(each, there, shares) for each in either if each is not None))
    return float_ceil(sum(losses, Fraction()))


def worst_plans(parameters: NoisyVotesParameters, queries: int) -> tuple[Allocation, ...]:
    """Return a plan of pure noise for each release with the smallest shares of any plan.

    `guarantee` of these plans is the maximum loss of any batch of that size with pure noise, for
    any number of missing noise shares: see there for the proof.
    """
    return tuple(
        _all_overlap(each.epsilon, queries) if each.is_shared else single_run_plan(each.epsilon)
        for each in parameters.budgets
    )


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
