"""Faults of the simulation, and schedules of them drawn from a seed.

A schedule first draws the rate of each class of fault and then the faults, so some seeds have none
of a class and others have many: this finds more bugs than a few of each class would.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from numpy.random import Generator

from veilring.errors import InputError
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
    "mid-send",
    "jump",
]
"""The kinds of faults. After `restart` a party returns with its data, after `amnesia` without."""

# When one end of a half-open connection notices: TCP's keepalive as set by the TLS transport.
KEEPALIVE_SECONDS: Final = float(UNACKNOWLEDGED_SECONDS)

_RATE_MEAN: Final = 1.5  # faults per schedule, of each class that occurs at all
_DURATION_MEAN_SECONDS: Final = 3.0
_BACK_MIN_SECONDS: Final = 1.0  # until it returns, so that its peers have heard of its loss
_JITTERS: Final = 20  # pieces of a fault of jitter, each with its own delay


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: The class of the fault.
        start: The start, in simulated seconds.
        end: The end; a crash has none.
        parties: The affected parties: one party; both ends of a connection, starting with the one
            that notices first; or one side of a partition.
        strength: Extra seconds, the slowdown factor, the factor by which a skewed clock is slower,
            the seconds by which a clock jumps ahead, or the number of messages that a party sends
            before it crashes; 0 for other kinds.
    """

    kind: FaultClass
    start: float
    end: float
    parties: tuple[str, ...]
    strength: float = 0.0

    def __post_init__(self) -> None:
        if self.kind in {"skew", "mid-send"} and not self.strength > 0:
            raise InputError("strength", self.strength, f"above 0 for {self.kind}")


class Strength(NamedTuple):
    """The strength that a kind of fault has: the key of a scenario, and its range."""

    key: str
    low: float
    """Drawn strengths are uniform from here to `high`."""
    high: float
    tried: float
    """The strength in worlds that try each fault once."""
    least: float = 0.0
    """The minimum in a scenario; 0 itself is excluded."""


_EXTRA: Final = Strength("extra_seconds", 0.0, 2.0, tried=1.0)
_SLOWER: Final = Strength("times", 2.0, 1000.0, tried=1000.0, least=1.0)
_SKEWED: Final = Strength("times", 1.0 / 4.0, 4.0, tried=4.0)
_AHEAD: Final = Strength("seconds", 0.1, 10.0, tried=2.0)
_SENDS: Final = Strength("sends", 1.0, 8.0, tried=1.0, least=1.0)


def _stalled(fault: Fault, cause: int, _rng: Generator) -> list[Condition]:
    return [Condition(fault.start, fault.end, cause, stalled=True)]


def _delayed(fault: Fault, cause: int, _rng: Generator) -> list[Condition]:
    return [Condition(fault.start, fault.end, cause, extra_seconds=fault.strength)]


def _squeezed(fault: Fault, cause: int, _rng: Generator) -> list[Condition]:
    return [Condition(fault.start, fault.end, cause, slowdown=fault.strength)]


def _jittered(fault: Fault, cause: int, rng: Generator) -> list[Condition]:
    start, width = fault.start, (fault.end - fault.start) / _JITTERS
    extras = rng.uniform(0.0, fault.strength, _JITTERS)
    return [
        Condition(start + n * width, start + (n + 1) * width, cause, extra_seconds=extra)
        for n, extra in enumerate(extras.tolist())
    ]


State = Literal["crashed", "paused", "cut off", "cannot send"]
"""The state of a party that a fault strikes, the worst first."""

_PARTY: Final = ("party",)
_LINK: Final = ("source", "target")
_CONNECTION: Final = ("party", "other")
_SIDE: Final = ("parties",)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """The description of a class of faults, for the simulation, for files and for people.

    Attributes:
        effect: A sentence, in which numbers stand for the affected parties in order.
        keys: The keys of a scenario that name the affected parties.
        strength: The strength, if it has any.
        conditions: The conditions of each affected link, if there are any.
        one_way: Whether it affects only the links from its party, not those to it.
        state: The state of an affected party, if that is worth showing.
        ends: Whether it has an end.
    """

    effect: str
    keys: tuple[str, ...] = _PARTY
    strength: Strength | None = None
    conditions: Callable[[Fault, int, Generator], list[Condition]] | None = None
    one_way: bool = False
    state: State | None = None
    ends: bool = True

    @property
    def is_final(self) -> bool:
        """Whether its party never returns."""
        return self.state == "crashed" and not self.ends

    @property
    def breaks_connection(self) -> bool:
        """Whether messages that are in flight between its two parties are lost."""
        return self.keys == _CONNECTION

    def links(self, fault: Fault, parties: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return the affected links, as (source, target)."""
        if self.keys == _LINK:
            return [(fault.parties[0], fault.parties[1])]
        others = [party for party in parties if party not in fault.parties]
        ends = [(one, other) for one in fault.parties for other in others]
        return ends if self.one_way else [link for a, b in ends for link in ((a, b), (b, a))]

    def sentence(self, parties: Sequence[str]) -> str:
        """Return its effect on the given parties."""
        return self.effect.format(*parties, all=", ".join(parties))


FAULT_KINDS: Final[Mapping[str, FaultKind]] = {
    "stall": FaultKind("no message from {0} to {1} gets through", _LINK, conditions=_stalled),
    "delay": FaultKind("messages from {0} to {1} take longer", _LINK, _EXTRA, _delayed),
    "jitter": FaultKind(
        "messages from {0} to {1} are delayed by varying amounts", _LINK, _EXTRA, _jittered
    ),
    "squeeze": FaultKind(
        "the link from {0} to {1} carries fewer bytes per second", _LINK, _SLOWER, _squeezed
    ),
    "halves": FaultKind(
        "{all} cannot reach the other parties", _SIDE, conditions=_stalled, state="cut off"
    ),
    "isolation": FaultKind(
        "{0} cannot reach any other party", conditions=_stalled, state="cut off"
    ),
    "one-way": FaultKind(
        "no message that {0} sends gets through",
        conditions=_stalled,
        one_way=True,
        state="cannot send",
    ),
    "reset": FaultKind("the connection of {0} and {1} is broken", _CONNECTION),
    "half-open": FaultKind(
        "the connection of {0} and {1} is broken, and {0} notices first", _CONNECTION
    ),
    "crash": FaultKind("{0} has crashed", state="crashed", ends=False),
    "restart": FaultKind("{0} has crashed and will be back with its data", state="crashed"),
    "amnesia": FaultKind("{0} has crashed and will be back without its data", state="crashed"),
    "pause": FaultKind("{0} neither sends nor receives", conditions=_stalled, state="paused"),
    "slow": FaultKind(
        "messages that {0} sends take longer", strength=_EXTRA, conditions=_delayed, one_way=True
    ),
    "skew": FaultKind("the clock of {0} runs at another rate", strength=_SKEWED),
    "mid-send": FaultKind(
        "{0} crashes between two messages that it sends",
        strength=_SENDS,
        state="crashed",
        ends=False,
    ),
    "jump": FaultKind("the clock of {0} jumps ahead", strength=_AHEAD, ends=False),
}
FAULT_CLASSES: Final[tuple[FaultClass, ...]] = get_args(FaultClass)


def draw_faults(parties: Sequence[str], seconds: float, rng: Generator) -> tuple[Fault, ...]:
    """Draw a schedule of faults, all of which start and end within the first `seconds`.

    At most one party crashes for good, so that the others are still enough for a ring.
    """
    faults: list[Fault] = []
    for kind in FAULT_CLASSES:
        strikes = rng.random() < 0.5  # noqa: PLR2004  (half of all classes, in every schedule)
        rate = rng.exponential(_RATE_MEAN) if strikes else 0.0
        count = int(rng.poisson(rate))
        crashed = any(FAULT_KINDS[fault.kind].is_final for fault in faults)
        count = min(count, 1 - crashed) if FAULT_KINDS[kind].is_final else count
        faults += [_draw(kind, parties, seconds, rng) for _ in range(count)]
    return tuple(sorted(faults, key=lambda fault: (fault.start, fault.kind, fault.parties)))


def _draw(kind: FaultClass, parties: Sequence[str], seconds: float, rng: Generator) -> Fault:
    keys, strength = FAULT_KINDS[kind].keys, FAULT_KINDS[kind].strength
    start = float(rng.uniform(0.0, 0.7 * seconds))
    end = min(seconds, start + _BACK_MIN_SECONDS + float(rng.exponential(_DURATION_MEAN_SECONDS)))
    order = [parties[position] for position in rng.permutation(len(parties))]
    size = int(rng.integers(1, len(parties))) if keys == _SIDE else len(keys)
    drawn = 0.0 if strength is None else float(rng.uniform(strength.low, strength.high))
    return Fault(kind, start, end, tuple(order[:size]), drawn)


def conditions_of(
    faults: Sequence[Fault], parties: Sequence[str], rng: Generator
) -> NetworkConditions:
    """Return the effects of a schedule on links; a condition's cause is its fault's position.

    Args:
        faults: The schedule; faults that affect no link are ignored.
    """
    links: dict[tuple[str, str], list[Condition]] = {}
    for cause, fault in enumerate(faults):
        kind = FAULT_KINDS[fault.kind]
        if kind.conditions is not None:
            conditions = kind.conditions(fault, cause, rng)
            for link in kind.links(fault, parties):
                links.setdefault(link, []).extend(conditions)
    return NetworkConditions(links)
