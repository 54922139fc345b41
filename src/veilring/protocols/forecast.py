"""Forecasts of the cost of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from veilring.nodes.journal import Traffic
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode

_UNITS: Final = ("rounds", "messages", "bytes")


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a run, before it is run.

    Attributes:
        rounds: The communication rounds.
        traffic: The messages and bytes of the protocol.
        setup: The messages and bytes before the first round.
        most: The maximum cost, if it depends on secret draws; the other numbers are then the
            minimum.
    """

    rounds: int
    traffic: Traffic
    setup: Traffic = field(default_factory=Traffic)
    most: "Forecast | None" = None

    def __add__(self, other: "Forecast") -> "Forecast":
        """Return the cost of two runs, one after the other."""
        traffic, setup = self.traffic.plus(other.traffic), self.setup.plus(other.setup)
        has_most = self.most is not None or other.most is not None
        most = (self.most or self) + (other.most or other) if has_most else None
        return Forecast(self.rounds + other.rounds, traffic, setup, most)

    def __str__(self) -> str:
        return describe_cost(_totals(self), _totals(self.most or self))


def describe_cost(least: Sequence[int], most: Sequence[int] | None = None) -> str:
    """Return rounds, messages and bytes in words.

    Args:
        most: The three numbers at most, if `least` has the minimum.
    """
    parts = (
        f"{low:,} {unit if low != 1 else unit.removesuffix('s')}"
        if low == high
        else f"{low:,} to {high:,} {unit}"
        for low, high, unit in zip(least, most or least, _UNITS, strict=True)
    )
    return ", ".join(parts)


def repeated(messages: int, message: Message) -> Traffic:
    """Return the traffic of the given number of messages of one size.

    The size of a message depends only on its shapes and on a few small numbers, so a message of
    zeros is enough.
    """
    return Traffic(messages, messages * frame_size(encode(bytes(SESSION_BYTES), message)))


def in_batches(cost: Callable[[int], Forecast], queries: int, size: int) -> Forecast:
    """Return the cost of queries asked in full batches, and the rest in another batch.

    Args:
        cost: A function that returns the cost of a batch of the given number of queries, at least
            1.
        size: The number of queries of a full batch.
    """
    sizes = batch_sizes(queries, size)
    costs = {count: cost(count) for count in set(sizes)}
    return total_cost(*(costs[count] for count in sizes))


def batch_sizes(queries: int, size: int) -> list[int]:
    """Return the number of queries of each batch: full batches, then the rest."""
    full, rest = divmod(queries, size)
    return [size] * full + [rest] * bool(rest)


def total_cost(*costs: Forecast) -> Forecast:
    """Return the total cost of runs that follow one another."""
    return sum(costs, start=Forecast(0, Traffic()))


def _totals(cost: Forecast) -> tuple[int, int, int]:
    return cost.rounds, *cost.traffic.plus(cost.setup)
