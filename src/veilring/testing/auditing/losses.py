"""A lower bound of the privacy loss between two worlds, from the views of many runs.

An event is chosen on one half of the runs: a classifier learns from the views, and the coordinate
that tells most on its own is found. On the other half, exact binomial bounds (Clopper and Pearson
1934) on the event's probabilities in both worlds prove a loss that the protocol has at least,
except with the probability of a false alarm (Jagielski, Ullman and Oprea, NeurIPS 2020).
"""

import math
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.audits import audited_epsilon_of_scores
from veilring.randomness import Streams
from veilring.testing.hiding.attackers import find_varied, learn_best
from veilring.testing.hiding.audit import PILOT_RUNS
from veilring.testing.hiding.features import Layout, Strip
from veilring.testing.hiding.places import Columns, Coordinate
from veilring.testing.hiding.twosample import POWER, Bins, choose_bins, cut_bins
from veilring.testing.hiding.worlds import World, play_world

_READ_AT_ONCE: Final = 1_000
_SCORE_MAX: Final = 2  # an event of the classifier, and one of a single coordinate
_STEPS: Final = 400
_STEP: Final = 0.05


@dataclass(frozen=True, slots=True)
class Loss:
    """What the views of two worlds prove of the privacy loss between them.

    Attributes:
        epsilon: The loss that is proved, at least 0.
        share_one: The share of held-out runs of the first world in the event.
        share_other: The share of those of the other world.
        held_out: The number of held-out runs of each world.
        attacker: The kind of the classifier.
        coordinate: The coordinate that tells most on its own, if any varies.
        alarm: The probability that the bound is above the true loss, at most.
        delta: The delta of the claim.
    """

    epsilon: float
    share_one: float
    share_other: float
    held_out: int
    attacker: str
    coordinate: Coordinate | None
    alarm: float
    delta: float

    def least_violation(self, claimed: float) -> float:
        """Return the least loss that contradicts a claim with probability `POWER`.

        It is that of a protocol with randomised response in its views.
        """
        return least_violation(claimed, self.delta, self.held_out, self.alarm)


def measure_loss(
    one: World, other: World, *, runs: int, delta: float, alarm: float, seed: int, strip: Strip
) -> Loss:
    """Play two worlds, and prove a privacy loss between them.

    Args:
        one: The first world.
        other: The other one, with the same parties, coalition and public arguments.
        runs: The number of runs of both worlds together, a multiple of 4.
        delta: The delta of the claim.
        alarm: The probability that the bound is above the true loss, at most.
        seed: The seed of all randomness.
        strip: Computes more of the members' views.
    """
    streams, worlds = Streams(seed), (one, other)
    pilots = [
        [*play_world(world, PILOT_RUNS, streams, f"pilot {number}")]
        for number, world in enumerate(worlds)
    ]
    layout = Layout([*chain(*pilots)], strip)
    seen = layout.of_views(one.coalition)
    each = runs // 2
    columns = [
        _read(layout, world, each, streams, f"world {number}")[:, seen]
        for number, world in enumerate(worlds)
    ]
    half = each // 2
    learned = np.concatenate([table[:half] for table in columns])
    told = np.repeat([0, 1], half)
    learner = learn_best(learned, told, int(streams.generator("learning").integers(1 << 31)))
    at, event = _best_coordinate(learned, told == 1)
    # Each score counts how many of two events hold: any function that is chosen on other runs may.
    scores = [
        (learner.attacker.guess(table[half:]) == 1).astype(np.int64) + event(table[half:])
        for table in columns
    ]
    proved = audited_epsilon_of_scores(scores[1], scores[0], _SCORE_MAX, delta, alarm)
    share_one, share_other = (float((score >= 1).mean()) for score in scores)
    place = None if at is None else layout.coordinates[int(np.flatnonzero(seen)[at])]
    return Loss(
        epsilon=proved,
        share_one=share_one,
        share_other=share_other,
        held_out=each - half,
        attacker=learner.name,
        coordinate=place,
        alarm=alarm,
        delta=delta,
    )


def least_violation(claimed: float, delta: float, held_out: int, alarm: float) -> float:
    """Return the least loss of randomised response that contradicts a claim with 95 %.

    Args:
        claimed: The epsilon of the claim.
        delta: Its delta.
        held_out: The number of held-out runs of each world.
        alarm: The probability that a bound is above the true loss, at most.

    Returns:
        The loss; infinite if so few runs contradict no loss at all.
    """
    from scipy.stats import binom

    for step in range(1, _STEPS):
        loss = claimed + step * _STEP
        likely = 1 / (1 + math.exp(-loss))
        hits = int(binom.ppf((1 - POWER) / 2, held_out, likely))
        one, other = (_scored(count, held_out) for count in (hits, held_out - hits))
        if audited_epsilon_of_scores(one, other, _SCORE_MAX, delta, alarm) > claimed:
            return loss
    return math.inf


def _scored(hits: int, runs: int) -> NDArray[np.int64]:
    return np.where(np.arange(runs) < hits, _SCORE_MAX, 0)


def _read(layout: Layout, world: World, runs: int, streams: Streams, name: str) -> Columns:
    played, parts = play_world(world, runs, streams, name), []
    while chunk := list(islice(played, _READ_AT_ONCE)):
        parts.append(layout.read(chunk))
    return np.concatenate(parts)


def _best_coordinate(columns: Columns, second: NDArray[np.bool_]) -> "tuple[int | None, _Event]":
    """Return the coordinate whose best set of bins tells most, and that set as an event."""
    best: int | None = None
    most, event = -1.0, _Event(0, Bins(np.array([])), np.array([False]))
    for at in map(int, np.flatnonzero(find_varied(columns))):
        bins = cut_bins(columns[:, at])
        placed = bins.place(columns[:, at])
        chosen = choose_bins(placed, second, bins.number)
        inside = chosen[placed]
        gap = float(inside[second].mean() - inside[~second].mean())
        if gap > most:
            best, most, event = at, gap, _Event(at, bins, chosen)
    return best, event


@dataclass(frozen=True, slots=True, eq=False)
class _Event:
    """Whether a coordinate lies in a set of bins."""

    at: int
    bins: Bins
    chosen: NDArray[np.bool_]

    def __call__(self, columns: Columns) -> NDArray[np.int64]:
        return self.chosen[self.bins.place(columns[:, self.at])].astype(np.int64)
