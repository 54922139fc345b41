"""Oracles by name, for surveys that need one for each domain."""

from functools import partial
from math import inf
from typing import Final

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles import ORACLES
from veilring.protocols.ldp.algorithm.plain import PlainOracle
from veilring.protocols.ldp.algorithm.planner import recommend
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser
from veilring.protocols.ldp.algorithm.surveys.bayes import MakeOracle

AUTO: Final = "auto"
"""The name that leaves the choice of the oracle to `recommend`."""


def make_oracle(name: str, epsilon: float) -> MakeOracle:
    """Return what makes oracles of a kind; without noise if epsilon is infinite.

    Args:
        name: One of `ORACLES`, or `auto` for the best of them for each domain.
        epsilon: What a report may spend.

    Raises:
        InputError: If there is no such oracle.
    """
    if name not in {AUTO, *ORACLES}:
        raise InputError("oracle", name, ", ".join((AUTO, *ORACLES)))
    return PlainOracle if epsilon == inf else partial(_make, name, epsilon)


def _make(name: str, epsilon: float, domain: int) -> LocalRandomiser:
    return recommend(domain, epsilon).oracle if name == AUTO else ORACLES[name](domain, epsilon)
