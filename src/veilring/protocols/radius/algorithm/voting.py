"""One label from the counts of a ball: the mechanisms, and their exact laws (Algorithms 1 and 2).

The labels of rows are disjoint, so a row changes one count by one: the budget of a query serves
all its labels. Adding a row moves no count down, so that neither permute-and-flip nor the
exponential mechanism needs the factor of 2 that the paper has.
"""

from fractions import Fraction
from math import ceil
from typing import Final, Literal, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.privacy.laplace import discrete_laplace, discrete_laplace_pmf
from veilring.privacy.selection import (
    exponential_mechanism,
    exponential_probabilities,
    permute_and_flip,
    permute_and_flip_probabilities,
)

Mechanism = Literal["permute-and-flip", "exponential", "laplace"]
"""How a label is chosen: permute-and-flip, the default; the exponential mechanism (Algorithm 2, at
twice its rate for the same budget); or the greatest count plus discrete Laplace noise (Algorithm 1,
whose Laplace noise on floats would give counts away in its low bits)."""

# Discrete Laplace noise of scale s is beyond so many s with probability below 1e-19.
_TAIL: Final = 44


def vote(
    counts: NDArray[np.int64], epsilons: NDArray[np.float64], mechanism: Mechanism, rng: Generator
) -> NDArray[np.int64]:
    """Release the label of each query, shape (Q,), query i under `epsilons[i]`.

    Args:
        counts: Shape (Q, classes), secret.
        epsilons: Shape (Q,), above 0.
        mechanism: Which.
        rng: Secret.

    Raises:
        InputError: If `mechanism` is unknown, or as the mechanisms do.
    """
    require(mechanism in get_args(Mechanism), "mechanism", mechanism, _names())
    if mechanism == "permute-and-flip":
        return permute_and_flip(counts, epsilons, rng, monotone=True)
    if mechanism == "exponential":
        return exponential_mechanism(counts, epsilons, rng, monotone=True)
    noisy = counts.copy()
    for epsilon in np.unique(epsilons):
        those = np.flatnonzero(epsilons == epsilon)
        noisy[those] += discrete_laplace(_scale(epsilon), (len(those), counts.shape[1]), rng)
    return np.asarray(noisy.argmax(axis=1), dtype=np.int64)


def label_law(
    counts: NDArray[np.int64], epsilons: NDArray[np.float64], mechanism: Mechanism
) -> NDArray[np.float64]:
    """Return with which probability `vote` releases each label, shape (Q, classes).

    Args:
        counts: Shape (Q, classes).
        epsilons: Shape (Q,), above 0.
        mechanism: Which.

    Raises:
        InputError: As `vote`.
    """
    require(mechanism in get_args(Mechanism), "mechanism", mechanism, _names())
    if mechanism == "permute-and-flip":
        return permute_and_flip_probabilities(counts, epsilons, monotone=True)
    if mechanism == "exponential":
        return exponential_probabilities(counts, epsilons, monotone=True)
    laws = [_laplace_law(own, eps) for own, eps in zip(counts, epsilons, strict=True)]
    return np.array(laws).reshape(counts.shape)


def _laplace_law(counts: NDArray[np.int64], epsilon: float) -> NDArray[np.float64]:
    """Sum over what the winner's noisy count is; ties go to the lowest label."""
    beyond = ceil(_TAIL * float(_scale(epsilon)))
    values = np.arange(counts.min() - beyond, counts.max() + beyond + 1)
    mass = discrete_laplace_pmf(values - counts[:, None], _scale(epsilon))
    at_most = np.cumsum(mass, axis=1)
    law = np.empty(len(counts))
    for label in range(len(counts)):
        lower = (at_most - mass)[:label].prod(axis=0)
        higher = at_most[label + 1 :].prod(axis=0)
        law[label] = (mass[label] * lower * higher).sum()
    return law


def _scale(epsilon: float) -> Fraction:
    return 1 / Fraction(float(epsilon))


def _names() -> str:
    return ", ".join(get_args(Mechanism))
