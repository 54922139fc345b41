"""`LocalRandomiser`: the noise that a client adds to its value before it reports.

All randomisers have one shape. The client calls `perturb`. The collector calls `accept` on the
reports that arrive, and `aggregate` on the accepted ones; sums of several collectors add up.
`estimate` turns a sum into numbers with intervals. The first axis is always the clients'.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import is_table
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.packing import client_slices

INTERVAL_CONFIDENCE: Final = 0.95  # of intervals, by default
# Intervals are those of the normal law. If fewer reports than this are expected to have the rarest
# possible content, a nominal 0.95 covered only 0.82 by exact binomial laws.
RAREST_MIN: Final = 10

Reports: TypeAlias = NDArray[np.uint8]
"""Packed reports, shape (clients, report_bytes): the same on the wire, in memory and on disk."""
Sums: TypeAlias = NDArray[np.int64]
"""The sums over any number of reports, shape (cells,). Two of them add up to one."""


@dataclass(frozen=True, slots=True, eq=False)
class SurveyEstimate:
    """Unbiased estimates with their errors.

    Attributes:
        values: Frequencies (shares of the clients, not counts) or means, shape (entries,).
        variance: The variance of each value, over the randomiser's draws and, for means, over the
            clients' values.
        low: The lower ends of intervals, each with the requested confidence.
        high: The upper ends.
        clients: The number of reports behind them.
    """

    values: NDArray[np.float64]
    variance: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    clients: int


class LocalRandomiser(ABC):
    """A mechanism that a client applies to its own value; frozen and equal by its parameters.

    Attributes:
        name: The name in configurations and tables.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def exact_epsilon(self) -> float:
        """The exact loss of a report, at most the requested epsilon."""

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """The size of each report, whatever its content."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """The number of sums in an aggregate."""

    @property
    def entries(self) -> int:
        """The number of entries in an estimate: one a sum unless overridden."""
        return self.cells

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
            InputError: If a value is not supported by the randomiser.
        """

    def accept(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports are such as `perturb` can give; of a wrong width, none is.

        Args:
            reports: Any received reports, as bytes of shape (clients, width).

        Returns:
            Shape (clients,).

        Raises:
            InputError: If they are no table of bytes.
        """
        if reports.dtype != np.uint8 or not is_table(reports):
            raise InputError.because(
                f"reports are {reports.dtype} of the shape {reports.shape}; they must be uint8 of "
                f"the shape (clients, {self.report_bytes})",
                field="reports",
            )
        fits = np.zeros(len(reports), dtype=np.bool_)
        if reports.shape[1] == self.report_bytes:
            for chunk in client_slices(len(reports), self._judging_bytes):
                fits[chunk] = self._fits(reports[chunk])
        return fits

    @property
    def _judging_bytes(self) -> int:
        """The memory for judging one report: each of its bytes as a whole number, or less."""
        return 8 * self.report_bytes

    @abstractmethod
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports of the right width `perturb` can give."""

    @abstractmethod
    def aggregate(self, reports: Reports) -> Sums:
        """Return the sums over accepted reports, in bounded memory."""

    @abstractmethod
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        """Return unbiased estimates from the sums over the given number of reports.

        Raises:
            InputError: If there are no clients, or the sums are not of this randomiser.
        """

    @abstractmethod
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        """Return which intervals are based on too few reports to reach their confidence, by entry.

        Args:
            sums: The sums, as in `estimate`.
            clients: The number of reports behind them.
        """


def require_sums(
    sums: Sums, cells: int, clients: int, *, low: int | None = None, high: int | None = None
) -> None:
    """Refuse sums that no `clients` reports have; bounds that are not given are not looked at.

    Raises:
        InputError: If there are no clients, the shape is wrong, or a sum is outside [low, high].
    """
    if clients < 1:
        raise InputError("clients", clients, "an integer of at least 1")
    if sums.shape != (cells,) or sums.dtype != np.int64:
        raise InputError.because(
            f"sums are {sums.dtype} of the shape {sums.shape}; they must be int64 of the shape "
            f"({cells},)",
            field="sums",
        )
    if (low is not None and sums.min() < low) or (high is not None and sums.max() > high):
        raise InputError.because(f"sums must be integers from {low} to {high}", field="sums")


def normal_estimate(
    values: NDArray[np.float64], variance: NDArray[np.float64], clients: int, confidence: float
) -> SurveyEstimate:
    """Return estimates with the intervals of the normal law.

    Raises:
        InputError: If the confidence is not in (0, 1).
    """
    reach = z_score(confidence) * np.sqrt(variance)
    return SurveyEstimate(values, variance, values - reach, values + reach, clients)


def z_score(confidence: float) -> float:
    """Return how many standard deviations an interval reaches to each side.

    Raises:
        InputError: If the confidence is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise InputError("confidence", confidence, "a number in (0, 1)")
    return NormalDist().inv_cdf((1 + confidence) / 2)
