"""Attack of a scenario's coalition on the totals of rank search, compared with the truth.

A coalition knows every total and subtracts its members' own counts. The rest is the sum over the
parties outside it, which is the count of one party if only one is left. The view does not depend on
how rows are divided among the parties outside, so the owner of a row cannot be named better than by
guessing.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.journal import View
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.ranksearch.algorithm.search import Asked
from veilring.protocols.ranksearch.algorithm.votes import count_rows, nearest_rows
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.system import SearchSetup
from veilring.scenarios.batches import Batch
from veilring.scenarios.prepare import Prepared
from veilring.scenarios.report import TotalsFindings

_Counts = NDArray[np.int64]


def find_in_totals(prepared: Prepared, batches: Sequence[Batch]) -> TotalsFindings | None:
    """Compute the totals of the parties outside from the coalition's views of all batches.

    Returns:
        The findings; `None` if no batch had both members and other parties.
    """
    found = [
        _find_in(batch, prepared)
        for batch in batches
        if 0 < len(batch.seen.views) < len(batch.parties)
    ]
    if not found:
        return None
    return TotalsFindings(
        members=prepared.coalition,
        outside=found[0].outside,
        totals=sum(each.totals for each in found),
        right=sum(each.right for each in found),
        alone=sum(each.alone for each in found),
        nearest=sum(each.nearest for each in found),
        guessed=sum(each.guessed for each in found),
    )


def _find_in(batch: Batch, prepared: Prepared) -> TotalsFindings:
    parts = prepared.setup.parts
    members = [parts[name] for name in batch.seen.views]
    others = [parts[name] for name in batch.parties if name not in batch.seen.views]
    public = cast("SearchSetup", prepared.setup).parameters  # other systems refuse a coalition
    view = next(iter(batch.seen.views.values()))
    known = read_others(view, batch.queries, members, public, len(batch.parties))
    near = [nearest_rows(batch.queries, rows, public.k) for rows in others]
    right = total = 0
    for asked, counts in known:
        right += int((counts == count_rows(near, asked)).sum())
        total += len(counts)
    outside = int((_nearest(batch.queries, others) < _nearest(batch.queries, members)).sum())
    return TotalsFindings(
        members=prepared.coalition,
        outside=len(others),
        totals=total,
        right=right,
        alone=total if len(others) == 1 else 0,
        nearest=outside,
        guessed=outside / len(others),
    )


def read_others(
    view: View,
    queries: NDArray[np.float64],
    members: Sequence[Rows],
    public: SearchParameters,
    parties: int,
) -> Iterator[tuple[Asked, _Counts]]:
    """Yield the thresholds of each step, with the totals of the counts of parties outside.

    Args:
        queries: The batch, shape (Q, features).
    """
    own = [nearest_rows(queries, rows, public.k) for rows in members]
    search, opened = public.search(len(queries), parties), read_totals(view)
    while (asked := search.ask()) is not None:
        totals = next(opened)[0].astype(np.int64)
        yield asked, totals - count_rows(own, asked)
        search.take(asked, totals)


def read_totals(view: View) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the totals of the masked sums that a party took part in, one after the other.

    If one party adds up, it announces the totals. Otherwise they are the sums of the words of all
    parties: the received ones, and the party's own, which it sent to every other.
    """
    told: dict[int, tuple[NDArray[Any], ...]] = {}
    words: dict[int, dict[str, tuple[NDArray[Any], ...]]] = {}
    for seen in (*view.received, *view.sent):
        if isinstance(seen.message, MaskedTotals):
            told[seen.round] = seen.message.words
    for own, messages in ((False, view.received), (True, view.sent)):
        for seen in messages:
            if isinstance(seen.message, MaskedWords):
                sender = view.party if own else seen.sender
                words.setdefault(seen.round, {})[sender] = seen.message.words
    if told:
        yield from (told[number] for number in sorted(told))
        return
    for number in sorted(words):
        arrays = zip(*words[number].values(), strict=True)
        yield tuple(np.add.reduce(each, dtype=each[0].dtype.type) for each in arrays)


def _nearest(queries: NDArray[np.float64], parts: Sequence[Rows]) -> NDArray[np.float64]:
    rows = np.concatenate([rows.features for rows in parts])
    return np.asarray(pairwise_distances(queries, rows).min(axis=1, initial=np.inf))
