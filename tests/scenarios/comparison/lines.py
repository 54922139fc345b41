"""Lines that nobody measured, to try the rule of choice on."""

from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import Estimate, Leakage, Promise
from veilring.scenarios.comparison import Line
from veilring.scenarios.comparison.comparison import MAJORITY, POOLED, Played
from veilring.scenarios.intervals import Interval

HALF_WIDTH = 0.03
PRIVACY = Promise("rows", "others", "nobody", "one row", 1.0, 0.0, "batch", "pure ε-DP")


def _leaking(leak: float) -> Leakage:
    estimate = Estimate(leak, 0.01 if leak else 0.0)
    return Leakage(100, dict.fromkeys(PrivateKNN.measures, estimate))


def baselines(pooled: float = 0.95, majority: float = 0.4) -> list[Line]:
    """Return the two that the systems are held against."""
    best = line(POOLED, pooled, pooled=pooled, majority=majority, private=False)
    return [best, line(MAJORITY, majority, pooled=pooled, majority=majority, private=False)]


def line(  # noqa: PLR0913  (what a line may differ in)
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
) -> Line:
    """Return a line whose intervals reach 3 points to either side."""
    return Line(
        system=system,
        name=system.upper(),
        epsilon=epsilon,
        accuracies=(accuracy, accuracy),
        accuracy=_about(accuracy),
        loss=_about(pooled - accuracy),
        gain=_about(accuracy - majority),
        trusted=trusted,
        trust="whom it may concern",
        guarantee="what it may be",
        privacy=PRIVACY if private else None,
        leakage=None if leak is None else _leaking(leak),
        cost=Played(1, 1, size, 0, 0, 0.1, 0.1) if private else None,
    )


def _about(mean: float) -> Interval:
    return Interval(mean, mean - HALF_WIDTH, mean + HALF_WIDTH)
