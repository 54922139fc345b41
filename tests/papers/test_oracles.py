"""Tables of exact weights: the sampler by enumeration, and the claim of clamped Laplace noise."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.oracles import TableDistributions, clamped_laplace
from tests.privacy.generators import scripted, seeded
from tests.refusals import require_refused

from veilring.privacy.exact import exp_floor
from veilring.privacy.noise import discrete_laplace_pmf

WHOLE = 2**64


@st.composite
def divisions(draw: st.DrawFn) -> list[int]:
    """Divide 4096 words among up to 16 outcomes, some of which may get none."""
    cuts = sorted(draw(st.lists(st.integers(0, 4096), max_size=15)))
    return [after - before for before, after in zip([0, *cuts], [*cuts, 4096], strict=True)]


@given(divisions(), st.integers(-5, 5))
def test_each_outcome_has_exactly_its_words(division: list[int], first: int) -> None:
    """For equally spaced words, each outcome occurs exactly as often as its weight says."""
    distributions = TableDistributions(first, [[part * 2**52 for part in division]])
    words = np.arange(4096, dtype=np.uint64) << np.uint64(52)
    drawn = distributions.sample(np.zeros(4096, dtype=np.int8), scripted(words))
    assert np.bincount(drawn - first, minlength=len(division)).tolist() == division


CASES = [
    (range(-16, 17), 32, 300),
    ((0, 64), 128, 1000),
    ((0, 1), Fraction(1, 2), 8),
    ((-3, -1, 4), 2.7, 40),
    ((0, 1024), 20480, 32767),
    ((5,), 3, 7),
]


@pytest.mark.parametrize(("inputs", "scale", "bound"), CASES, ids=str)
def test_clamped_noise_is_laplace_noise_that_loses_no_more_than_it_claims(
    inputs: tuple[int, ...], scale: float | Fraction, bound: int
) -> None:
    """No ratio of the weights of two inputs exceeds e**(|u - v| / scale), in integers.

    Each probability equals that of clamped noise of the same scale, to a thousandth.
    """
    distributions = clamped_laplace(inputs, scale, bound)
    for i, j in combinations(range(len(inputs)), 2):
        claim = (inputs[j] - inputs[i]) / Fraction(scale)
        limit = exp_floor(claim)
        for a, b in zip(distributions.weights[i], distributions.weights[j], strict=True):
            assert max(a, b) * limit.denominator <= min(a, b) * limit.numerator
        assert (1 - 1e-3) * float(claim) <= distributions.loss(i, j) <= float(claim)
    reach = 60 * math.ceil(scale) + 2 * bound
    k = np.arange(-reach, reach + 1)
    for i, value in enumerate(inputs):
        outcomes = np.clip(k + value, -bound, bound) + bound
        distribution = np.bincount(outcomes, weights=discrete_laplace_pmf(k, scale))
        ours = np.array([float(p) for p in distributions.probabilities(i)])
        far = 1 + np.abs(np.arange(-bound, bound + 1) - value) / float(scale)
        assert (np.abs(ours - distribution) <= 1e-3 * far * distribution).all()


def test_moments_and_losses_are_exact() -> None:
    """Outcomes of 1/4 and 3/4 have mean 3/4, variance 3/16, and a loss of ln 3 when mirrored."""
    quarter = WHOLE // 4
    distributions = TableDistributions(
        0, [[quarter, 3 * quarter], [3 * quarter, quarter], [0, WHOLE]]
    )
    assert distributions.mean(0) == Fraction(3, 4)
    assert distributions.variance(0) == Fraction(3, 16)
    assert distributions.loss(0, 1) == pytest.approx(math.log(3), rel=1e-15)
    assert distributions.loss(0, 2) == distributions.epsilon == math.inf


def test_invalid_tables_are_refused() -> None:
    """Too wide bounds, inputs that do not ascend or lie outside, and wrong weights are refused."""
    require_refused("has a probability of at least", clamped_laplace, (0, 16), 32, 1000)
    for inputs in ((), (1, 1), (2, 1), (0, 11), (-11, 0)):
        require_refused("inputs", clamped_laplace, inputs, 4, 10)
    for bound in (0, 2**15):
        require_refused("bound", clamped_laplace, (0, 1), 4, bound)
    false: list[list[list[int]]]
    false = [[], [[]], [[WHOLE], [1, WHOLE - 1]], [[WHOLE + 1, -1]], [[WHOLE - 1]]]
    for weights in false:
        require_refused("weights", TableDistributions, 0, weights)
    sample = TableDistributions(0, [[WHOLE]]).sample
    require_refused("inputs", sample, np.array([1]), seeded())
