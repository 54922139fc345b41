"""The attack on the low bits of noisy histograms succeeds on floats and fails on a grid.

A float sampler reaches only some floats: 0 plus noise gives different floats than 1 plus noise,
which is rounded again. A collector therefore tests whether each coordinate is reachable from the
client's value and from another value. A value is possible only if all coordinates are reachable
(Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from papers.oracles import SummedHistogram
from tests.privacy.generators import seeded

from veilring.arrays import Bools

CLIENTS, DOMAIN, SCALE = 400, 8, 2.0
GRID = 2**53  # uniform floats of a generator are multiples of 1 over this
NEAR = range(-6, 7)  # so far rounding can move a preimage on that grid

Possible = Callable[[float], bool]


def laplace(place: int) -> float:
    """Return Laplace noise by inversion, as libraries draw it, from a uniform `place / 2^53`."""
    u = place / GRID
    return -SCALE * math.log(2 - u - u) if u >= 1 / 2 else SCALE * math.log(u + u)


def from_floats(centre: float) -> Possible:
    """Return a test of whether `centre` plus float noise can equal a given number exactly."""

    def possible(number: float) -> bool:
        noise = number - centre
        tail = math.exp(-abs(noise) / SCALE) / 2
        start = round((1 - tail if noise > 0 else tail) * GRID)
        places = (start + step for step in NEAR)
        return any(0 < at < GRID and centre + laplace(at) == number for at in places)

    return possible


def candidates(reports: NDArray[np.generic], own: Possible, other: Possible) -> Bools:
    """Return the values that each client may hold, shape (clients, domain)."""
    as_own = np.array([[own(number) for number in row] for row in reports.tolist()])
    as_other = np.array([[other(number) for number in row] for row in reports.tolist()])
    impossible = (~as_other).sum(axis=1, keepdims=True)
    return np.asarray(as_own & (impossible - ~as_other == 0))


def test_the_attack_reads_values_from_float_noise() -> None:
    """For more than half of reports with float noise only the true value remains possible."""
    rng = seeded("float")
    values = rng.integers(DOMAIN, size=CLIENTS)
    places = rng.integers(1, GRID, size=(CLIENTS, DOMAIN))
    noise = np.vectorize(laplace)(places)
    left = candidates(np.eye(DOMAIN)[values] + noise, from_floats(1.0), from_floats(0.0))
    assert left[np.arange(CLIENTS), values].all()
    assert (left.sum(axis=1) == 1).mean() > 1 / 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_attack_excludes_nothing_on_the_grid(epsilon: float) -> None:
    """Every report leaves all values possible for its client, by the exact distributions."""
    oracle = SummedHistogram(DOMAIN, epsilon)
    reports = oracle.perturb(np.arange(CLIENTS) % DOMAIN, seeded("wire", str(epsilon)))
    steps = reports.view("<i2")  # nothing else is in a report
    assert (oracle.aggregate(reports) == steps.sum(axis=0, dtype=np.int64)).all()
    assert np.abs(steps).max() <= oracle.bound
    distributions = [oracle.distributions.probabilities(which) for which in (0, 1)]
    other, own = (
        lambda steps, distribution=distribution: distribution[steps + oracle.bound] > 0
        for distribution in distributions
    )
    assert candidates(steps, own, other).all()
    # Nor is any number impossible that these clients did not happen to send.
    assert all(min(distribution) > 0 for distribution in distributions)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_low_bits_of_the_grid_reveal_almost_nothing(bits: int) -> None:
    """The distributions of the low bits of the own and another coordinate are within 1e-4."""
    oracle = SummedHistogram(DOMAIN, 1.0)
    outcomes = np.arange(-oracle.bound, oracle.bound + 1) % 2**bits
    other, own = (
        np.bincount(outcomes, np.array(oracle.distributions.probabilities(which), np.float64))
        for which in (0, 1)
    )
    assert np.abs(own - other).sum() / 2 < 1e-4
