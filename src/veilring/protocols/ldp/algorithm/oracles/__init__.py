"""Frequency oracles: estimates of how many clients hold each value of a domain."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from veilring.protocols.ldp.algorithm.oracles.direct import DirectEncoding
from veilring.protocols.ldp.algorithm.oracles.hadamard import HadamardResponse
from veilring.protocols.ldp.algorithm.oracles.histogram import (
    SummedHistogram,
    ThresholdedHistogram,
    best_threshold,
)
from veilring.protocols.ldp.algorithm.oracles.local_hashing import LocalHashing
from veilring.protocols.ldp.algorithm.oracles.oracle import EPSILON_MAX, FrequencyOracle, PureOracle
from veilring.protocols.ldp.algorithm.oracles.subset import SubsetSelection
from veilring.protocols.ldp.algorithm.oracles.unary import OptimisedUnary, SymmetricUnary

__all__ = (
    "EPSILON_MAX",
    "ORACLES",
    "DirectEncoding",
    "FrequencyOracle",
    "HadamardResponse",
    "LocalHashing",
    "OptimisedUnary",
    "PureOracle",
    "SubsetSelection",
    "SummedHistogram",
    "SymmetricUnary",
    "ThresholdedHistogram",
    "best_threshold",
)

ORACLES: Final[Mapping[str, type[FrequencyOracle]]] = MappingProxyType(
    {
        oracle.name: oracle
        for oracle in (
            DirectEncoding,
            SymmetricUnary,
            OptimisedUnary,
            SummedHistogram,
            ThresholdedHistogram,
            LocalHashing,
            HadamardResponse,
            SubsetSelection,
        )
    }
)
"""All oracles, by name; each is made from a domain and an epsilon."""
