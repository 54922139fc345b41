"""Frequency oracles: estimates of how many clients hold each value of a domain."""

from veilring.protocols.ldp.algorithm.oracles.direct import DirectEncoding
from veilring.protocols.ldp.algorithm.oracles.oracle import FrequencyOracle, PureOracle
from veilring.protocols.ldp.algorithm.oracles.unary import OptimisedUnary, SymmetricUnary

__all__ = ("DirectEncoding", "FrequencyOracle", "OptimisedUnary", "PureOracle", "SymmetricUnary")
