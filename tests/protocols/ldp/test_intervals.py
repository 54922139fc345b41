"""The coverage of intervals: exact, over all sums that reports can have.

A nominal 95 % covers from 94 to 97 %. Where a count varies by two or less, most runs of counts have
no such probability: it then covers 94 % or more.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import sqrt
from typing import Final

import numpy as np
import pytest
from papers.oracles import ALL_ORACLES
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.stats import binom
from tests.protocols.ldp.distributions import words

from veilring.arrays import Floats
from veilring.protocols.ldp.algorithm.codes import CodeDistribution, OneBit
from veilring.protocols.ldp.algorithm.means import EachFeature
from veilring.protocols.ldp.algorithm.numbers import Hybrid, Laplace
from veilring.protocols.ldp.algorithm.randomiser import PureOracle

LEAST: Final = 0.94
MOST: Final = 0.97
FEW: Final = 2.4  # counts of a smaller standard deviation may be covered more often
PURE = [name for name in ALL_ORACLES if name != "she"]
GRID = [
    *product(PURE, (2, 10, 1000), (0.5, 1.0, 4.0), (5, 100, 2000)),
    ("de", 10_000, 1.0, 20_000),
    ("ss", 100, 5.0, 400),
    ("ss", 1000, 5.0, 2000),
]


def counts_of(own: int, clients: int, oracle: PureOracle) -> Floats:
    """Return the distribution of the sum of a value that some of the clients have."""
    others = clients - own
    with_value = binom.pmf(np.arange(own + 1), own, float(oracle.p))
    return np.convolve(with_value, binom.pmf(np.arange(others + 1), others, float(oracle.q)))


def coverage(oracle: PureOracle, clients: int, own: int) -> tuple[float, float]:
    """Return the probability that the interval contains a share, and the deviation of the count."""
    chances = counts_of(own, clients, oracle)
    sums = np.flatnonzero(chances > 1e-12)
    low, high = oracle._intervals(sums, clients, 0.95)  # noqa: SLF001  (of more counts than values)
    inside = (low <= own / clients + 1e-12) & (high >= own / clients - 1e-12)
    mean = sums @ chances[sums]
    return float(chances[sums] @ inside), sqrt((sums - mean) ** 2 @ chances[sums])


@pytest.mark.parametrize(("name", "domain", "epsilon", "clients"), GRID)
def test_intervals_of_shares_cover_94_to_97_per_cent(
    name: str, domain: int, epsilon: float, clients: int
) -> None:
    """For shares from 0 to 1, exact coverage is within the bounds, or of few reports above."""
    oracle = ALL_ORACLES[name](domain, epsilon)
    assert isinstance(oracle, PureOracle)
    for own in sorted({0, 1, clients // 50, clients // 7, clients // 2, clients}):
        found, deviation = coverage(oracle, clients, own)
        assert found >= LEAST
        assert found <= MOST or deviation < FEW


@pytest.mark.parametrize("name", PURE)
def test_an_estimate_has_the_interval_of_its_counts_and_confidence(name: str) -> None:
    """It has that of its counts at its confidence, around it; less confidence is narrower."""
    oracle, clients = ALL_ORACLES[name](4, 1.0), 400
    assert isinstance(oracle, PureOracle)
    p, q, shares = float(oracle.p), float(oracle.q), np.array([0.6, 0.3, 0.1, 0.0])
    counts = np.rint(clients * (q + (p - q) * shares)).astype(np.int64)
    narrow, wide = (oracle.estimate(counts, clients, confidence=each) for each in (0.9, 0.95))
    low, high = oracle._intervals(counts, clients, 0.9)  # noqa: SLF001  (see above)
    # a value may lie outside the possible shares, which bound the interval of counts
    assert narrow.low == pytest.approx(np.minimum(low, narrow.values))
    assert narrow.high == pytest.approx(np.maximum(high, narrow.values))
    assert (wide.high - wide.low).sum() > (narrow.high - narrow.low).sum()


@pytest.mark.parametrize(("epsilon", "clients"), [*product((0.1, 1.0, 4.0), (5, 40, 1000))])
def test_intervals_of_one_bit_cover_94_to_97_per_cent(epsilon: float, clients: int) -> None:
    """If all clients have the same number, the number of plus signs is binomial."""
    means = EachFeature(OneBit(epsilon), 1)
    for mean in (-1.0, -0.3, 0.0, 0.7):
        chance = (1 + mean * float(OneBit(epsilon).slope)) / 2
        chances = binom.pmf(np.arange(clients + 1), clients, chance)
        likely = np.flatnonzero(chances > 1e-9)
        found = [means.estimate(np.array([2 * plus - clients]), clients) for plus in likely]
        inside = np.array([each.low[0] <= mean <= each.high[0] for each in found])
        covered = float(chances[likely] @ inside)
        assert covered >= LEAST
        assert covered <= MOST or sqrt(clients * chance * (1 - chance)) < FEW


def sum_law(told: CodeDistribution, numbers: Sequence[float]) -> tuple[Floats, Floats]:
    """Return the means of the reports of clients, on a fine lattice, with their probabilities."""
    codes = np.arange(told.codes)
    step = told.influence / 1000
    places = np.rint(told.total(told.summed(codes)) / step).astype(np.int64)
    least, size = int(places.min()), int(np.ptp(places)) + 1
    room = next_fast_len(size * len(numbers), real=True)
    spectrum = np.ones(room // 2 + 1, dtype=np.complex128)
    for number, count in Counter(numbers).items():
        law = told.probability(codes, round(number * told.levels))
        spectrum *= np.fft.rfft(np.bincount(places - least, law, size), room) ** count
    law = np.maximum(np.fft.irfft(spectrum, room), 0.0)
    return (np.arange(room) + least * len(numbers)) * step / len(numbers), law


@pytest.mark.slow
@pytest.mark.parametrize("clients", [10, 16, 40, 120])
@pytest.mark.parametrize("told", [Hybrid(1.0), Hybrid(4.0), Laplace(2.5)], ids=words)
def test_intervals_of_means_cover_94_to_97_per_cent(told: CodeDistribution, clients: int) -> None:
    """They do for equal numbers of all clients, and for numbers that differ as much as any."""
    for numbers in ([0.0] * clients, [0.5] * clients, [1.0, -1.0] * (clients // 2)):
        at, law = sum_law(told, numbers)
        low, middle, high = np.interp((1e-3, 0.5, 1 - 1e-3), np.cumsum(law), at)
        above = ending(told, numbers, 1, low, middle)
        below = ending(told, numbers, 0, middle, high)
        assert LEAST <= law[(at >= above) & (at < below)].sum() <= MOST


def ending(
    told: CodeDistribution, numbers: Sequence[float], end: int, low: float, high: float
) -> float:
    """Return the mean of reports whose interval ends at that of the numbers, to a thousandth."""
    true = sum(numbers) / len(numbers)

    def beyond(value: float) -> float:
        return ends(told, len(numbers), value)[end] - true

    return float(brentq(beyond, low, high, xtol=(high - low) / 1000))


def ends(told: CodeDistribution, clients: int, value: float) -> tuple[float, float]:
    """Return the interval for a mean of reports."""
    unit = told.total(np.eye(told.parts, dtype=np.int64)[:1])[0]
    sums = np.zeros(told.parts, dtype=np.int64)
    sums[0] = round(value * clients / unit)
    found = EachFeature(told, 1).estimate(sums, clients)
    return float(found.low[0]), float(found.high[0])
