"""The optimal attack on PP-TopK by other coalitions, such as a successor alone, by simulation.

A coalition that does not see the victim's input cannot integrate over the actions of the parties
between. Instead it simulates runs of the protocol with values from its prior, and examines the new
entries as in a real run. Each new entry has *features*, and the posterior of a *cell* of equal
features is the fraction of its entries that were the victim's own.

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

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.attacks.posterior import (
    decide_by,
    plug_in_posterior,
    sandwich_posterior,
)
from veilring.protocols.ring.attacks.views import (
    Success,
    TopKView,
    UniformPrior,
    claim_new,
    judge_claims,
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

_Codes = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CellPosterior:
    """The posterior of each cell, by simulation. Create it with `fit_cells`.

    Attributes:
        prior: The distribution of values that the coalition assumed.
        levels: For each level, the codes of its cells, ascending, the number of entries in each,
            and the number of these that were the victim's own.
    """

    prior: UniformPrior
    levels: tuple[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], ...]

    def posterior(self, view: TopKView, victim: str) -> NDArray[np.float64]:
        """Return the probability that each new entry is the victim's own.

        Args:
            view: The view of a coalition at the positions that were simulated.
            victim: The party at the position that was simulated.

        Returns:
            Shape (rounds, T, k), aligned with `claim_new`; 0 where that is `+inf`.

        Raises:
            InputError: If the session failed, so that there is no result.
        """
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
    """Simulate a coalition's view of a victim.

    Args:
        parties: The number of parties, n, at least 3.
        victim: The victim's position, from 0, the starter.
        coalition: The members' positions; without the victim's successor, a coalition learns
            little.
        prior: The distribution that the coalition assumes for all values; its own values hardly
            matter.
        trials: The number of runs to simulate, at least 1.
        rng: The source of the simulated values, coins and noise.

    Raises:
        InputError: If an argument is out of range.
    """
    order = [f"position {place}" for place in range(parties)]
    if not {victim, *coalition} <= set(range(parties)):
        raise InputError("coalition", sorted(coalition), f"positions from 0 to {parties - 1}")
    members = [order[place] for place in coalition]
    values = prior.draw(trials, parties, parameters.k, rng)
    parts: list[_Codes] = []
    truth: list[NDArray[np.bool_]] = []
    for chunk in cut_trials(len(values), values.shape[1] * parameters.rounds * parameters.k):
        vectors = transcript(values[chunk], parameters, rng)
        view = simulated_view(vectors, parameters, order, members)
        claims = claim_new(view, order[victim])
        parts.append(_cells(view, order[victim], claims, prior))
        truth.append(owned(claims, values[chunk, victim])[np.isfinite(claims)])
    right = np.concatenate(truth)
    codes = (np.concatenate(level) for level in zip(*parts, strict=True))
    return CellPosterior(prior, tuple(_count(code, right) for code in codes))


def _count(
    codes: NDArray[np.int64], right: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    if not codes.size:  # the victim never inserted anything: there are no cells
        return _NO_CELL, np.zeros(1, np.int64), np.zeros(1, np.int64)
    cells, which, total = np.unique(codes, return_inverse=True, return_counts=True)
    own = np.bincount(which[right], minlength=len(cells))
    return cells, total, np.asarray(own, dtype=np.int64)


def _cells(view: TopKView, victim: str, claims: NDArray[np.float64], prior: UniformPrior) -> _Codes:
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


def _whole(x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers as codes from 0 to 6: rounded down and clipped to -3 to 3."""
    return np.asarray(np.clip(np.floor(x), -_POWER_CAP, _POWER_CAP) + _POWER_CAP, dtype=np.int64)


def _nest(
    features: Sequence[Sequence[tuple[NDArray[np.generic], int]]], new: NDArray[np.bool_]
) -> _Codes:
    code, codes = np.zeros(int(new.sum()), dtype=np.int64), []
    for level in features:
        for feature, choices in level:
            code = code * choices + feature[new].astype(np.int64)
        codes.append(code)
    return tuple(codes)


def _held(claims: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each claim of (rounds, T, k) is in the vector of the same round and run."""
    return np.asarray((claims[..., :, None] == vectors[..., None, :]).any(axis=-1))


Coalition = Literal["successor", "both neighbours"]
_COALITIONS: Final[dict[Coalition, tuple[int, ...]]] = {
    "successor": (1,),
    "both neighbours": (-1, 1),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A ring to attack.

    Attributes:
        parties: The number of parties, n, at least 3.
        victim: The victim's position, from 0, the starter, whose first vector is the easiest to
            read.
        parameters: The public parameters.
        prior: The distribution of all values, which the adversary knows.
    """

    parties: int
    victim: int
    parameters: TopKParameters
    prior: UniformPrior


@dataclass(frozen=True, slots=True)
class AttackRow:
    """The success of one coalition in one setting.

    Attributes:
        setting: The ring.
        coalition: The colluding parties: the victim's successor alone, or with its predecessor.
        simple: The success of claiming every new entry.
        optimal: The success of claiming entries that are more likely the victim's own than not, on
            the same runs.
        expected: The accuracy that the optimal attack's own posterior promises.
    """

    setting: Setting
    coalition: Coalition
    simple: Success
    optimal: Success
    expected: float


def attack_table(
    grid: Iterable[Setting], *, trials: int, simulated: int, rng: np.random.Generator
) -> list[AttackRow]:
    """Attack simulated runs in each setting, with both coalitions and both rules.

    All attacks of a setting use the same runs. The posterior of both neighbours is exact; that of
    the successor alone comes from other runs, simulated beforehand.

    Args:
        grid: The settings.
        trials: The number of runs to attack in each setting, at least 1.
        simulated: The number of runs that the successor simulates beforehand, at least 1.
        rng: The source of all randomness.
    """
    return [row for setting in grid for row in _rows(setting, trials, simulated, rng)]


def _rows(
    setting: Setting, trials: int, simulated: int, rng: np.random.Generator
) -> Iterable[AttackRow]:
    n, parameters, prior = setting.parties, setting.parameters, setting.prior
    place, order = setting.victim, [f"party-{number}" for number in range(n)]
    victim = order[place]
    values = prior.draw(trials, n, parameters.k, rng)
    vectors = transcript(values, parameters, rng)
    own = values[:, place]
    for coalition, beside in _COALITIONS.items():
        places = [(place + step) % n for step in beside]
        view = simulated_view(vectors, parameters, order, [order[p] for p in places])
        claims = claim_new(view, victim)
        if coalition == "successor":
            cells = fit_cells(parameters, n, place, places, prior, simulated, rng)
            posterior = cells.posterior(view, victim)
        else:
            posterior = sandwich_posterior(view, victim, prior)
        new = posterior[np.isfinite(claims)]
        yield AttackRow(
            setting,
            coalition,
            simple=judge_claims(claims, own),
            optimal=judge_claims(claims, own, decide_by(posterior)),
            expected=float(np.maximum(new, 1 - new).mean()) if new.size else 1.0,
        )
