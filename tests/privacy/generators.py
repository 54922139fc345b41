"""Both generators for mechanisms, and the test that compares draws with a distribution."""

from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy import stats

from veilring.arrays import Floats
from veilring.randomness import Streams

# A test of ours fails by chance this often at most.
FALSE_ALARM = 1e-6
# Pearson's statistic is treated as chi-square distributed only if each bin expects this number.
LEAST_EXPECTED = 50.0


def seeded(*name: str | int) -> np.random.Generator:
    """Return PCG64-DXSM, the generator of simulations."""
    return Streams(20_07).generator(*name)


def cryptographic(key: int = 1) -> np.random.Generator:
    """Return ChaCha20, the generator of deployments, with a known key."""
    return np.random.Generator(ChaCha(key=key, rounds=20))


def pretended(**methods: Callable[..., object]) -> np.random.Generator:
    """Return a generator of which only some methods exist."""
    return cast("np.random.Generator", SimpleNamespace(**methods))


def scripted(*calls: NDArray[np.integer]) -> np.random.Generator:
    """Return a generator of the given whole numbers, one array per call, for any request."""
    given = iter(calls)
    return pretended(integers=lambda *_, **__: next(given))


def spelling(x: Fraction) -> np.random.Generator:
    """Return a generator of the bits of `x` in [0, 1): first 53 as a float, then 32 per call."""
    rest = x

    def following(bits: int) -> int:
        nonlocal rest
        whole, rest = divmod(rest * (1 << bits), 1)
        return whole

    return pretended(
        random=lambda size: np.full(size, following(53) / 2**53), integers=lambda *_: following(32)
    )


GENERATORS: dict[str, Callable[[], np.random.Generator]] = {
    "PCG64DXSM": seeded,
    "ChaCha20": cryptographic,
}


def follows(counts: NDArray[np.integer], pmf: Floats, tests: int = 1) -> bool:
    """Return whether counts agree with a distribution, by a G-test that merges small bins.

    Args:
        counts: The number of times that each outcome was drawn.
        pmf: The probability of each outcome.
        tests: The number of such tests that share the false-alarm rate.
    """
    expected = np.asarray(pmf, dtype=np.float64) * counts.sum()
    large = expected >= LEAST_EXPECTED
    observed = np.append(counts[large], counts[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum() + counts.sum() * (1 - sum(pmf)))
    if wanted[-1] < LEAST_EXPECTED:  # too little to stand alone
        smallest = int(wanted[:-1].argmin())
        observed[smallest] += observed[-1]
        wanted[smallest] += wanted[-1]
        observed, wanted = observed[:-1], wanted[:-1]
    if len(observed) == 1:
        return True
    result = stats.power_divergence(
        observed, wanted * observed.sum() / wanted.sum(), lambda_="log-likelihood"
    )
    return bool(result.pvalue > FALSE_ALARM / tests)
