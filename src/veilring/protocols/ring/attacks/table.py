"""How far the attacks on PP-TopK get, as a table over settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from veilring.protocols.ring.algorithm import TopKParameters
from veilring.protocols.ring.attacks.cells import fit_cells
from veilring.protocols.ring.attacks.posterior import decide_by, sandwich_posterior
from veilring.protocols.ring.attacks.prior import UniformPrior
from veilring.protocols.ring.attacks.successor import Success, claim_new, judge_claims
from veilring.protocols.ring.attacks.views import simulated_view
from veilring.protocols.ring.leakage.transcripts import transcript

Coalition = Literal["successor", "both neighbours"]
_COALITIONS: Final[dict[Coalition, tuple[int, ...]]] = {
    "successor": (1,),
    "both neighbours": (-1, 1),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A ring to attack.

    Attributes:
        parties: How many, n, at least 3.
        victim: Its position, from 0, the starter, whose first vector is the easiest to read.
        parameters: Public.
        prior: The law of all values, which the adversary knows.
    """

    parties: int
    victim: int
    parameters: TopKParameters
    prior: UniformPrior


@dataclass(frozen=True, slots=True)
class AttackRow:
    """What one coalition gets in one setting.

    Attributes:
        setting: Which ring.
        coalition: Who colludes: the victim's successor, or its predecessor as well.
        simple: The success of claiming all that is new.
        optimal: The success of claiming what is more likely the victim's own than not, on the same
            runs.
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
    """Attack simulated runs in each setting, by both coalitions and both rules.

    All attacks of a setting are on the same runs. The posterior of both neighbours is exact; that
    of the successor alone comes from other runs, simulated before.

    Args:
        grid: The settings.
        trials: How many runs to attack in each setting, at least 1.
        simulated: How many runs the successor simulates to prepare itself, at least 1.
        rng: Source of everything.
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
