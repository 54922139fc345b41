"""What answers to batches give away: exact losses, attacks, crafted batches and audits.

`laws` computes the privacy loss of a batch without sampling; `membership` is the best attack on a
row and its bound; `crafted` has the batches that break a careless implementation; `audit` finds a
lower bound of epsilon from runs alone.
"""

from veilring.protocols.radius.leakage.crafted import (
    Crafted,
    broken_by_plain_test,
    collinear,
    hostile_batch,
)
from veilring.protocols.radius.leakage.laws import (
    batch_law,
    batch_loss,
    greatest_loss,
    nearest_loss,
)

__all__ = (
    "Crafted",
    "batch_law",
    "batch_loss",
    "broken_by_plain_test",
    "collinear",
    "greatest_loss",
    "hostile_batch",
    "nearest_loss",
)
