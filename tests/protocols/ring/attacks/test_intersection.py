"""The attack over repetitions: against closed forms, by calibration, and in real runs."""

from dataclasses import replace
from itertools import combinations, pairwise, permutations
from math import comb
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.ring.attacks.bounds import bernstein, hoeffding

from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.algorithm import true_topk
from veilring.protocols.ring.attacks import (
    CoalitionView,
    TopKView,
    UniformPrior,
    find_owners,
    recurring,
    simulated_view,
    topk_view,
    tracing_success,
)
from veilring.protocols.ring.leakage import uniform_values
from veilring.protocols.ring.leakage.transcripts import transcript

FALSE_ALARM = 1e-6
ORDER = [f"party-{number}" for number in range(6)]
EXACT = TopKParameters(k=1, P0=0.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
NOISY = replace(EXACT, k=3, P0=1.0, rounds=5)


class Asked(NamedTuple):
    """The sessions of a repeated query, the true result and who owns each of its entries."""

    sessions: list[TopKView]
    top: NDArray[np.float64]
    owner: NDArray[np.int64]
    everything: NDArray[np.float64]


def ask(  # noqa: PLR0917  (a query, how often, and what of the first session fails)
    parameters: TopKParameters,
    runs: int,
    times: int,
    rng: np.random.Generator,
    members: tuple[str, ...] = ("party-0",),
    failed_after: int | None = None,
) -> Asked:
    """Ask the same queries several times, each time along a fresh ring; the first may fail."""
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
    """How many of the honest parties' values were found, of how many, and what was promised."""

    right: int
    honest: int
    promised: float
    deviation: float


def success(asked: Asked) -> Found:
    """Count; the deviation is the sum of those of single values, so no law of many exceeds it."""
    found = find_owners(asked.sessions, asked.top)
    honest = np.isin(asked.owner, [ORDER.index(name) for name in found.candidates])
    number = np.array(
        [found.candidates.index(name) if name in found.candidates else -1 for name in ORDER]
    )
    right = found.likeliest == number[asked.owner]
    q = np.minimum(found.posterior.max(axis=-1)[honest], 1.0)
    deviation = np.sqrt(q * (1 - q)).sum()
    return Found(int(right[honest].sum()), int(honest.sum()), float(q.sum()), float(deviation))


def test_each_session_leaves_two_thirds_under_suspicion() -> None:
    """Without noise, over all rings, a set of a others stays suspected with probability 2/(a + 2).

    They are all on the owner's side of a lone adversary exactly if the adversary is the first or
    the last of these a + 2 parties. Sessions are independent, so that T of them leave a single
    party suspected with probability (2/3)^T.
    """
    rng = np.random.default_rng(1)
    values = rng.permutation(6).reshape(1, 6, 1) / 10
    top, owner = true_topk(values, EXACT), int(values[0, :, 0].argmin())
    adversary = (owner + 1) % 6
    suspected, posteriors, views = [], [], []
    for places in permutations(range(6)):
        vectors = transcript(values[:, places], EXACT, rng)
        order = [ORDER[place] for place in places]
        views.append(simulated_view(vectors, EXACT, order, [ORDER[adversary]]))
        found = find_owners(views[-1:], top)
        posterior = found.posterior[0, 0]
        suspects = posterior > 0
        assert posterior[suspects] == pytest.approx(1 / suspects.sum())
        suspected.append({found.candidates[place] for place in np.flatnonzero(suspects)})
        posteriors.append(posterior)
    assert all(ORDER[owner] in suspects for suspects in suspected)
    others = [name for name in ORDER if name not in (ORDER[owner], ORDER[adversary])]
    for size in range(1, 5):
        for some in map(set, combinations(others, size)):
            assert sum(some <= suspects for suspects in suspected) == 720 * 2 / (size + 2)
    for one, other in ((0, 719), (100, 500), (333, 600)):
        joint = posteriors[one] * posteriors[other]
        both = find_owners([views[one], views[other]], top).posterior[0, 0]
        assert both == pytest.approx(joint / joint.sum())


@pytest.mark.parametrize(
    ("parameters", "members"),
    [
        (EXACT, ("party-0",)),
        (NOISY, ("party-0",)),
        (replace(NOISY, P0=0.6, rounds=3), ("party-1", "party-4")),
    ],
)
def test_the_posterior_keeps_its_promise(
    parameters: TopKParameters, members: tuple[str, ...]
) -> None:
    """The suspect is the owner as often as the posterior says, for 1 and 4 sessions (alarm 1e-6).

    The queries of a batch share their rings, so that batches are what is independent (Bernstein).
    """
    for times in (1, 4):
        rng = np.random.default_rng([times, len(members)])
        batches = [success(ask(parameters, 4, times, rng, members)) for _ in range(250)]
        surplus = sum(found.right - found.promised for found in batches)
        variance = sum(found.deviation**2 for found in batches)
        assert abs(surplus) <= bernstein(variance, 4 * parameters.k, FALSE_ALARM / 12)


def found_without_noise(sessions: int) -> float:
    """Return how often one of six parties finds an owner, from the law of the sets of suspects."""
    least = [comb(4, size) * (2 / (size + 2)) ** sessions for size in range(5)]
    exactly = [
        sum((-1) ** (size - a) * comb(size, a) * least[size] for size in range(a, 5))
        for a in range(5)
    ]
    return float(sum(p / (1 + a) for a, p in enumerate(exactly)))


def test_success_grows_with_repetitions_and_colluders() -> None:
    """Without noise success is its closed form; noise is no help, and a second colluder no harm.

    And one is never below guessing among five, nor more sessions below fewer, but for what
    Hoeffding's inequality allows batches of queries (false alarm 1e-6).
    """
    prior, batches, shares = UniformPrior(20), 300, {}
    for name, parameters, coalition in (
        ("exact", EXACT, 1),
        ("noisy", replace(NOISY, k=1), 1),
        ("pair", replace(NOISY, k=1), 2),
    ):
        shares[name] = np.array(
            [
                tracing_success(
                    6, parameters, prior, coalition=coalition, sessions=4, batches=1, rng=rng
                )
                for rng in np.random.default_rng(1).spawn(batches)
            ]
        )
    stray = hoeffding(1, batches, FALSE_ALARM / 20)
    known = [found_without_noise(sessions) for sessions in range(1, 5)]
    # A batch in which no honest party owns a result has no share, and says nothing.
    assert (abs(np.nansum(shares["exact"] - known, axis=0)) <= stray).all()
    assert (np.nansum(shares["noisy"] - known, axis=0) <= stray).all()
    assert (np.nansum(shares["noisy"] - 1 / 5, axis=0) >= -stray).all()
    assert (np.nansum(shares["pair"] - shares["noisy"], axis=0) >= -2 * stray).all()
    for each in shares.values():
        assert np.nansum(each[:, 3] - each[:, 0]) >= -2 * stray


@pytest.mark.parametrize("coalition", [0, 6])
def test_a_coalition_of_nobody_or_everybody_is_refused(coalition: int) -> None:
    """There must be somebody who attacks, and somebody to be attacked."""
    with pytest.raises(InputError, match=f"coalition is {coalition}"):
        tracing_success(
            6,
            EXACT,
            UniformPrior(20),
            coalition=coalition,
            sessions=1,
            batches=1,
            rng=np.random.default_rng(1),
        )


def test_a_retry_leaks_as_much_as_the_session_that_failed_had_come() -> None:
    """A session that fails adds nothing before a real value was passed on, and then ever more.

    In law, and in the sample but for what Hoeffding's inequality allows (false alarm 1e-6).
    """
    promised = []
    for failed_after in (None, 6, 12, 30):
        rng = np.random.default_rng(5)
        asked = (ask(NOISY, 10, 2, rng, failed_after=failed_after) for _ in range(150))
        if failed_after is None:  # as if there had been the second session only
            asked = (each._replace(sessions=each.sessions[1:]) for each in asked)
        promised.append(np.array([success(each).promised for each in asked]))
    assert promised[0] == pytest.approx(promised[1], rel=1e-12)  # round 1 is all noise
    for earlier, later in pairwise(promised[1:]):
        assert (later - earlier).sum() >= -hoeffding(2 * 30, 150, FALSE_ALARM / 2)
        assert (later != earlier).any()


def test_only_real_values_recur() -> None:
    """What is seen twice is somebody's, with certainty, and among it is all of the result.

    A party never inserts in six rounds with probability 2^-15, so that one of 600 values is seen
    less than twice in four sessions with one of at most 2400 / 2^45 < 1e-6.
    """
    asked = ask(replace(NOISY, rounds=6), 200, 4, np.random.default_rng(6))
    for run, found in enumerate(recurring(asked.sessions)):
        assert np.isin(found, asked.everything[run]).all()
        assert np.isin(asked.top[run], found).all()
    once = recurring(asked.sessions, least=1)
    assert all(
        len(seen) > len(twice) for seen, twice in zip(once, recurring(asked.sessions), strict=True)
    )


def test_values_that_are_in_no_result_recur_too() -> None:
    """A value that another displaced is known as real from two sessions in which it passed by.

    The adversary sits behind the owner of the second least, which it sees if the owner inserts in
    round 2: it starts, and noise that the owner of the least has made is below its value with
    probability 1e-8 at most. That is so in less than two of four sessions with probability 5/16, so
    that it is never found in 20 runs with one of 1e-10.
    """
    rng, runs = np.random.default_rng(10), 20
    values = np.tile(np.array([0.9, 0.1, 0.1 + 1e-9, 0.5, 0.6, 0.7])[:, None], (runs, 1, 1))
    parameters, places = replace(NOISY, k=1), [2, 0, 1, 3, 4, 5]
    order = [ORDER[place] for place in places]
    sessions = [
        simulated_view(
            transcript(values[:, places], parameters, rng), parameters, order, [ORDER[0]]
        )
        for _ in range(4)
    ]
    found = recurring(sessions)
    assert all(np.isin(seen, values).all() for seen in found)
    assert any(0.1 + 1e-9 in seen for seen in found)


def test_similar_queries_are_joined_by_a_tolerance() -> None:
    """Values that moved by less than the tolerance count as one, and are traced to their owner."""
    rng = np.random.default_rng(7)
    asked = ask(replace(NOISY, k=2), 40, 8, rng)
    moved = []
    for session in asked.sessions:
        shift = {n: v + rng.uniform(-1e-7, 1e-7, v.shape) for n, v in session.vectors.items() if n}
        moved.append(replace(session, vectors=shift | {0: session.vectors[0]}))
    assert all(len(found) == 0 for found in recurring(moved))
    for run, found in enumerate(recurring(moved, tolerance=2e-7)):
        nearest = np.abs(found[:, None] - asked.top[run]).min(axis=0)
        assert (nearest < 2e-7).all()
    still = find_owners(moved, asked.top, tolerance=2e-7)
    assert still.posterior == pytest.approx(find_owners(asked.sessions, asked.top).posterior)
    blind = find_owners(moved, asked.top)  # no value is ever met again
    assert blind.posterior == pytest.approx(np.full(blind.posterior.shape, 1 / 5))


async def test_owners_are_found_in_real_runs() -> None:
    """A single adversary that watches the same query ten times knows whose the nearest row is."""
    own = list(uniform_values(6, 6, 3, 20, np.random.default_rng(8)).swapaxes(0, 1))
    values = np.stack(own, axis=1)
    parameters = replace(EXACT, k=3)
    sessions = []
    async with Cluster(ORDER, own=own, seed=9) as cluster:
        for number in range(10):
            ring = deal_ring(ORDER, np.random.default_rng(number))
            run = await cluster.run(pp_topk, ring=ring, parameters=parameters, watch=["party-5"])
            sessions.append(topk_view(CoalitionView(ring, run.views), parameters))
    owner = (values == run.result[:, None, :1]).any(axis=-1).argmax(axis=1)
    found = find_owners(sessions, run.result[:, :1])
    assert found.candidates == tuple(ORDER[:5])
    honest = owner < 5
    assert honest.sum() >= 4
    assert (found.likeliest[honest, 0] == owner[honest]).all()


def test_sessions_that_do_not_belong_together_are_refused() -> None:
    """No session, or those of different coalitions, are refused."""
    asked = ask(EXACT, 1, 1, np.random.default_rng(1))
    other = ask(EXACT, 1, 1, np.random.default_rng(1), ("party-1",))
    with pytest.raises(InputError, match="sessions is empty"):
        recurring([])
    with pytest.raises(InputError, match="sessions is of different kinds"):
        find_owners([*asked.sessions, *other.sessions], asked.top)
    impossible = find_owners(asked.sessions, np.full((1, 1), 1.0))  # in the start vector
    assert (impossible.posterior == 0).all()
