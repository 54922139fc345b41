"""The knowledge that a coalition gains from the totals of rank search, compared with the truth.

A coalition knows every total and subtracts its members' own counts. The rest is the sum over the
parties outside it, which is the count of one party if only one is left. The view does not depend on
how rows are divided among the parties outside, so the owner of a row cannot be named better than by
guessing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.journal import View
from veilring.protocols.claims import Batch, Findings, SummaryLine, expected_of, share_of
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.ranksearch.algorithm.search import Asked
from veilring.protocols.ranksearch.algorithm.votes import count_rows, nearest_rows
from veilring.protocols.ranksearch.parameters import SearchParameters

if TYPE_CHECKING:
    from veilring.protocols.ranksearch.system import SearchSetup


@dataclass(frozen=True, slots=True)
class TotalsFindings(Findings):
    """The findings of a semi-honest coalition in the totals of a search, compared with the truth.

    Attributes:
        totals: The number of totals of the parties outside that the coalition knows, over all
            batches.
        guessed: The expected number of owners named correctly by guessing; no view helps more.
    """

    outside: int
    totals: int
    right: int
    alone: int
    nearest: int
    guessed: float

    @override
    def lines(self, *, retried: bool) -> Iterator[SummaryLine]:
        yield self.line_of_members()
        whose = (
            "the one party outside it"
            if self.outside == 1
            else f"the {self.outside} parties outside it"
        )
        meaning = f"exact sums of the counts of {whose} that it computed, one per threshold"
        yield SummaryLine("totals read", share_of(self.right, self.totals), meaning)
        meaning = "totals read that are the count of a single party"
        yield SummaryLine("counts exposed", share_of(self.alone, self.totals), meaning)
        meaning = "owners of nearest rows that a guess is expected to hit; the view does not help"
        yield SummaryLine("owners named", expected_of(self.guessed, self.nearest), meaning)


def find_in_totals(
    setup: "SearchSetup", batches: Iterable[Batch], members: tuple[str, ...]
) -> TotalsFindings:
    """Compute the totals of the parties outside from the coalition's views of some batches."""
    public, alone, guessed = setup.parameters, 0, 0.0
    totals = right = nearest = 0
    outside = list[int]()
    for batch in batches:
        own = [setup.parts[name] for name in batch.seen.views]
        others = [setup.parts[name] for name in batch.others]
        view = next(iter(batch.seen.views.values()))
        near = [nearest_rows(batch.queries, rows, public.system.k) for rows in others]
        read = 0
        for asked, counts in read_others(view, batch.queries, own, public, len(batch.parties)):
            right += int((counts == count_rows(near, asked)).sum())
            read += len(counts)
        nearer = int((_nearest(batch.queries, others) < _nearest(batch.queries, own)).sum())
        totals, nearest, guessed = totals + read, nearest + nearer, guessed + nearer / len(others)
        alone += read * (len(others) == 1)
        outside.append(len(others))
    return TotalsFindings(members, outside[0], totals, right, alone, nearest, guessed)


def read_others(
    view: View, queries: Floats, members: Sequence[Rows], public: SearchParameters, parties: int
) -> Iterator[tuple[Asked, Ints]]:
    """Yield the thresholds of each step, with the totals of the counts of parties outside.

    Args:
        queries: The batch, shape (Q, features).
    """
    own = [nearest_rows(queries, rows, public.system.k) for rows in members]
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


def _nearest(queries: Floats, parts: Sequence[Rows]) -> Floats:
    rows = np.concatenate([rows.features for rows in parts])
    return np.asarray(pairwise_distances(queries, rows).min(axis=1, initial=np.inf))
