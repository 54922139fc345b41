"""Noise with an exactly known law, and what it costs: the ground that private answers stand on.

Mechanisms release whole numbers, or values on a public grid, drawn from laws whose probabilities
are known exactly; never a value plus float noise, whose low bits give the value away (Mironov,
CCS 2012). The generator is always an argument.
"""

from veilring.privacy.coins import bernoulli, packed_bernoulli
from veilring.privacy.dyadic import Dyadic, Probability
from veilring.privacy.loss import (
    epsilon_of,
    exp_ceil,
    exp_floor,
    log_ceil,
    loss,
    unary_epsilon,
)

__all__ = (
    "Dyadic",
    "Probability",
    "bernoulli",
    "epsilon_of",
    "exp_ceil",
    "exp_floor",
    "log_ceil",
    "loss",
    "packed_bernoulli",
    "unary_epsilon",
)
