"""The exact posterior between two colluders: closed forms, calibration, and the best success."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from tests.protocols.ring.worlds import bernstein, empirical_bernstein

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.attacks.posterior import decide_by, sandwich_posterior
from veilring.protocols.ring.attacks.views import (
    TopKView,
    UniformPrior,
    claim_new,
    judge_claims,
    owned,
    simulated_view,
)
from veilring.protocols.ring.leakage import transcript

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-6
ORDER = ["party-0", "party-1", "party-2", "party-3", "party-4"]
ONE = TopKParameters(k=1, P0=0.7, d=0.5, rounds=1, delta=0.1, upper=1.0)

# parameters, rows a party and the victim's place
GRID = [
    (ONE, 20, 2),
    (replace(ONE, rounds=3, d=0.9), 3, 4),
    (replace(ONE, k=3, P0=0.8, rounds=3, d=0.7), 10, 2),
    (replace(ONE, k=3, P0=0.9, rounds=4, d=0.9, delta=0.02), 2, 1),
    pytest.param(replace(ONE, k=5, P0=1.0, rounds=4, delta=0.005), 100, 0, marks=pytest.mark.slow),
    (replace(ONE, k=5, P0=0.3, rounds=2), 100, 3),
    (replace(ONE, k=2, P0=0.9, rounds=2, d=1.0, delta=3.0), 4, 0),
]
CASES = pytest.mark.parametrize(("parameters", "rows", "place"), GRID)


def attacked(
    parameters: TopKParameters, rows: int, place: int, trials: int = 3000
) -> tuple[Floats, Floats, Floats]:
    """Return claims and posterior of simulated runs, (rounds, T, k), and the victim's values."""
    rng = np.random.default_rng([parameters.k, rows, place])
    prior = UniformPrior(rows)
    values = prior.draw(trials, 5, parameters.k, rng)
    pair = [ORDER[place - 1], ORDER[(place + 1) % 5]]
    view = simulated_view(transcript(values, parameters, rng), parameters, ORDER, pair)
    posterior = sandwich_posterior(view, ORDER[place], prior)
    return claim_new(view, ORDER[place]), posterior, values[:, place]


@CASES
def test_the_posterior_is_calibrated(parameters: TopKParameters, rows: int, place: int) -> None:
    """A fraction q of the entries with posterior q is real, in any selection (false alarm 1e-6).

    Given the view, only a run's last change is in doubt, so the terms of a sum over runs are
    independent, and their variances are q(1-q).
    """
    claims, posterior, own = attacked(parameters, rows, place)
    new, right = np.isfinite(claims)[..., 0], owned(claims, own)[..., 0]
    q = posterior[..., 0]
    assert not right[q == 0].any()
    assert right[q == 1].all()
    assert (((q > 0) & (q < 1)).sum(axis=0) <= 1).all()
    selections = [new, q > 0.5, (q > 0) & (q < 0.3), (q > 0.3) & (q < 0.7), claims[..., 0] < 0.05]
    selections += [new & (np.arange(len(q)) == turn)[:, None] for turn in range(len(q))]
    for chosen in selections:
        surplus = float((right - q)[chosen].sum())
        variance = float((q * (1 - q))[chosen].sum())
        rare = FALSE_ALARM / (2 * len(selections) * len(GRID))
        assert abs(surplus) <= bernstein(variance, 1, rare)


@CASES
def test_no_simple_attack_beats_the_posterior(
    parameters: TopKParameters, rows: int, place: int
) -> None:
    """The posterior decides at least as many entries correctly as claiming all, or none, of them.

    By the posterior this holds in every run; by counts it holds up to a deviation with false-alarm
    rate 1e-6 (Bernstein). The two attacks differ in one change per run, of up to k entries.
    """
    claims, posterior, own = attacked(parameters, rows, place)
    new, right = np.isfinite(claims), owned(claims, own)
    decided = decide_by(posterior)
    promised = np.where(decided, posterior, 1 - posterior)
    for simple in (new, np.zeros_like(new)):
        assert (promised >= np.where(simple, posterior, 1 - posterior))[new].all()
        better = ((decided == right).astype(int) - (simple == right))[new].sum()
        differ = new & (decided != simple)
        variance = 4 * parameters.k * (posterior * (1 - posterior))[differ].sum()
        rare = FALSE_ALARM / (2 * len(GRID))
        assert better >= -bernstein(variance, 2 * parameters.k, rare)


@pytest.mark.parametrize("delta", [0.01, 0.1, 2.0])
def test_one_value_and_one_round_agree_with_an_integral(delta: float) -> None:
    """With k = 1 the odds are a density over one integral, which SciPy confirms to 1e-9."""
    parameters = replace(ONE, delta=delta)
    received, passed = np.array([0.142, 0.3, 0.05, 0.9]), np.array([0.114, 0.21, 0.04, 0.1])
    for number in range(4):
        G, a = received[number], passed[number]
        view = seen(parameters, G, a)
        q = sandwich_posterior(view, "party-2", UniformPrior(20))[0, 0, 0]

        def density(x: float, G: float = G, a: float = a) -> float:
            width = max(delta, G - x)
            return 20 * (1 - x) ** 19 / width if a <= x + width else 0.0

        bends = [x for x in (G - delta, a - delta) if 0 < x < a] or None
        noise, _ = integrate.quad(density, 0, min(a, G), points=bends, epsabs=1e-13)
        real = 20 * (1 - a) ** 19
        assert q == pytest.approx(0.3 * real / (0.3 * real + 0.7 * noise), rel=1e-9)


def seen(parameters: TopKParameters, *path: float) -> TopKView:
    """Return the view of both neighbours of party-2 for these single values."""
    vectors = np.ones((6, 1, 1))
    vectors[2:4, 0, 0] = path
    vectors[4:] = path[-1]
    return simulated_view(vectors, parameters, ORDER, ["party-1", "party-3"])


def test_certain_entries_have_a_posterior_of_0_or_1() -> None:
    """Entries that cannot be real have posterior 0, noiseless ones 1, and impossible views none."""
    prior = UniformPrior(20)
    assert sandwich_posterior(seen(ONE, 0.2, 0.25), "party-2", prior).item() == 0
    assert sandwich_posterior(seen(ONE, 0.2, 0.2), "party-2", prior).item() == 0
    honest, noisy = replace(ONE, P0=0.0), replace(ONE, P0=1.0)
    assert sandwich_posterior(seen(honest, 0.2, 0.1), "party-2", prior).item() == 1
    assert sandwich_posterior(seen(noisy, 0.2, 0.1), "party-2", prior).item() == 0
    impossible = UniformPrior(20, upper=0.01)
    assert np.isnan(sandwich_posterior(seen(honest, 0.2, 0.1), "party-2", impossible)).all()
    assert not decide_by(np.array([np.nan])).any()


def test_the_unit_of_the_values_does_not_matter() -> None:
    """Rescaled values, bounds and delta give the same posterior."""
    metres, prior = replace(ONE, delta=10.0, upper=100.0), UniformPrior(20, upper=100.0)
    vectors = np.array([100, 100, 14.2, 11.4, 5, 5])[:, None, None]
    view = simulated_view(vectors, metres, ORDER, ["party-1", "party-3"])
    expected = sandwich_posterior(seen(ONE, 0.142, 0.114), "party-2", UniformPrior(20))
    assert sandwich_posterior(view, "party-2", prior) == pytest.approx(expected, rel=1e-12)


async def test_two_colluders_separate_noise_from_values() -> None:
    """In real runs, two colluders tell nearly all noise from the values that a party inserted.

    In expectation at least 65 % of the new entries are noise. The optimal attack decides at most 1
    % of them wrongly, as its posterior states, and misses at most 1 % of the values (false alarm
    1e-6).
    """
    parameters = replace(ONE, k=5, P0=1.0, rounds=4)
    prior = UniformPrior(100)
    values = prior.draw(400, 5, 5, np.random.default_rng(1))
    async with Cluster(ORDER, own=list(values.swapaxes(0, 1)), seed=2) as cluster:
        run = await cluster.run(
            pp_topk, ring=Ring(ORDER), parameters=parameters, watch=["party-1", "party-3"]
        )
    view = topk_view(CoalitionView(Ring(ORDER), run.views), parameters)
    claims = claim_new(view, "party-2")
    q = sandwich_posterior(view, "party-2", prior)
    new, real, decided = np.isfinite(claims), owned(claims, values[:, 2]), decide_by(q)
    wrong, most, rare = new & (decided != real), parameters.rounds * 5, FALSE_ALARM / 5
    surplus = abs(float((wrong - np.minimum(q, 1 - q))[new].sum()))
    assert surplus <= bernstein(float(5 * (q * (1 - q))[new].sum()), 5, rare / 2)
    for few, many, share in ((real, new, 0.35), (wrong, new, 0.01), (real & ~decided, real, 0.01)):
        over = (few - share * many).sum(axis=(0, 2))
        assert over.sum() <= empirical_bernstein(over, 5 + share * most, rare)
    assert (
        judge_claims(claims, values[:, 2], decided).gain
        > 0
        > judge_claims(claims, values[:, 2]).gain
    )


def test_incomplete_views_are_refused() -> None:
    """Views without the victim's input, and priors without rows or finite bounds, are refused."""
    view = simulated_view(np.ones((6, 1, 1)), ONE, ORDER, ["party-3"])
    with pytest.raises(InputError, match="views lack vector 2"):
        sandwich_posterior(view, "party-2", UniformPrior(20))
    with pytest.raises(InputError, match="rows_per_party is 0"):
        UniformPrior(0)
    with pytest.raises(InputError, match="upper is inf"):
        UniformPrior(1, np.inf)
