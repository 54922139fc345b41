"""The releases of a batch, one after another, and a party's counts with its noise share in each.

`batch_steps` is the whole classifier except for the sums: it yields the next counts and their
budget, receives the noisy total of all parties, and continues from there. The networked role and
`noisy_votes`, which is all parties in one process, run the same code.

Pure noise shares of all parties together are exactly the discrete Laplace noise of one trusted
owner: shares are differences of Pólya draws, whose exponents add up (see `privacy.divisible`).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, check_rows
from veilring.protocols.noisyvotes.algorithm.noise import Plan, choose_noise, noise_share
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    ReleaseBudget,
    require_shares,
    single_run_plan,
)
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.conversion import (
    ByGrid,
    NoisyGrid,
    candidate_counts,
    candidate_radii,
    cell_counts,
    grid_radii,
    grid_side,
    uniform_radius,
)

Counts = Ints

# A malicious party can cause any total. Honest ones are far below, and exact in floats.
_MOST: Final = 2**53


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Counts to add up, with noise.

    Attributes:
        count: A function that returns a party's counts, shape (runs, entries): a row is in at most
            one entry of each run, and its runs spend at most the release's budget together.
    """

    plan: Plan
    entries: int
    count: Callable[[Rows], Counts]


@dataclass(frozen=True, slots=True, eq=False)
class VotesAnswer:
    """The answer to a batch, learned by all parties.

    Attributes:
        labels: Shape (Q,): the class with the greatest total, the lowest of them if several have.
        totals: Shape (Q, classes): the noisy votes.
        radii: Shape (Q,), within which rows voted.
        epsilon: The price, if no more shares are missing than tolerated for the observer; a party
            that observes misses its own.
        rows: The noisy number of rows, if they were counted.
    """

    labels: Counts
    totals: Counts
    radii: Floats
    epsilon: float
    spent: tuple[Plan, ...]
    rows: int | None = None


Steps = Generator[Release, Counts, VotesAnswer]


def batch_steps(
    queries: Floats, parameters: NoisyVotesParameters, radii: Floats | None = None, *, shares: int
) -> Steps:
    """Yield the next counts, receive the noisy totals, and return the result.

    Everything here follows from public values, so all parties with the same queries, radii and
    parameters, and the same totals, have the same plan.

    Args:
        shares: The number of shares that make up the noise, see `NoisyVotesParameters.shares`.
    """
    known = parameters.radii_of(queries, radii)
    require_shares(parameters, len(queries))
    spent: list[Plan] = []

    def share(radii: Floats, budget: ReleaseBudget) -> Plan:
        graph = overlap_graph(queries, radii)
        pure = allocate_budget(graph, budget.epsilon, work=parameters.work)
        return choose_noise(pure, budget.epsilon, budget.delta, shares)

    rows: int | None = None
    near = parameters.neighbours
    if known is None and isinstance(near, NearestRows):
        expected = near.rows
        if expected is None:
            counting = _row_count(near.epsilon_count)
            expected = rows = int(np.clip((yield counting)[0, 0], 1, _MOST))
            spent.append(counting.plan)
        if isinstance(near.conversion, ByGrid):
            release, side = _cells(parameters.features, near.epsilon_conversion, expected)
            counts = np.clip((yield release)[0], 0, _MOST)
            grid = NoisyGrid(side, parameters.features, counts)
            known = grid_radii(grid, queries, near.k, near.conversion.gamma)
        else:
            candidates = _candidates(near.conversion, near.k, expected, parameters.features)
            reach = np.full(len(queries), candidates[-1])
            release = _annuli(queries, candidates, share(reach, parameters.budgets[-2]))
            known = _full((yield release), candidates, near.k)
        spent.append(release.plan)
    assert known is not None  # noqa: S101  (radii are known beforehand, or found for k)
    voting = _votes(queries, known, parameters.classes, share(known, parameters.budgets[-1]))
    totals = yield voting
    labels = np.asarray(totals.argmax(axis=1), dtype=np.int64)
    return VotesAnswer(labels, totals, known, parameters.epsilon, (*spent, voting.plan), rows)


def _votes(queries: Floats, radii: Floats, classes: int, plan: Plan) -> Release:
    return Release(plan, classes, lambda rows: count_votes(queries, radii, rows, classes))


def _row_count(epsilon: float) -> Release:
    return Release(single_run_plan(epsilon), 1, lambda rows: np.array([[len(rows)]]))


def _cells(features: int, epsilon: float, rows: int) -> tuple[Release, int]:
    side = grid_side(rows, features, epsilon)
    release = Release(
        single_run_plan(epsilon), side**features, lambda own: cell_counts(own, side)[None]
    )
    return release, side


def _annuli(queries: Floats, candidates: Floats, plan: Plan) -> Release:
    """Return the counts of annuli; a row outside the largest candidate's ball is in none."""

    def count(rows: Rows) -> Counts:
        return np.diff(candidate_counts(queries, candidates, rows), prepend=0)

    return Release(plan, len(candidates), count)


def _candidates(conversion: ByAnnuli, k: int, rows: int, features: int) -> Floats:
    r_unif = uniform_radius(k, rows, features)
    return candidate_radii(r_unif, conversion.number)


def _full(annuli: Counts, candidates: Floats, k: int) -> Floats:
    """Return a candidate by the number of candidates that seem to contain fewer than k rows.

    Without noise, it is the first candidate that contains k rows. With noise, the first one that
    *seems* to contain k rows would too often be too small; noise moves this choice up as well as
    down.
    """
    fewer = np.count_nonzero(np.cumsum(annuli, axis=1) < k, axis=1)
    return np.asarray(candidates[np.minimum(fewer, len(candidates) - 1)])


def noisy_counts(counts: Ints, plan: Plan, exponent: Fraction, rng: np.random.Generator) -> Ints:
    """Return a party's counts with its noise share, shape (runs, entries): its input to the sum.

    A row is in at most one entry of each run.
    """
    return counts + noise_share(plan, counts.shape[1], exponent, rng)


def noisy_votes(
    queries: Floats,
    parts: Sequence[Rows],
    parameters: NoisyVotesParameters,
    rng: np.random.Generator,
    *,
    radii: Floats | None = None,
    missing: int = 0,
) -> VotesAnswer:
    """Label a batch as the parties would, with the same steps.

    The masks of the secure sum cancel in the total and are left out.

    Args:
        queries: Shape (Q, features), in [0, 1].
        radii: Shape (Q,), if the parameters leave them to the client.
    """
    exponent = parameters.exponent(len(parts))
    for rows in parts:
        check_rows(rows, parameters.features, parameters.classes)
    steps = batch_steps(queries, parameters, radii, shares=exponent.denominator)
    release = next(steps)
    while True:
        total = np.zeros((len(release.plan.crowds), release.entries), dtype=np.int64)
        for place, rows in enumerate(parts):
            own = release.count(rows)
            adds = place < len(parts) - missing
            total += noisy_counts(own, release.plan, exponent, rng) if adds else own
        try:
            release = steps.send(total)
        except StopIteration as done:
            answer: VotesAnswer = done.value
            return answer
