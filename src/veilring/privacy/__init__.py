"""Noise with an exactly known law, and what it costs: the ground that private answers stand on.

Mechanisms release whole numbers, or values on a public grid, drawn from laws whose probabilities
are known exactly; never a value plus float noise, whose low bits give the value away (Mironov,
CCS 2012). The generator is always an argument.

One family differs. Private prediction accounts by Gaussian DP, which holds for Gaussian noise
alone, and draws it as floats. Its answers are labels, and the sums that it releases are whole
numbers before the noise and rounded to whole numbers after it, so that no low bits leave.
"""

from veilring.privacy.draws import bernoulli, geometric, packed_bernoulli
from veilring.privacy.exact import (
    Dyadic,
    Probability,
    epsilon_of,
    exp_ceil,
    exp_floor,
    log_ceil,
    loss,
    unary_epsilon,
)
from veilring.privacy.noise import (
    PublicGrid,
    discrete_gaussian,
    discrete_gaussian_pmf,
    discrete_gaussian_variance,
    discrete_laplace,
    discrete_laplace_pmf,
    discrete_laplace_variance,
    polya,
    polya_difference_pmf,
    polya_pmf,
)
from veilring.privacy.selection import (
    exponential_mechanism,
    exponential_probabilities,
    permute_and_flip,
    permute_and_flip_probabilities,
)
from veilring.privacy.tables import ResponseLaw, TableLaws, clamped_laplace, randomised_response

__all__ = (
    "Dyadic",
    "Probability",
    "PublicGrid",
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
