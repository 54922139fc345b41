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
from veilring.protocols.ranksearch.algorithm.search import Found, StepSizes, steps_at_most
from veilring.protocols.ranksearch.algorithm.votes import no_votes
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.shared import find_radii_cost


def search_cost(parties: int, queries: int, parameters: SearchParameters) -> Forecast:
    """Forecast a batch whose steps are not known: the least cost, and the greatest.

    Args:
        parties: The number of parties, n.
        queries: The number of queries in the batch.
        parameters: The public parameters.
    """
    thresholds = [queries * each for each in steps_at_most(parameters.upper, parameters.arity)]
    tied = np.ones(queries, dtype=np.bool_)
    first, *others = (StepSizes(queries, each, queries, each) for each in thresholds)
    first = first._replace(equalities=0)
    few = [first]
    longest = [first, *others, StepSizes(queries, 0, 0, 0)]
    least = _cost(parties, ~tied, thresholds[:1], few, parameters)
    most = _cost(parties, tied, thresholds, longest, parameters)
    return replace(least, most=most)


def found_cost(parties: int, found: Found, parameters: SearchParameters) -> Forecast:
    """Return the exact cost of a batch, given how its search went.

    With s steps, all-to-all takes s + 1 rounds of n(n - 1) messages, and a star 2(s + 1) rounds of
    n - 1. A step whose counts stay shared takes ⌈log2(k + 1)⌉ + 1 rounds, one more where k + 1 is a
    power of 2; and the last is followed by one more, unless no query has k rows.

    Args:
        parties: The number of parties, n.
        found: What all parties know of the search.
        parameters: The public parameters.
    """
    return _cost(parties, found.tied, found.steps, found.shared, parameters)


def _cost(
    parties: int,
    tied: NDArray[np.bool_],
    steps: Sequence[int],
    shared: Sequence[StepSizes],
    parameters: SearchParameters,
) -> Forecast:
    star, word = parameters.sum == "star", parameters.count_word(parties)
    handed = Queries(features=np.zeros((len(tied), parameters.features)))
    setup = repeated(parties - 1, handed).plus(keys_cost(parties))
    if parameters.reveal == "totals":
        counts = (np.zeros(thresholds, word) for thresholds in steps)
        search = in_all(*(masked_cost(parties, (each,), star=star) for each in counts))
    else:
        search = find_radii_cost(shared, parties, parameters)
    votes = no_votes(len(tied), parameters.classes, parameters.weights).arrays(tied, parameters.k)
    return replace(in_all(search, masked_cost(parties, votes, star=star)), setup=setup)
