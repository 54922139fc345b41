"""Exact private kNN that reveals only totals, by a search over counts and masked sums.

Source: Aggarwal, Mishra and Pinkas, "Secure computation of the median (and other elements of
specified ranks)", Journal of Cryptology 23, 2010.
"""

from typing import Literal

Reveal = Literal["totals", "votes", "label"]
"""The totals that all parties learn: of counts and votes, of votes only, or none."""
