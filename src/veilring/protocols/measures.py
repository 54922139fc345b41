"""Measures of the leakage of a system, and their estimates from simulated runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Estimate:
    """A Monte Carlo estimate and its standard error."""

    value: float
    standard_error: float


class Measure(NamedTuple):
    """A share that measures the leakage of a run."""

    label: str
    meaning: str
    argument: str = ""
    """The argument for a value of 0, if it is not estimated."""


@dataclass(frozen=True, slots=True)
class Leakage:
    """The leakage of a run, from simulated runs on the same rows.

    Attributes:
        trials: The number of runs.
        estimates: The measures of leakage about a party, beyond the result, by name.
        published: The measures of leakage by the published result, by name.
    """

    trials: int
    estimates: Mapping[str, Estimate]
    published: Mapping[str, Estimate] = field(default_factory=dict)
