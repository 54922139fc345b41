"""Forecasts: what a run will cost, before it is run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from veilring.nodes.cost import Traffic
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode

_UNITS: Final = ("rounds", "messages", "bytes")


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a run, before it is run.

    Attributes:
        rounds: The communication rounds.
        traffic: The messages and bytes of the protocol.
        setup: The messages and bytes before its first round.
        most: The greatest cost, where it depends on secret draws and the other numbers are the
            least.
    """

    rounds: int
    traffic: Traffic
    setup: Traffic = field(default_factory=Traffic)
    most: "Forecast | None" = None

    def __str__(self) -> str:
        least, most = _totals(self), _totals(self.most or self)
        parts = (
            f"{low:,} {unit}" if low == high else f"{low:,} to {high:,} {unit}"
            for low, high, unit in zip(least, most, _UNITS, strict=True)
        )
        return ", ".join(parts)


def repeated(messages: int, message: Message) -> Traffic:
    """Return the traffic of the given number of messages of the size of one.

    A message's size depends on its shapes and on a few small numbers only, so one of zeros will do.
    """
    return Traffic(messages, messages * frame_size(encode(bytes(SESSION_BYTES), message)))


def in_batches(cost: Callable[[int], Forecast], queries: int, size: int) -> Forecast:
    """Return the cost of queries that are asked in full batches, and the rest in one more.

    Args:
        cost: The cost of a batch of the given number of queries, at least 1.
        queries: The number of all queries.
        size: The number of queries of a full batch.
    """
    sizes = batch_sizes(queries, size)
    costs = {count: cost(count) for count in set(sizes)}
    return total_cost(*(costs[count] for count in sizes))


def batch_sizes(queries: int, size: int) -> list[int]:
    """Return the number of queries of each batch: full batches, and the rest in one more.

    Args:
        queries: The number of all queries.
        size: The number of queries of a full batch.
    """
    full, rest = divmod(queries, size)
    return [size] * full + [rest] * bool(rest)


def total_cost(*costs: Forecast) -> Forecast:
    """Return the cost of runs that follow one another."""
    return reduce(_add, costs, Forecast(0, Traffic()))


def _totals(cost: Forecast) -> tuple[int, int, int]:
    return cost.rounds, *cost.traffic.plus(cost.setup)


def _add(one: Forecast, other: Forecast) -> Forecast:
    traffic, setup = one.traffic.plus(other.traffic), one.setup.plus(other.setup)
    most = _add(one.most or one, other.most or other) if one.most or other.most else None
    return Forecast(one.rounds + other.rounds, traffic, setup, most)
