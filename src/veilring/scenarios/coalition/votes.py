"""Whose votes a coalition recovers from the secure sum."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from veilring.protocols.ring.algorithm.sums import SumMethod, exposure_probability
from veilring.protocols.ring.attacks.runs import CoalitionView, recover_groups
from veilring.scenarios.coalition.truth import Truth


class Votes(NamedTuple):
    """What came of the attack on one secure sum."""

    exposed: frozenset[str]
    """The parties whose votes were recovered, each alone, exactly."""
    groups: int
    recovered: int
    """Of the groups, those whose sum was found exactly."""


def recover_votes(
    view: CoalitionView, truth: Truth, method: SumMethod, liars: Collection[str]
) -> Votes:
    """Recover the votes of all groups of honest parties and hold them against the truth.

    Args:
        view: The joint view, with the members' own votes.
        truth: What all put in.
        method: How the votes were added up.
        liars: Malicious parties. What they put in is not known, nor is a group with one judged.
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
    if method.name == "shares":
        return float(members == parties - 1)
    return exposure_probability(parties, members, method.cycles)
