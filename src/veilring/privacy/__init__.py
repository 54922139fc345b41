"""Noise with an exactly known law, and what it costs: the ground that private answers stand on.

Mechanisms release whole numbers, or values on a public grid, drawn from laws whose probabilities
are known exactly; never a value plus float noise, whose low bits give the value away (Mironov,
CCS 2012). The generator is always an argument.

One family differs. Private prediction accounts by Gaussian DP, which holds for Gaussian noise
alone, and draws it as floats. Its answers are labels, and the sums that it releases are whole
numbers before the noise and rounded to whole numbers after it, so that no low bits leave.
"""

from veilring.privacy.clamped import clamped_laplace
from veilring.privacy.coins import bernoulli, packed_bernoulli
from veilring.privacy.dyadic import Dyadic, Probability
from veilring.privacy.gaussian import (
    discrete_gaussian,
    discrete_gaussian_pmf,
    discrete_gaussian_variance,
)
from veilring.privacy.grid import Grid
from veilring.privacy.laplace import (
    discrete_laplace,
    discrete_laplace_pmf,
    discrete_laplace_variance,
)
from veilring.privacy.lazy import geometric
from veilring.privacy.loss import (
    epsilon_of,
    exp_ceil,
    exp_floor,
    log_ceil,
    loss,
    unary_epsilon,
)
from veilring.privacy.polya import polya, polya_difference_pmf, polya_pmf
from veilring.privacy.response import ResponseLaw, randomised_response
from veilring.privacy.selection import (
    exponential_mechanism,
    exponential_probabilities,
    permute_and_flip,
    permute_and_flip_probabilities,
)
from veilring.privacy.tables import TableLaws

__all__ = (
    "Dyadic",
    "Grid",
    "Probability",
    "ResponseLaw",
    "TableLaws",
    "bernoulli",
    "clamped_laplace",
    "discrete_gaussian",
    "discrete_gaussian_pmf",
    "discrete_gaussian_variance",
    "discrete_laplace",
    "discrete_laplace_pmf",
    "discrete_laplace_variance",
    "epsilon_of",
    "exp_ceil",
    "exp_floor",
    "exponential_mechanism",
    "exponential_probabilities",
    "geometric",
    "log_ceil",
    "loss",
    "packed_bernoulli",
    "permute_and_flip",
    "permute_and_flip_probabilities",
    "polya",
    "polya_difference_pmf",
    "polya_pmf",
    "randomised_response",
    "unary_epsilon",
)
