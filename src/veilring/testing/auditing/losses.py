"""Lower bounds on the privacy loss between two worlds, from the views of many runs.

An event is chosen on one half of the runs. On the other half, exact binomial bounds (Clopper and
Pearson 1934) on the event's probabilities in both worlds prove a lower bound on the protocol's
loss, except with the probability of a false alarm (Jagielski, Ullman and Oprea, NeurIPS 2020).

Views come from runs over messages, or are drawn by a system in one process with the same
steps. The second kind is faster, so that many more runs prove a larger part of the loss.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.tails import proportion_bounds
from veilring.randomness import Streams
from veilring.testing.hiding.attackers import Attacker, Likelihood, find_varied, learn_best
from veilring.testing.hiding.audit import PILOT_RUNS
from veilring.testing.hiding.features import Layout, Strip
from veilring.testing.hiding.places import Columns
from veilring.testing.hiding.twosample import POWER
from veilring.testing.hiding.worlds import World, play_world

_BOUNDS: Final = 2
"""A lower bound on one probability and an upper bound on the other share the false alarms."""
_THRESHOLDS: Final = 400
"""Quantiles of a score that may bound an event: more would hardly improve the bound."""
_RIDGE: Final = 1e-6
"""The part of the variance that is added so that collinear numbers have a discriminant."""
_STEPS: Final = 400
_STEP: Final = 0.05

Scores = NDArray[np.float64]
_Counts = NDArray[np.int64]
Statistic = Callable[[Columns], Scores]
"""A function from the coordinates of runs to one number each; events are its tails."""


@dataclass(frozen=True, slots=True)
class Event:
    """A set of views: those whose statistic is at least a threshold.

    Attributes:
        name: The statistic in a few words.
        statistic: The statistic.
        threshold: The threshold.
        likelier: The world in which the event is likelier, 0 or 1.
    """

    name: str
    statistic: Statistic
    threshold: float
    likelier: int

    def count(self, columns: Columns) -> int:
        """Return the number of runs in the event."""
        return int((self.statistic(columns) >= self.threshold).sum())


@dataclass(frozen=True, slots=True)
class Loss:
    """The privacy loss between two worlds that their views prove.

    Attributes:
        epsilon: The proven loss, at least 0.
        likely: The share of held-out runs in the event, in the world where it is likelier.
        rare: The share in the other world.
        held_out: The number of held-out runs of each world.
        event: The event in a few words.
        alarm: The maximum probability that the bound is above the true loss.
        delta: The δ of the claim.
        left_out: The number of coordinates of the views that were not examined.
    """

    epsilon: float
    likely: float
    rare: float
    held_out: int
    event: str
    alarm: float
    delta: float
    left_out: int = 0

    def least_violation(self, claimed: float) -> float:
        """Return the least loss that contradicts a claim with probability `POWER`.

        It is that of a protocol with randomised response in its views.
        """
        return least_violation(claimed, self.delta, self.held_out, self.alarm)

    def rarest(self, claimed: float) -> float:
        """Return the least probability of an event that contradicts a claim with `POWER`.

        The event is impossible in the other world.
        """
        counts = np.arange(self.held_out + 1)
        bounds = _bound(counts, np.zeros_like(counts), self.held_out, self.delta, self.alarm)
        enough = counts[bounds > claimed]
        if not len(enough):
            return math.inf
        least = proportion_bounds(enough[:1] - 1, self.held_out, 1 - POWER)
        return float(least.high[0])


def measure_loss(
    one: World, other: World, *, runs: int, delta: float, alarm: float, seed: int, strip: Strip
) -> Loss:
    """Play two worlds, and prove a privacy loss between them.

    Args:
        one: The first world.
        other: The other one, with the same parties, coalition and public arguments.
        runs: The number of runs of both worlds together, a multiple of 4.
        delta: The δ of the claim.
        alarm: The maximum probability that the bound is above the true loss.
        seed: The seed of all randomness.
        strip: A function that computes more from the members' views.
    """
    streams, worlds = Streams(seed), (one, other)
    pilots = [
        [*play_world(world, PILOT_RUNS, streams, f"pilot {number}")]
        for number, world in enumerate(worlds)
    ]
    layout = Layout([*chain(*pilots)], strip, with_draws=True)
    seen = layout.of_views(one.coalition)
    named = [str(each) for each, is_seen in zip(layout.coordinates, seen, strict=True) if is_seen]
    each = runs // 2
    views = [
        layout.read(play_world(world, each, streams, f"world {number}"))[:, seen]
        for number, world in enumerate(worlds)
    ]

    def learn(columns: Columns, labels: NDArray[np.int64]) -> Iterator[tuple[str, Statistic]]:
        learner = learn_best(columns, labels, int(streams.generator("learning").integers(1 << 31)))
        yield f"a guess of {learner.name}", _guesses(learner.attacker)
        yield from _likelihoods(columns, labels, named)

    return replace(prove_loss(views, learn, delta=delta, alarm=alarm), left_out=layout.left_out)


def measure_drawn_loss(
    one: NDArray[Any], other: NDArray[Any], *, delta: float, alarm: float
) -> Loss:
    """Prove a privacy loss from views that a system has drawn in one process.

    Args:
        one: The views of the first world, shape (runs, numbers).
        other: The same number of views of the other world.
        delta: The δ of the claim.
        alarm: The maximum probability that the bound is above the true loss.
    """
    named = [f"number {place}" for place in range(one.shape[1])]

    def learn(columns: Columns, labels: NDArray[np.int64]) -> Iterator[tuple[str, Statistic]]:
        yield from _likelihoods(columns, labels, named)
        yield "a linear discriminant", _discriminant(columns, labels)

    return prove_loss([one, other], learn, delta=delta, alarm=alarm)


def prove_loss(
    views: list[NDArray[Any]],
    learn: Callable[[Columns, NDArray[np.int64]], Iterator[tuple[str, Statistic]]],
    *,
    delta: float,
    alarm: float,
) -> Loss:
    """Choose an event on one half of the runs, and prove a loss with it on the other half.

    Args:
        views: The coordinates of the runs of each world, both of shape (runs, coordinates).
        learn: A function that yields statistics with their names, given runs and their worlds.
        delta: The δ of the claim.
        alarm: The maximum probability that the bound is above the true loss.
    """
    half = len(views[0]) // 2
    held_out = len(views[0]) - half
    learned, chosen = ([world[: half // 2], world[half // 2 : half]] for world in views), []
    fitted, tried = zip(*learned, strict=True)
    labels = np.repeat([0, 1], half // 2)
    bound = partial(_bound, runs=held_out, delta=delta, alarm=alarm)
    for name, statistic in learn(np.concatenate(fitted), labels):
        scores = [statistic(world) for world in tried]
        chosen.append(_best_event(name, statistic, scores, bound, held_out))
    _, event = max(chosen, key=lambda found: found[0])
    counts = np.array([event.count(world[half:]) for world in views])
    likely, rare = counts[[event.likelier, 1 - event.likelier]]
    proved = float(bound(np.array([likely]), np.array([rare]))[0])
    return Loss(
        epsilon=max(0.0, proved),
        likely=likely / held_out,
        rare=rare / held_out,
        held_out=held_out,
        event=event.name,
        alarm=alarm,
        delta=delta,
    )


def least_violation(claimed: float, delta: float, held_out: int, alarm: float) -> float:
    """Return the least loss of randomised response that contradicts a claim in 95 % of audits.

    Args:
        delta: Its δ.
        held_out: The number of held-out runs of each world.
        alarm: The maximum probability that a bound is above the true loss.

    Returns:
        The loss; infinite if this number of runs cannot contradict any loss.
    """
    from scipy.stats import binom

    for step in range(1, _STEPS):
        loss = claimed + step * _STEP
        likely = 1 / (1 + math.exp(-loss))
        hits = int(binom.ppf((1 - POWER) / 2, held_out, likely))
        if _bound(np.array([hits]), np.array([held_out - hits]), held_out, delta, alarm) > claimed:
            return loss
    return math.inf


def _bound(likely: _Counts, rare: _Counts, runs: int, delta: float, alarm: float) -> Scores:
    """Return the loss that counts of events in two worlds prove; below 0 if they prove nothing."""
    low = proportion_bounds(likely, runs, alarm / _BOUNDS).low - delta
    high = proportion_bounds(rare, runs, alarm / _BOUNDS).high
    return np.log(np.maximum(low, np.finfo(float).tiny)) - np.log(high)


def _best_event(
    name: str,
    statistic: Statistic,
    scores: list[Scores],
    bound: Callable[[_Counts, _Counts], Scores],
    held_out: int,
) -> tuple[float, Event]:
    """Return the tail of a statistic that is expected to prove the largest loss, and that loss."""
    best, found = -math.inf, Event(name, statistic, -math.inf, 0)
    for sign in (1.0, -1.0):
        signed = [sign * each for each in scores]
        ordered = np.unique(np.concatenate(signed))
        places = np.linspace(0, len(ordered) - 1, min(len(ordered), _THRESHOLDS)).round()
        thresholds = ordered[places.astype(np.int64)]
        shares = [1 - np.searchsorted(np.sort(each), thresholds) / len(each) for each in signed]
        counts = [np.round(share * held_out).astype(np.int64) for share in shares]
        for likelier in (0, 1):
            bounds = bound(counts[likelier], counts[1 - likelier])
            at = int(bounds.argmax())
            if bounds[at] > best:
                best = float(bounds[at])
                tail = _signed(statistic, sign)
                found = Event(name, tail, float(thresholds[at]), likelier)
    return best, found


def _signed(statistic: Statistic, sign: float) -> Statistic:
    return lambda columns: sign * statistic(columns)


def _likelihoods(
    columns: Columns, labels: NDArray[np.int64], named: list[str]
) -> Iterator[tuple[str, Statistic]]:
    single, several = Likelihood(columns, labels, factors=1), Likelihood(columns, labels)
    place = single.most_informative
    yield "no number varies" if place is None else named[place], _ratio(single)
    yield "the likelihood of several numbers", _ratio(several)


def _guesses(attacker: Attacker) -> Statistic:
    return lambda columns: attacker.guess(columns).astype(np.float64)


def _ratio(learned: Likelihood) -> Statistic:
    def statistic(columns: Columns) -> Scores:
        log = learned.log_likelihoods(columns)
        return np.asarray(log[:, 1] - log[:, 0])

    return statistic


def _discriminant(columns: Columns, labels: NDArray[np.int64]) -> Statistic:
    """Return Fisher's linear discriminant: for two Gaussians of one covariance it is optimal."""
    varied = find_varied(columns)
    filled = np.nan_to_num(columns[:, varied].astype(np.float64), nan=-1.0)
    means = [filled[labels == label].mean(axis=0) for label in (0, 1)]
    centred = filled - np.array(means)[labels]
    spread = centred.T @ centred / len(filled)
    spread[np.diag_indices_from(spread)] *= 1 + _RIDGE
    spread[np.diag_indices_from(spread)] += _RIDGE
    weights = np.linalg.solve(spread, means[1] - means[0])
    return lambda given: np.nan_to_num(given[:, varied].astype(np.float64), nan=-1.0) @ weights
