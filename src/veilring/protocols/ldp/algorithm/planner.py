"""The frequency oracles by name, and the choice of one by exact variance and report size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles import (
    DirectEncoding,
    HadamardResponse,
    LocalHashing,
    OptimisedUnary,
    SubsetSelection,
)
from veilring.protocols.ldp.algorithm.randomiser import (
    FrequencyOracle,
    LocalRandomiser,
    PlainOracle,
)

ORACLES: Final[Mapping[str, type[FrequencyOracle]]] = MappingProxyType(
    {
        oracle.name: oracle
        for oracle in (
            DirectEncoding,
            OptimisedUnary,
            LocalHashing,
            HadamardResponse,
            SubsetSelection,
        )
    }
)
"""All oracles by name; each is built from a domain and an epsilon."""
AUTO: Final = "auto"
"""The name that leaves the choice of the oracle to `recommend_oracle`."""
if TYPE_CHECKING:
    OracleName: TypeAlias = str
else:
    OracleName = Literal[(AUTO, *ORACLES)]
    """A name that a parameter `oracle` may have."""
MakeOracle: TypeAlias = Callable[[int], LocalRandomiser]
"""Makes a frequency oracle for a domain of the given size."""

# A variance up to this factor above the smallest counts as equal: 1 % more clients offset it.
_AS_GOOD: Final = 1.01


@dataclass(frozen=True, slots=True)
class OracleOption:
    """An oracle with its cost and its accuracy.

    Attributes:
        variance: The variance of a frequency times the number of clients, averaged over the values
            of the domain. It equals the variance at the frequency `1 / domain`, for any
            frequencies.
        influence: The number of clients by which one false report moves the count of a value.
    """

    oracle: FrequencyOracle
    variance: float
    influence: float
    report_bytes: int
    exact_epsilon: float

    @property
    def name(self) -> str:
        """The oracle's name."""
        return self.oracle.name


# A call takes about 10 ms, and the questions of a survey share an epsilon and a few sizes.
@lru_cache(maxsize=64, typed=True)
def oracle_options(domain: int, epsilon: float) -> tuple[OracleOption, ...]:
    """Return all oracles for a domain, in order of increasing variance."""
    oracles = (kind(domain, epsilon) for kind in ORACLES.values())
    found = (
        OracleOption(
            oracle,
            # A variance is affine in the frequency, and the frequencies add up to 1.
            oracle.variance(1 / domain),
            oracle.influence,
            oracle.report_bytes,
            oracle.exact_epsilon,
        )
        for oracle in oracles
    )
    return tuple(sorted(found, key=lambda option: (option.variance, option.report_bytes)))


def recommend_oracle(domain: int, epsilon: float, *, max_bytes: int | None = None) -> OracleOption:
    """Return the oracle with the shortest reports among those with nearly the smallest variance.

    Args:
        max_bytes: The maximum size of a report; any size by default.
    """
    every = oracle_options(domain, epsilon)
    fitting = [each for each in every if max_bytes is None or each.report_bytes <= max_bytes]
    if not fitting:
        least = min(option.report_bytes for option in every)
        raise InputError("max_bytes", max_bytes, f"at least {least} for a domain of {domain}")
    good = [option for option in fitting if option.variance <= _AS_GOOD * fitting[0].variance]
    return min(good, key=lambda option: (option.report_bytes, option.variance))


def make_oracle(name: str, epsilon: float) -> MakeOracle:
    """Return a factory of oracles of one kind; without noise if epsilon is infinite."""
    if name not in {AUTO, *ORACLES}:
        raise InputError("oracle", name, ", ".join((AUTO, *ORACLES)))
    return PlainOracle if epsilon == inf else partial(_make, name, epsilon)


def _make(name: str, epsilon: float, domain: int) -> LocalRandomiser:
    return (
        recommend_oracle(domain, epsilon).oracle if name == AUTO else ORACLES[name](domain, epsilon)
    )
