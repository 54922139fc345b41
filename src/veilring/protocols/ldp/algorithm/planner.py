"""The frequency oracles by name, and the choice of one by exact variance and report size."""

from collections.abc import Callable, Mapping
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


# A call takes about 10 ms, and the questions of a survey share an epsilon and a few sizes.
@lru_cache(maxsize=64, typed=True)
def oracle_options(domain: int, epsilon: float) -> tuple[FrequencyOracle, ...]:
    """Return all oracles for a domain, in order of increasing variance."""
    oracles = (kind(domain, epsilon) for kind in ORACLES.values())
    return tuple(sorted(oracles, key=lambda oracle: (oracle.mean_variance, oracle.report_bytes)))


def recommend_oracle(
    domain: int, epsilon: float, *, max_bytes: int | None = None
) -> FrequencyOracle:
    """Return the oracle with the shortest reports among those with nearly the smallest variance.

    Args:
        max_bytes: The maximum size of a report; any size by default.
    """
    every = oracle_options(domain, epsilon)
    fitting = [each for each in every if max_bytes is None or each.report_bytes <= max_bytes]
    if not fitting:
        least = min(oracle.report_bytes for oracle in every)
        raise InputError("max_bytes", max_bytes, f"at least {least} for a domain of {domain}")
    good = [each for each in fitting if each.mean_variance <= _AS_GOOD * fitting[0].mean_variance]
    return min(good, key=lambda oracle: (oracle.report_bytes, oracle.mean_variance))


def make_oracle(name: str, epsilon: float) -> MakeOracle:
    """Return a factory of oracles of one kind; without noise if epsilon is infinite."""
    if name not in {AUTO, *ORACLES}:
        raise InputError("oracle", name, ", ".join((AUTO, *ORACLES)))
    return PlainOracle if epsilon == inf else partial(_make, name, epsilon)


def _make(name: str, epsilon: float, domain: int) -> LocalRandomiser:
    return recommend_oracle(domain, epsilon) if name == AUTO else ORACLES[name](domain, epsilon)
