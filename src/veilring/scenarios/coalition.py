"""Attacks of a scenario's coalition on the ring and on rank search, compared with the truth.

Only the runner of an experiment has the rows of all parties and can check the findings. The attacks
use only what the coalition has: its members' views, rows and names, and public values.

In rank search a coalition knows every total and subtracts its members' own counts. The rest is the
sum over the parties outside it, which is the count of one party if only one is left. The view does
not depend on how rows are divided among the parties outside, so the owner of a row cannot be named
better than by guessing.
"""

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.nodes.journal import View
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.promise import Estimate
from veilring.protocols.ranksearch.algorithm.search import Asked
from veilring.protocols.ranksearch.algorithm.votes import count_rows, nearest_rows
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.system import SearchSetup
from veilring.protocols.ring.algorithm.classify import local_votes
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod, exposure_probability
from veilring.protocols.ring.algorithm.topk import TopKParameters, own_smallest
from veilring.protocols.ring.attacks import CoalitionView, recover_groups, topk_view
from veilring.protocols.ring.attacks.posterior import decide_by, fit_cells, sandwich_posterior
from veilring.protocols.ring.attacks.views import (
    TopKView,
    UniformPrior,
    claim_new,
    expected_hits,
    find_owners,
    judge_claims,
    owned,
    recurring,
)
from veilring.protocols.ring.leakage import exposure_to_coalition
from veilring.protocols.ring.roles import SCALE_BITS, KNNParameters
from veilring.protocols.ring.system import RingSetup
from veilring.randomness import Streams
from veilring.scenarios.batches import Attempt, Batch
from veilring.scenarios.prepare import Prepared
from veilring.scenarios.report import Attack, Findings, Named, TotalsFindings, Victim

_Counts = Ints


def find_in_totals(prepared: Prepared, batches: Sequence[Batch]) -> TotalsFindings | None:
    """Compute the totals of the parties outside from the coalition's views of all batches.

    Returns:
        The findings; `None` if no batch had both members and other parties.
    """
    found = [
        _find_in_search(batch, prepared)
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


def _find_in_search(batch: Batch, prepared: Prepared) -> TotalsFindings:
    parts = prepared.setup.parts
    members = [parts[name] for name in batch.seen.views]
    others = [parts[name] for name in batch.parties if name not in batch.seen.views]
    public = cast("SearchSetup", prepared.setup).parameters  # other systems refuse a coalition
    view = next(iter(batch.seen.views.values()))
    known = read_others(view, batch.queries, members, public, len(batch.parties))
    near = [nearest_rows(batch.queries, rows, public.system.k) for rows in others]
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
    view: View, queries: Floats, members: Sequence[Rows], public: SearchParameters, parties: int
) -> Iterator[tuple[Asked, _Counts]]:
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


@dataclass(frozen=True, slots=True, repr=False)
class Truth:
    """The true inputs to a batch, by party.

    Attributes:
        own: The k smallest distances, shape (Q, k), padded with `+inf`.
        votes: The votes as the secure sum adds them up, shape (Q, classes).
    """

    own: Mapping[str, Floats]
    votes: Mapping[str, Floats]
    fixed: FixedPoint


def parameters_of(prepared: Prepared) -> KNNParameters:
    """Return the parameters of the ring that was run."""
    setup = cast("RingSetup", prepared.setup)  # other systems refuse a coalition
    return setup.parameters


def truth_of(batch: Batch, prepared: Prepared) -> Truth:
    """Return the input of each party to a batch, if all follow the protocol."""
    parameters, fixed = parameters_of(prepared), FixedPoint(SCALE_BITS, len(batch.parties))
    own, votes = {}, {}
    for party, rows in prepared.setup.parts.items():
        if party in batch.parties:
            to_rows = pairwise_distances(batch.queries, rows.features)
            own[party] = own_smallest(to_rows, parameters.system.k)
            cast = local_votes(
                to_rows,
                rows.labels,
                batch.answer.nearest,
                classes=parameters.facts.classes,
                weights=parameters.system.weights,
            )
            votes[party] = fixed.decode(fixed.encode(cast))
    return Truth(own, votes, fixed)


# The number of vector entries that a coalition simulates for one batch: a second or two. With 1,000
# parties, 100 of which collude, that leaves 100 runs for each victim.
SIMULATED_ENTRIES_MAX: Final = 2**22
# With fewer runs, a cell of the posterior is mostly its prior, which is hardly an attack.
SIMULATED_MIN: Final = 100
# Integrals of the exact posterior for one batch, one for each victim, query and round: a few
# seconds.
INTEGRALS_MAX: Final = 2**15


def beside(view: TopKView) -> dict[str, bool]:
    """Return the honest neighbours of members, and whether both their neighbours are members."""
    order, found = view.order, {}
    for place, party in enumerate(order):
        near = (order[place - 1] in view.members, order[(place + 1) % len(order)] in view.members)
        if party not in view.members and any(near):
            found[party] = all(near)
    return found


def fit_prior(nearest: Floats, parties: int, rows: int, parameters: TopKParameters) -> UniformPrior:
    """Return the coalition's prior on others' distances, fitted to what it knows.

    Each party is assumed to hold as many rows as the average member. Distances are assumed uniform
    from 0, with the density of the public result: k of all rows are within its last entry.

    Args:
        nearest: The public result, shape (Q, k).
    """
    rows = max(1, rows)
    upper = float(np.median(nearest[:, -1])) * parties * rows / parameters.k
    return UniformPrior(rows, float(np.clip(upper, np.finfo(float).tiny, parameters.upper)))


def attack_distances(view: TopKView, victim: str, own: Floats, decided: Bools | None) -> Attack:
    """Return the accuracy of claims about a victim's distances.

    Args:
        own: Its k smallest distances, shape (Q, k).
        decided: The new entries to claim; all by default.
    """
    success = judge_claims(claim_new(view, victim), own, decided)
    claims = round(success.claims * view.runs)
    located = round(success.recall * int(np.isfinite(own).sum()))
    return Attack(claims, round(success.precision * claims), located)


def decide(
    view: TopKView, victim: str, prior: UniformPrior, trials: int, rng: Generator
) -> Bools | None:
    """Return which new entries are more likely the victim's own than not.

    For a victim between two members that is exact under the prior; otherwise it is simulated, with
    the coalition at its positions. `None` if that would take too long.
    """
    victims, parameters = beside(view), view.parameters
    if victims[victim]:
        integrals = len(victims) * view.runs * parameters.rounds
        if integrals > INTEGRALS_MAX:
            return None
        return decide_by(sandwich_posterior(view, victim, prior))
    order = view.order
    entries = len(victims) * len(order) * parameters.rounds * parameters.k
    trials = min(trials, SIMULATED_ENTRIES_MAX // entries)
    if trials < SIMULATED_MIN:
        return None
    places = [order.index(member) for member in order if member in view.members]
    cells = fit_cells(parameters, len(order), order.index(victim), places, prior, trials, rng)
    return decide_by(cells.posterior(view, victim))


def pinned(view: TopKView, victim: str, own: Floats) -> int:
    """Return the number of queries for which a distance provably came from a party.

    That is the case if the coalition saw the vector directly before and directly after the party's
    turn.
    """
    mine = np.any(owned(claim_new(view, victim), own), axis=-1, keepdims=True)
    hops = enumerate(view.hops_of(victim))
    seen = [mine[turn] for turn, hop in hops if {hop, hop + 1} <= view.vectors.keys()]
    return int(np.any(seen, axis=0).sum()) if seen else 0


def expected_pinned(
    view: TopKView, own: Mapping[str, Floats], trials: int, rng: Generator
) -> dict[str, Estimate]:
    """Return the expectation of `pinned` over coins and noise, for each honest party.

    The standard error is that of independent runs; different queries make it smaller.

    Args:
        own: The k smallest distances of all parties, shape (Q, k).
        trials: The minimum number of simulated runs, at least 1; each query has the same number.
    """
    values = np.stack([own[party] for party in view.order], axis=1)
    entries = values.size * view.parameters.rounds
    times = max(1, min(trials, SIMULATED_ENTRIES_MAX // entries * len(values)) // len(values))
    places = [view.order.index(member) for member in view.order if member in view.members]
    found = exposure_to_coalition(np.repeat(values, times, axis=0), view.parameters, places, rng)
    error = np.sqrt(found.exactly * (1 - found.exactly) / found.trials)
    scaled = zip(view.order, len(values) * found.exactly, len(values) * error, strict=True)
    return {
        party: Estimate(float(mean), float(spread))
        for party, mean, spread in scaled
        if party not in view.members
    }


class Votes(NamedTuple):
    """The result of the attack on one secure sum."""

    exposed: frozenset[str]
    """The parties whose individual votes were recovered exactly."""
    groups: int
    recovered: int
    """The number of groups whose sum was recovered exactly."""


def recover_votes(
    view: CoalitionView, truth: Truth, method: SumMethod, liars: Collection[str]
) -> Votes:
    """Recover the votes of all groups of honest parties and compare them with the truth.

    Args:
        liars: Malicious parties. Their inputs are unknown, so groups with one are not counted.
    """
    found = {
        group: values
        for group, values in recover_groups(view, method=method, fixed=truth.fixed).items()
        if not group & set(liars)
    }
    exact = {
        group
        for group, values in found.items()
        if np.array_equal(values, sum(truth.votes[party] for party in group))
    }
    alone = frozenset(party for group in exact if len(group) == 1 for party in group)
    return Votes(alone, len(found), len(exact))


def exposure(parties: int, members: int, method: SumMethod) -> float:
    """Return the probability that an honest party's votes are exposed, in closed form."""
    if not method.goes_round:
        return float(members == parties - 1)
    return exposure_probability(parties, members, method.cycles)


def name_owners(view: TopKView, failed: Sequence[TopKView], own: Mapping[str, Floats]) -> Named:
    """Name the likeliest owner of each distance in the result, or any of them in a tie.

    Args:
        failed: Its views of earlier sessions that failed, in which more parties may have taken
            part.
        own: The k smallest distances of the parties outside the coalition, shape (Q, k).
    """
    candidates = tuple(sorted(own))
    result = view.result
    if result is None:
        return Named(0, 0.0, 0.0, 0.0, 0, 0)
    held = np.stack(
        [(own[party][:, None] == result[..., None]).any(-1) for party in candidates], -1
    )
    real = held.any(axis=-1)
    alone = _posterior(view, result, candidates)
    with_failed = alone.copy()
    for session in failed:
        # All owners are equally likely a priori, so the posteriors of single sessions multiply. A
        # session that did not show a distance says nothing about it: a row of a lost party may have
        # displaced it.
        told = _held_anywhere(session, result)[..., None]
        with_failed *= np.where(told, _posterior(session, result, candidates), 1.0)
    mine = np.concatenate([own[party] for party in candidates], axis=1)
    met = [np.intersect1d(*pair) for pair in zip(_seen_again(view, failed), mine, strict=True)]
    hidden = [np.setdiff1d(*pair) for pair in zip(met, result, strict=True)]
    return Named(
        values=int(real.sum()),
        guessed=float((held.sum(axis=-1) / len(candidates))[real].sum()),
        named=expected_hits(alone[real], held[real]),
        with_retries=expected_hits(with_failed[real], held[real]),
        recurred=sum(values.size for values in met),
        recurred_hidden=sum(values.size for values in hidden),
    )


def _posterior(session: TopKView, values: Floats, candidates: Sequence[str]) -> Floats:
    """Return the posterior over the remaining parties, up to a factor, (Q, k, candidates)."""
    owners = find_owners([session], values)
    places = [owners.candidates.index(party) for party in candidates]
    return owners.posterior[..., places]


def _held_anywhere(session: TopKView, values: Floats) -> Bools:
    """Return which values of (Q, k) the coalition saw in a session."""
    seen = np.concatenate([*session.vectors.values()], axis=1)
    return np.asarray((values[:, :, None] == seen[:, None]).any(axis=-1))


def _seen_again(view: TopKView, failed: Sequence[TopKView]) -> tuple[Floats, ...]:
    """Return the values seen in several sessions, for each query.

    Positions do not matter for this, so the ring that succeeded is used for all sessions.
    """
    alike = [replace(session, order=view.order, members=view.members) for session in failed]
    return recurring([*alike, view])


@dataclass(frozen=True, slots=True)
class _Found:
    """The findings in one batch."""

    victims: tuple[Victim, ...]
    exposure: float
    exposed: int
    honest: int
    groups: int
    recovered: int
    named: Named


def find(
    prepared: Prepared, batches: Sequence[Batch], trials: int, streams: Streams
) -> Findings | None:
    """Attack all batches of a run with the joint view of its coalition.

    Args:
        trials: The maximum number of runs that a coalition simulates; 0 for none.

    Returns:
        The findings; `None` if nobody colludes, or if no batch had both members and other parties.
    """
    found = [
        _find_in(batch, number, prepared, trials, streams)
        for number, batch in enumerate(batches)
        if 0 < len(batch.seen.views) < len(batch.parties)  # some party is left to attack
    ]
    if not found:
        return None
    victims = (_together(party, found) for party in prepared.parties)
    return Findings(
        members=prepared.coalition,
        victims=tuple(victim for victim in victims if victim is not None),
        exposure=found[0].exposure,
        honest=sum(each.honest for each in found),
        exposed=sum(each.exposed for each in found),
        exposed_expected=sum(each.exposure * each.honest for each in found),
        groups=sum(each.groups for each in found),
        groups_recovered=sum(each.recovered for each in found),
        named=_sum_named(each.named for each in found),
    )


def _find_in(
    batch: Batch, number: int, prepared: Prepared, trials: int, streams: Streams
) -> _Found:
    truth, method = truth_of(batch, prepared), parameters_of(prepared).sum
    members = batch.seen.views.keys()
    ring = batch.seen.ring
    if ring is None:
        raise InputError.because(
            "the views lack the ring; the run must have succeeded", field="views"
        )
    own = {member: truth.votes[member] for member in members}
    joint = CoalitionView(ring, batch.seen.views, own)
    votes = recover_votes(joint, truth, method, prepared.adversaries)
    view = topk_view(joint, parameters_of(prepared).topk)
    others = {party: own for party, own in truth.own.items() if party not in members}
    failed = [seen for attempt in batch.failed if (seen := _failed_view(attempt, prepared))]
    return _Found(
        victims=_victims(
            view,
            truth,
            exposed=votes.exposed,
            liars=prepared.adversaries,
            prior=_prior(view, batch, prepared),
            trials=trials,
            rng=streams.generator("coalition", number),
        ),
        exposure=exposure(len(ring), len(members), method),
        exposed=len(votes.exposed),
        honest=len(others.keys() - prepared.adversaries.keys()),
        groups=votes.groups,
        recovered=votes.recovered,
        named=name_owners(view, failed, others),
    )


def _failed_view(attempt: Attempt, prepared: Prepared) -> TopKView | None:
    """Return the view of a failed attempt; `None` if it contains no vector."""
    if attempt.ring is None or not attempt.views:
        return None
    try:
        return topk_view(CoalitionView(attempt.ring, attempt.views), parameters_of(prepared).topk)
    except InputError:
        return None


def _prior(view: TopKView, batch: Batch, prepared: Prepared) -> UniformPrior:
    held = prepared.setup.parts.items()
    rows = [len(own) for party, own in held if party in view.members]
    mean = round(float(np.mean(rows)))
    return fit_prior(batch.answer.nearest, len(view.order), mean, view.parameters)


def _victims(
    view: TopKView,
    truth: Truth,
    *,
    exposed: frozenset[str],
    liars: Container[str],
    prior: UniformPrior,
    trials: int,
    rng: Generator,
) -> tuple[Victim, ...]:
    expected = expected_pinned(view, truth.own, max(1, trials), rng)
    found = []
    for party, between in beside(view).items():
        if party in liars:
            continue
        own = truth.own[party]
        decided = decide(view, party, prior, trials, rng)
        found.append(
            Victim(
                party=party,
                queries=view.runs,
                between=view.runs * between,
                votes=view.runs * (party in exposed),
                distances=int(np.isfinite(own).sum()),
                simple=attack_distances(view, party, own, None),
                optimal=None if decided is None else attack_distances(view, party, own, decided),
                pinned=pinned(view, party, own),
                pinned_expected=expected[party],
            )
        )
    return tuple(found)


def _together(party: str, found: Iterable[_Found]) -> Victim | None:
    """Return the findings of all batches about a party, if it was ever next to a member."""
    of = [victim for each in found for victim in each.victims if victim.party == party]
    if not of:
        return None
    optimal = [victim.optimal for victim in of if victim.optimal is not None]
    counts = ("queries", "between", "votes", "distances", "pinned")
    expected = [victim.pinned_expected for victim in of]
    return Victim(
        party=party,
        simple=_sum_attacks(victim.simple for victim in of),
        optimal=_sum_attacks(optimal) if len(optimal) == len(of) else None,
        pinned_expected=Estimate(
            sum(each.value for each in expected),
            math.hypot(*(each.standard_error for each in expected)),
        ),
        **{name: sum(getattr(victim, name) for victim in of) for name in counts},
    )


def _sum_attacks(attacks: Iterable[Attack]) -> Attack:
    total = Attack()
    for attack in attacks:
        total = total.plus(attack)
    return total


def _sum_named(named: Iterable[Named]) -> Named:
    tables = [asdict(each) for each in named]
    return Named(**{name: sum(table[name] for table in tables) for name in tables[0]})
