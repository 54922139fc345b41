"""All attacks on the joint view of all batches, and what they found together."""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.random import Generator

from veilring.errors import InputError
from veilring.protocols.ring.attacks import CoalitionView, TopKView, UniformPrior, topk_view
from veilring.protocols.system import Estimate
from veilring.randomness import Streams
from veilring.scenarios.coalition.distances import (
    attack_distances,
    beside,
    decide,
    expected_pinned,
    fit_prior,
    pinned,
)
from veilring.scenarios.coalition.owners import name_owners
from veilring.scenarios.coalition.truth import Truth, parameters_of, truth_of
from veilring.scenarios.coalition.votes import exposure, recover_votes
from veilring.scenarios.findings import Attack, Findings, Named, Victim
from veilring.scenarios.labelling import Attempt, Batch
from veilring.scenarios.prepare import Prepared


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found in one batch."""

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
        prepared: The run, and who colludes.
        batches: What came of it.
        trials: How many runs a coalition simulates at most; with 0 it does without.
        streams: Where those runs come from.

    Returns:
        What was found; `None` if nobody colludes, or no batch had both members and others left.
    """
    found = [
        _find_in(batch, number, prepared, trials, streams)
        for number, batch in enumerate(batches)
        if 0 < len(batch.seen.views) < len(batch.parties)  # somebody is left to be attacked
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
        raise InputError("views", "without the ring", "views of a run that succeeded")
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
            votes.exposed,
            prepared.adversaries,
            _prior(view, batch, prepared),
            trials,
            streams.generator("coalition", number),
        ),
        exposure=exposure(len(ring), len(members), method),
        exposed=len(votes.exposed),
        honest=len(others.keys() - prepared.adversaries.keys()),
        groups=votes.groups,
        recovered=votes.recovered,
        named=name_owners(view, failed, others),
    )


def _failed_view(attempt: Attempt, prepared: Prepared) -> TopKView | None:
    """Return what was seen of an attempt that failed; `None` if that was no vector."""
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


def _victims(  # noqa: PLR0917  (a view, what is known, and what to try)
    view: TopKView,
    truth: Truth,
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
    """Return what all batches tell of a party, if it ever sat beside a member."""
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
