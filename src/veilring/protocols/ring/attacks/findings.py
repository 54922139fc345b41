"""The knowledge that a coalition gains from its views of a run, compared with the truth.

Only an experiment has the rows of all parties and can check the findings. The attacks use only what
the coalition has: its members' views, rows and names, and public values.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.arrays import Bools, Floats
from veilring.data.table import pairwise_distances
from veilring.errors import InputError
from veilring.protocols.claims import (
    Attempt,
    Batch,
    Coalition,
    Findings,
    FoundTable,
    SummaryLine,
    expected_of,
    share_of,
)
from veilring.protocols.promise import Estimate
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
from veilring.protocols.ring.roles import SCALE_BITS

if TYPE_CHECKING:
    from veilring.protocols.ring.system import RingSetup


@dataclass(frozen=True, slots=True)
class Attack:
    """The accuracy of claims that an entry of PP-TopK's vector is the victim's own.

    Attributes:
        located: The number of the victim's distances that were claimed correctly, each counted
            once.
    """

    claims: int = 0
    right: int = 0
    located: int = 0

    def plus(self, other: "Attack") -> "Attack":
        """Return the sum of both."""
        return Attack(
            self.claims + other.claims, self.right + other.right, self.located + other.located
        )

    @property
    def text(self) -> str:
        """The share of correct claims in words."""
        return share_of(self.right, self.claims) if self.claims else "no claims"


@dataclass(frozen=True, slots=True)
class Victim:
    """A coalition's findings about a neighbour of one of its members, over all batches.

    Attributes:
        between: The number of those queries for which it was between two members.
        distances: The number of distances that it contributed to PP-TopK for them: at most k each.
        optimal: The attack that claims values more likely the victim's own than not; `None` if it
            was not tried.
    """

    party: str
    queries: int
    between: int
    votes: int
    distances: int
    simple: Attack
    optimal: Attack | None
    pinned: int
    pinned_expected: Estimate


@dataclass(frozen=True, slots=True)
class Named:
    """The number of nearest distances, which are public, traced to their owners.

    Attributes:
        recurred: The number of distances seen in a failed attempt and again, and thus known to be
            real.
    """

    values: int
    guessed: float
    named: float
    with_retries: float
    recurred: int
    recurred_hidden: int


@dataclass(frozen=True, slots=True)
class RingFindings(Findings):
    """The findings of a semi-honest coalition, compared with the truth.

    Attributes:
        victims: The neighbours of members, in the order of the parties.
        exposure: The closed-form probability that all neighbours of an honest party are members,
            for the ring of the first batch.
    """

    victims: tuple[Victim, ...]
    exposure: float
    honest: int
    exposed: int
    exposed_expected: float
    groups: int
    groups_recovered: int
    named: Named

    @override
    def lines(self, *, retried: bool) -> Iterator[SummaryLine]:
        yield self.line_of_members()
        expected = f"parties whose votes it computed exactly; {self.exposed_expected:.2f} expected"
        yield SummaryLine("votes exposed", share_of(self.exposed, self.honest), expected)
        sums = "groups of honest parties whose summed votes it computed exactly"
        yield SummaryLine("vote sums", share_of(self.groups_recovered, self.groups), sums)
        yield from self._lines_of_distances()
        named = self.named
        guessed = f"{named.guessed:,.1f}".removesuffix(".0")
        meaning = f"of the nearest distances traced to their owners; {guessed} expected by guessing"
        yield SummaryLine("owners named", expected_of(named.named, named.values), meaning)
        if retried:
            again = expected_of(named.with_retries, named.values)
            meaning = "as above, if it also uses views of the failed attempts"
            yield SummaryLine("with failed attempts", again, meaning)
            hidden = f"distances seen again, hence real; {named.recurred_hidden:,} are in no result"
            yield SummaryLine("recurred", f"{named.recurred:,}", hidden)

    def _lines_of_distances(self) -> Iterator[SummaryLine]:
        simple = _sum_attacks(victim.simple for victim in self.victims)
        optimal = _sum_tried(victim.optimal for victim in self.victims)
        meaning = "if it attributes every new value in a neighbour's message to that neighbour"
        yield SummaryLine("correct claims", simple.text, meaning)
        meaning = "if it attributes only values that are more likely the neighbour's than not"
        yield SummaryLine("correct likely claims", _said(optimal), meaning)
        held = sum(victim.distances for victim in self.victims)
        kind = "all" if optimal is None else "the likely"
        meaning = f"of its neighbours' distances, found by {kind} claims"
        located = share_of((optimal or simple).located, held)
        yield SummaryLine("distances located", located, meaning)

    @override
    def table(self) -> FoundTable | None:
        if not self.victims:
            return None
        return FoundTable(_TITLE, _NOTE, _HEAD, tuple(map(_row, self.victims)))


_TITLE: Final = "Neighbours of members"
_NOTE: Final = (
    "The votes of a party between two members are known exactly. A “claim” attributes an entry of"
    " PP-TopK's vector to that party: either every new entry, or only those that are more likely"
    " its own than not. A query is “pinned” if a distance provably came from that party."
)
_HEAD: Final = (
    "party",
    "queries",
    "between two",
    "votes found",
    "correct claims",
    "correct likely claims",
    "located",
    "distances",
    "pinned",
    "expected",
)


def _row(victim: Victim) -> tuple[str, ...]:
    expected = victim.pinned_expected
    return (
        victim.party,
        f"{victim.queries:,}",
        f"{victim.between:,}",
        f"{victim.votes:,}",
        victim.simple.text,
        _said(victim.optimal),
        f"{(victim.optimal or victim.simple).located:,}",
        f"{victim.distances:,}",
        f"{victim.pinned:,}",
        f"{expected.value:.1f} ± {expected.standard_error:.1f}",
    )


def _said(attack: Attack | None) -> str:
    return "not tried" if attack is None else attack.text


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


def truth_of(batch: Batch, setup: "RingSetup") -> Truth:
    """Return the input of each party to a batch, if all follow the protocol."""
    system, fixed = setup.parameters.system, FixedPoint(SCALE_BITS, len(batch.parties))
    own, votes = {}, {}
    for party, rows in setup.parts.items():
        if party in batch.parties:
            to_rows = pairwise_distances(batch.queries, rows.features)
            own[party] = own_smallest(to_rows, system.k)
            cast = local_votes(
                to_rows,
                rows.labels,
                batch.answer.nearest,
                classes=setup.facts.classes,
                weights=system.weights,
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


def recover_votes(
    view: CoalitionView, truth: Truth, method: SumMethod, liars: Collection[str]
) -> tuple[int, set[frozenset[str]]]:
    """Recover the votes of all groups of honest parties and compare them with the truth.

    Args:
        liars: Malicious parties. Their inputs are unknown, so groups with one are not counted.

    Returns:
        The number of groups, and those whose sum was recovered exactly.
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
    return len(found), exact


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


def find(setup: "RingSetup", batches: Mapping[int, Batch], coalition: Coalition) -> RingFindings:
    """Attack batches of a run, by their numbers, with the joint view of a coalition."""
    found = [_find_in(setup, batch, number, coalition) for number, batch in batches.items()]
    victims = [victim for each in found for victim in each.victims]
    neighbours = {victim.party for victim in victims}
    return replace(
        found[0],
        victims=tuple(
            _sum_victims([each for each in victims if each.party == party])
            for party in setup.parties
            if party in neighbours
        ),
        named=_sum_named([each.named for each in found]),
        **{name: sum(getattr(each, name) for each in found) for name in _SUMS},
    )


_SUMS: Final = ("honest", "exposed", "exposed_expected", "groups", "groups_recovered")


def _find_in(setup: "RingSetup", batch: Batch, number: int, coalition: Coalition) -> RingFindings:
    parameters, ring = setup.parameters, batch.seen.ring
    if ring is None:
        raise InputError.because(
            "the views lack the ring; the run must have succeeded", field="views"
        )
    truth, liars = truth_of(batch, setup), coalition.liars
    joint = CoalitionView(
        ring, batch.seen.views, {member: truth.votes[member] for member in batch.seen.views}
    )
    groups, recovered = recover_votes(joint, truth, parameters.sum, liars)
    exposed = {party for group in recovered if len(group) == 1 for party in group}
    view = topk_view(joint, parameters.topk)
    failed = [seen for attempt in batch.failed if (seen := _failed_view(attempt, parameters.topk))]
    rows = [len(setup.parts[party]) for party in setup.parts if party in view.members]
    prior = fit_prior(batch.answer.nearest, len(ring), round(float(np.mean(rows))), parameters.topk)
    rng = coalition.streams.generator("coalition", number)
    pinned_expected = expected_pinned(view, truth.own, max(1, coalition.trials), rng)
    victims = []
    for party, between in beside(view).items():
        if party not in liars:
            own = truth.own[party]
            decided = decide(view, party, prior, coalition.trials, rng)
            victims.append(
                Victim(
                    party=party,
                    queries=view.runs,
                    between=view.runs * between,
                    votes=view.runs * (party in exposed),
                    distances=int(np.isfinite(own).sum()),
                    simple=attack_distances(view, party, own, None),
                    optimal=None
                    if decided is None
                    else attack_distances(view, party, own, decided),
                    pinned=pinned(view, party, own),
                    pinned_expected=pinned_expected[party],
                )
            )
    honest = len(set(batch.others).difference(liars))
    share = exposure(len(ring), len(batch.seen.views), parameters.sum)
    return RingFindings(
        members=coalition.members,
        victims=tuple(victims),
        exposure=share,
        honest=honest,
        exposed=len(exposed),
        exposed_expected=share * honest,
        groups=groups,
        groups_recovered=len(recovered),
        named=name_owners(view, failed, {party: truth.own[party] for party in batch.others}),
    )


def _failed_view(attempt: Attempt, parameters: TopKParameters) -> TopKView | None:
    """Return the view of a failed attempt; `None` if it contains no vector."""
    if attempt.ring is None or not attempt.views:
        return None
    try:
        return topk_view(CoalitionView(attempt.ring, attempt.views), parameters)
    except InputError:
        return None


def _sum_victims(of: Sequence[Victim]) -> Victim:
    """Return the findings of all batches about one party."""
    counts = ("queries", "between", "votes", "distances", "pinned")
    expected = [victim.pinned_expected for victim in of]
    return Victim(
        party=of[0].party,
        simple=_sum_attacks(victim.simple for victim in of),
        optimal=_sum_tried(victim.optimal for victim in of),
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


def _sum_tried(attacks: Iterable[Attack | None]) -> Attack | None:
    """Return the sum of attacks; `None` if one of them was not tried."""
    each = list(attacks)
    tried = [attack for attack in each if attack is not None]
    return _sum_attacks(tried) if len(tried) == len(each) else None


def _sum_named(named: Sequence[Named]) -> Named:
    tables: list[dict[str, Any]] = [asdict(each) for each in named]
    return Named(**{name: sum(table[name] for table in tables) for name in tables[0]})
