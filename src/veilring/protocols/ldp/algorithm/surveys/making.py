"""Oracles by name, for surveys that need one for each domain."""

from functools import partial
from math import inf

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles import ORACLES
from veilring.protocols.ldp.algorithm.plain import PlainOracle
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser
from veilring.protocols.ldp.algorithm.surveys.bayes import MakeOracle

__all__ = ("make_oracle",)


def make_oracle(name: str, epsilon: float) -> MakeOracle:
    """Return what makes oracles of a kind; without noise if epsilon is infinite.

    Args:
        name: One of `ORACLES`.
        epsilon: What a report may spend.

    Raises:
        InputError: If there is no such oracle.
    """
    if name not in ORACLES:
        raise InputError("oracle", name, ", ".join(ORACLES))
    return PlainOracle if epsilon == inf else partial(_make, name, epsilon)


def _make(name: str, epsilon: float, domain: int) -> LocalRandomiser:
    return ORACLES[name](domain, epsilon)
