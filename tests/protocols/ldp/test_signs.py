"""Duchi's corrected mechanism: by enumeration of all reports, compared with the publication."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.generators import FALSE_ALARM, follows, seeded
from tests.protocols.ldp.bounds import bernstein

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.means import SignVector

Signs = tuple[int, ...]
CLIENTS = 20_000


def distribution_of(mechanism: SignVector, v: Signs) -> dict[Signs, Fraction]:
    """Return the distribution of reports for a vector of signs, from the published weights."""
    low, high = mechanism.weights
    weights = {
        t: high if sum(a * b for a, b in zip(t, v, strict=True)) > 0 else low
        for t in itertools.product((-1, 1), repeat=len(v))
    }
    total = sum(weights.values())
    return {t: Fraction(weight, total) for t, weight in weights.items()}


@pytest.mark.parametrize("features", range(1, 6))
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_report_is_likelier_than_its_epsilon_allows(features: int, epsilon: float) -> None:
    """Over all reports and all pairs of corners the loss is the exact epsilon, odd or even."""
    mechanism = SignVector(epsilon, features)
    distributions = [
        distribution_of(mechanism, v) for v in itertools.product((-1, 1), repeat=features)
    ]
    greatest = max(a[t] / b[t] for a, b in itertools.permutations(distributions, 2) for t in a)
    assert math.log(greatest) <= mechanism.exact_epsilon * (1 + 1e-9)
    assert epsilon * (1 - 1e-4) <= mechanism.exact_epsilon <= epsilon


@pytest.mark.parametrize("features", range(1, 7))
def test_a_report_is_unbiased(features: int) -> None:
    """Its mean, divided by the slope, is exactly the vector of signs."""
    mechanism = SignVector(1.0, features)
    v = tuple((-1) ** place for place in range(features))
    distribution = distribution_of(mechanism, v)
    means = [sum(p * t[place] for t, p in distribution.items()) for place in range(features)]
    assert [mean / mechanism.slope for mean in means] == list(v)


def test_as_published_an_even_number_of_features_is_not_private() -> None:
    """Closed half-spaces share the reports that agree in half: the loss is ln(e + 1) = 1.313."""

    def published(v: Signs) -> dict[Signs, float]:
        dots = {
            t: sum(a * b for a, b in zip(t, v, strict=True))
            for t in itertools.product((-1, 1), repeat=4)
        }
        up, down = (sum(s * d >= 0 for d in dots.values()) for s in (1, -1))
        heads = math.e / (math.e + 1)
        return {t: (d >= 0) * heads / up + (d <= 0) * (1 - heads) / down for t, d in dots.items()}

    pairs = itertools.permutations(map(published, itertools.product((-1, 1), repeat=4)), 2)
    greatest = max(math.log(a[t] / b[t]) for a, b in pairs for t in a)
    assert greatest == pytest.approx(math.log(math.e + 1))
    assert greatest == pytest.approx(1.313, abs=5e-4)


@pytest.mark.parametrize("features", [3, 4])
def test_reports_are_drawn_from_the_published_distribution(features: int) -> None:
    """A corner's reports have the published distribution, by a G-test over all sign vectors."""
    mechanism = SignVector(1.0, features)
    v = (1, -1, 1, 1)[:features]
    reports = mechanism.perturb(
        np.tile(np.array(v, float), (CLIENTS, 1)), seeded("signs", features)
    )
    assert mechanism.accept(reports).all()
    bits = np.unpackbits(reports, axis=1, count=features)
    distribution = distribution_of(mechanism, v)
    place = {t: number for number, t in enumerate(distribution)}
    drawn = [place[tuple((2 * row.astype(int) - 1).tolist())] for row in bits]
    counts = np.bincount(drawn, minlength=len(distribution))
    assert follows(counts, np.array([float(p) for p in distribution.values()]), 2)


@pytest.mark.parametrize("features", [1, 5, 12])
def test_means_are_estimated_within_their_variance(features: int) -> None:
    """Each feature's mean is within Bernstein's bound and the interval."""
    mechanism = SignVector(1.0, features)
    rng = seeded("means", features)
    rows = rng.uniform(-1, 1, (CLIENTS, features))
    found = mechanism.estimate(mechanism.aggregate(mechanism.perturb(rows, rng)), CLIENTS)
    size = float(1 / mechanism.slope)
    reach = bernstein(CLIENTS * size**2, size + 1, FALSE_ALARM / (3 * features)) / CLIENTS
    assert np.abs(found.values - rows.mean(axis=0)).max() <= reach
    assert (found.variance * CLIENTS <= size**2).all()
    assert ((found.low < found.values) & (found.values < found.high)).all()


def test_invalid_input_is_refused() -> None:
    """Too many features, rows of another shape, numbers outside, and set padding are refused."""
    with pytest.raises(InputError, match="features is 45"):
        SignVector(1.0, 45)
    with pytest.raises(InputError, match="epsilon"):
        SignVector(0.0, 3)
    mechanism = SignVector(1.0, 3)
    with pytest.raises(InputError, match="values"):
        mechanism.perturb(np.zeros((2, 2)), seeded("none"))
    for wrong in (1.5, -1.5, math.nan):
        with pytest.raises(InputError, match="values"):
            mechanism.perturb(np.full((2, 3), wrong), seeded("none"))
    assert mechanism.accept(np.array([[0b11100000], [1]], dtype=np.uint8)).tolist() == [True, False]
    assert not mechanism.accept(np.zeros((1, 2), dtype=np.uint8)).any()


@pytest.mark.parametrize("features", [1, 2, 45])
def test_an_epsilon_too_small_for_the_weights_is_refused(features: int) -> None:
    """The error names the least epsilon; there estimates are finite, and below is no slope."""
    least = 2.0 ** (features - 61)
    mechanism = SignVector(least, features)
    assert mechanism.slope > 0
    found = mechanism.estimate(np.ones(features, dtype=np.int64), 2)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.variance).all()
    with pytest.raises(InputError, match=f"allowed: from {least} to 20 for {features} features"):
        SignVector(least * 0.99, features)
