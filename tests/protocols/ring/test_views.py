"""Views of a coalition, the attacks that use them, and the owners named after repetitions."""

from dataclasses import replace
from itertools import combinations, pairwise, permutations
from math import comb
from typing import NamedTuple

import numpy as np
import pytest
from docs.examples.ring_attacks import tracing_success
from tests.protocols.ring.worlds import FALSE_ALARM, NAMES, bernstein, hoeffding, play, rng

from veilring.arrays import Floats, Ints
from veilring.nodes.ring import Ring, deal_ring
from veilring.protocols.ring.algorithm.consistency import multiset_size
from veilring.protocols.ring.algorithm.topk import TopKParameters, true_topk
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.attacks.views import (
    TopKView,
    UniformPrior,
    claim_new,
    find_owners,
    judge_claims,
    owned,
    recurring,
    simulated_view,
)
from veilring.protocols.ring.leakage import (
    estimate_hop_leakage,
    exposure_to_coalition,
    transcript,
    uniform_values,
)
from veilring.protocols.ring.roles import pp_topk

PARAMETERS = TopKParameters(k=3, P0=0.8, d=0.5, rounds=3, delta=0.1, upper=1.0)


@pytest.mark.parametrize("members", [{"party-1"}, {"party-0", "party-3"}, set(NAMES)], ids=len)
async def test_a_real_view_is_the_members_part_of_the_transcript(members: set[str]) -> None:
    """A coalition sees the same vectors in a real run as in a simulation of its transcript."""
    own = list(uniform_values(7, 5, 3, 10, rng(1)).swapaxes(0, 1))
    ring = deal_ring(NAMES, rng(2))
    run = await play(pp_topk, own, ring=ring, parameters=PARAMETERS, watch=NAMES)
    every = topk_view(CoalitionView(ring, run.views), PARAMETERS)
    assert every.seen == tuple(range(16))
    whole = np.stack([every.vectors[number] for number in every.seen])
    real = topk_view(CoalitionView(ring, {name: run.views[name] for name in members}), PARAMETERS)
    simulated = simulated_view(whole, PARAMETERS, ring.order, members)
    assert real.members == simulated.members == members
    assert real.seen == simulated.seen
    assert real.runs == 7
    for number in real.seen:
        assert (real.vectors[number] == simulated.vectors[number]).all()
    assert real.result is not None
    assert (np.minimum(real.result, 1.0) == run.result).all()


def test_a_member_sees_its_received_and_sent_vectors() -> None:
    """In two rounds, position 2 of 5 sees vectors 2, 3, 7 and 8, the first and the result."""
    parameters = replace(PARAMETERS, rounds=2)
    vectors = np.zeros((11, 1, 3))
    view = simulated_view(vectors, parameters, NAMES, ["party-2"])
    assert view.seen == (0, 2, 3, 7, 8, 10)
    assert view.hops_of("party-2") == (2, 7)
    assert [view.last_before(hop) for hop in (0, 1, 2, 6, 9)] == [0, 0, 2, 3, 8]
    failed = simulated_view(vectors, parameters, NAMES, ["party-2"], failed_after=7)
    assert failed.seen == (0, 2, 3, 7)
    assert failed.result is None


@pytest.mark.parametrize("place", range(5))
def test_claims_are_as_right_as_estimated(place: int) -> None:
    """On the same runs, one neighbour is right at the rate `claim`, hop by hop, and two if exposed.

    Two neighbours' claims of a round are all real or all noise.
    """
    values = uniform_values(400, 5, 3, 8, rng(1))
    vectors, victim = transcript(values, PARAMETERS, rng(2)), NAMES[place]
    pair = [(place - 1) % 5, (place + 1) % 5]
    one, both = (
        claim_new(simulated_view(vectors, PARAMETERS, NAMES, [NAMES[p] for p in places]), victim)
        for places in (pair[1:], pair)
    )
    leak = estimate_hop_leakage(values, PARAMETERS, rng(2))
    for turn in range(3):
        alone = judge_claims(one[[turn]], values[:, place])
        assert alone.precision == pytest.approx(leak.by_hop.claim[turn, place], rel=1e-12)
    new = judge_claims(one, values[:, place]).new
    assert new == pytest.approx(np.isfinite(one).sum() / 400)
    own = owned(both, values[:, place])
    seen = exposure_to_coalition(values, PARAMETERS, pair, rng(2))
    assert own.any(axis=(0, 2)).mean() == seen.exactly[place] == leak.exposure_by_party[place]
    assert np.isnan(seen.exactly[pair]).all()
    honest = [p for p in range(5) if p not in pair]
    assert (seen.exactly[honest] <= seen.among_run[honest]).all()
    entries, right = multiset_size(both.reshape(-1, 3)), own.reshape(-1, 3).sum(axis=1)
    assert ((right == 0) | (right == entries)).all()


async def test_claims_in_a_noiseless_run_are_the_victims_values() -> None:
    """Without noise, two colluders' claims in a real run are exactly the victim's values."""
    exact = TopKParameters(k=3, P0=0.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
    own = list(uniform_values(50, 5, 3, 8, rng(5)).swapaxes(0, 1))
    ring, pair = Ring(NAMES), ["party-0", "party-2"]
    run = await play(pp_topk, own, ring=ring, parameters=exact, watch=pair)
    view = topk_view(CoalitionView(ring, run.views), exact)
    success = judge_claims(claim_new(view, "party-1"), own[1])
    assert success.precision == success.accuracy == 1
    assert success.gain == success.new == success.claims > 0
    assert success.recall == pytest.approx(success.claims / 3)
    # Of the other two, the starter receives the last one's vector; no member receives the first
    # one's.
    assert np.isinf(claim_new(view, "party-3")).all()
    assert np.isfinite(claim_new(view, "party-4")).any()


def test_success_is_counted_as_defined() -> None:
    """A small example gives the precision, recall, accuracy and gain that are counted by hand."""
    inf = np.inf
    claims = np.array([[[0.1, 0.2, 0.3]], [[0.4, 0.5, inf]]])
    own = np.array([[0.2, 0.4, 0.9]])
    everything = judge_claims(claims, own)
    assert (everything.new, everything.claims, everything.gain) == (5, 5, -1)
    assert everything.precision == everything.accuracy == pytest.approx(2 / 5)
    assert everything.recall == pytest.approx(2 / 3)
    decided = np.array([[[True, True, False]], [[False, True, True]]])
    some = judge_claims(claims, own, decided)
    assert (some.claims, some.gain) == (3, -1)
    assert some.precision == some.recall == pytest.approx(1 / 3)
    assert some.accuracy == pytest.approx(2 / 5)  # 0.2 claimed, 0.3 left
    nothing = judge_claims(np.full((1, 1, 1), inf), np.full((1, 1), inf))
    assert (nothing.precision, nothing.recall, nothing.accuracy, nothing.gain) == (0, 0, 1, 0)


SIX = [f"party-{number}" for number in range(6)]
EXACT = TopKParameters(k=1, P0=0.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
NOISY = replace(EXACT, k=3, P0=1.0, rounds=5)
LESS = replace(NOISY, P0=0.6, rounds=3)


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
    draws: np.random.Generator,
    *,
    members: tuple[str, ...] = ("party-0",),
    failed_after: int | None = None,
) -> Asked:
    """Ask equal queries several times, each in a fresh ring; the first attempt may fail."""
    values = uniform_values(runs, 6, parameters.k, 20, draws)
    top = true_topk(values, parameters)
    owner = (values[:, :, None] == top[:, None, :, None]).any(axis=-1).argmax(axis=1)
    sessions = []
    for number in range(times):
        places = draws.permutation(6)
        vectors = transcript(values[:, places], parameters, draws)
        order = [SIX[place] for place in places]
        failed = None if number else failed_after
        sessions.append(simulated_view(vectors, parameters, order, members, failed))
    return Asked(sessions, top, owner, values)


def success(asked: Asked) -> tuple[int, float, float]:
    """Return the number of honest values found, the promised one, and a bound on its deviation.

    The bound holds for any dependence.
    """
    found = find_owners(asked.sessions, asked.top)
    names, owners = np.array(found.candidates), np.array(SIX)[asked.owner]
    honest, right = np.isin(owners, names), names[found.likeliest] == owners
    q = np.minimum(found.posterior.max(axis=-1)[honest], 1.0)
    return int(right[honest].sum()), float(q.sum()), float(np.sqrt(q * (1 - q)).sum())


def test_sets_of_suspects_have_their_exact_probability() -> None:
    """Without noise, any a parties that are not the owner stay suspected in 2/(a + 2) of all rings.

    They are all on the owner's side of a lone adversary exactly if the adversary is the first or
    the last of these a + 2 parties. All suspects are equally likely, and the posteriors of
    independent sessions multiply.
    """
    values = rng(1).permutation(6).reshape(1, 6, 1) / 10
    top, owner = true_topk(values, EXACT), int(values[0, :, 0].argmin())
    adversary = (owner + 1) % 6
    suspected, posteriors, views = [], [], []
    for places in permutations(range(6)):
        vectors = transcript(values[:, places], EXACT, rng())
        order = [SIX[place] for place in places]
        views.append(simulated_view(vectors, EXACT, order, [SIX[adversary]]))
        found = find_owners(views[-1:], top)
        posterior = found.posterior[0, 0]
        suspects = posterior > 0
        assert posterior[suspects] == pytest.approx(1 / suspects.sum())
        suspected.append({found.candidates[place] for place in np.flatnonzero(suspects)})
        posteriors.append(posterior)
    assert all(SIX[owner] in suspects for suspects in suspected)
    others = [name for name in SIX if name not in (SIX[owner], SIX[adversary])]
    for size in range(1, 5):
        for some in map(set, combinations(others, size)):
            assert sum(some <= suspects for suspects in suspected) == 720 * 2 / (size + 2)
    for one, other in ((0, 719), (100, 500), (333, 600)):
        joint = posteriors[one] * posteriors[other]
        both = find_owners([views[one], views[other]], top).posterior[0, 0]
        assert both == pytest.approx(joint / joint.sum())
    nobodys = np.full((1, 1), 1.0)  # a value of the public start vector
    assert (find_owners(views[-1:], nobodys).posterior == 0).all()


@pytest.mark.parametrize(
    ("parameters", "members"),
    [
        (EXACT, ("party-0",)),
        pytest.param(NOISY, ("party-0",), marks=pytest.mark.slow),
        pytest.param(LESS, ("party-1", "party-4"), marks=pytest.mark.slow),
    ],
)
def test_the_posterior_is_calibrated(parameters: TopKParameters, members: tuple[str, ...]) -> None:
    """The suspect is the owner as often as the posterior states, for 1 and 4 sessions (alarm 1e-6).

    The queries of a batch share their rings, so only batches are independent (Bernstein).
    """
    for times in (1, 4):
        draws = rng(times, len(members))
        batches = [success(ask(parameters, 4, times, draws, members=members)) for _ in range(250)]
        right, promised, deviations = np.array(batches).T
        largest = 4 * parameters.k
        stray = bernstein((deviations**2).sum(), largest, FALSE_ALARM / 12)
        assert abs(right.sum() - promised.sum()) <= stray


async def test_owners_are_found_in_real_runs() -> None:
    """A lone adversary that watches the same queries ten times names the owners of nearest rows."""
    own = list(uniform_values(6, 6, 3, 20, rng(8)).swapaxes(0, 1))
    values = np.stack(own, axis=1)
    parameters = replace(EXACT, k=3)
    sessions, watch = [], ["party-5"]
    for number in range(10):
        ring = deal_ring(SIX, rng(number))
        run = await play(pp_topk, own, names=SIX, ring=ring, parameters=parameters, watch=watch)
        sessions.append(topk_view(CoalitionView(ring, run.views), parameters))
    owner = (values == run.result[:, None, :1]).any(axis=-1).argmax(axis=1)
    found = find_owners(sessions, run.result[:, :1])
    assert found.candidates == tuple(SIX[:5])
    honest = owner < 5
    assert honest.sum() >= 4
    assert (found.likeliest[honest, 0] == owner[honest]).all()


def found_without_noise(sessions: int) -> float:
    """Return the rate at which one of six parties finds an owner, from the suspects' odds."""
    least = [comb(4, size) * (2 / (size + 2)) ** sessions for size in range(5)]
    exactly = [
        sum((-1) ** (size - a) * comb(size, a) * least[size] for size in range(a, 5))
        for a in range(5)
    ]
    return float(sum(p / (1 + a) for a, p in enumerate(exactly)))


@pytest.mark.slow
def test_success_grows_with_repetitions_and_colluders() -> None:
    """Noiseless success equals its closed form; noise never raises it, colluders never lower it.

    One colluder succeeds at least as often as a guess among five parties, and four sessions at
    least as often as one, within Hoeffding's bound for batches of queries (false alarm 1e-6).
    """
    batches, public = 300, {"sessions": 4, "batches": 1}
    exact, noisy, pair = (
        np.array(
            [
                tracing_success(6, parameters, UniformPrior(20), coalition=c, rng=draws, **public)
                for draws in rng(1).spawn(batches)
            ]
        )
        for parameters, c in ((EXACT, 1), (replace(NOISY, k=1), 1), (replace(NOISY, k=1), 2))
    )
    stray = hoeffding(1, batches, FALSE_ALARM / 20)
    known = [found_without_noise(sessions) for sessions in range(1, 5)]
    # A batch in which no honest party owns a result has no share, and is left out.
    assert (abs(np.nansum(exact - known, axis=0)) <= stray).all()
    assert (np.nansum(noisy - known, axis=0) <= stray).all()
    assert (np.nansum(noisy - 1 / 5, axis=0) >= -stray).all()
    assert (np.nansum(pair - noisy, axis=0) >= -2 * stray).all()
    for each in (exact, noisy, pair):
        assert np.nansum(each[:, 3] - each[:, 0]) >= -2 * stray


@pytest.mark.slow
def test_a_session_that_fails_later_leaks_more() -> None:
    """A session that fails while all entries are noise adds nothing; later failures add more.

    This holds in expectation, and in the sample within Hoeffding's bound (false alarm 1e-6).
    """
    promised = []
    for failed_after in (None, 6, 12, 30):
        draws = rng(5)
        asked = (ask(NOISY, 10, 2, draws, failed_after=failed_after) for _ in range(150))
        if failed_after is None:  # as if there had been the second session only
            asked = (each._replace(sessions=each.sessions[1:]) for each in asked)
        promised.append(np.array([success(each)[1] for each in asked]))
    assert promised[0] == pytest.approx(promised[1], rel=1e-12)  # round 1 is all noise
    for earlier, later in pairwise(promised[1:]):
        assert (later - earlier).sum() >= -hoeffding(2 * 30, 150, FALSE_ALARM / 2)
        assert (later != earlier).any()


def test_only_real_values_recur() -> None:
    """A value that is seen twice is real, and all values of the result are seen twice.

    A party never inserts in six rounds with probability 2^-15, so the probability that one of 600
    values is seen fewer than two times in four sessions is at most 2400 / 2^45 < 1e-6.
    """
    asked = ask(replace(NOISY, rounds=6), 200, 4, rng(6))
    for run, found in enumerate(recurring(asked.sessions)):
        assert np.isin(found, asked.everything[run]).all()
        assert np.isin(asked.top[run], found).all()
    once = recurring(asked.sessions, least=1)
    twice = recurring(asked.sessions)
    assert all(len(more) > len(fewer) for more, fewer in zip(once, twice, strict=True))


def test_values_in_no_result_recur_too() -> None:
    """A displaced value, which is in no result, is found once it was seen in two sessions.

    The adversary follows the owner of the second smallest value, which it sees if the owner inserts
    in round 2: the owner starts, and noise of the smallest value's owner is below its value with
    probability at most 1e-8. This happens in fewer than two of four sessions with probability 5/16,
    so the value is never found in 20 runs with probability 1e-10.
    """
    draws, runs = rng(10), 20
    values = np.tile(np.array([0.9, 0.1, 0.1 + 1e-9, 0.5, 0.6, 0.7])[:, None], (runs, 1, 1))
    parameters, places = replace(NOISY, k=1), [2, 0, 1, 3, 4, 5]
    order = [SIX[place] for place in places]
    sessions = [
        simulated_view(transcript(values[:, places], parameters, draws), parameters, order, SIX[:1])
        for _ in range(4)
    ]
    found = recurring(sessions)
    assert all(np.isin(seen, values).all() for seen in found)
    assert any(0.1 + 1e-9 in seen for seen in found)


def test_similar_queries_are_joined_by_a_tolerance() -> None:
    """Values that moved by less than the tolerance are equal, and are traced to their owner.

    Noise is spread over at least 0.1, so the probability that one of 7,680 entries comes this near
    to one of two values is at most 7680 * 2 * 2e-12 / 0.1 < 1e-6.
    """
    asked = ask(replace(NOISY, k=2), 40, 8, rng(7))
    moved = []
    for number, session in enumerate(asked.sessions, start=1):
        shifted = {n: v + number * 1e-13 for n, v in session.vectors.items() if n}
        moved.append(replace(session, vectors=shifted | {0: session.vectors[0]}))
    assert all(len(found) == 0 for found in recurring(moved))
    for run, found in enumerate(recurring(moved, tolerance=1e-12)):
        nearest = np.abs(found[:, None] - asked.top[run]).min(axis=0)
        assert (nearest < 1e-12).all()
    still = find_owners(moved, asked.top, tolerance=1e-12)
    assert still.posterior == pytest.approx(find_owners(asked.sessions, asked.top).posterior)
    blind = find_owners(moved, asked.top)  # no value is ever met again
    assert blind.posterior == pytest.approx(np.full(blind.posterior.shape, 1 / 5))
