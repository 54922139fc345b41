"""`LocalRandomiser`: what a client does to its value before anybody else sees it.

All randomisers have one shape. The client calls `perturb`; whoever collects calls `accept` on what
arrived, and `aggregate` on what it accepted; sums of several collectors are added; `estimate` turns
a sum into numbers with intervals. The axis in front is always the clients'.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ("CONFIDENCE", "Estimate", "LocalRandomiser", "Reports", "Sums")

CONFIDENCE: Final = 0.95  # of the intervals that are shown unless others are asked for

Reports: TypeAlias = NDArray[np.uint8]
"""What crosses the wire, shape (clients, report_bytes): packed, the same in memory and on disk."""
Sums: TypeAlias = NDArray[np.int64]
"""What a collector keeps of any number of reports, shape (cells,). Two of them add up to one."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Unbiased estimates with what is known of their error.

    Attributes:
        values: Frequencies (shares of the clients, not counts) or means, shape (entries,).
        variance: Of each value, over the randomiser's draws and, for means, the clients' values.
        low: The lower ends of intervals that each hold with the confidence asked for.
        high: The upper ends.
        clients: How many reports stand behind them.
    """

    values: NDArray[np.float64]
    variance: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    clients: int


class LocalRandomiser(ABC):
    """A mechanism that a client applies to its own value; frozen and equal by its parameters.

    Attributes:
        name: What configurations and tables call it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def exact_epsilon(self) -> float:
        """What a report really spends: never more than was asked for, since it is rounded so."""

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """The size of each report, the same whatever it says."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many sums an aggregate has."""

    @property
    @abstractmethod
    def public(self) -> Mapping[str, int | str]:
        """The exact numbers that define it, its probabilities as integers: part of a task's hash.

        Two randomisers with equal public numbers give the same reports from the same draws.
        """

    @abstractmethod
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        """Return one report a client.

        Args:
            values: One value a client.
            rng: The clients' secret randomness.

        Raises:
            InputError: If a value is not one that the randomiser takes.
        """

    @abstractmethod
    def accept(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports are such as `perturb` can give, shape (clients,)."""

    @abstractmethod
    def aggregate(self, reports: Reports) -> Sums:
        """Return the sums over reports that were all accepted; memory is bounded whatever came."""

    @abstractmethod
    def estimate(self, sums: Sums, clients: int, *, confidence: float = CONFIDENCE) -> Estimate:
        """Return what the sums over that many reports say, unbiased.

        Raises:
            InputError: If there are no clients, or the sums are not of this randomiser.
        """
