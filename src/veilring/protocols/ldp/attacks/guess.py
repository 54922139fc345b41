"""An adversary who sees one report and guesses the client's value as well as can be.

With a uniform prior over d values, no guess from a report of loss epsilon is right with probability
above `e^epsilon / (e^epsilon + d - 1)`: each other value is at least `e^-epsilon` times as likely.
"""

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.means import Law
from veilring.protocols.ldp.algorithm.means.law import Codes, rounded
from veilring.protocols.ldp.algorithm.oracles import FrequencyOracle
from veilring.protocols.ldp.attacks.single import single_sums


@dataclass(frozen=True, slots=True)
class Guesses:
    """How often a guess was right.

    Attributes:
        right: Of the trials.
        trials: How many clients were guessed at.
        values: How many values were equally likely before the report came.
        exact_epsilon: What the report spent.
    """

    right: int
    trials: int
    values: int
    exact_epsilon: float

    @property
    def success(self) -> float:
        """The share that was right."""
        return self.right / self.trials

    @property
    def blind(self) -> float:
        """The success of a guess without the report."""
        return 1 / self.values

    @property
    def bound(self) -> float:
        """The greatest success that the loss allows."""
        return 1 / (1 + (self.values - 1) * exp(-self.exact_epsilon))


def attack_oracle(oracle: FrequencyOracle, trials: int, rng: Generator) -> Guesses:
    """Guess clients' values, uniform over the domain, from one report each.

    The guess is the most likely value, which is one that the report supports most: all values that
    a pure oracle's report supports are equally likely, and more so than others. For summed
    histograms it is the largest number. Ties are broken at random.

    Args:
        oracle: What the clients use.
        trials: How many clients there are, at least 1.
        rng: Source of the values, the reports and the ties.

    Raises:
        InputError: If there is no trial.
    """
    _require_trials(trials)
    values = rng.integers(oracle.domain, size=trials)
    support = single_sums(oracle, oracle.perturb(values, rng))
    guesses = _best(support.astype(np.float64), rng)
    right = int((guesses == values).sum())
    return Guesses(right, trials, oracle.domain, oracle.exact_epsilon)


def attack_law(law: Law, candidates: NDArray[np.float64], trials: int, rng: Generator) -> Guesses:
    """Guess clients' numbers, uniform over some candidates, from one code each.

    Args:
        law: What the clients use.
        candidates: Different numbers in [-1, 1], at least two, shape (values,).
        trials: How many clients there are, at least 1.
        rng: Source of the values, the codes and the ties.

    Raises:
        InputError: If there is no trial, or the candidates are not such numbers.
    """
    _require_trials(trials)
    inside = candidates.ndim == 1 and bool((np.abs(candidates) <= 1).all())
    if not inside or not 2 <= candidates.size == np.unique(candidates).size:  # noqa: PLR2004  (one needs no guess)
        given = f"{candidates.size} of shape {candidates.shape}"
        raise InputError("candidates", given, "two different numbers from -1 to 1, or more")
    places = rng.integers(len(candidates), size=trials)
    codes = law.sample(rounded(candidates[places], law.levels, rng), rng)
    guesses = _best(likelihoods(law, codes, candidates), rng)
    right = int((guesses == places).sum())
    return Guesses(right, trials, len(candidates), law.exact_epsilon)


def likelihoods(law: Law, codes: Codes, candidates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of each code for each number, shape (codes, candidates).

    A number between two points of the grid is rounded to either, so that its law is their mixture.
    """
    found = np.empty((len(codes), len(candidates)))
    for column, number in enumerate(candidates.tolist()):
        below = int(np.floor(number * law.levels))
        part = number * law.levels - below
        found[:, column] = (1 - part) * law.probability(codes, below)
        if part:
            found[:, column] += part * law.probability(codes, below + 1)
    return found


def _best(scores: NDArray[np.float64], rng: Generator) -> NDArray[np.int64]:
    """Return the place of the greatest score in each row, a random one of several."""
    highest = scores.max(axis=1, keepdims=True)
    # Scores that differ only by rounding are equal.
    is_best = scores >= highest - 1e-12 * np.abs(highest)
    return np.asarray((is_best * rng.random(scores.shape)).argmax(axis=1), dtype=np.int64)


def _require_trials(trials: int) -> None:
    if trials < 1:
        raise InputError("trials", trials, "an integer of at least 1")
