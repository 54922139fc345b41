"""The exact posterior of the optimal attack on a PP-TopK party between two colluders.

Predecessor and successor together see every input and output of the victim. Given these, the
behaviour of the rest of the ring is independent of whether an entry is real: neither the later
vectors nor the public result add information. So the posterior needs only the victim.

A party inserts at most once, and passes everything on unchanged afterwards. Let L be the last round
in which it changed the vector. The entries that it added before round L are certainly noise. Those
that it added in round L are all its own if it inserted then; otherwise they are all noise, and the
party never inserted. With p the probability of noise in round L, the odds are

    (1 - p) P(actions up to L | inserted in L) : p P(actions | never inserted),

where each P integrates over the victim's values, whose prior is the distribution of the smallest of
N independent uniform rows. In a round with vector G, m changed entries show that `V[m] < G[k-m+1]`
and `V[m+1] >= G[k-m]`. If they are noise, they have the density `m! / (high - low)**m` on `low =
max(G[k-m], V[m])` to `high = max(low + delta, G[k-m+1])`; if they are real, they are `V[1], ...,
V[m]`, and so below `G[k-m+1]`, as noise need not be. Each factor depends on one value, so
`integrate_log_likelihood` does it exactly.

The integrals
    A party holds N independent rows, uniform on [0, 1]. Its M smallest V[1] < ... < V[M] have the
    joint density `N!/(N-M)! (1 - V[M])**(N-M)`. An adversary's evidence about them is a product of
    factors that each depend on one value only. The likelihood, an integral over M dimensions,
    therefore splits into M one-dimensional integrals, each a running integral of the one before.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.special import expit, gammaln, xlog1py

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.consistency import multiset_size
from veilring.protocols.ring.algorithm.topk import TopKParameters, cut_rows
from veilring.protocols.ring.attacks.views import TopKView, UniformPrior, claim_new

Factor = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]
"""Maps i (from 1) and values of V[i], shape (T, any), to the logarithm of their factor."""

# Exact for polynomials up to degree 47 in each cell.
NODES: Final = 24

# A cell from a to b must resolve x**M, which grows by a factor of about exp(M (b - a)/a) on it, and
# where it has any weight (1 - x)**N, which falls as fast. This growth leaves 12 correct digits.
_GROWTH: Final = 16.0

_z, _w = legendre.leggauss(NODES)

_degrees = np.arange(NODES) + 0.5

# On [0, 1]: the integral over a cell, and from its lower end up to each node.
_WHOLE: Final = _w / 2

_UP_TO_NODE: Final = (
    legendre.legval(
        _z,
        legendre.legint((legendre.legvander(_z, NODES - 1) * _w[:, None] * _degrees).T, lbnd=-1),
    ).T
    / 2
)

# A run takes some hundred nodes per coordinate; this many runs at a time take tens of megabytes.
RUNS_AT_ONCE: Final = 500


def decide_by(posterior: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Claim a value exactly if it is more likely the victim's own than not.

    No rule has a greater expected accuracy, nor a greater expected gain.
    """
    return np.asarray(posterior >= 0.5)  # noqa: PLR2004  (as likely as not)


def sandwich_posterior(view: TopKView, victim: str, prior: UniformPrior) -> NDArray[np.float64]:
    """Return the exact probability that each new entry is the victim's own, given the whole view.

    Args:
        view: The view of a coalition that saw the victim's input and output in each round.
        victim: An honest party.
        prior: The distribution of the victim's values. They are continuous: ties are not supported.

    Returns:
        Shape (rounds, T, k), aligned with `claim_new`; 0 where that is `+inf`, and NaN where the
        prior rules out the observations.

    Raises:
        InputError: If the view lacks a vector that the victim received or passed on.
    """
    return _posterior(_received(view, victim), claim_new(view, victim), view.parameters, prior)


def plug_in_posterior(
    view: TopKView, victim: str, claims: NDArray[np.float64], prior: UniformPrior
) -> NDArray[np.float64]:
    """Return `sandwich_posterior` of each round alone, as if no party were in between.

    It uses the last vector that the coalition saw before the victim's turn in place of the victim's
    input. That is correct in round 1 if the victim is the starter; otherwise the result is not a
    probability, only a number that tends to be large for real values.

    Args:
        view: The view of any coalition.
        victim: An honest party.
        claims: The new entries, as `claim_new` returns them.
        prior: The distribution of the victim's values.

    Returns:
        Shape (rounds, T, k), as in `sandwich_posterior`.
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
    for part in cut_rows(claims.shape[1], 1, RUNS_AT_ONCE):
        seen = _Seen(received[:, part], claims[:, part], parameters, prior, first_round)
        real = np.isfinite(claims[:, part])
        posterior[:, part] = np.where(real, seen.posterior()[:, :, None], 0.0)
    return posterior


def _received(view: TopKView, victim: str) -> NDArray[np.float64]:
    hops = view.hops_of(victim)
    missing = [hop for h in hops for hop in (h, h + 1) if hop not in view.vectors]
    if missing:
        raise InputError.because(
            f"the views lack vector {missing[0]}: both neighbours of the victim must be "
            "members of the coalition",
            field="vectors",
        )
    return np.stack([view.vectors[hop] for hop in hops])


class _Seen:
    """The victim's actions by round, in units of the prior's range; arrays are (rounds, T)."""

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
        self._last = rank.max(axis=0) - 1  # the round L, from 0; -1 without changes
        self._round = np.arange(rounds)[:, None]

    def posterior(self) -> NDArray[np.float64]:
        """Return the probability that the entries inserted in each round are real, (rounds, T)."""
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
        """Return the points where factors jump or bend, shape (T, 6 * rounds)."""
        at = (self._below, self._above, self._above - self._delta)
        noise = (self._least, self._most, self._most - self._delta)
        return np.concatenate([*at, *noise]).T

    def _factor(self, noisy: NDArray[np.bool_], held: NDArray[np.bool_]) -> Factor:
        """Return the evidence on V[i] from rounds with noise and from rounds that omit values."""

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
        """Return the log-density of a round's noise if V[m] is x, without the term log(m!)."""
        above = self._above[turn, of, None]
        low = np.maximum(self._below[turn, of, None], x)
        width = np.maximum(self._delta, above - low)
        least, most = self._least[turn, of, None], self._most[turn, of, None]
        possible = (x < above) & (low <= least) & (most <= low + width)
        return np.where(possible, -self._m[turn, of, None] * np.log(width), -np.inf)


def _entry(vectors: NDArray[np.float64], at: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one entry of each vector of (rounds, T, any)."""
    return np.take_along_axis(vectors, at[:, :, None], axis=2)[:, :, 0]


class QuadratureGrid:
    """Gauss-Legendre nodes on [0, 1], in cells that end where the factors of a run jump.

    Args:
        jumps: Shape (T, any number), in any order; values outside [0, 1] are clipped.
        depth: M, at least 1.
        rows: N, at least M.
    """

    def __init__(self, jumps: NDArray[np.float64], depth: int, rows: int) -> None:
        ratio = 1 + min(1.0, _GROWTH / depth)
        powers = ratio ** -np.arange(np.ceil(np.log(rows * depth) / np.log(ratio)) + 1)
        runs = len(jumps)
        fixed = np.broadcast_to(np.append(0.0, powers), (runs, len(powers) + 1))
        ends = np.sort(np.concatenate([np.clip(jumps, 0, 1), fixed], axis=1), axis=1)
        self._widths = np.diff(ends, axis=1)
        nodes = ends[:, :-1, None] + self._widths[:, :, None] * (_z + 1) / 2
        self.nodes: NDArray[np.float64] = nodes.reshape(runs, -1)

    def integral(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the integral over [0, 1] of a function given at the nodes, shape (T,)."""
        cells: NDArray[np.float64] = (self._split(f) @ _WHOLE) * self._widths
        return np.asarray(cells.sum(axis=1))

    def running(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the integral from 0 up to each node of a function given at the nodes."""
        split = self._split(f)
        cells = (split @ _WHOLE) * self._widths
        before = cells.cumsum(axis=1) - cells
        inside = (split @ _UP_TO_NODE.T) * self._widths[:, :, None]
        return np.asarray((before[:, :, None] + inside).reshape(f.shape))

    def _split(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        return f.reshape(len(f), -1, NODES)


def integrate_log_likelihood(  # noqa: PLR0917  (a grid, a factor, what is known exactly, M and N)
    grid: QuadratureGrid,
    factor: Factor,
    known: NDArray[np.float64],
    count: NDArray[np.int64],
    depth: int,
    rows: int,
) -> NDArray[np.float64]:
    """Integrate the density of V[1], ..., V[M] times the factors, without the constant N!/(N-M)!.

    Args:
        grid: A grid whose cells end where a factor jumps.
        factor: The logarithm of the likelihood of one value.
        known: Values that are known exactly and so not integrated over, shape (T, any), ascending:
            the first ones of V.
        count: The number of known values, shape (T,), 0 to M.
        depth: The total number of values, M, at most N.
        rows: The number of rows, N.

    Returns:
        The logarithm, shape (T,); `-inf` for impossible observations.
    """
    log = np.zeros(len(count))
    # The joint density of V[i] and all observations of the values before it, rescaled.
    density = np.zeros_like(grid.nodes)
    last = np.where(count > 0, known[np.arange(len(count)), np.maximum(count, 1) - 1], 0.0)
    for i in range(1, depth + 1):
        if i <= known.shape[1]:
            exact = factor(i, known[:, i - 1 : i])[:, 0]
            log += np.where(i <= count, exact, 0.0)
        first = (count == i - 1)[:, None]
        density = np.where(first, grid.nodes >= last[:, None], grid.running(density))
        weight = factor(i, grid.nodes)
        highest = weight.max(axis=1, keepdims=True)
        highest[np.isneginf(highest)] = 0.0
        density *= np.exp(weight - highest)
        log += np.where(count < i, highest[:, 0], 0.0) + _rescale(density, count < i)
    left = _log(grid.integral(density * (1 - grid.nodes) ** (rows - depth)))
    with np.errstate(divide="ignore"):  # values of 1 leave no room for others above them
        none_left = xlog1py(rows - depth, -np.minimum(last, 1.0))
    return np.asarray(log + np.where(count == depth, none_left, left))


def _rescale(density: NDArray[np.float64], of: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Divide by the maximum density of each run, in place, and return its logarithm.

    The product of many narrow factors would underflow.
    """
    peak = np.where(of, density.max(axis=1), 1.0)
    density /= np.where(peak > 0, peak, 1.0)[:, None]
    return _log(peak)


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(x, 0.0)))
