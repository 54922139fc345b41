"""The simulated posterior of a successor alone: as good as the exact one where there is one."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from veilring.errors import InputError
from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.attacks import (
    TopKView,
    UniformPrior,
    claim_new,
    decide_by,
    fit_cells,
    judge,
    owned,
    sandwich_posterior,
    simulated_view,
)
from veilring.protocols.ring.leakage.transcripts import transcript

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
    (replace(BASE, k=10, P0=0.9), 5, 4),
]


def runs(
    parameters: TopKParameters, n: int, place: int, rng: np.random.Generator, trials: int = 2000
) -> tuple[TopKView, NDArray[np.float64]]:
    """Return what the successor sees in simulated runs, and the victim's values."""
    values = UniformPrior(30).draw(trials, n, parameters.k, rng)
    vectors = transcript(values, parameters, rng)
    view = simulated_view(vectors, parameters, ORDER[:n], [ORDER[(place + 1) % n]])
    return view, values[:, place]


@pytest.mark.parametrize(("parameters", "n", "place"), GRID)
def test_it_is_never_below_the_simple_attack(
    parameters: TopKParameters, n: int, place: int
) -> None:
    """On runs that it was not made from it decides no fewer entries right than claiming all.

    Both decide the same entries of the same runs; the mean of the difference over independent
    runs is not significantly below 0 (false alarm 1e-6 over the grid). The posterior's mean is
    the fraction that is real, but for 3 in 100.
    """
    rng = np.random.default_rng([parameters.k, n, place])
    cells = fit_cells(parameters, n, place, [(place + 1) % n], UniformPrior(30), 6000, rng)
    view, own = runs(parameters, n, place, rng)
    claims = claim_new(view, ORDER[place])
    posterior = cells.posterior(view, ORDER[place])
    new, right, decided = np.isfinite(claims), owned(claims, own), decide_by(posterior)
    better = ((decided == right).astype(int) - right) * new
    by_run = better.sum(axis=(0, 2))
    if by_run.any():
        test = stats.ttest_1samp(by_run, 0.0, alternative="less")
        assert test.pvalue > FALSE_ALARM / len(GRID)
    assert judge(claims, own, decided).gain >= judge(claims, own).gain - 0.05
    assert posterior[new].mean() == pytest.approx(right[new].mean(), abs=0.03)
    assert (posterior[~new] == 0).all()


def test_where_the_exact_posterior_is_known_it_is_met() -> None:
    """The starter's successor knows what the starter received: in one round its cells are optimal.

    The exact rule is the best there is; the cells stay within 1 in 100 of it.
    """
    for parameters in (replace(BASE, P0=0.5, rounds=1), replace(BASE, k=1, P0=0.5, rounds=1)):
        rng = np.random.default_rng(parameters.k)
        cells = fit_cells(parameters, 4, 0, [1], UniformPrior(30), 6000, rng)
        view, own = runs(parameters, 4, 0, rng)
        claims = claim_new(view, ORDER[0])
        exact = judge(claims, own, decide_by(sandwich_posterior(view, ORDER[0], UniformPrior(30))))
        found = judge(claims, own, decide_by(cells.posterior(view, ORDER[0])))
        assert exact.accuracy >= found.accuracy - 0.01
        assert found.accuracy >= exact.accuracy - 0.01
        assert judge(claims, own).accuracy < 0.6
        assert found.accuracy > 0.8


def test_a_cell_that_was_not_met_says_what_the_one_around_it_says() -> None:
    """A single simulated run leaves doubt everywhere, and one without claims leaves a half."""
    view, _ = runs(BASE, 4, 1, np.random.default_rng(1), trials=20)
    few = fit_cells(BASE, 4, 1, [2], UniformPrior(30), 1, np.random.default_rng(2))
    q = few.posterior(view, ORDER[1])[np.isfinite(claim_new(view, ORDER[1]))]
    assert ((q > 0) & (q < 1)).all()
    blind = fit_cells(BASE, 4, 1, [3], UniformPrior(30), 5, np.random.default_rng(3))
    unseen = blind.posterior(view, ORDER[1])[np.isfinite(claim_new(view, ORDER[1]))]
    assert (unseen == 0.5).all()  # nothing was claimed from two places on, so nothing was learned


def test_what_cannot_be_simulated_is_refused() -> None:
    """Positions outside the ring and sessions without a result are refused."""
    with pytest.raises(InputError, match=r"coalition is \[4\]"):
        fit_cells(BASE, 4, 1, [4], UniformPrior(30), 5, np.random.default_rng(1))
    cells = fit_cells(BASE, 4, 1, [2], UniformPrior(30), 5, np.random.default_rng(1))
    values = UniformPrior(30).draw(2, 4, 3, np.random.default_rng(2))
    vectors = transcript(values, BASE, np.random.default_rng(3))
    failed = simulated_view(vectors, BASE, ORDER[:4], [ORDER[2]], failed_after=3)
    with pytest.raises(InputError, match="vectors is without the result"):
        cells.posterior(failed, ORDER[1])
