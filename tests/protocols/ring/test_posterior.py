"""The optimal attack: its integrals, its exact and its simulated posterior, and their table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from docs.examples.ring_attacks import Setting, attack_table
from scipy import integrate, stats
from tests.protocols.ring.worlds import (
    FALSE_ALARM,
    NAMES,
    bernstein,
    empirical_bernstein,
    hoeffding,
    play,
    rng,
)

from veilring.arrays import Bools, Floats
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.attacks import CoalitionView, topk_view, views
from veilring.protocols.ring.attacks import posterior as attack
from veilring.protocols.ring.leakage import transcript
from veilring.protocols.ring.roles import pp_topk


def integral(
    factor: Callable[[int, Floats], Floats],
    at: Sequence[float],
    depth: int,
    rows: int,
    known: Sequence[float] = (),
) -> float:
    """Return the logarithm of the integral of factors that bend at some values."""
    grid = attack.QuadratureGrid(np.array([at]), depth, rows)
    given = np.array([[*known, np.inf]])
    count = np.array([len(known)])
    return float(attack.integrate_log_likelihood(grid, factor, given, count, depth, rows)[0])


def free(_i: int, x: Floats) -> Floats:
    """Return no evidence."""
    return np.zeros_like(x)


def below(i: int, x: Floats, limit: float, only: int | None = None) -> Floats:
    """Return evidence that all values, or only one of them, are below a limit."""
    return np.where((only not in {None, i}) | (x < limit), 0.0, -np.inf)


@pytest.mark.parametrize("rows", [1, 2, 7, 100, 5000])
def test_without_evidence_the_integral_is_the_constant(rows: int) -> None:
    """Without evidence, the density integrates to 1: the result is (N-M)!/N! for any M up to N."""
    for depth in {1, min(3, rows), min(12, rows), min(100, rows)}:
        expected = math.lgamma(rows - depth + 1) - math.lgamma(rows + 1)
        assert integral(free, [0.2, 0.7], depth, rows) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("i", "rows"), [(1, 5), (3, 5), (5, 5), (4, 80), (40, 400)])
def test_the_probability_of_a_small_value_follows_a_beta_distribution(i: int, rows: int) -> None:
    """P(V[i] < t) equals that of Beta(i, N-i+1), down to 1e-12."""
    for t in (0.01, 0.1, 0.6):
        with np.errstate(divide="ignore"):
            expected = stats.beta(i, rows - i + 1).logcdf(t)
        log = integral(partial(below, limit=t, only=i), [t], i, rows)
        constant = math.lgamma(rows - i + 1) - math.lgamma(rows + 1)
        if expected > math.log(1e-12):
            assert log - constant == pytest.approx(expected, abs=1e-9)


def test_two_values_with_factors_are_integrated_together() -> None:
    """A steep factor on V[1] and a bound on V[2] agree with SciPy's double integral."""

    def factor(i: int, x: Floats) -> Floats:
        if i == 1:
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(x < 0.25, -3 * np.log(np.maximum(0.05, 0.3 - x)), -np.inf)
        return np.where(x >= 0.1, 0.0, -np.inf) if i == 2 else np.zeros_like(x)

    expected, _ = integrate.dblquad(
        lambda y, x: (1 - y) ** 7 * (0.3 - x) ** -3, 0, 0.25, lambda x: max(x, 0.1), 1
    )
    for depth in (2, 4):
        left_out = math.log(math.factorial(7) / math.factorial(9 - depth))
        log = integral(factor, [0.25, 0.1, 0.3], depth, 9)
        assert log + left_out == pytest.approx(math.log(expected), abs=1e-7)


def test_known_values_are_not_integrated_over() -> None:
    """If the first values are known, the result is their density; if all N are known, it is 1."""
    for depth, further in ((2, 0), (3, math.log(4))):
        log = integral(free, [0.3], depth, 6, known=[0.1, 0.3])
        assert log == pytest.approx(4 * math.log(0.7) - further)
    assert integral(free, [0.1, 0.3], 2, 2, known=[0.1, 0.3]) == 0


def test_narrow_or_contradictory_factors_do_not_underflow() -> None:
    """100 values in a hundredth of the range have 1e-200, and a contradiction has probability 0."""
    expected = 100 * math.log(0.01) - math.lgamma(101)
    narrow = integral(partial(below, limit=0.01), [0.01], 100, 100)
    assert narrow == pytest.approx(expected, rel=1e-9)
    assert integral(partial(below, limit=-np.inf), [np.inf], 2, 3) == -np.inf


ONE = TopKParameters(k=1, P0=0.7, d=0.5, rounds=1, delta=0.1, upper=1.0)

# parameters, rows a party and the victim's place
GRID = [
    (ONE, 20, 2),
    (replace(ONE, rounds=3, d=0.9), 3, 4),
    (replace(ONE, k=3, P0=0.8, rounds=3, d=0.7), 10, 2),
    (replace(ONE, k=3, P0=0.9, rounds=4, d=0.9, delta=0.02), 2, 1),
    (replace(ONE, k=5, P0=1.0, rounds=4, delta=0.005), 100, 0),
    (replace(ONE, k=5, P0=0.3, rounds=2), 100, 3),
    (replace(ONE, k=2, P0=0.9, rounds=2, d=1.0, delta=3.0), 4, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("parameters", "rows", "place"), GRID)
def test_the_posterior_is_calibrated(parameters: TopKParameters, rows: int, place: int) -> None:
    """A fraction q of the entries with posterior q is real, in any selection.

    Deciding by the posterior is at least as often right as claiming all new entries, or none: in
    every run by the posterior, and up to a deviation by counts. All deviations are Bernstein's, and
    each claim has a false-alarm rate of 1e-6: given the view, only a run's last change is in doubt,
    so the terms of a sum over runs are independent, and their variances are q(1-q). Two attacks
    differ in one change per run, of up to k entries.
    """
    draws = rng(parameters.k, rows, place)
    prior, pair = views.UniformPrior(rows), [NAMES[place - 1], NAMES[(place + 1) % 5]]
    values = prior.draw(3000, 5, parameters.k, draws)
    view = views.simulated_view(transcript(values, parameters, draws), parameters, NAMES, pair)
    claims, posterior = (
        views.claim_new(view, NAMES[place]),
        attack.sandwich_posterior(view, NAMES[place], prior),
    )
    new, right = np.isfinite(claims), views.owned(claims, values[:, place])
    q, is_right, is_new = posterior[..., 0], right[..., 0], new[..., 0]
    assert not is_right[q == 0].any()
    assert is_right[q == 1].all()
    assert (((q > 0) & (q < 1)).sum(axis=0) <= 1).all()
    selections = [is_new, q > 0.5, (q > 0) & (q < 0.3), (q > 0.3) & (q < 0.7)]
    selections += [claims[..., 0] < 0.05]
    selections += [is_new & (np.arange(len(q)) == turn)[:, None] for turn in range(len(q))]
    for chosen in selections:
        surplus = float((is_right - q)[chosen].sum())
        variance = float((q * (1 - q))[chosen].sum())
        rare = FALSE_ALARM / (2 * len(selections) * len(GRID))
        assert abs(surplus) <= bernstein(variance, 1, rare)
    decided = attack.decide_by(posterior)
    promised = np.where(decided, posterior, 1 - posterior)
    for simple in (new, np.zeros_like(new)):
        assert (promised >= np.where(simple, posterior, 1 - posterior))[new].all()
        better = ((decided == right).astype(int) - (simple == right))[new].sum()
        differ = new & (decided != simple)
        variance = 4 * parameters.k * (posterior * (1 - posterior))[differ].sum()
        rare = FALSE_ALARM / (2 * len(GRID))
        assert better >= -bernstein(variance, 2 * parameters.k, rare)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.01, 0.1, 2.0])
def test_one_value_and_one_round_agree_with_an_integral(delta: float) -> None:
    """With k = 1 the odds are a density over one integral, which SciPy confirms to 1e-9."""
    parameters = replace(ONE, delta=delta)
    received, passed = np.array([0.142, 0.3, 0.05, 0.9]), np.array([0.114, 0.21, 0.04, 0.1])
    for number in range(4):
        G, a = received[number], passed[number]
        view = seen(parameters, G, a)
        q = attack.sandwich_posterior(view, "party-2", views.UniformPrior(20))[0, 0, 0]

        def density(x: float, G: float = G, a: float = a) -> float:
            width = max(delta, G - x)
            return 20 * (1 - x) ** 19 / width if a <= x + width else 0.0

        bends = [x for x in (G - delta, a - delta) if 0 < x < a] or None
        noise, _ = integrate.quad(density, 0, min(a, G), points=bends, epsabs=1e-13)
        real = 20 * (1 - a) ** 19
        assert q == pytest.approx(0.3 * real / (0.3 * real + 0.7 * noise), rel=1e-9)


def seen(parameters: TopKParameters, *path: float) -> views.TopKView:
    """Return the view of both neighbours of party-2 for these single values."""
    vectors = np.ones((6, 1, 1))
    vectors[2:4, 0, 0] = path
    vectors[4:] = path[-1]
    return views.simulated_view(vectors, parameters, NAMES, ["party-1", "party-3"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("P0", "passed", "upper", "expected"),
    [
        (0.7, 0.25, 1.0, 0),  # it cannot be real
        (0.7, 0.2, 1.0, 0),
        (0.0, 0.1, 1.0, 1),  # there is no noise
        (1.0, 0.1, 1.0, 0),  # there is only noise
        (0.0, 0.1, 0.01, math.nan),  # impossible
    ],
)
def test_entries_can_be_certain(P0: float, passed: float, upper: float, expected: float) -> None:
    """Entries that cannot be real have posterior 0, noiseless ones 1, and impossible views none."""
    view = seen(replace(ONE, P0=P0), 0.2, passed)
    q = attack.sandwich_posterior(view, "party-2", views.UniformPrior(20, upper=upper))
    np.testing.assert_array_equal(q, [[[expected]]])
    assert not attack.decide_by(np.array([np.nan])).any()


@pytest.mark.slow
def test_the_unit_of_the_values_does_not_matter() -> None:
    """Rescaled values, bounds and delta give the same posterior."""
    metres, prior = replace(ONE, delta=10.0, upper=100.0), views.UniformPrior(20, upper=100.0)
    vectors = np.array([100, 100, 14.2, 11.4, 5, 5])[:, None, None]
    view = views.simulated_view(vectors, metres, NAMES, ["party-1", "party-3"])
    expected = attack.sandwich_posterior(seen(ONE, 0.142, 0.114), "party-2", views.UniformPrior(20))
    assert attack.sandwich_posterior(view, "party-2", prior) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
async def test_two_colluders_separate_noise_from_values() -> None:
    """In real runs, two colluders tell nearly all noise from the values that a party inserted.

    In expectation at least 65 % of the new entries are noise. The optimal attack decides at most 1
    % of them wrongly, as its posterior states, and misses at most 1 % of the values (false alarm
    1e-6).
    """
    parameters = replace(ONE, k=5, P0=1.0, rounds=4)
    prior = views.UniformPrior(100)
    values = prior.draw(400, 5, 5, rng(1))
    ring, own = Ring(NAMES), list(values.swapaxes(0, 1))
    run = await play(pp_topk, own, ring=ring, parameters=parameters, watch=["party-1", "party-3"])
    view = topk_view(CoalitionView(ring, run.views), parameters)
    claims = views.claim_new(view, "party-2")
    q = attack.sandwich_posterior(view, "party-2", prior)
    new, real, decided = np.isfinite(claims), views.owned(claims, values[:, 2]), attack.decide_by(q)
    wrong, most, rare = new & (decided != real), parameters.rounds * 5, FALSE_ALARM / 5
    surplus = abs(float((wrong - np.minimum(q, 1 - q))[new].sum()))
    assert surplus <= bernstein(float(5 * (q * (1 - q))[new].sum()), 5, rare / 2)
    for few, many, share in ((real, new, 0.35), (wrong, new, 0.01), (real & ~decided, real, 0.01)):
        over = (few - share * many).sum(axis=(0, 2))
        assert over.sum() <= empirical_bernstein(over, 5 + share * most, rare)
    simple, optimal = (views.judge_claims(claims, values[:, 2], by) for by in (None, decided))
    assert optimal.gain > 0 > simple.gain


BASE = TopKParameters(k=3, P0=1.0, d=0.5, rounds=2, delta=0.1, upper=1.0)
EIGHT = [f"party-{number}" for number in range(8)]

# parameters, parties and the victim's place
CELLS = [
    (BASE, 4, 0),
    (BASE, 4, 2),
    (replace(BASE, P0=0.1, rounds=1), 3, 0),
    (replace(BASE, P0=0.1, rounds=1), 3, 1),
    (replace(BASE, P0=0.5, rounds=3, d=0.8), 4, 1),
    (replace(BASE, k=1, P0=0.5), 8, 4),
    (replace(BASE, k=10, P0=0.9), 5, 4),
    (replace(BASE, k=1, P0=0.5, rounds=1), 4, 0),
    (replace(BASE, k=3, P0=0.5, rounds=1), 4, 0),
]


def runs(
    parameters: TopKParameters, n: int, place: int, draws: np.random.Generator, trials: int = 2000
) -> tuple[views.TopKView, Floats]:
    """Return the successor's view of simulated runs, and the victim's values."""
    values = views.UniformPrior(30).draw(trials, n, parameters.k, draws)
    vectors = transcript(values, parameters, draws)
    view = views.simulated_view(vectors, parameters, EIGHT[:n], [EIGHT[(place + 1) % n]])
    return view, values[:, place]


@pytest.mark.slow
@pytest.mark.parametrize(("parameters", "n", "place"), CELLS)
def test_fitted_cells_decide_no_worse(parameters: TopKParameters, n: int, place: int) -> None:
    """On fresh runs, fitted cells decide at least as many entries correctly as claiming all.

    Both attacks decide the same entries of the same runs. The mean of the difference over
    independent runs is at least 0, and the posterior's mean is within 0.03 of the fraction that is
    real (false alarm 1e-6 over the grid, by empirical Bernstein bounds).

    The starter's successor knows the starter's input, so the exact posterior of one round is
    optimal for it. The cells decide at most 1 % of the new entries worse, and 1 - P0 of the simple
    attack's claims are right.
    """
    draws, prior = rng(parameters.k, n, place), views.UniformPrior(30)
    cells = attack.fit_cells(parameters, n, place, [(place + 1) % n], prior, 6000, draws)
    view, own = runs(parameters, n, place, draws)
    claims, posterior = views.claim_new(view, EIGHT[place]), cells.posterior(view, EIGHT[place])
    new, right, decided = np.isfinite(claims), views.owned(claims, own), attack.decide_by(posterior)
    most, rare = parameters.rounds * parameters.k, FALSE_ALARM / (6 * len(CELLS))
    better = by_run((decided == right) & new) - by_run(right)
    assert better.sum() >= -empirical_bernstein(better, 2 * most, rare)
    gained = views.judge_claims(claims, own, decided).gain - views.judge_claims(claims, own).gain
    assert gained == pytest.approx(better.mean())
    surplus, doubt = by_run(posterior - right), 0.03 * by_run(new)
    for off in (surplus - doubt, -surplus - doubt):
        assert off.sum() <= empirical_bernstein(off, 2 * most, rare)
    assert (posterior[~new] == 0).all()
    if (place, parameters.rounds) == (0, 1):
        optimal = attack.decide_by(attack.sandwich_posterior(view, EIGHT[0], prior))
        better = by_run((optimal == right) & new) - by_run((decided == right) & new)
        worse = better - 0.01 * by_run(new)
        assert better.sum() >= -empirical_bernstein(better, 2 * most, rare)
        assert worse.sum() <= empirical_bernstein(worse, 2 * most, rare)
        claimed = int(right[0].any(axis=1).sum())
        assert stats.binomtest(claimed, len(own), 1 - parameters.P0).pvalue > rare


def by_run(entries: Floats | Bools) -> Floats:
    """Return the sums of (rounds, T, k) over each run."""
    return np.asarray(entries.sum(axis=(0, 2)), dtype=np.float64)


@pytest.mark.slow
def test_few_simulated_runs_leave_doubt() -> None:
    """A single simulated run gives no posterior of 0 or 1, and runs without claims give 1/2."""
    view, _ = runs(BASE, 4, 1, rng(1), trials=20)
    few = attack.fit_cells(BASE, 4, 1, [2], views.UniformPrior(30), 1, rng(2))
    q = few.posterior(view, EIGHT[1])[np.isfinite(views.claim_new(view, EIGHT[1]))]
    assert ((q > 0) & (q < 1)).all()
    blind = attack.fit_cells(BASE, 4, 1, [3], views.UniformPrior(30), 5, rng(3))
    unseen = blind.posterior(view, EIGHT[1])[np.isfinite(views.claim_new(view, EIGHT[1]))]
    assert (unseen == 0.5).all()  # nothing was claimed from two places on, so nothing was learned


SETTINGS = [
    Setting(n, victim, TopKParameters(k, P0, 0.5, rounds, 0.1, 1.0), views.UniformPrior(50))
    for n, victim, k, P0, rounds in (
        (4, 0, 3, 1.0, 2),
        (4, 2, 3, 1.0, 2),
        (8, 4, 1, 0.5, 3),
        (5, 4, 5, 0.0, 1),
        (5, 2, 5, 1.0, 1),
    )
]


@pytest.mark.slow
def test_the_rows_of_the_table_agree_with_each_other() -> None:
    """The optimal attack is never worse than the simple one, nor two neighbours worse than one.

    The accuracy also matches what the posterior states. Relations that hold in expectation hold in
    the sample within Hoeffding's bound (false alarm 1e-6); a successor's simulated posterior is
    allowed another 0.03.
    """
    trials = 1500
    rows = attack_table(SETTINGS, trials=trials, simulated=4000, rng=rng(1))
    assert [row.setting for row in rows] == [setting for setting in SETTINGS for _ in range(2)]
    for alone, both in zip(rows[::2], rows[1::2], strict=True):
        assert (alone.coalition, both.coalition) == ("successor", "both neighbours")
        most = alone.setting.parameters.rounds * alone.setting.parameters.k  # new entries of a run
        stray = hoeffding(2 * most, trials, FALSE_ALARM / (5 * len(SETTINGS) * 2)) / trials
        for row in (alone, both):
            gained = row.optimal.gain - row.simple.gain
            more = (row.optimal.accuracy - row.simple.accuracy) * row.simple.new
            assert gained == pytest.approx(more)  # unclaimed entries are right or would be wrong
            assert gained >= -stray
            off = abs(row.optimal.accuracy - row.expected) * row.optimal.new
            assert off <= stray + 0.03 * row.optimal.new * (row is alone)
            assert row.optimal.recall <= row.simple.recall
        assert both.optimal.gain - alone.optimal.gain >= -2 * stray
        assert both.simple.new <= alone.simple.new
    without_noise, only_noise = rows[7], rows[9]
    assert without_noise.simple == without_noise.optimal
    assert (without_noise.simple.precision, only_noise.simple.precision) == (1, 0)
    assert only_noise.optimal.accuracy == 1
