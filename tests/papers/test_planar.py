"""Planar Laplace noise on a grid."""

import numpy as np
import pytest
from papers.walks import planar_laplace
from scipy.stats import chi2, gamma, kstest

from veilring.errors import InputError
from veilring.randomness import Streams

DRAWS = 200_000
ALARM = 1e-6


def test_planar_noise_has_its_distribution_on_a_coarse_grid() -> None:
    """Draws at scale 1.5 pass a chi-square test against e^(-|v| / scale) at each grid point.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    draws = planar_laplace(1.5, DRAWS, Streams(3).generator("coarse"))
    reach = 60  # beyond, all points together have less than e^-39
    x, y = np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1))
    weights = np.exp(-np.hypot(x, y) / 1.5)
    expected = DRAWS * weights / weights.sum()
    counts = np.zeros_like(expected)
    np.add.at(counts, (draws[:, 1] + reach, draws[:, 0] + reach), 1)
    seldom = expected < 10
    pooled = np.append(expected[~seldom], expected[seldom].sum())
    found = np.append(counts[~seldom], counts[seldom].sum())
    statistic = (np.square(found - pooled) / pooled).sum()
    assert statistic < chi2.isf(ALARM, df=len(pooled) - 1)


def test_on_a_fine_grid_it_is_the_planar_distribution() -> None:
    """At a scale of a million steps, lengths follow Gamma(2, scale) and angles are uniform.

    Each Kolmogorov-Smirnov test has a false-alarm rate of 5e-7; the seed is fixed.
    """
    scale = 1e6
    draws = planar_laplace(scale, DRAWS, Streams(4).generator("fine"))
    lengths = np.hypot(*draws.T)
    angles = (np.arctan2(*draws.T) / np.pi + 1) / 2
    assert kstest(lengths, gamma(2, scale=scale).cdf).pvalue > ALARM / 2
    assert kstest(angles, "uniform").pvalue > ALARM / 2


@pytest.mark.parametrize("seed", [0, None])
def test_any_generator_works(seed: int | None) -> None:
    """Seeded and cryptographic generators both give the requested number of points."""
    draws = planar_laplace(10.0, 1000, Streams(seed).generator("any"))
    assert draws.shape == (1000, 2)
    assert draws.dtype == np.int64


def test_a_scale_out_of_range_is_refused() -> None:
    """A scale of zero is refused by its name."""
    with pytest.raises(InputError, match="scale"):
        planar_laplace(0.0, 1, Streams(0).generator("none"))
