"""The optimal attack on a PP-TopK party: its exact posterior, or one by simulation.

A predecessor and a successor that collude see every input and output of the victim. Given these,
the behaviour of the rest of the ring is independent of whether an entry is real: neither the later
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

Any other coalition, such as a successor alone, does not see the victim's input, and cannot
integrate over the actions of the parties between. Instead it simulates runs of the protocol with
values from its prior, and examines the new entries as in a real run. Each new entry has *features*,
and the posterior of a *cell* of equal features is the fraction of its entries that were the
victim's own.

The estimator, exactly
    Cells are nested in six levels, each of which adds features: (1) the round; (2) whether the
    value is in the public result, or else below its greatest entry; (3) how many entries of the
    vector are at least as great, and whether all of them are new, as noise always lies at the end;
    (4) the logarithm of the odds of `plug_in_posterior`, in whole numbers; (5) the ratio of the
    value to the expected k-th smallest, in powers of two, and whether the victim's next vector
    still has it; (6) how many new entries the vector has. A cell of `total` entries, of which
    `right` are the victim's own, has the posterior `(right + s q) / (total + s)`, where s =
    `STRENGTH` and q is the posterior of the enclosing cell, or 1/2 at the first level. So a cell
    with few entries has nearly the posterior of the enclosing cell.

    It is the Bayes rule of an adversary that uses these features only, up to the error of the
    simulation. The simple attack is one of the rules over the same cells.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.special import expit, gammaln, logit, xlog1py

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.protocols.ring.algorithm.consistency import multiset_size
from veilring.protocols.ring.algorithm.topk import TopKParameters, cut_rows
from veilring.protocols.ring.attacks.views import (
    TopKView,
    UniformPrior,
    claim_new,
    owned,
    simulated_view,
)
from veilring.protocols.ring.leakage import cut_trials, transcript

STRENGTH: Final = 8.0
"""The weight of the enclosing cell, as a number of entries."""

# Counts above this share a cell, as do ratios beyond 2^3 in either direction.
_COUNT_CAP: Final = 7
_POWER_CAP: Final = 3

_NO_CELL: Final = np.full(1, -1, dtype=np.int64)

_Codes = tuple[Ints, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CellPosterior:
    """The posterior of each cell, by simulation. Create it with `fit_cells`.

    A level has the codes of its cells, ascending, their entries, and those that were the victim's.
    """

    prior: UniformPrior
    levels: tuple[tuple[Ints, Ints, Ints], ...]

    def posterior(self, view: TopKView, victim: str) -> Floats:
        """Return the probability that each entry of `claim_new` is the victim's own."""
        claims = claim_new(view, victim)
        new = np.isfinite(claims)
        q = np.full(int(new.sum()), 0.5)
        codes = _cells(view, victim, claims, self.prior)
        for code, (known, total, right) in zip(codes, self.levels, strict=True):
            at = np.searchsorted(known[:-1], code)
            met = known[at] == code
            q = (right[at] * met + STRENGTH * q) / (total[at] * met + STRENGTH)
        posterior = np.zeros_like(claims)
        posterior[new] = q
        return posterior


def fit_cells(  # noqa: PLR0917  (a ring, the roles in it, a prior and a budget)
    parameters: TopKParameters,
    parties: int,
    victim: int,
    coalition: Collection[int],
    prior: UniformPrior,
    trials: int,
    rng: np.random.Generator,
) -> CellPosterior:
    """Simulate a coalition's view of a victim; positions count from 0, the starter.

    Without the victim's successor, a coalition learns little. It assumes the prior for all values;
    its own values hardly matter.
    """
    order = [f"position {place}" for place in range(parties)]
    if not {victim, *coalition} <= set(range(parties)):
        raise InputError("coalition", sorted(coalition), f"positions from 0 to {parties - 1}")
    members = [order[place] for place in coalition]
    values = prior.draw(trials, parties, parameters.k, rng)
    parts: list[_Codes] = []
    truth: list[Bools] = []
    for chunk in cut_trials(len(values), values.shape[1] * parameters.rounds * parameters.k):
        vectors = transcript(values[chunk], parameters, rng)
        view = simulated_view(vectors, parameters, order, members)
        claims = claim_new(view, order[victim])
        parts.append(_cells(view, order[victim], claims, prior))
        truth.append(owned(claims, values[chunk, victim])[np.isfinite(claims)])
    right = np.concatenate(truth)
    codes = (np.concatenate(level) for level in zip(*parts, strict=True))
    return CellPosterior(prior, tuple(_count(code, right) for code in codes))


def _count(codes: Ints, right: Bools) -> tuple[Ints, Ints, Ints]:
    if not codes.size:  # the victim never inserted anything: there are no cells
        return _NO_CELL, np.zeros(1, np.int64), np.zeros(1, np.int64)
    cells, which, total = np.unique(codes, return_inverse=True, return_counts=True)
    own = np.bincount(which[right], minlength=len(cells))
    return cells, total, np.asarray(own, dtype=np.int64)


def _cells(view: TopKView, victim: str, claims: Floats, prior: UniformPrior) -> _Codes:
    """Return the cell of each new entry on each level, as nested codes."""
    if view.result is None:
        raise InputError.because(
            "the views lack the result; the session must have ended", field="vectors"
        )
    k, new, hops = view.parameters.k, np.isfinite(claims), view.hops_of(victim)
    # If the coalition does not see the victim's output, there is no claim to describe.
    passed = np.stack([view.vectors.get(hop + 1, view.vectors[0]) for hop in hops])
    after = np.concatenate([passed[1:], view.result[None]])
    fate = np.where(_held(claims, view.result[None]), 0, 1 + (claims >= view.result[:, -1:]))
    not_less = (passed[:, :, None, :] >= claims[..., None]).sum(axis=-1)
    new_not_less = new.sum(axis=2)[:, :, None] - np.arange(k)
    expected = prior.upper * k / (prior.rows_per_party * len(view.order))
    with np.errstate(divide="ignore"):
        power = _whole(np.log2(claims / expected))
    plugged = np.nan_to_num(plug_in_posterior(view, victim, claims, prior))
    odds = _whole(logit(plugged))
    turn = np.broadcast_to(np.arange(len(hops))[:, None, None], claims.shape)
    fresh = np.broadcast_to(new.sum(axis=2)[:, :, None], claims.shape)
    features = (
        ((turn, len(hops)),),
        ((fate, 3),),
        ((np.minimum(not_less, _COUNT_CAP), _COUNT_CAP + 1), (not_less == new_not_less, 2)),
        ((odds, 2 * _POWER_CAP + 1),),
        ((power, 2 * _POWER_CAP + 1), (_held(claims, after), 2)),
        ((np.minimum(fresh, _COUNT_CAP), _COUNT_CAP + 1),),
    )
    return _nest(features, new)


def _whole(x: Floats) -> Ints:
    """Return numbers as codes from 0 to 6: rounded down and clipped to -3 to 3."""
    return np.asarray(np.clip(np.floor(x), -_POWER_CAP, _POWER_CAP) + _POWER_CAP, dtype=np.int64)


def _nest(features: Sequence[Sequence[tuple[NDArray[np.generic], int]]], new: Bools) -> _Codes:
    code, codes = np.zeros(int(new.sum()), dtype=np.int64), []
    for level in features:
        for feature, choices in level:
            code = code * choices + feature[new].astype(np.int64)
        codes.append(code)
    return tuple(codes)


def _held(claims: Floats, vectors: Floats) -> Bools:
    """Return whether each claim of (rounds, T, k) is in the vector of the same round and run."""
    return np.asarray((claims[..., :, None] == vectors[..., None, :]).any(axis=-1))


Factor = Callable[[int, Floats], Floats]
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
        _z, legendre.legint((legendre.legvander(_z, NODES - 1) * _w[:, None] * _degrees).T, lbnd=-1)
    ).T
    / 2
)

# A run takes some hundred nodes per coordinate; this many runs at a time take tens of megabytes.
RUNS_AT_ONCE: Final = 500


def decide_by(posterior: Floats) -> Bools:
    """Claim a value exactly if it is more likely the victim's own than not.

    No rule has a greater expected accuracy, nor a greater expected gain.
    """
    return np.asarray(posterior >= 0.5)  # noqa: PLR2004  (as likely as not)


def sandwich_posterior(view: TopKView, victim: str, prior: UniformPrior) -> Floats:
    """Return the exact probability that each new entry is the victim's own, given the whole view.

    The coalition saw the victim's input and output in each round. Values are continuous: ties are
    not supported. The result is aligned with `claim_new`: 0 where that is `+inf`, and NaN where the
    prior rules out the observations.
    """
    return _posterior(_received(view, victim), claim_new(view, victim), view.parameters, prior)


def plug_in_posterior(view: TopKView, victim: str, claims: Floats, prior: UniformPrior) -> Floats:
    """Return `sandwich_posterior` of each round alone, as if no party were in between.

    It uses the last vector that the coalition saw before the victim's turn in place of the victim's
    input. That is correct in round 1 if the victim is the starter; otherwise the result is not a
    probability, only a number that tends to be large for real values.
    """
    before = np.stack([view.vectors[view.last_before(hop)] for hop in view.hops_of(victim)])
    return np.concatenate(
        [
            _posterior(before[[turn]], claims[[turn]], view.parameters, prior, first_round=turn + 1)
            for turn in range(len(claims))
        ]
    )


def _posterior(
    received: Floats,
    claims: Floats,
    parameters: TopKParameters,
    prior: UniformPrior,
    first_round: int = 1,
) -> Floats:
    posterior = np.zeros_like(claims)
    for part in cut_rows(claims.shape[1], 1, RUNS_AT_ONCE):
        seen = _Seen(received[:, part], claims[:, part], parameters, prior, first_round)
        real = np.isfinite(claims[:, part])
        posterior[:, part] = np.where(real, seen.posterior()[:, :, None], 0.0)
    return posterior


def _received(view: TopKView, victim: str) -> Floats:
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
        G: Floats,
        new: Floats,
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

    def posterior(self) -> Floats:
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

    def _jumps(self) -> Floats:
        """Return the points where factors jump or bend, shape (T, 6 * rounds)."""
        at = (self._below, self._above, self._above - self._delta)
        noise = (self._least, self._most, self._most - self._delta)
        return np.concatenate([*at, *noise]).T

    def _factor(self, noisy: Bools, held: Bools) -> Factor:
        """Return the evidence on V[i] from rounds with noise and from rounds that omit values."""

        def factor(i: int, x: Floats) -> Floats:
            log = np.where((x >= 0) & (x <= 1), 0.0, -np.inf)
            for turn, m in enumerate(self._m):
                if (of := np.flatnonzero((m == i) & noisy[turn])).size:
                    log[of] += self._noise(turn, of, x[of])
                if (of := np.flatnonzero((m == i - 1) & held[turn])).size:
                    log[of] += np.where(x[of] >= self._below[turn, of, None], 0.0, -np.inf)
            return log

        return factor

    def _noise(self, turn: int, of: Ints, x: Floats) -> Floats:
        """Return the log-density of a round's noise if V[m] is x, without the term log(m!)."""
        above = self._above[turn, of, None]
        low = np.maximum(self._below[turn, of, None], x)
        width = np.maximum(self._delta, above - low)
        least, most = self._least[turn, of, None], self._most[turn, of, None]
        possible = (x < above) & (low <= least) & (most <= low + width)
        return np.where(possible, -self._m[turn, of, None] * np.log(width), -np.inf)


def _entry(vectors: Floats, at: Ints) -> Floats:
    """Return one entry of each vector of (rounds, T, any)."""
    return np.take_along_axis(vectors, at[:, :, None], axis=2)[:, :, 0]


class QuadratureGrid:
    """Gauss-Legendre nodes on [0, 1], in cells that end where the factors of a run jump, (T, any).

    `depth` is M, and `rows` is N.
    """

    def __init__(self, jumps: Floats, depth: int, rows: int) -> None:
        ratio = 1 + min(1.0, _GROWTH / depth)
        powers = ratio ** -np.arange(np.ceil(np.log(rows * depth) / np.log(ratio)) + 1)
        runs = len(jumps)
        fixed = np.broadcast_to(np.append(0.0, powers), (runs, len(powers) + 1))
        ends = np.sort(np.concatenate([np.clip(jumps, 0, 1), fixed], axis=1), axis=1)
        self._widths = np.diff(ends, axis=1)
        nodes = ends[:, :-1, None] + self._widths[:, :, None] * (_z + 1) / 2
        self.nodes: Floats = nodes.reshape(runs, -1)

    def integral(self, f: Floats) -> Floats:
        """Return the integral over [0, 1] of a function given at the nodes, shape (T,)."""
        cells: Floats = (self._split(f) @ _WHOLE) * self._widths
        return np.asarray(cells.sum(axis=1))

    def running(self, f: Floats) -> Floats:
        """Return the integral from 0 up to each node of a function given at the nodes."""
        split = self._split(f)
        cells = (split @ _WHOLE) * self._widths
        before = cells.cumsum(axis=1) - cells
        inside = (split @ _UP_TO_NODE.T) * self._widths[:, :, None]
        return np.asarray((before[:, :, None] + inside).reshape(f.shape))

    def _split(self, f: Floats) -> Floats:
        return f.reshape(len(f), -1, NODES)


def integrate_log_likelihood(  # noqa: PLR0917  (a grid, a factor, what is known exactly, M and N)
    grid: QuadratureGrid, factor: Factor, known: Floats, count: Ints, depth: int, rows: int
) -> Floats:
    """Integrate the density of V[1], ..., V[M] times the factors, without the constant N!/(N-M)!.

    The first `count` values of V, shape (T,), are known and not integrated over. `depth` is M, and
    `rows` is N. The logarithm, shape (T,), is `-inf` for impossible observations.
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


def _rescale(density: Floats, of: Bools) -> Floats:
    """Divide by the maximum density of each run, in place, and return its logarithm.

    The product of many narrow factors would underflow.
    """
    peak = np.where(of, density.max(axis=1), 1.0)
    density /= np.where(peak > 0, peak, 1.0)[:, None]
    return _log(peak)


def _log(x: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(x, 0.0)))
