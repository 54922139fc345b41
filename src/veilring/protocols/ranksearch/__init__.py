"""Exact private kNN that reveals only totals, by a search over counts and masked sums.

Source: Aggarwal, Mishra and Pinkas, "Secure computation of the median (and other elements of
specified ranks)", Journal of Cryptology 23, 2010.
"""

from veilring.protocols.ranksearch.memory import SearchedRows
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.roles import SearchAnswer, rank_search
from veilring.protocols.ranksearch.shared import found_cost, search_cost

__all__ = (
    "SearchAnswer",
    "SearchParameters",
    "SearchedRows",
    "found_cost",
    "rank_search",
    "search_cost",
)
