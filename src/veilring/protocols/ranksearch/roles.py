"""The party of rank search, which counts its rows within public thresholds for masked sums.

With `reveal = "totals"` all parties learn: the queries, the total of clipped counts at each
threshold searched, the radius, the vote totals and the labels. n - 2 colluders learn nothing more
about the others; see the chapter on leakage. With `votes` the counts stay secret-shared, and only
comparisons with k are opened. All parties learn the final interval of the search, how it ended, the
vote totals and the labels. A coalition of fewer than half of the parties learns nothing more. With
`label` the votes stay secret-shared as well: the parties learn the labels, and the number of votes
in case of ties.

Every message carries the hash of its sender's public inputs: parties, parameters, queries and all
totals so far. The masks of a sum are bound to it as well. Each party checks opened values against
its own rows; `veilring.protocols.ranksearch.shared` says why a failed check ends the batch only
after the last step.
"""

from dataclasses import dataclass

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.errors import InputError, Tampered
from veilring.nodes.party import Party
from veilring.protocols.batches import hand_out
from veilring.protocols.digests import digest_of, digest_of_names
from veilring.protocols.masks import MaskedSums, Public, agree_keys
from veilring.protocols.ranksearch.algorithm.argmax import VOTES_MAX, vote_bounds
from veilring.protocols.ranksearch.algorithm.search import Found, TotalsSearch, clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import (
    TIED_ROWS,
    Nearest,
    Votes,
    could_be_votes,
    most_rows,
    nearest_rows,
    word_for,
)
from veilring.protocols.ranksearch.memory import SearchedRows, keys_of
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.shared import Checks, SharedRounds, find_labels, find_radii


@dataclass(frozen=True, slots=True, repr=False)  # asyncio writes out a task with its result
class SearchAnswer:
    """The answer that every party learns about a batch of Q queries.

    Attributes:
        labels: Shape (Q,), the class with the most votes; ties go to the lowest class. If the
            label is a number, the mean target of the rows that vote, in steps.
        votes: Shape (Q, classes), the total of all parties' votes; none with `reveal = "label"`. If
            the label is a number, shape (Q, 2): the number of rows and the sum of their targets.
        tied_rows: With `reveal = "label"`, the number of rows that vote on each query with ties,
            shape (tied,); otherwise none, since the votes show it.
    """

    labels: Ints
    votes: Floats | None
    found: Found
    tied_rows: Ints | None = None


async def rank_search(
    party: Party,
    own: SearchedRows,
    *,
    client: str,
    parameters: SearchParameters,
    queries: Floats | None = None,
    announced: int | None = None,
) -> SearchAnswer:
    """Label a batch of queries by the nearest rows of all parties.

    Distributing the queries and agreeing on keys are set-up. The client has queries of shape (Q,
    features), whose number is the announced one if that is given. All parties return the same
    answer.

    Raises:
        AskedBefore: If the party has sent values for some of the queries among other parties, or
            in a batch with a failed check.
        StoreFailed: If its memory is in a file and the disk failed; no value has been sent then.
        ProtocolViolation: If a peer sent something that no honest party sends.
        Tampered: If the parties' public inputs differ, or honest parties could not have this
            outcome.
    """
    system, k = parameters.system, parameters.system.k
    parameters.check_parties(len(party.parties))
    parameters.check_rows(own.rows, len(party.parties))
    asked = list[bytes]()

    def check(batch: Floats) -> None:
        parameters.check_queries(batch)
        asked[:] = keys_of(batch)
        refuse()

    def refuse() -> None:
        if not system.again:  # not a lie of the client, which may have restarted and forgotten
            own.refuse(asked, party.parties)

    batch = await hand_out(party, client, queries, check, announced=announced, due=-1)
    nearest = nearest_rows(batch, own.rows, k)
    keys = await agree_keys(party)
    parts = parameters.written.encode(), digest_of_names(party.parties), batch.tobytes()
    public = Public(digest_of(*parts), (client,))
    adder = client if parameters.has_adder else None
    refuse()  # again: another session may have sent values since
    own.remember(asked, party.parties)  # from here on only sending can fail

    checks = Checks(party, keys)
    last: MaskedSums | SharedRounds
    if system.reveal == "totals":
        last = sums = MaskedSums(party, keys, adder, public=public)
        found, search = await _find_radii(sums, nearest, parameters, len(party.parties), checks)
        answer = await _add_votes(
            sums, parameters.votes_of(batch, own.rows, nearest, found), found, search, k, checks
        )
    else:
        rounds = SharedRounds(party, keys, public)
        found, masks = await find_radii(party, rounds, nearest, parameters, checks)
        votes = parameters.votes_of(batch, own.rows, nearest, found)
        last = sums = MaskedSums(party, keys, adder, rounds.next_round, public=rounds.public)
        if system.reveal == "votes":
            answer = await _add_votes(sums, votes, found, None, k, checks)
        else:
            tied_rows = await _count_tied(sums, votes, found, k, checks)
            last = rounds = SharedRounds(party, keys, sums.public, sums.next_round)
            most = vote_bounds(found.tied, tied_rows, k)
            labels = await find_labels(rounds, party, votes, most, masks, parameters, checks)
            answer = SearchAnswer(labels, None, found, tied_rows)
    if not await checks.passed(last.public, last.next_round):
        own.distrust(asked)
        party.accuse(Tampered(party.peers, "caused results that honest rows cannot have"))
    return answer


async def _find_radii(
    sums: MaskedSums, nearest: Nearest, parameters: SearchParameters, parties: int, checks: Checks
) -> tuple[Found, TotalsSearch]:
    """Return the radii, and the search with the totals that were opened."""
    search = parameters.search(len(nearest.distances), parties)
    word = parameters.count_word(parties)
    while (asked := search.ask()) is not None:
        own = clipped_counts(nearest.distances, asked)
        (words,) = await sums.add((own.astype(word),))
        totals = words.astype(np.int64)
        if not search.could_be(asked, totals, own, nearest.distances):
            checks.fail()
        search.take(asked, totals)
    return search.found(), search


async def _add_votes(  # noqa: PLR0917  (own votes, and the public results of the search)
    sums: MaskedSums,
    votes: Votes,
    found: Found,
    search: TotalsSearch | None,
    k: int,
    checks: Checks,
) -> SearchAnswer:
    """Add up the votes of all parties, and open the totals."""
    totals = Votes.of(await sums.add(votes.arrays(found.tied, k)), found.tied, votes.steps)
    at_radius = most_rows(totals, found, k) if search is None else search.at_radius
    at_least = None if search is None else search.at_least
    if not could_be_votes(totals, votes, found, at_radius, at_least):
        checks.fail()
    return SearchAnswer(totals.labels, totals.values, found)


async def _count_tied(sums: MaskedSums, votes: Votes, found: Found, k: int, checks: Checks) -> Ints:
    """Return the number of rows within the radius of each query with ties, shape (tied,)."""
    own = np.asarray(votes.counts[found.tied].sum(axis=1), dtype=word_for(TIED_ROWS))
    if not len(own):
        return np.empty(0, dtype=np.int64)
    (totals,) = await sums.add((own,))
    if not ((totals >= own) & (totals > k)).all():
        checks.fail()
    most = int(totals.max())
    if most > VOTES_MAX:
        raise InputError.because(
            f"{most:,} rows are said to tie at the k-th place of a query, but at most"
            f" {VOTES_MAX:,} votes can be compared without revealing them. One party may have"
            " claimed these rows: ask the parties how many equal rows they have. If they do have"
            ' them, ask other queries; reveal = "votes" has no such limit, but shows the votes to'
            " all parties",
            field="reveal",
        )
    return np.maximum(totals.astype(np.int64), k + 1)  # less is a lie: go on regardless
