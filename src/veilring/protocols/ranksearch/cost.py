"""The closed form of the cost of a batch, exact given the steps of its search.

The steps depend on the rows. Before a run the cost is a range: from a search that ends in its first
step to one that divides the widest interval down to single floats, with ties everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.batches import Queries
from veilring.protocols.masks import Words, keys_cost, masked_cost
from veilring.protocols.promise import Forecast, repeated, total_cost
from veilring.protocols.ranksearch.algorithm.argmax import ONE_HOT_MAX, VOTES_MAX, vote_bounds
from veilring.protocols.ranksearch.algorithm.search import Found, StepSizes, steps_at_most
from veilring.protocols.ranksearch.algorithm.votes import no_votes
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.shared import checks_cost, find_labels_cost, find_radii_cost


def search_cost(parties: int, queries: int, parameters: SearchParameters) -> Forecast:
    """Forecast a batch with unknown steps: the minimum and the maximum cost."""
    thresholds = [queries * each for each in steps_at_most(parameters.upper, parameters.arity)]
    first, *others = (StepSizes(queries, each, queries, each) for each in thresholds)
    first = first._replace(equalities=0)
    longest = [first, *others, StepSizes(queries, 0, 0, 0)]
    tied = np.ones(queries, dtype=np.bool_)
    k = parameters.k
    most_tied = {VOTES_MAX: queries, **dict.fromkeys({k, max(k, ONE_HOT_MAX)}, 1)}
    least = _Searched(~tied, thresholds[:1], [first], {k: queries})
    most = _Searched(tied, thresholds, longest, most_tied)
    return replace(_cost(parties, least, parameters), most=_cost(parties, most, parameters))


def found_cost(
    parties: int,
    found: Found,
    parameters: SearchParameters,
    tied_rows: NDArray[np.int64] | None = None,
) -> Forecast:
    """Return the exact cost of a batch, given the result of its search.

    With s steps, all-to-all takes s + 3 rounds of n(n - 1) messages, and a star, for totals only,
    2(s + 1) rounds of n - 1 and 2 of n(n - 1). A step with shared counts takes ⌈log2(k + 1)⌉ + 1
    rounds, one more if k + 1 is a power of 2; and the last is followed by one more, unless no query
    has k rows.

    Args:
        tied_rows: The number of rows that vote on each query with ties; only `label` depends on
            them.
    """
    rows = np.empty(0, dtype=np.int64) if tied_rows is None else tied_rows
    bounds = vote_bounds(found.tied, rows, parameters.k) if parameters.reveal == "label" else rows
    each, queries = np.unique(bounds, return_counts=True)
    by_most = dict(zip(each.tolist(), queries.tolist(), strict=True))
    return _cost(parties, _Searched(found.tied, found.steps, found.shared, by_most), parameters)


class _Searched(NamedTuple):
    """The inputs to the cost of a batch: the steps of its search, and bounds on the votes."""

    tied: NDArray[np.bool_]
    steps: Sequence[int]
    shared: Sequence[StepSizes]
    queries_by_most: Mapping[int, int]


def _cost(parties: int, searched: _Searched, parameters: SearchParameters) -> Forecast:
    handed = Queries(features=np.zeros((len(searched.tied), parameters.features)))
    setup = repeated(parties - 1, handed).plus(keys_cost(parties))

    def masked(*arrays: Words) -> Forecast:
        return masked_cost(parties, arrays, star=parameters.has_adder)

    if parameters.reveal == "totals":
        word = parameters.count_word(parties)
        search = total_cost(*(masked(np.zeros(count, word)) for count in searched.steps))
    else:
        search = find_radii_cost(searched.shared, parties, parameters)
    if parameters.reveal == "label":
        tied = int(searched.tied.sum())
        counted = [masked(np.zeros(tied, np.uint32))] if tied else []
        voted = [*counted, find_labels_cost(parties, parameters.classes, searched.queries_by_most)]
    else:
        votes = no_votes(len(searched.tied), parameters.classes, parameters.weights)
        voted = [masked(*votes.arrays(searched.tied, parameters.k))]
    return replace(total_cost(search, *voted, checks_cost(parties)), setup=setup)
