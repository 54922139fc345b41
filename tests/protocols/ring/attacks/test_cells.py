"""The simulated posterior of a successor alone, compared with the exact one if it exists."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats
from tests.protocols.ring.worlds import empirical_bernstein

from veilring.arrays import Bools, Floats
from veilring.errors import InputError
from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.attacks.posterior import decide_by, fit_cells, sandwich_posterior
from veilring.protocols.ring.attacks.views import (
    TopKView,
    UniformPrior,
    claim_new,
    judge_claims,
    owned,
    simulated_view,
)
from veilring.protocols.ring.leakage import transcript

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-6
BASE = TopKParameters(k=3, P0=1.0, d=0.5, rounds=2, delta=0.1, upper=1.0)
ORDER = [f"party-{number}" for number in range(8)]

# parameters, parties and the victim's place
GRID = [
    (BASE, 4, 0),
    (BASE, 4, 2),
    (replace(BASE, P0=0.1, rounds=1), 3, 0),
    (replace(BASE, P0=0.1, rounds=1), 3, 1),
    (replace(BASE, P0=0.5, rounds=3, d=0.8), 4, 1),
    (replace(BASE, k=1, P0=0.5), 8, 4),
    pytest.param(replace(BASE, k=10, P0=0.9), 5, 4, marks=pytest.mark.slow),
]


def runs(
    parameters: TopKParameters, n: int, place: int, rng: np.random.Generator, trials: int = 2000
) -> tuple[TopKView, Floats]:
    """Return the successor's view of simulated runs, and the victim's values."""
    values = UniformPrior(30).draw(trials, n, parameters.k, rng)
    vectors = transcript(values, parameters, rng)
    view = simulated_view(vectors, parameters, ORDER[:n], [ORDER[(place + 1) % n]])
    return view, values[:, place]


@pytest.mark.parametrize(("parameters", "n", "place"), GRID)
def test_fitted_cells_decide_no_worse_than_the_simple_attack(
    parameters: TopKParameters, n: int, place: int
) -> None:
    """On fresh runs, fitted cells decide at least as many entries correctly as claiming all.

    Both attacks decide the same entries of the same runs. The mean of the difference over
    independent runs is at least 0, and the posterior's mean is within 0.03 of the fraction that is
    real (false alarm 1e-6 over the grid, by empirical Bernstein bounds).
    """
    rng = np.random.default_rng([parameters.k, n, place])
    cells = fit_cells(parameters, n, place, [(place + 1) % n], UniformPrior(30), 6000, rng)
    view, own = runs(parameters, n, place, rng)
    claims = claim_new(view, ORDER[place])
    posterior = cells.posterior(view, ORDER[place])
    new, right, decided = np.isfinite(claims), owned(claims, own), decide_by(posterior)
    most, rare = parameters.rounds * parameters.k, FALSE_ALARM / (3 * len(GRID))
    better = by_run((decided == right) & new) - by_run(right)
    assert better.sum() >= -empirical_bernstein(better, 2 * most, rare)
    gained = judge_claims(claims, own, decided).gain - judge_claims(claims, own).gain
    assert gained == pytest.approx(better.mean())
    surplus = by_run(posterior - right)
    for off in (surplus - 0.03 * by_run(new), -surplus - 0.03 * by_run(new)):
        assert off.sum() <= empirical_bernstein(off, 2 * most, rare)
    assert (posterior[~new] == 0).all()


def by_run(entries: Floats | Bools) -> Floats:
    """Return the sums of (rounds, T, k) over each run."""
    return np.asarray(entries.sum(axis=(0, 2)), dtype=np.float64)


@pytest.mark.parametrize("k", [1, 3])
def test_fitted_cells_agree_with_the_exact_posterior(k: int) -> None:
    """For the starter's successor in one round, fitted cells decide as well as the exact posterior.

    The successor knows the starter's input, so the exact posterior is optimal. The cells decide at
    most 1 % of the new entries worse, and half of the simple attack's claims are right (false alarm
    1e-6).
    """
    parameters, rare = replace(BASE, k=k, P0=0.5, rounds=1), FALSE_ALARM / 6
    rng = np.random.default_rng(k)
    cells = fit_cells(parameters, 4, 0, [1], UniformPrior(30), 6000, rng)
    view, own = runs(parameters, 4, 0, rng)
    claims = claim_new(view, ORDER[0])
    new, right = np.isfinite(claims), owned(claims, own)
    exact, found = (
        by_run((decide_by(q) == right) & new)
        for q in (
            sandwich_posterior(view, ORDER[0], UniformPrior(30)),
            cells.posterior(view, ORDER[0]),
        )
    )
    better, worse = exact - found, exact - found - 0.01 * by_run(new)
    assert better.sum() >= -empirical_bernstein(better, 2 * k, rare)
    assert worse.sum() <= empirical_bernstein(worse, 2 * k, rare)
    assert stats.binomtest(int(right[0].any(axis=1).sum()), len(own), 0.5).pvalue > rare


def test_the_exact_rule_agrees_with_an_integral_by_hand() -> None:
    """With k = 1, one round and P0 = 1/2 its accuracy is a closed integral (false alarm 1e-6).

    The starter passes on its least value or, above it, a uniform number up to 1.
    """
    parameters, rows = replace(BASE, k=1, P0=0.5, rounds=1), 30
    view, own = runs(parameters, 4, 0, np.random.default_rng(4), trials=5000)
    claims = claim_new(view, ORDER[0])
    decided = decide_by(sandwich_posterior(view, ORDER[0], UniformPrior(rows)))

    def likelier(a: float) -> float:
        noise = rows / (rows - 1) * (1 - (1 - a) ** (rows - 1))
        return max(rows * (1 - a) ** (rows - 1), noise) / 2

    bend = 1 - (1 / rows) ** (1 / (rows - 1))  # where both are equally likely
    accuracy, _ = integrate.quad(likelier, 0, 1, points=[bend], epsabs=1e-12)
    hits = int((decided == owned(claims, own)).sum())
    assert stats.binomtest(hits, len(own), accuracy).pvalue > FALSE_ALARM


def test_few_simulated_runs_leave_doubt() -> None:
    """A single simulated run gives no posterior of 0 or 1, and runs without claims give 1/2."""
    view, _ = runs(BASE, 4, 1, np.random.default_rng(1), trials=20)
    few = fit_cells(BASE, 4, 1, [2], UniformPrior(30), 1, np.random.default_rng(2))
    q = few.posterior(view, ORDER[1])[np.isfinite(claim_new(view, ORDER[1]))]
    assert ((q > 0) & (q < 1)).all()
    blind = fit_cells(BASE, 4, 1, [3], UniformPrior(30), 5, np.random.default_rng(3))
    unseen = blind.posterior(view, ORDER[1])[np.isfinite(claim_new(view, ORDER[1]))]
    assert (unseen == 0.5).all()  # nothing was claimed from two places on, so nothing was learned


def test_invalid_simulations_are_refused() -> None:
    """A coalition outside the ring, and a view without a result, are refused."""
    with pytest.raises(InputError, match=r"coalition is \[4\]"):
        fit_cells(BASE, 4, 1, [4], UniformPrior(30), 5, np.random.default_rng(1))
    cells = fit_cells(BASE, 4, 1, [2], UniformPrior(30), 5, np.random.default_rng(1))
    values = UniformPrior(30).draw(2, 4, 3, np.random.default_rng(2))
    vectors = transcript(values, BASE, np.random.default_rng(3))
    failed = simulated_view(vectors, BASE, ORDER[:4], [ORDER[2]], failed_after=3)
    with pytest.raises(InputError, match="views lack the result"):
        cells.posterior(failed, ORDER[1])
