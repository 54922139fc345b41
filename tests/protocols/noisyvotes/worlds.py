"""Small worlds of parties, and the exact distributions of their releases."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.privacy.divisible import polya_difference_pmf
from veilring.protocols.noisyvotes.algorithm.noise import Plan
from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters, WithinRadius
from veilring.protocols.noisyvotes.algorithm.releases import Release, batch_steps, noisy_counts
from veilring.protocols.radius.algorithm.allocation import Allocation

# Balls that overlap in pairs and in threes; one is alone.
QUERIES = np.array([[0.1], [0.3], [0.35], [0.5], [0.95]])
RADII = np.array([0.1, 0.1, 0.2, 0.15, 0.02])
_PLACES = (0.2, 0.35, 0.4, 0.95, 0.7)


def no_rows(features: int) -> Rows:
    """Return the table of a party without rows."""
    return Rows(np.zeros((0, features)), np.zeros(0, dtype=np.int64))


def deal(rows: Rows, parties: int) -> list[Rows]:
    """Deal a table to parties, row by row; some may get no rows."""
    return [Rows(rows.features[n::parties], rows.labels[n::parties]) for n in range(parties)]


def neighbours(classes: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield each table of at most one row with each table of one more row."""
    places, labels = np.repeat(_PLACES, classes)[:, None], np.tile(np.arange(classes), len(_PLACES))
    for table in ([], *([kind] for kind in range(len(labels)))):
        for more in range(len(labels)):
            both = [*table, more]
            yield Rows(places[table], labels[table]), Rows(places[both], labels[both])


def voting(
    parameters: NoisyVotesParameters,
    queries: Floats = QUERIES,
    radii: Floats | None = RADII,
    *,
    shares: int = 1,
) -> Release:
    """Return the release of a batch with given radii; pure noise has any number of shares."""
    return next(batch_steps(queries, parameters, radii, shares=shares))


def totals_loss(one: Release, tables: tuple[Rows, Rows], exponent: Fraction) -> float:
    """Return the greatest log-ratio of any totals on two tables, by their exact distributions.

    Each total is a count plus separate noise, so the greatest ratio of all totals together is the
    product of each total's greatest ratio.
    """
    counts = [one.count(rows) for rows in tables]
    loss = 0.0
    for row, epsilon in enumerate(pure(one).epsilons):
        log_pmf = _log_pmf(float(epsilon), exponent)
        for before, after in zip(counts[0][row], counts[1][row], strict=True):
            shift = abs(int(after) - int(before))
            # On one table, and shifted on the other; the distribution is symmetric.
            loss += float(np.abs(log_pmf[shift:] - log_pmf[: len(log_pmf) - shift]).max())
    return loss


@lru_cache
def _log_pmf(epsilon: float, exponent: Fraction) -> Floats:
    reach = int(30 / epsilon)
    log_pmf = polya_difference_pmf(np.arange(-reach, reach + 1), exponent, 1 / epsilon)
    return np.asarray(np.log(log_pmf))


def pure(release: Release) -> Allocation:
    """Return the plan of a release, whose noise is pure."""
    assert isinstance(release.plan, Allocation)
    return release.plan


def repeated(plan: Plan, runs: int) -> Plan:
    """Return the plan of many releases at once."""
    crowds = np.tile(plan.crowds, runs)
    if isinstance(plan, Allocation):
        return replace(plan, crowds=crowds, epsilons=np.tile(plan.epsilons, runs))
    return replace(plan, crowds=crowds, sigmas=np.tile(plan.sigmas, runs))


def runs_of(  # noqa: PLR0917  (a release, its parties and its repetitions)
    release: Release,
    parts: Sequence[Rows],
    exponent: Fraction,
    missing: int,
    runs: int,
    rng: Generator,
) -> Ints:
    """Return the totals of many runs of the networked steps, shape (runs, Q, entries).

    The given number of missing parties, counted from the last, add no noise.
    """
    plan = repeated(release.plan, runs)
    total = np.zeros((len(plan.crowds), release.entries), dtype=np.int64)
    for place, rows in enumerate(parts):
        counts = np.tile(release.count(rows), (runs, 1))
        if place < len(parts) - missing:
            counts = noisy_counts(counts, plan, exponent, rng)
        total += counts
    return total.reshape(runs, -1, release.entries)


CERTAIN = 2000.0
"""A budget so large that noise is drawn only with probability below e**-200."""
WITHIN = NoisyVotesParameters(2, 3, CERTAIN, WithinRadius(0.2))


def five_parts(count: int) -> tuple[Rows, list[Rows]]:
    """Return rows of three classes, and their parts at five parties, the last of which has none."""
    rng = np.random.default_rng(1)
    rows = Rows(rng.random((count, 2)), rng.integers(0, 3, count))
    return rows, [*deal(rows, 4), no_rows(2)]
