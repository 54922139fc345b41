"""Tables of several parties that Hypothesis makes, and the pooled rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilring.protocols.statistics.algorithm.columns import Bins, Category, Number
from veilring.protocols.statistics.algorithm.counts import CrossTable, Histogram
from veilring.protocols.statistics.algorithm.moments import (
    Correlation,
    Count,
    GroupMeans,
    LeastSquares,
    Mean,
    Sum,
    Variance,
)
from veilring.protocols.statistics.algorithm.quantiles import Quantiles
from veilring.protocols.statistics.algorithm.survival import KaplanMeier
from veilring.protocols.statistics.algorithm.tallies import Statistic
from veilring.protocols.statistics.plan import Heard, Plan

Part = Mapping[str, NDArray[Any]]

AGE: Final = Number("age", 0, 120)
WEIGHT: Final = Number("weight", -1.5, 30, 0.25)
DAYS: Final = Number("days", 0, 12)
SEX: Final = Category("sex", ("f", "m"))
SITE: Final = Category("site", ("north", "east", "south", "west"))
DIED: Final = Category("died", ("0", "1"))
AGES: Final = Bins(AGE, (0, 18, 40, 65, 120))
SHARES: Final = (0.0, 0.25, 0.5, 0.875, 1.0)
ALL: Final[tuple[Statistic[Any], ...]] = (
    Count(),
    Sum(WEIGHT),
    Mean(AGE),
    Variance(WEIGHT),
    Histogram(AGES),
    CrossTable(SEX, SITE),
    Correlation((AGE, WEIGHT, DAYS)),
    GroupMeans(AGE, SITE),
    LeastSquares(WEIGHT, (AGE, DAYS)),
    KaplanMeier(DAYS, DIED, SITE),
    Quantiles(WEIGHT, SHARES, thresholds=8),
)


def draw_part(rows: int, rng: np.random.Generator) -> Part:
    """Return a party's table; few different ages and sites, so that ties and gaps occur."""
    ages = rng.choice([0, 17, 18, 39, 40, 64, 65, 90, 120], rows)
    return {
        "age": ages,
        "weight": -1.5 + 0.25 * rng.integers(0, 127, rows) * (ages > 0),
        "days": rng.integers(0, 13, rows),
        "sex": rng.choice(["f", "m"], rows),
        "site": rng.choice(list(SITE.values[: rng.integers(1, 5)]), rows),
        "died": rng.integers(0, 2, rows) == 1,
    }


@st.composite
def parts(draw: st.DrawFn, parties: int = 3, rows_max: int = 25) -> list[Part]:
    """Draw the tables of some parties; some may have no rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.integers(0, rows_max), min_size=parties, max_size=parties))
    return [draw_part(size, rng) for size in sizes]


def pooled(tables: Sequence[Part]) -> dict[str, NDArray[Any]]:
    """Return the rows of all parties in one table."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def hear(plan: Plan, tables: Sequence[Part], seed: int = 0) -> Heard:
    """Return the totals of a plan, added up in this process."""
    rngs = np.random.default_rng(seed).spawn(len(tables))
    heard: Heard = ((),) * len(plan.statistics)
    for _ in range(plan.rounds):
        pairs = zip(tables, rngs, strict=True)
        own = [plan.tally(plan.encode(table), heard, rng) for table, rng in pairs]
        heard = plan.read(np.sum(own, axis=0), heard)
    return heard


def compute(plan: Plan, tables: Sequence[Part], seed: int = 0) -> tuple[Any, ...]:
    """Return the results of a plan, computed in this process by the parties' own steps."""
    return plan.estimate(plan.publish(hear(plan, tables, seed)))
