"""Randomisers, the noise that a client adds before it reports, and frequency oracles among them.

A frequency oracle lets a collector estimate the fraction of clients with each value of a public
domain, while each client's own value is protected. Values are numbered from 0.

The estimates are unbiased, so some are negative. `make_consistent` uses the fact that frequencies
are at least 0, and gains accuracy at the price of an upward bias. The raw estimate and its
intervals are kept with the result: processed values have no valid interval.

Sources: Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency
estimation", USENIX Security 2017, Section 3 (pure protocols); Yilmaz, Al-Rubaie and Chang 2019,
Section 3 (consistency "paper"); Wang et al., "Locally differentially private frequency estimation
with consistency", NDSS 2020, Section 4 ("norm-sub").

All randomisers have the same interface. The client calls `perturb`. The collector calls `accept` on
the reports that arrive, and `aggregate` on the accepted ones; sums of several collectors can be
added. `estimate` turns a sum into numbers with intervals. The first axis always has one entry per
client.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from math import inf
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import is_table
from veilring.errors import InputError
from veilring.privacy.checks import require, require_that
from veilring.protocols.ldp.algorithm.intervals import (
    NORMAL_VARIANCE,
    exact_intervals,
    normal_quantile,
    of_clients,
)
from veilring.protocols.ldp.algorithm.packing import (
    client_slices,
    counted,
    decoded,
    encoded,
    width_of,
)

INTERVAL_CONFIDENCE: Final = 0.95  # the default for intervals

Reports: TypeAlias = NDArray[np.uint8]
"""Packed reports, shape (clients, report_bytes): identical on the wire, in memory and on disk."""
Sums: TypeAlias = Ints
"""The sums over any number of reports, shape (cells,); sums of disjoint reports can be added."""


Interval: TypeAlias = tuple[Floats, Floats]
"""The lower and the upper ends, each of shape (entries,)."""


def given_ends(low: Floats, high: Floats) -> Interval:
    """Return intervals that are known; for the `intervals` of an estimate."""
    return low, high


@dataclass(frozen=True, eq=False)
class SurveyEstimate:
    """Unbiased estimates with their errors.

    Attributes:
        values: Frequencies (fractions of the clients, not counts) or means, shape (entries,).
        variance: The variance of each value over the randomiser's draws and, for a mean that some
            clients do not tell, over the choice of these clients.
        intervals: Computes the interval of each value, which a classifier does not need.
    """

    values: Floats
    variance: Floats
    clients: int
    intervals: Callable[[], Interval] = field(repr=False)

    @cached_property
    def _ends(self) -> Interval:
        low, high = self.intervals()
        # An estimate is not clipped, and may be outside of the possible shares or means.
        return np.minimum(low, self.values), np.maximum(high, self.values)

    @property
    def low(self) -> Floats:
        """The lower end of each value's interval, at most the value."""
        return self._ends[0]

    @property
    def high(self) -> Floats:
        """The upper end of each value's interval, at least the value."""
        return self._ends[1]


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

    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        """Return one report per client.

        Args:
            rng: The clients' secret randomness.
        """
        own = self._checked(values)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in client_slices(len(own), self._work_bytes):
            reports[chunk] = self._draw(own[chunk], rng)
        return reports

    @abstractmethod
    def _checked(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the right type; reject others before any draw."""

    @abstractmethod
    def _draw(self, values: NDArray[Any], rng: Generator) -> Reports:
        """Return one report per client, for as many clients as fit into the memory of a step."""

    def accept(self, reports: Reports) -> Bools:
        """Return whether `perturb` can produce each received report; false for a wrong width."""
        if reports.dtype != np.uint8 or not is_table(reports):
            raise InputError.because(
                f"reports are {reports.dtype} of the shape {reports.shape}; they must be uint8 of "
                f"the shape (clients, {self.report_bytes})",
                field="reports",
            )
        fits = np.zeros(len(reports), dtype=np.bool_)
        if reports.shape[1] == self.report_bytes:
            for chunk in client_slices(len(reports), self._work_bytes):
                fits[chunk] = self._fits(reports[chunk])
        return fits

    @property
    def _work_bytes(self) -> int:
        """The memory to draw or to check one report: by default each byte as a whole number."""
        return 8 * self.report_bytes

    @abstractmethod
    def _fits(self, reports: Reports) -> Bools:
        """Return whether `perturb` can produce each report of the right width."""

    @abstractmethod
    def aggregate(self, reports: Reports) -> Sums:
        """Return the sums over accepted reports, in bounded memory."""

    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        """Return unbiased estimates from the sums over the given number of reports.

        The estimates are not clipped. The intervals describe only the clients that reported: if
        these are a sample, add the sampling error.

        Args:
            confidence: The confidence of each interval on its own, in (0, 1).
        """
        require(clients >= 1, "clients", clients, "an integer of at least 1")
        if sums.shape != (self.cells,) or sums.dtype != np.int64:
            raise InputError.because(
                f"sums are {sums.dtype} of the shape {sums.shape}; they must be int64 of the shape "
                f"({self.cells},)",
                field="sums",
            )
        if self._summands is not None:
            low, high = (clients * each for each in self._summands)
            if sums.min() < low or sums.max() > high:
                raise InputError.because(
                    f"sums must be integers from {low} to {high}", field="sums"
                )
        return self._estimated(sums, clients, confidence)

    def _estimated(self, sums: Sums, clients: int, confidence: float) -> SurveyEstimate:
        """Return the estimate from sums of the right shape."""
        require(0 < confidence < 1, "confidence", confidence, "a number in (0, 1)")
        intervals = partial(self._intervals, sums, clients, confidence)
        return SurveyEstimate(*self._moments(sums, clients), clients, intervals)

    @property
    def _summands(self) -> tuple[int, int] | None:
        """The least and the greatest number that a report adds to each sum, if they are checked."""
        return 0, 1

    @abstractmethod
    def _moments(self, sums: Sums, clients: int) -> tuple[Floats, Floats]:
        """Return unbiased estimates, and their variances."""

    def _intervals(self, sums: Sums, clients: int, confidence: float) -> Interval:
        """Return the intervals of the estimates; by default those of normal distributions."""
        values, variance = self._moments(sums, clients)
        reach = normal_quantile(confidence) * np.sqrt(variance)
        return values - reach, values + reach


# The bits of a client's coins: at epsilon 20 the rarest still has a numerator of two digits.
BITS: Final = 32

# Above this nothing is hidden, and e^epsilon soon exceeds 64 bits.
REPORT_EPSILON_MAX: Final = 20.0
# A value's number has at most three bytes, and the sums of a survey fit in memory.
DOMAIN_MAX: Final = 1 << 20


@dataclass(frozen=True)
class _NumberedValues(LocalRandomiser):
    """A randomiser of numbered values. By default its report is the number of a value.

    Attributes:
        domain: The number of values, `d` of the papers; at least 1.
    """

    domain: int

    @property
    @override
    def cells(self) -> int:
        return self.domain

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(self.domain)

    @override
    def _checked(self, values: NDArray[Any]) -> Ints:
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError.because(
                f"values have the type {values.dtype} and the shape {values.shape}; they must be "
                "integers of the shape (clients,)",
                field="values",
            )
        inside = not values.size or 0 <= values.min() <= values.max() < self.domain
        numbers = f"values must be integers from 0 to {self.domain - 1}"
        require_that(bool(inside), "values", numbers)
        return values.astype(np.int64, copy=False)

    @override
    def _fits(self, reports: Reports) -> Bools:
        return decoded(reports) < self.domain

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return counted(reports, self.domain)


@dataclass(frozen=True)
class FrequencyOracle(_NumberedValues):
    """A randomiser whose estimate is the fraction of clients with each of two or more values.

    Attributes:
        epsilon: The maximum ε of a report; above 0.
    """

    epsilon: float

    domain_max: ClassVar[int] = DOMAIN_MAX

    def __post_init__(self) -> None:
        if not 2 <= self.domain <= self.domain_max:  # noqa: PLR2004  (one value would hide itself)
            raise InputError("domain", self.domain, f"an integer from 2 to {self.domain_max}")
        if not 0 < self.epsilon <= REPORT_EPSILON_MAX:
            raise InputError("epsilon", self.epsilon, f"a number in (0, {REPORT_EPSILON_MAX:g}]")

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        return {"oracle": self.name, "domain": self.domain, **self.exact_parameters}

    @property
    @override
    def exact_epsilon(self) -> float:
        """The loss of the exact probabilities, which are rounded so that it is at most epsilon."""
        # Rounding the exact loss up to a float may exceed the epsilon that it respects.
        return min(self.epsilon, self._loss)

    @property
    @abstractmethod
    def _loss(self) -> float:
        """The privacy loss of the exact probabilities, rounded up."""

    @property
    @abstractmethod
    def exact_parameters(self) -> Mapping[str, int | str]:
        """The integers that define the probabilities, or a digest if there are many."""

    @property
    @abstractmethod
    def influence(self) -> float:
        """The number of clients by which one opposite report moves the count of a value."""

    @abstractmethod
    def variance(self, frequency: float = 0.0) -> float:
        """Return the variance of an estimate over the draws alone, times the number of clients.

        Args:
            frequency: The fraction of clients with the value; 0 gives `V` of the papers.
        """

    @property
    def mean_variance(self) -> float:
        """The variance averaged over the values of the domain, for any frequencies."""
        return self.variance(1 / self.domain)  # it is affine, and the frequencies add up to 1


class PureOracle(FrequencyOracle):
    """An oracle whose report either supports a value or does not.

    A report supports the client's own value with probability `p` and each other value with
    probability `q < p`. The sums are the numbers of reports that support each value.
    """

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = f"a larger number; coins of {BITS} bits cannot express this one"
        require(self.p > self.q, "epsilon", self.epsilon, allowed)

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The exact probability that a report supports the client's value."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The exact probability that a report supports a given other value."""

    @cached_property
    def _gap(self) -> float:
        return float(self.p - self.q)

    @property
    @override
    def influence(self) -> float:
        """`1/(p-q)`: a report supports a value, or it does not."""
        return 1 / self._gap

    @override
    def variance(self, frequency: float = 0.0) -> float:
        """Return `q(1-q)/(p-q)^2 + f(1-p-q)/(p-q)`, from the counts' exact distributions."""
        idle = float(self.q * (1 - self.q)) / self._gap**2
        return idle + frequency * float(1 - self.p - self.q) / self._gap

    @override
    def _moments(self, sums: Sums, clients: int) -> tuple[Floats, Floats]:
        """Return `(c/m - q) / (p - q)` for each value, and its variance."""
        values = (sums / clients - float(self.q)) / self._gap
        idle, own = self.variance(), self.variance(1.0)
        return values, (idle + (own - idle) * np.clip(values, 0.0, 1.0)) / clients

    @override
    def _intervals(self, sums: Sums, clients: int, confidence: float) -> Interval:
        """Return the score interval of each value, or where counts are small, the exact one.

        A score interval contains all frequencies `f` for which the count is within `z` standard
        deviations of its mean, both taken at `f` (Wilson 1927).
        """
        p, q = float(self.p), float(self.q)
        slope = 1 - p - q
        above = sums / clients - q
        spread = normal_quantile(confidence) ** 2 / clients
        centre = above + spread * slope / 2
        inside = spread * (q * (1 - q) + above * slope) + (spread * slope / 2) ** 2
        reach = np.sqrt(np.maximum(inside, 0.0))
        low, high = (centre - reach) / self._gap, (centre + reach) / self._gap
        few = self._moments(sums, clients)[1] * (clients * self._gap) ** 2 < NORMAL_VARIANCE
        exact = exact_intervals(of_clients(clients, p, q), sums[few], confidence)
        low[few], high[few] = exact
        return low, high


@dataclass(frozen=True)
class PlainOracle(_NumberedValues):
    """The client's value itself, unprotected."""

    name: ClassVar[str] = "plain"
    exact_epsilon: ClassVar[float] = inf

    def __post_init__(self) -> None:
        require(self.domain >= 1, "domain", self.domain, "an integer of at least 1")

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        return {"oracle": self.name, "domain": self.domain}

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        return encoded(values, self.report_bytes)

    @override
    def _moments(self, sums: Sums, clients: int) -> tuple[Floats, Floats]:
        return sums / clients, np.zeros(self.domain)


Consistency = Literal["paper", "clip", "norm-sub"]
"""Negative counts become 1, or become 0, or are projected on the simplex.

They must be replaced, because a classifier takes logarithms.
"""
CONSISTENCIES: Final[tuple[Consistency, ...]] = get_args(Consistency)


def make_consistent(estimate: SurveyEstimate, method: Consistency) -> Floats:
    """Return frequencies of at least 0 from those over a whole domain, which are not modified."""
    raw = estimate.values
    match method:
        case "paper":
            return np.where(raw < 0, 1 / estimate.clients, raw)
        case "clip":
            return np.maximum(raw, 0.0)
        case "norm-sub":
            return project_on_simplex(raw)


def project_on_simplex(values: Floats) -> Floats:
    """Return the nearest (Euclidean) vector of numbers from 0 to 1 that add up to 1.

    A unique number is subtracted from all entries, and negative results become 0; sorting finds
    that number (Held, Wolfe and Crowder 1974).
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0.0))
