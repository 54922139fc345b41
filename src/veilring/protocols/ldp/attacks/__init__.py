"""What an adversary gets from clients' reports, measured against what the loss allows.

`attack_oracle`, `attack_law`
    The best guess of a client's value from its report, and its bound.
`loss_of`, `epsilon_at_least`
    A lower bound of epsilon, from reports alone: a mechanism that exceeds its claim is broken.
"""

from veilring.protocols.ldp.attacks.guess import Guesses, attack_law, attack_oracle, likelihoods
from veilring.protocols.ldp.attacks.loss import epsilon_at_least, loss_of, weights_of

__all__ = (
    "Guesses",
    "attack_law",
    "attack_oracle",
    "epsilon_at_least",
    "likelihoods",
    "loss_of",
    "weights_of",
)
