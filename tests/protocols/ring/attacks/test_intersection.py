"""The attack over repetitions: against closed forms, by calibration, and in real runs."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

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


def success(asked: Asked) -> tuple[int, int, float]:
    """Return how many of the honest parties' values were found, of how many, and as promised."""
    found = find_owners(asked.sessions, asked.top)
    honest = np.isin(asked.owner, [ORDER.index(name) for name in found.candidates])
    number = np.array(
        [found.candidates.index(name) if name in found.candidates else -1 for name in ORDER]
    )
    right = found.likeliest == number[asked.owner]
    promised = found.posterior.max(axis=-1)
    return int(right[honest].sum()), int(honest.sum()), float(promised[honest].sum())


def test_each_session_leaves_two_thirds_under_suspicion() -> None:
    """Without noise, (n - 2)(2/3)^T wrong suspects are left after T sessions (alarm 1e-6).

    Another party is on the owner's side of a lone adversary unless the adversary sits between
    them, which it does in one of three orders. One value a batch, so that batches are independent.
    """
    rng, times, batches = np.random.default_rng(1), 3, 1200
    left = []
    for _ in range(batches):
        asked = ask(EXACT, 1, times, rng)
        if asked.owner[0, 0] != 0:
            posterior = find_owners(asked.sessions, asked.top).posterior[0, 0]
            suspects = posterior[posterior > 0]
            assert suspects == pytest.approx(np.full(len(suspects), 1 / len(suspects)))
            assert posterior[asked.owner[0, 0] - 1] > 0
            left.append(len(suspects) - 1)
    expected = 4 * (2 / 3) ** times
    assert stats.ttest_1samp(left, expected).pvalue > FALSE_ALARM
    assert len(left) > 900


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

    The queries of a batch share their rings, so that batches are what is independent.
    """
    for times in (1, 4):
        rng = np.random.default_rng([times, len(members)])
        surplus = []
        for _ in range(250):
            right, _, promised = success(ask(parameters, 4, times, rng, members))
            surplus.append(right - promised)
        assert stats.ttest_1samp(surplus, 0.0).pvalue > FALSE_ALARM / 6


def test_success_grows_with_repetitions_and_colluders() -> None:
    """More sessions find more owners, and two colluders more than one; noise slows it down."""
    prior, shares = UniformPrior(20), {}
    for name, parameters, coalition in (
        ("exact", replace(EXACT, k=3), 1),
        ("noisy", NOISY, 1),
        ("pair", NOISY, 2),
    ):
        shares[name] = tracing_success(
            6,
            parameters,
            prior,
            coalition=coalition,
            sessions=16,
            batches=60,
            rng=np.random.default_rng(1),
        )
        assert shares[name][0] < shares[name][3] < shares[name][15]
    assert shares["noisy"][3] < shares["exact"][3]
    assert shares["noisy"][3] < shares["pair"][3]
    assert shares["exact"][15] > 0.95
    assert shares["noisy"][0] > 1 / 5  # better than to guess among five


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
    """A session that fails adds nothing before a real value was passed on, and then ever more."""
    gained = []
    for failed_after in (6, 12, 30):
        rng = np.random.default_rng(5)
        found = [success(ask(NOISY, 10, 2, rng, failed_after=failed_after)) for _ in range(150)]
        gained.append(np.sum(found, axis=0))
    rng = np.random.default_rng(5)
    alone = []
    for _ in range(150):
        asked = ask(NOISY, 10, 2, rng)
        alone.append(success(asked._replace(sessions=asked.sessions[1:])))
    promised = [np.sum(alone, axis=0)[2], *(total[2] for total in gained)]
    assert promised[0] == pytest.approx(promised[1], rel=1e-12)  # round 1 is all noise
    assert promised[1] < promised[2] < promised[3]


def test_only_real_values_recur() -> None:
    """What is seen twice is somebody's, with certainty; and it is more than the results say."""
    asked = ask(NOISY, 200, 4, np.random.default_rng(6))
    beyond = 0
    for run, found in enumerate(recurring(asked.sessions)):
        assert np.isin(found, asked.everything[run]).all()
        assert np.isin(asked.top[run], found).all()
        beyond += len(set(found) - set(asked.top[run]))
    assert beyond > 0
    once = recurring(asked.sessions, least=1)
    assert all(
        len(seen) > len(twice) for seen, twice in zip(once, recurring(asked.sessions), strict=True)
    )


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
