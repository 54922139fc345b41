"""The optimal attack on a party of PP-TopK between two colluders: its exact posterior.

Predecessor and successor together see all that goes into the victim and all that comes out of it.
Given that, what the rest of the ring does is independent of whether an entry is real: neither the
later vectors nor the public result tell them more. So the posterior needs the victim alone.

A party inserts at most once, and passes everything on unchanged afterwards. Let L be the last
round in which it changed the vector. What it put in before is noise for certain. What it put in in
round L is its own, all of it, if it inserted then; else it is noise, all of it, and the party never
inserted. With p the probability of noise in round L, the odds are

    (1 - p) P(all it did up to L | inserted in L) : p P(all it did | never inserted),

where each P integrates over the victim's values, of which the prior is that they are the smallest
of N independent uniform rows. In a round with vector G, m changed entries tell that
`V[m] < G[k-m+1]` and `V[m+1] >= G[k-m]`. If they are noise, they have the density
`m! / (high - low)**m` on `low = max(G[k-m], V[m])` to `high = max(low + delta, G[k-m+1])`; if they
are real, they are `V[1], ..., V[m]`, and so below `G[k-m+1]`, as noise need not be. Each factor
depends on one value, so `order_statistics` integrates it exactly.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from veilring.errors import InputError
from veilring.protocols.ring.algorithm import TopKParameters
from veilring.protocols.ring.algorithm.multisets import multiset_size
from veilring.protocols.ring.attacks.order_statistics import (
    Factor,
    QuadratureGrid,
    integrate_log_likelihood,
)
from veilring.protocols.ring.attacks.prior import UniformPrior
from veilring.protocols.ring.attacks.successor import claim_new
from veilring.protocols.ring.attacks.views import TopKView

# A run takes some hundred nodes a coordinate; this many runs at a time take tens of megabytes.
RUNS_AT_ONCE: Final = 500


def decide_by(posterior: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Claim a value exactly if it is more likely the victim's own than not.

    No rule has a greater expected accuracy, nor a greater expected gain.
    """
    return np.asarray(posterior >= 0.5)  # noqa: PLR2004  (as likely as not)


def sandwich_posterior(view: TopKView, victim: str, prior: UniformPrior) -> NDArray[np.float64]:
    """Return the exact probability that each new entry is the victim's own, given all of the view.

    Args:
        view: Of a coalition that saw what the victim received and what it passed on in each round.
        victim: An honest party.
        prior: Of the victim's values. They are continuous: runs with ties do not follow it.

    Returns:
        Shape (rounds, T, k), in the places of `claim_new`; 0 where that is `+inf`, and NaN where
        the prior rules out all that was seen.

    Raises:
        InputError: If the view lacks a vector that the victim received or passed on.
    """
    return _posterior(_received(view, victim), claim_new(view, victim), view.parameters, prior)


def plug_in_posterior(
    view: TopKView, victim: str, claims: NDArray[np.float64], prior: UniformPrior
) -> NDArray[np.float64]:
    """Return `sandwich_posterior` of each round alone, as if nobody sat between.

    It takes the last vector that the coalition saw before the victim's turn for the one that the
    victim received. That is so in round 1 if the victim is the starter; otherwise this is no
    probability, only a number that tends to be great for real values.

    Args:
        view: Of any coalition.
        victim: An honest party.
        claims: What `claim_new` returned.
        prior: Of the victim's values.

    Returns:
        Shape (rounds, T, k), as `sandwich_posterior` does.
    """
    before = np.stack([view.vectors[view.last_before(hop)] for hop in view.hops_of(victim)])
    return np.concatenate(
        [
            _posterior(before[[turn]], claims[[turn]], view.parameters, prior, first_round=turn + 1)
            for turn in range(len(claims))
        ]
    )


def _posterior(
    received: NDArray[np.float64],
    claims: NDArray[np.float64],
    parameters: TopKParameters,
    prior: UniformPrior,
    first_round: int = 1,
) -> NDArray[np.float64]:
    posterior = np.zeros_like(claims)
    for first in range(0, claims.shape[1], RUNS_AT_ONCE):
        part = slice(first, first + RUNS_AT_ONCE)
        seen = _Seen(received[:, part], claims[:, part], parameters, prior, first_round)
        real = np.isfinite(claims[:, part])
        posterior[:, part] = np.where(real, seen.posterior()[:, :, None], 0.0)
    return posterior


def _received(view: TopKView, victim: str) -> NDArray[np.float64]:
    hops = view.hops_of(victim)
    missing = [hop for h in hops for hop in (h, h + 1) if hop not in view.vectors]
    if missing:
        allowed = "all that the victim received and passed on: its two neighbours must be members"
        raise InputError("vectors", f"without number {missing[0]}", allowed)
    return np.stack([view.vectors[hop] for hop in hops])


class _Seen:
    """What a victim did, round by round, in units of the prior's range; arrays are (rounds, T)."""

    def __init__(
        self,
        G: NDArray[np.float64],
        new: NDArray[np.float64],
        parameters: TopKParameters,
        prior: UniformPrior,
        first_round: int,
    ) -> None:
        rounds, runs, k = G.shape
        numbers = range(first_round, first_round + rounds)
        self._p = np.array([parameters.noise_probability(number) for number in numbers])
        self._rows, self._delta = prior.rows_per_party, parameters.delta / prior.upper
        self._m = np.stack([multiset_size(entries) for entries in new])
        bounded = np.concatenate([np.full((rounds, runs, 1), -np.inf), G / prior.upper], axis=2)
        # Entry j of G, from 1, stands at j; G[0] is no bound. With m = 0 no `above` is needed.
        self._below = _entry(bounded, k - self._m)
        self._above = _entry(bounded, np.minimum(k, k - self._m + 1))
        self._new = new / prior.upper
        self._least = self._new[:, :, 0]
        self._most = _entry(self._new, np.maximum(self._m, 1) - 1)
        self._depth = min(int(self._m.max(initial=0)) + 1, self._rows)
        changed = self._m > 0
        rank = np.arange(1, rounds + 1)[:, None] * changed
        self._last = rank.max(axis=0) - 1  # the round L, from 0; -1 if there is none
        self._round = np.arange(rounds)[:, None]

    def posterior(self) -> NDArray[np.float64]:
        """Return the probability that what was put in in each round is real, (rounds, T)."""
        runs = np.arange(self._m.shape[1])
        some = self._last >= 0
        grid = QuadratureGrid(self._jumps(), self._depth, self._rows)
        until = np.maximum(self._last, 0)
        m = np.where(some, self._m[until, runs], 0)
        real = integrate_log_likelihood(
            grid,
            self._factor(noisy=self._round < until, held=self._round <= until),
            self._new[until, runs],
            np.minimum(m, self._depth),
            self._depth,
            self._rows,
        )
        all_rounds = np.ones_like(self._m, dtype=np.bool_)
        noise = integrate_log_likelihood(
            grid,
            self._factor(noisy=all_rounds, held=all_rounds),
            self._new[until, runs],
            np.zeros_like(m),
            self._depth,
            self._rows,
        )
        p = self._p[until]
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log1p(-p) + real - (np.log(p) + noise + gammaln(m + 1))
        allowed = (self._most < self._above)[until, runs] & (m <= self._rows)
        posterior = np.where(allowed, expit(odds), 0.0)
        return np.where(some & (self._round == self._last), posterior, 0.0)

    def _jumps(self) -> NDArray[np.float64]:
        """Return where factors jump or bend, shape (T, 6 * rounds)."""
        at = (self._below, self._above, self._above - self._delta)
        noise = (self._least, self._most, self._most - self._delta)
        return np.concatenate([*at, *noise]).T

    def _factor(self, noisy: NDArray[np.bool_], held: NDArray[np.bool_]) -> Factor:
        """Return what the rounds tell of V[i]: those with noise, and those with values left out."""

        def factor(i: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
            log = np.where((x >= 0) & (x <= 1), 0.0, -np.inf)
            for turn, m in enumerate(self._m):
                if (of := np.flatnonzero((m == i) & noisy[turn])).size:
                    log[of] += self._noise(turn, of, x[of])
                if (of := np.flatnonzero((m == i - 1) & held[turn])).size:
                    log[of] += np.where(x[of] >= self._below[turn, of, None], 0.0, -np.inf)
            return log

        return factor

    def _noise(
        self, turn: int, of: NDArray[np.int64], x: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the density of a round's noise if V[m] is x, less the factor m!."""
        above = self._above[turn, of, None]
        low = np.maximum(self._below[turn, of, None], x)
        width = np.maximum(self._delta, above - low)
        least, most = self._least[turn, of, None], self._most[turn, of, None]
        possible = (x < above) & (low <= least) & (most <= low + width)
        return np.where(possible, -self._m[turn, of, None] * np.log(width), -np.inf)


def _entry(vectors: NDArray[np.float64], at: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one entry of each vector of (rounds, T, any)."""
    return np.take_along_axis(vectors, at[:, :, None], axis=2)[:, :, 0]
