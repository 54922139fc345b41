"""Success of a semi-honest coalition against PP-TopK, also when a query is repeated."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.ring.algorithm.topk import TopKParameters, true_topk
from veilring.protocols.ring.attacks.posterior import decide_by, fit_cells, sandwich_posterior
from veilring.protocols.ring.attacks.views import (
    Success,
    UniformPrior,
    claim_new,
    expected_hits,
    find_owners,
    judge_claims,
    simulated_view,
)
from veilring.protocols.ring.leakage import transcript

ROWS = 100

Coalition = Literal["successor", "both neighbours"]
_COALITIONS: Final[dict[Coalition, tuple[int, ...]]] = {
    "successor": (1,),
    "both neighbours": (-1, 1),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A ring to attack; the first vector of the starter, position 0, is the easiest to read."""

    parties: int
    victim: int
    parameters: TopKParameters
    prior: UniformPrior


@dataclass(frozen=True, slots=True)
class AttackRow:
    """The success of one coalition in one setting.

    The optimal rule claims entries that are more likely the victim's own than not.
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


# Queries that are asked together share their rings, so their results are dependent; a few of them
# cost hardly more than one, and many would make the estimate look more precise than it is.
QUERIES_TOGETHER: Final = 4


def tracing_success(
    parties: int,
    parameters: TopKParameters,
    prior: UniformPrior,
    *,
    coalition: int,
    sessions: int,
    batches: int,
    rng: np.random.Generator,
    failed_after: int | None = None,
) -> Floats:
    """Return the fraction of values whose owner is found, after 1, 2, … sessions.

    The same queries are asked in each session, with a fresh ring, coins and noise. The coalition
    names the most probable owner of each true result that is not its own, at random in a tie; a
    blind guess is right with probability `1 / (parties - coalition)`.

    The coalition's positions are drawn with each ring, and each batch has `QUERIES_TOGETHER`
    queries. The first session may fail after some hops. The result is NaN if no true result was an
    honest party's.
    """
    if not 1 <= coalition < parties:
        raise InputError("coalition", coalition, f"1 to {parties - 1} of {parties} parties")
    found = np.zeros(sessions)
    honest_values = 0
    for _ in range(batches):
        values = prior.draw(QUERIES_TOGETHER, parties, parameters.k, rng)
        top = true_topk(values, parameters)
        owner = (values[:, :, None] == top[:, None, :, None]).any(axis=-1).argmax(axis=1)
        honest = owner >= coalition
        honest_values += int(honest.sum())
        held = np.eye(parties, dtype=np.bool_)[owner[honest], coalition:]
        likelihood = np.ones(held.shape)
        for number in range(sessions):
            places = rng.permutation(parties)
            vectors = transcript(values[:, places], parameters, rng)
            # Names whose order is that of their numbers, so that candidate j is party coalition +
            # j.
            order = [f"{place:06}" for place in places]
            members = [name for name in order if int(name) < coalition]
            failed = None if number else failed_after
            view = simulated_view(vectors, parameters, order, members, failed)
            # All are equally likely beforehand, so the posteriors of single sessions multiply.
            likelihood *= find_owners([view], top).posterior[honest]
            likelihood /= likelihood.max(axis=-1, keepdims=True)  # otherwise many would underflow
            found[number] += expected_hits(likelihood, held)
    return found / honest_values if honest_values else np.full(sessions, np.nan)


def parameters(k: int, P0: float, d: float, rounds: int) -> TopKParameters:
    """Return parameters for values between 0 and 1."""
    return TopKParameters(k=k, P0=P0, d=d, rounds=rounds, delta=0.1, upper=1.0)


def settings() -> list[Setting]:
    """Return the grid, in which one setting varies at a time; victims start or sit halfway."""
    grid = [
        (8, 4, parameters(5, 1.0, 0.5, 1)),
        (8, 4, parameters(5, 1.0, 0.5, 2)),
        (8, 4, parameters(5, 1.0, 0.5, 4)),
        (8, 0, parameters(5, 1.0, 0.5, 4)),
        (8, 4, parameters(5, 1.0, 0.9, 4)),
        (8, 4, parameters(5, 0.5, 0.5, 4)),
        (8, 0, parameters(5, 0.5, 0.5, 4)),
        (8, 4, parameters(1, 1.0, 0.5, 4)),
        (8, 4, parameters(20, 1.0, 0.5, 4)),
        (3, 1, parameters(5, 1.0, 0.5, 4)),
        (30, 15, parameters(5, 1.0, 0.5, 4)),
    ]
    return [Setting(n, victim, public, UniformPrior(ROWS)) for n, victim, public in grid]


def single_sessions() -> None:
    """Print the accuracy and the gain of the simple and the optimal attack."""
    print(" n  victim  k   P0    d  r  coalition         new   accuracy          gain")
    print(f"{'':44}per run  simple  optimal   simple  optimal")
    rows = attack_table(settings(), trials=150, simulated=800, rng=np.random.default_rng(1))
    for row in rows:
        setting, public = row.setting, row.setting.parameters
        print(
            f"{setting.parties:2}  {setting.victim:6} {public.k:2}  {public.P0:.1f}  {public.d:.1f}"
            f"  {public.rounds}  {row.coalition:15} {row.simple.new:6.1f}"
            f"  {row.simple.accuracy:6.3f}  {row.optimal.accuracy:7.3f}"
            f"  {row.simple.gain:z7.2f}  {row.optimal.gain:z7.2f}"
        )


def over_repetitions() -> None:
    """Print how often the owner of a value is found, by the number of sessions."""
    print("coalition  P0   sessions: 1      2      4      8     16")
    for coalition, P0 in ((1, 0.0), (1, 0.5), (1, 1.0), (2, 1.0), (3, 1.0)):
        found = tracing_success(
            8,
            parameters(5, P0, 0.5, 4),
            UniformPrior(ROWS),
            coalition=coalition,
            sessions=16,
            batches=25,
            rng=np.random.default_rng(1),
        )
        shares = "".join(f"{found[number - 1]:7.3f}" for number in (1, 2, 4, 8, 16))
        print(f"{coalition:9}  {P0:.1f}       {shares}")


def retries() -> None:
    """Print how often the owner is found after a session that failed and its retry."""
    print("first session failed after round  owners found")
    for done in (1, 2, 3, 4):
        found = tracing_success(
            8,
            parameters(5, 1.0, 0.5, 4),
            UniformPrior(ROWS),
            coalition=2,
            sessions=2,
            batches=100,
            rng=np.random.default_rng(1),
            failed_after=8 * done,
        )
        print(f"{done:32}  {found[1]:12.3f}")


def main() -> None:
    """Print all three."""
    single_sessions()
    print()
    over_repetitions()
    print()
    retries()


if __name__ == "__main__":
    main()
