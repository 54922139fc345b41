"""Artificial lines for testing the recommendation rule."""

import numpy as np

from veilring.protocols.promise import Estimate, Leakage, Promise
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios.comparison import Line
from veilring.scenarios.comparison.comparison import MAJORITY, POOLED, Played
from veilring.scenarios.intervals import over_splits

SPREAD, SPLITS, QUERIES, TRAIN = 0.02, 20, 50, 150
PRIVACY = Promise("rows", "others", "nobody", "one row", 1.0, 0.0, "batch", "pure ε-DP")


def _leaking(leak: float) -> Leakage:
    estimate = Estimate(leak, 0.01 if leak else 0.0)
    return Leakage(100, dict.fromkeys(PrivateKNN.measures, estimate))


def baselines(pooled: float = 0.95, majority: float = 0.4) -> list[Line]:
    """Return the two baselines of the systems."""
    best = line(POOLED, pooled, pooled=pooled, majority=majority, private=False)
    return [best, line(MAJORITY, majority, pooled=pooled, majority=majority, private=False)]


def line(  # noqa: PLR0913  (the settings of a line)
    system: str,
    accuracy: float,
    *,
    epsilon: float | None = None,
    trusted: bool = False,
    leak: float | None = None,
    size: int = 1000,
    pooled: float = 0.95,
    majority: float = 0.4,
    private: bool = True,
    form: str = "",
    lasting: bool = False,
    spread: float = SPREAD,
    splits: int = SPLITS,
) -> Line:
    """Return a line whose accuracies alternate around a mean from one split to the next."""
    signs = np.resize([-1.0, 1.0], splits) if spread else np.zeros(splits)
    own = accuracy + spread * signs
    losses, gains = pooled - own, own - majority
    overlap = QUERIES / TRAIN
    return Line(
        system=system,
        name=f"{system.upper()}, {form}" if form else system.upper(),
        form=form,
        epsilon=epsilon,
        queries=QUERIES,
        overlap=overlap,
        accuracies=tuple(own.tolist()),
        losses=tuple(losses.tolist()),
        gains=tuple(gains.tolist()),
        accuracy=over_splits(own.tolist(), overlap),
        loss=over_splits(losses.tolist(), overlap),
        gain=over_splits(gains.tolist(), overlap),
        trusted=trusted,
        trust="whom it may concern",
        guarantee="what it may be",
        lasting=lasting,
        privacy=PRIVACY if private else None,
        leakage=None if leak is None else _leaking(leak),
        cost=Played(1, 1, size, 0, 0, 0.1, 0.1) if private else None,
    )
