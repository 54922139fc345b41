"""Which distances of its victims a coalition finds in PP-TopK's vectors."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.attacks.cells import fit_cells
from veilring.protocols.ring.attacks.posterior import decide_by, sandwich_posterior
from veilring.protocols.ring.attacks.views import (
    TopKView,
    UniformPrior,
    claim_new,
    judge_claims,
    owned,
)
from veilring.protocols.ring.leakage import exposure_to_coalition
from veilring.protocols.system import Estimate
from veilring.scenarios.findings import Attack

# Entries of the vectors that a coalition simulates to prepare itself for one batch: a second or
# two. Of 1,000 parties, 100 of which collude, each victim is left with 100 runs.
SIMULATED_ENTRIES_MAX: Final = 2**22
# With fewer runs than this a cell of the posterior is mostly its prior: no attack worth the name.
SIMULATED_MIN: Final = 100
# Integrals of the exact posterior for one batch, one a victim, query and round: a few seconds.
INTEGRALS_MAX: Final = 2**15


def beside(view: TopKView) -> dict[str, bool]:
    """Return the honest neighbours of members, and whether both their neighbours are members."""
    order, found = view.order, {}
    for place, party in enumerate(order):
        near = (order[place - 1] in view.members, order[(place + 1) % len(order)] in view.members)
        if party not in view.members and any(near):
            found[party] = all(near)
    return found


def fit_prior(
    nearest: NDArray[np.float64], parties: int, rows: int, parameters: TopKParameters
) -> UniformPrior:
    """Return what a coalition believes of others' distances, from what it knows.

    Each party is taken to hold as many rows as a member does on average, and distances to be
    uniform from 0 on, as dense as the public result is: k of all rows lie within its last entry.

    Args:
        nearest: The public result, shape (Q, k).
        parties: How many take part.
        rows: How many rows a member holds, on average.
        parameters: Public.
    """
    rows = max(1, rows)
    upper = float(np.median(nearest[:, -1])) * parties * rows / parameters.k
    return UniformPrior(rows, float(np.clip(upper, np.finfo(float).tiny, parameters.upper)))


def attack_distances(
    view: TopKView,
    victim: str,
    own: NDArray[np.float64],
    decided: NDArray[np.bool_] | None,
) -> Attack:
    """Return how good claims are.

    Args:
        view: What the coalition saw.
        victim: An honest party.
        own: Its k smallest distances, shape (Q, k).
        decided: Which new entries are claimed; all of them if left out.
    """
    success = judge_claims(claim_new(view, victim), own, decided)
    claims = round(success.claims * view.runs)
    located = round(success.recall * int(np.isfinite(own).sum()))
    return Attack(claims, round(success.precision * claims), located)


def decide(
    view: TopKView, victim: str, prior: UniformPrior, trials: int, rng: Generator
) -> NDArray[np.bool_] | None:
    """Return which new entries are more likely the victim's own than not.

    Between two members that is exact for the prior; else it is simulated, with the coalition where
    it sits. `None` where that would take too long.

    Args:
        view: What the coalition saw.
        victim: A neighbour of a member.
        prior: What the coalition believes.
        trials: How many runs to simulate, at most.
        rng: Source of those runs.
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


def pinned(view: TopKView, victim: str, own: NDArray[np.float64]) -> int:
    """Return for how many queries a distance was seen to come from a party and nobody else.

    That is where the coalition saw the vector right before the party's turn and right after it.
    """
    mine = np.any(owned(claim_new(view, victim), own), axis=-1, keepdims=True)
    hops = enumerate(view.hops_of(victim))
    seen = [mine[turn] for turn, hop in hops if {hop, hop + 1} <= view.vectors.keys()]
    return int(np.any(seen, axis=0).sum()) if seen else 0


def expected_pinned(
    view: TopKView, own: Mapping[str, NDArray[np.float64]], trials: int, rng: Generator
) -> dict[str, Estimate]:
    """Return what `pinned` is on average over coins and noise, for each honest party.

    The standard error is that of independent runs; queries that differ make it less.

    Args:
        view: Where the coalition sits.
        own: The k smallest distances of all parties, shape (Q, k).
        trials: How many runs to simulate, at least 1; each query has equally many.
        rng: Source of coins and noise.
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
