"""The closed form of the cost of a batch, exact given the steps that its search took.

The steps depend on the rows. Before anything is run the cost is a range: from a search that ends in
its first step to one that divides the widest interval down to single floats, with ties everywhere.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.batches import Queries
from veilring.protocols.forecast import Forecast, in_all, repeated
from veilring.protocols.masks import keys_cost, masked_cost
from veilring.protocols.ranksearch.algorithm.search import Found, steps_at_most
from veilring.protocols.ranksearch.algorithm.votes import no_votes
from veilring.protocols.ranksearch.parameters import SearchParameters


def search_cost(parties: int, queries: int, parameters: SearchParameters) -> Forecast:
    """Forecast a batch whose steps are not known: the least cost, and the greatest.

    Args:
        parties: The number of parties, n.
        queries: The number of queries in the batch.
        parameters: The public parameters.
    """
    asked = [
        queries * thresholds for thresholds in steps_at_most(parameters.upper, parameters.arity)
    ]
    least = _cost(parties, np.zeros(queries, dtype=np.bool_), asked[:1], parameters)
    most = _cost(parties, np.ones(queries, dtype=np.bool_), asked, parameters)
    return replace(least, most=most)


def found_cost(parties: int, found: Found, parameters: SearchParameters) -> Forecast:
    """Return the exact cost of a batch, given how its search went.

    With s steps, all-to-all takes s + 1 rounds of n(n - 1) messages, and a star 2(s + 1) rounds of
    n - 1.

    Args:
        parties: The number of parties, n.
        found: What all parties know of the search.
        parameters: The public parameters.
    """
    return _cost(parties, found.tied, found.steps, parameters)


def _cost(
    parties: int, tied: NDArray[np.bool_], steps: Sequence[int], parameters: SearchParameters
) -> Forecast:
    star, word = parameters.sum == "star", parameters.count_word(parties)
    handed = Queries(features=np.zeros((len(tied), parameters.features)))
    setup = repeated(parties - 1, handed).plus(keys_cost(parties))
    votes = no_votes(len(tied), parameters.classes, parameters.weights)
    arrays = [*((np.zeros(asked, word),) for asked in steps), votes.arrays(tied, parameters.k)]
    costs = [masked_cost(parties, each, star=star) for each in arrays]
    return replace(in_all(*costs), setup=setup)
