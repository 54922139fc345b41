"""Repeated queries in several sessions, and the conclusions of a coalition."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.algorithm.topk import true_topk
from veilring.protocols.ring.attacks.views import TopKView, find_owners, simulated_view
from veilring.protocols.ring.leakage import transcript, uniform_values

FALSE_ALARM = 1e-6
ORDER = [f"party-{number}" for number in range(6)]
EXACT = TopKParameters(k=1, P0=0.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
NOISY = replace(EXACT, k=3, P0=1.0, rounds=5)


class Asked(NamedTuple):
    """The sessions of a repeated query, its true result, and the owner of each entry."""

    sessions: list[TopKView]
    top: Floats
    owner: Ints
    everything: Floats


def ask(
    parameters: TopKParameters,
    runs: int,
    times: int,
    rng: np.random.Generator,
    *,
    members: tuple[str, ...] = ("party-0",),
    failed_after: int | None = None,
) -> Asked:
    """Ask equal queries several times, each in a fresh ring; the first attempt may fail."""
    values = uniform_values(runs, 6, parameters.k, 20, rng)
    top = true_topk(values, parameters)
    owner = (values[:, :, None] == top[:, None, :, None]).any(axis=-1).argmax(axis=1)
    sessions = []
    for number in range(times):
        places = rng.permutation(6)
        vectors = transcript(values[:, places], parameters, rng)
        order = [ORDER[place] for place in places]
        failed = None if number else failed_after
        sessions.append(simulated_view(vectors, parameters, order, members, failed))
    return Asked(sessions, top, owner, values)


class Found(NamedTuple):
    """The honest values found by an attack, their number, and the promised number."""

    right: int
    honest: int
    promised: float
    deviation: float


def success(asked: Asked) -> Found:
    """Count successes, with a bound on the deviation that holds for any dependence."""
    found = find_owners(asked.sessions, asked.top)
    honest = np.isin(asked.owner, [ORDER.index(name) for name in found.candidates])
    number = np.array(
        [found.candidates.index(name) if name in found.candidates else -1 for name in ORDER]
    )
    right = found.likeliest == number[asked.owner]
    q = np.minimum(found.posterior.max(axis=-1)[honest], 1.0)
    deviation = np.sqrt(q * (1 - q)).sum()
    return Found(int(right[honest].sum()), int(honest.sum()), float(q.sum()), float(deviation))
