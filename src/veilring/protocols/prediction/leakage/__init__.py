"""What answers give away of one record, measured: an audit of the claim, and membership inference.

`canary` plays a server's answers with one record and without it, `audit` turns such runs into lower
bounds of what the mechanism really costs, and `membership` guesses whether the record is there.
"""

from veilring.protocols.prediction.leakage.audit import ALARM, audited_epsilon, audited_mu
from veilring.protocols.prediction.leakage.canary import Make, canary_labels
from veilring.protocols.prediction.leakage.membership import (
    advantage,
    advantage_bound,
    guess_membership,
    label_laws,
)

__all__ = (
    "ALARM",
    "Make",
    "advantage",
    "advantage_bound",
    "audited_epsilon",
    "audited_mu",
    "canary_labels",
    "guess_membership",
    "label_laws",
)
