"""What several releases cost together, and how much each may cost.

Six ways to count, each a small frozen class that composes, converts to (epsilon, delta), and
is calibrated from it.
"""

from veilring.privacy.accounting.bounded_range import BoundedRange
from veilring.privacy.accounting.checks import doubt_of_delta
from veilring.privacy.accounting.gaussian import GaussianDP
from veilring.privacy.accounting.guarantee import Guarantee, least_noise
from veilring.privacy.accounting.individual import Accountant, individual_budget
from veilring.privacy.accounting.pure import PureDP
from veilring.privacy.accounting.renyi import ORDERS, RenyiDP
from veilring.privacy.accounting.responses import PureSteps
from veilring.privacy.accounting.zcdp import ZCDP

__all__ = (
    "ORDERS",
    "ZCDP",
    "Accountant",
    "BoundedRange",
    "GaussianDP",
    "Guarantee",
    "PureDP",
    "PureSteps",
    "RenyiDP",
    "doubt_of_delta",
    "individual_budget",
    "least_noise",
)
