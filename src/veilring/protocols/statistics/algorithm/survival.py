"""Survival in groups: the curves of Kaplan and Meier, and the log-rank test.

Sources: Kaplan and Meier, "Nonparametric estimation from incomplete observations", JASA 53, 1958;
Greenwood's formula for the standard errors; Mantel, "Evaluation of survival data and two new rank
order statistics", 1966, for the test.
"""

from dataclasses import dataclass
from math import nan
from typing import Final

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats
from veilring.privacy.checks import require
from veilring.protocols.statistics.algorithm.columns import (
    Category,
    Factor,
    Grouping,
    Number,
    Steps,
)
from veilring.protocols.statistics.algorithm.tallies import Statistic, Totals, as_floats

_OUTCOMES: Final = 2  # censored, and the event


@dataclass(frozen=True)
class SurvivalResult:
    """The survival curve of each group, at each step of time, shape (groups, times).

    Attributes:
        times: The times, shape (times,).
        at_risk: The number of rows observed until that time or longer.
        events: The number of events at that time.
        survival: The estimated share without the event after that time; NaN in an empty group.
        errors: The standard error of the survival, by Greenwood's formula.
        log_rank: The statistic of the log-rank test between groups; NaN with one group.
        freedom: Its degrees of freedom: groups with rows, less one.
        p_value: The probability of at least this statistic if all groups have the same survival.
    """

    times: Floats
    at_risk: Floats
    events: Floats
    survival: Floats
    errors: Floats
    log_rank: float
    freedom: int
    p_value: float


@dataclass(frozen=True)
class KaplanMeier(Statistic[SurvivalResult]):
    """Survival curves on the public steps of a time, with the log-rank test between groups.

    Where a plan hides small counts, successive steps are merged until no count of any group is
    small. Events and ends of observation then count at the last step of their part. The curve is
    hidden if even all steps together have a small count.

    Attributes:
        time: The time until the event, or until the observation ended.
        event: Which of these ended the row's time: its first value is the end of the observation,
            and its second one the event.
        by: The groups, if there are several.
    """

    time: Number
    event: Category
    by: Grouping | None = None

    def __post_init__(self) -> None:
        allowed = "two: the end of the observation, then the event"
        require(len(self.event) == _OUTCOMES, "event", len(self.event), allowed)

    @property
    @override
    def factors(self) -> tuple[Factor, ...]:
        groups = () if self.by is None else (self.by,)
        return *groups, Steps.each(self.time), self.event

    @override
    def estimate(self, shown: Totals) -> SurvivalResult:
        counts = np.maximum(as_floats(shown[0]), 0.0).reshape(-1, self.time.steps + 1, _OUTCOMES)
        low = self.time.origin - self.time.middle * self.time.unit
        times = np.array([float(low + self.time.unit * step) for step in range(counts.shape[1])])
        at_risk = counts.sum(axis=2)[:, ::-1].cumsum(axis=1)[:, ::-1]
        events = counts[:, :, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            survival = np.cumprod(1 - np.where(at_risk > 0, events / at_risk, 0.0), axis=1)
            gaps = at_risk * (at_risk - events)
            growth = np.cumsum(np.where(gaps > 0, events / gaps, 0.0), axis=1)
        empty = np.isnan(at_risk[:, :1]) | (at_risk[:, :1] == 0)
        survival = np.where(empty, nan, survival)
        errors = survival * np.sqrt(growth)
        return SurvivalResult(times, at_risk, events, survival, errors, *_log_rank(at_risk, events))


def _log_rank(at_risk: Floats, events: Floats) -> tuple[float, int, float]:
    """Return the statistic, its degrees of freedom and its p-value, from shapes (groups, times)."""
    from scipy.special import chdtrc

    if np.isnan(at_risk).any():
        return nan, 0, nan
    there = at_risk[:, 0] > 0
    at_risk, events = at_risk[there], events[there]
    freedom = len(at_risk) - 1
    if freedom < 1:
        return nan, 0, nan
    all_events, all_rows = events.sum(axis=0), at_risk.sum(axis=0)
    some = all_rows > 0
    shares = at_risk[:, some] / all_rows[some]
    excess = (events[:, some] - shares * all_events[some]).sum(axis=1)
    left = all_rows[some] - all_events[some]
    weights = all_events[some] * left / np.maximum(all_rows[some] - 1, 1.0)
    covariance = np.diag((weights * shares).sum(axis=1)) - (weights * shares) @ shares.T
    # The last group's excess follows from those of the others.
    inner, others = covariance[:freedom, :freedom], excess[:freedom]
    found = float(others @ np.linalg.pinv(inner, hermitian=True) @ others)
    # Noise and rounding may make the statistic negative.
    return found, freedom, float(chdtrc(freedom, np.maximum(found, 0.0)))
