"""`LocalRandomiser`: the noise that a client adds to its value before it reports.

All randomisers have the same interface. The client calls `perturb`. The collector calls `accept` on
the reports that arrive, and `aggregate` on the accepted ones; sums of several collectors can be
added. `estimate` turns a sum into numbers with intervals. The first axis always has one entry per
client.
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

INTERVAL_CONFIDENCE: Final = 0.95  # the default for intervals
# Intervals use the normal distribution. If fewer reports than this are expected to have the rarest
# possible content, exact binomial distributions show a coverage of only 0.82 for a nominal 0.95.
RAREST_MIN: Final = 10

Reports: TypeAlias = NDArray[np.uint8]
"""Packed reports, shape (clients, report_bytes): identical on the wire, in memory and on disk."""
Sums: TypeAlias = NDArray[np.int64]
"""The sums over any number of reports, shape (cells,); sums of disjoint reports can be added."""


@dataclass(frozen=True, slots=True, eq=False)
class SurveyEstimate:
    """Unbiased estimates with their errors.

    Attributes:
        values: Frequencies (fractions of the clients, not counts) or means, shape (entries,).
        variance: The variance of each value, over the randomiser's draws and, for means, over the
            clients' values.
    """

    values: NDArray[np.float64]
    variance: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    clients: int


class LocalRandomiser(ABC):
    """A mechanism that a client applies to its own value; frozen, compared by parameters."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def exact_epsilon(self) -> float:
        """The exact loss of a report, at most the requested epsilon."""

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """The size of each report in bytes, for any content."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """The number of sums in an aggregate."""

    @property
    def entries(self) -> int:
        """The number of entries in an estimate: one per sum by default."""
        return self.cells

    @property
    @abstractmethod
    def public(self) -> Mapping[str, int | str]:
        """The exact definition, with probabilities as integers: part of a task's hash.

        Two randomisers with equal public numbers give the same reports from the same draws.
        """

    @abstractmethod
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        """Return one report per client.

        Args:
            rng: The clients' secret randomness.
        """

    def accept(self, reports: Reports) -> NDArray[np.bool_]:
        """Return whether `perturb` can produce each report; false for a wrong width.

        Args:
            reports: Any received reports, as bytes of shape (clients, width).

        Returns:
            Shape (clients,).
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
        """The maximum memory for checking one report: each of its bytes as a whole number."""
        return 8 * self.report_bytes

    @abstractmethod
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        """Return whether `perturb` can produce each report of the right width."""

    @abstractmethod
    def aggregate(self, reports: Reports) -> Sums:
        """Return the sums over accepted reports, in bounded memory."""

    @abstractmethod
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        """Return unbiased estimates from the sums over the given number of reports."""

    @abstractmethod
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        """Return whether each entry's interval is based on too few reports for its confidence."""


def require_sums(
    sums: Sums, cells: int, clients: int, *, low: int | None = None, high: int | None = None
) -> None:
    """Reject sums that no `clients` reports could have, within the given bounds."""
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
    """Return estimates with normal intervals."""
    reach = z_score(confidence) * np.sqrt(variance)
    return SurveyEstimate(values, variance, values - reach, values + reach, clients)


def z_score(confidence: float) -> float:
    """Return the half-width of an interval in standard deviations."""
    if not 0 < confidence < 1:
        raise InputError("confidence", confidence, "a number in (0, 1)")
    return NormalDist().inv_cdf((1 + confidence) / 2)
