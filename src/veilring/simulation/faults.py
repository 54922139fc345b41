"""Faults of the simulation, and schedules of them drawn from a seed.

A schedule first draws the rate of each class of fault and then the faults, so some seeds have none
of a class and others have many: this finds more bugs than a few of each class would.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from numpy.random import Generator

from veilring.simulation.links import Condition, NetworkConditions
from veilring.transport.connection import UNACKNOWLEDGED_SECONDS

FaultClass = Literal[
    "stall",
    "delay",
    "jitter",
    "squeeze",
    "halves",
    "isolation",
    "one-way",
    "reset",
    "half-open",
    "crash",
    "restart",
    "amnesia",
    "pause",
    "slow",
    "skew",
]
"""The kinds of faults. After `restart` a party returns with its data, after `amnesia` without."""

FAULT_CLASSES: Final[tuple[FaultClass, ...]] = get_args(FaultClass)

# When one end of a half-open connection notices: TCP's keepalive as set by the TLS transport.
KEEPALIVE_SECONDS: Final = float(UNACKNOWLEDGED_SECONDS)

_RATE_MEAN: Final = 1.5  # faults per schedule, of each class that occurs at all
_DURATION_MEAN_SECONDS: Final = 3.0
_BACK_MIN_SECONDS: Final = 1.0  # until it returns, so that its peers have heard of its loss
_EXTRA_MAX_SECONDS: Final = 2.0
_JITTERS: Final = 20  # pieces of a fault of jitter, each with its own delay
_SLOWDOWN_MAX: Final = 1000.0
_SKEW_MAX: Final = 4.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: The class of the fault.
        start: The start, in simulated seconds.
        end: The end; a crash has none.
        parties: The affected parties: one party; both ends of a connection, starting with the one
            that notices first; or one side of a partition.
        strength: Extra seconds, the slowdown factor, or the factor by which a skewed clock waits
            longer; 0 for other kinds.
    """

    kind: FaultClass
    start: float
    end: float
    parties: tuple[str, ...]
    strength: float = 0.0


def draw_faults(parties: Sequence[str], seconds: float, rng: Generator) -> tuple[Fault, ...]:
    """Draw a schedule of faults, all of which start and end within the first `seconds`.

    At most one party crashes for good, so that the others are still enough for a ring.

    Args:
        parties: The parties, at least two.
    """
    faults: list[Fault] = []
    for kind in FAULT_CLASSES:
        strikes = rng.random() < 0.5  # noqa: PLR2004  (half of all classes, in every schedule)
        rate = rng.exponential(_RATE_MEAN) if strikes else 0.0
        count = int(rng.poisson(rate))
        count = min(count, 1) if kind == "crash" else count
        faults += [_draw(kind, parties, seconds, rng) for _ in range(count)]
    return tuple(sorted(faults, key=lambda fault: (fault.start, fault.kind, fault.parties)))


def _draw(kind: FaultClass, parties: Sequence[str], seconds: float, rng: Generator) -> Fault:
    start = float(rng.uniform(0.0, 0.7 * seconds))
    end = min(seconds, start + _BACK_MIN_SECONDS + float(rng.exponential(_DURATION_MEAN_SECONDS)))
    order = [parties[position] for position in rng.permutation(len(parties))]
    size = _struck(kind, len(parties), rng)
    return Fault(kind, start, end, tuple(order[:size]), _strength(kind, rng))


def _struck(kind: FaultClass, parties: int, rng: Generator) -> int:
    match kind:
        case "halves":
            return int(rng.integers(1, parties))
        case "stall" | "delay" | "jitter" | "squeeze" | "reset" | "half-open":
            return 2
    return 1


def _strength(kind: FaultClass, rng: Generator) -> float:
    match kind:
        case "delay" | "jitter" | "slow":
            return float(rng.uniform(0.0, _EXTRA_MAX_SECONDS))
        case "squeeze":
            return float(rng.uniform(2.0, _SLOWDOWN_MAX))
        case "skew":
            return float(rng.uniform(1.0 / _SKEW_MAX, _SKEW_MAX))
    return 0.0


def conditions_of(
    faults: Sequence[Fault], parties: Sequence[str], rng: Generator
) -> NetworkConditions:
    """Return the effects of a schedule on links; a condition's cause is its fault's position.

    Args:
        faults: The schedule; faults that affect no link are ignored.
    """
    links: dict[tuple[str, str], list[Condition]] = {}
    for cause, fault in enumerate(faults):
        for condition in _pieces(fault, cause, rng):
            for link in _links(fault, parties):
                links.setdefault(link, []).append(condition)
    return NetworkConditions(links)


def _pieces(fault: Fault, cause: int, rng: Generator) -> list[Condition]:
    start, end = fault.start, fault.end
    match fault.kind:
        case "stall" | "halves" | "isolation" | "one-way" | "pause":
            return [Condition(start, end, cause, stalled=True)]
        case "delay" | "slow":
            return [Condition(start, end, cause, extra_seconds=fault.strength)]
        case "squeeze":
            return [Condition(start, end, cause, slowdown=fault.strength)]
        case "jitter":
            width = (end - start) / _JITTERS
            extras = rng.uniform(0.0, fault.strength, _JITTERS)
            return [
                Condition(start + n * width, start + (n + 1) * width, cause, extra_seconds=extra)
                for n, extra in enumerate(extras.tolist())
            ]
    return []


def _links(fault: Fault, parties: Sequence[str]) -> Iterable[tuple[str, str]]:
    struck = frozenset(fault.parties)
    others = [party for party in parties if party not in struck]
    match fault.kind:
        case "stall" | "delay" | "jitter" | "squeeze":
            return [(fault.parties[0], fault.parties[1])]
        case "one-way":
            return [(fault.parties[0], other) for other in others]
        case "slow":
            return [(fault.parties[0], other) for other in others]
    return [link for one in struck for other in others for link in ((one, other), (other, one))]
