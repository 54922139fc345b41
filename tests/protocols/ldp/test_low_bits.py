"""The attack on the low bits of noisy histograms: it wins on floats, and has nothing on a grid.

A coordinate that is 1 plus noise is rounded to the spacing of floats near its size, while 0 plus
noise keeps all bits that the noise has: so the low bits say which coordinate was the 1. On a public
grid every number can come from either.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.privacy.generators import seeded

from veilring.protocols.ldp.algorithm.oracles import SummedHistogram

CLIENTS, DOMAIN = 2_000, 8
SPACING = 2.0**-53  # of floats from 1/2 to 1: what is left of small noise once 1 was added


def guesses(reports: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which coordinates may be the 1: taking 1 away and adding it again loses nothing."""
    whole = reports / SPACING
    return np.asarray(whole == np.rint(whole))


def test_the_attack_reads_values_off_float_noise() -> None:
    """Of reports with float noise it names the value alone, and rightly, in most cases."""
    rng = seeded("float")
    values = rng.integers(DOMAIN, size=CLIENTS)
    # Laplace noise by inversion, as libraries draw it.
    noise = rng.standard_exponential((CLIENTS, DOMAIN)) * rng.choice((-2.0, 2.0), (CLIENTS, DOMAIN))
    reports = np.eye(DOMAIN)[values] + noise
    suspects = guesses(reports)
    assert suspects[np.arange(CLIENTS), values].mean() > 0.9
    # A float of 1 or more has no finer bits anyway, so some innocents look guilty.
    small = np.abs(noise) < 1 / 4
    innocent = small & (np.eye(DOMAIN)[values] == 0)
    assert suspects[innocent].mean() < 0.3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_on_the_grid_every_number_can_come_from_either(epsilon: float) -> None:
    """Every number that leaves a client has a probability above 0 for the own value and others."""
    laws = SummedHistogram(DOMAIN, epsilon).laws
    assert all(min(row) > 0 for row in laws.weights)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_low_bits_of_the_grid_say_next_to_nothing(bits: int) -> None:
    """The laws of the low bits of the own and of another coordinate differ by less than 1e-4."""
    oracle = SummedHistogram(DOMAIN, 1.0)
    outcomes = np.arange(-oracle.bound, oracle.bound + 1) % 2**bits
    laws = [
        np.bincount(outcomes, weights=[float(each) for each in oracle.laws.probabilities(which)])
        for which in (0, 1)
    ]
    assert np.abs(laws[0] - laws[1]).sum() / 2 < 1e-4


def test_what_is_sent_are_these_numbers_and_no_more() -> None:
    """A report has two bytes a coordinate, and these are the steps: there is no other low bit."""
    oracle = SummedHistogram(DOMAIN, 1.0)
    reports = oracle.perturb(np.zeros(CLIENTS, dtype=np.int64), seeded("wire"))
    steps = reports.view("<i2")
    assert steps.shape == (CLIENTS, DOMAIN)
    assert np.abs(steps).max() <= oracle.bound
    assert (oracle.aggregate(reports) == steps.sum(axis=0, dtype=np.int64)).all()
    # The attack itself, on the numbers as the collector scales them: all coordinates are alike.
    suspects = guesses(steps / (2 * oracle.half))
    assert suspects.all()
