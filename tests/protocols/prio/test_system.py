"""Verified sums as a system: exact totals, forged reports, costs, noise and views."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import product
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from tests.protocols.release.schemas import MIXED, draw_rows, facts_of
from typing_extensions import override

import veilring as vr
from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Features
from veilring.errors import ProtocolViolation, RunFailed, Tampered
from veilring.nodes.party import ForwardingParty, Party
from veilring.nodes.run import Run
from veilring.privacy.noise import discrete_gaussian_pmf, discrete_laplace_pmf
from veilring.protocols.prio.algorithm import steps
from veilring.protocols.prio.algorithm.parameters import (
    AGGREGATORS,
    CELLS_MAX,
    REPORTS_MAX,
    PrioParameters,
)
from veilring.protocols.prio.algorithm.steps import (
    SharedReports,
    Verification,
    open_total,
    share_reports,
)
from veilring.protocols.prio.roles import (
    Clients,
    Verified,
    sum_reports,
    summing_cost,
    summing_cost_bounds,
)
from veilring.protocols.prio.system import HELPER, LEADER, Prio
from veilring.protocols.promise import Forecast
from veilring.protocols.release.algorithm.tallies import Tally
from veilring.testing import ProtocolRunner

Role = Callable[..., Awaitable[Verified | None]]
KEY = bytes(range(16))
ROWS = 24
NUMBERS = Features.of_numbers(3, 2)
SYSTEMS = {
    "means": Prio(statistic="means"),
    "pure means": Prio(statistic="means", delta=0.0),
    "lda": Prio(statistic="lda", bits=10),
    "counts": Prio(statistic="counts"),
    "pure counts": Prio(statistic="counts", delta=0.0),
    "trees": Prio(statistic="trees"),
    "auto": Prio(),
}
every_system = pytest.mark.parametrize("name", SYSTEMS)


def bound(system: Prio, features: Features = MIXED, rows: int = ROWS) -> PrioParameters:
    """Return the parameters of a system for some clients."""
    return system.bind(facts_of(features, 3, rows))


def rows_of(parameters: PrioParameters, rows: int) -> vr.Rows:
    """Return random rows of a schema."""
    rng, features = np.random.default_rng(4), parameters.features
    labels = rng.integers(0, len(features.classes), rows)
    return vr.Rows(draw_rows(features, rows, rng), labels)


def shared(parameters: PrioParameters, rows: vr.Rows, empty: int = 0) -> list[SharedReports]:
    """Return the parts of both aggregators."""
    return share_reports(parameters, rows, empty, np.random.default_rng(5))


def verified(
    parameters: PrioParameters, parts: Sequence[SharedReports]
) -> tuple[list[Verification], Bools]:
    """Return the states of both aggregators, and which reports both accept."""
    both = [Verification.begin(parameters, KEY, n, [part]) for n, part in enumerate(parts)]
    proofs = [each.proof_shares for each in both]
    return both, np.logical_and(*(each.judge(*proofs) for each in both))


def opened(parameters: PrioParameters, both: Sequence[Verification], counted: Bools) -> Ints:
    """Return the total of some reports, without the noise of both aggregators."""
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    shares = [each.noisy_share(counted, rng) for each, rng in zip(both, rngs, strict=True)]
    total = open_total(parameters, shares, int(counted.sum()))
    (noise,) = parameters.noises
    return total.sums - sum(noise.share(np.random.default_rng(seed)) for seed in (1, 2))


@every_system
def test_verified_reports_have_the_totals_of_their_rows(name: str) -> None:
    """The total with proofs equals that of the path without any, and empty reports add nothing."""
    parameters = bound(SYSTEMS[name])
    rows = rows_of(parameters, ROWS)
    both, counted = verified(parameters, shared(parameters, rows, empty=2))
    assert counted.tolist() == [True] * (ROWS + 2)
    exact = parameters.statistic.sum(rows.features, rows.labels)
    assert opened(parameters, both, counted).tolist() == exact.tolist()


def flipped(part: SharedReports, field: str, place: int, rng: np.random.Generator) -> SharedReports:
    """Return an aggregator's part with another bit in its second report.

    In the public part, an aggregator reads only the half of the other one.
    """
    rows = getattr(part, field).copy()
    low, high = 0, rows.shape[1]
    if field == "public":
        low, high = ((high // 2, high), (0, high // 2))[place]
    rows[1, rng.integers(low, high)] ^= 1 << rng.integers(8)
    return part._replace(**{field: rows})


@every_system
def test_a_changed_report_is_refused_and_the_others_count(name: str) -> None:
    """A flipped bit in any part of a report makes the total leave out this report alone."""
    parameters, rng = bound(SYSTEMS[name]), np.random.default_rng(6)
    rows = rows_of(parameters, 5)
    for place, field in product(range(2), SharedReports._fields):
        parts = shared(parameters, rows)
        parts[place] = flipped(parts[place], field, place, rng)
        both, counted = verified(parameters, parts)
        assert counted.tolist() == [True, False, True, True, True], (place, field)
        kept = parameters.statistic.sum(rows.features[counted], rows.labels[counted])
        assert opened(parameters, both, counted).tolist() == kept.tolist()


def test_a_repeated_nonce_is_refused() -> None:
    """Of two reports with one nonce the first counts, although the proof of both is valid."""
    parameters = bound(SYSTEMS["counts"])
    twice = [
        SharedReports(*(np.concatenate([each, each[:1]]) for each in part))
        for part in shared(parameters, rows_of(parameters, 3))
    ]
    assert verified(parameters, twice)[1].tolist() == [True, True, True, False]


def forged(parameters: PrioParameters, measured: Ints, monkeypatch: pytest.MonkeyPatch) -> Ints:
    """Return the total of a report with any measurement that its proof allows."""
    monkeypatch.setattr(type(parameters.form), "measure", lambda *_: measured[None])
    both, counted = verified(parameters, shared(parameters, rows_of(parameters, 1)))
    assert counted.all()
    return opened(parameters, both, counted)


@every_system
def test_a_forged_report_moves_the_totals_as_far_as_stated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest measurement with a valid proof has the stated norm; a longer one has no proof."""
    parameters = bound(SYSTEMS[name])
    form, statistic, scheme = parameters.form, parameters.statistic, parameters.form.scheme
    longest = np.full(statistic.length, scheme.circuit.largest)
    if isinstance(statistic, Tally):
        longest[statistic.support :] = 0
    moved = forged(parameters, longest, monkeypatch)
    norm = np.abs(moved).sum() if statistic.bound.norm == "l1" else np.linalg.norm(moved)
    assert norm == pytest.approx(form.longest, rel=1e-12)
    if isinstance(statistic, Tally):
        assert form.longest == statistic.bound.value
    with pytest.raises(vr.InputError, match="measurement"):
        forged(parameters, longest + 1, monkeypatch)


def played(
    runner: ProtocolRunner,
    parameters: PrioParameters,
    sizes: Sequence[int],
    *,
    role: Role = sum_reports,
) -> Run[Verified | None]:
    """Have pools of some sizes report to both aggregators."""
    pools = [f"pool-{number}" for number in range(len(sizes))]
    own = [None, None, *(Clients(rows_of(parameters, size)) for size in sizes)]
    return runner(
        role,
        [LEADER, HELPER, *pools],
        own=own,
        seed=3,
        leader=LEADER,
        helper=HELPER,
        parameters=parameters,
    )


@pytest.mark.parametrize("sizes", [(5, 0, 3), (40, 1), (70, 36), (101, 1)])
def test_the_cost_is_the_forecast(sizes: Sequence[int]) -> None:
    """Rounds, messages and bytes equal the closed form, with parts of up to four messages.

    The forecast without the sizes of pools contains it.
    """
    parameters = bound(SYSTEMS["trees"], rows=sum(sizes))
    run = played(ProtocolRunner("simulated"), parameters, sizes)
    measured = Forecast.measured(run.cost)
    assert measured == summing_cost(parameters, sizes)
    assert not run.cost.rounds_differ
    before = summing_cost_bounds(parameters, len(sizes), sum(sizes))
    assert before.most is not None
    for least, found, most in (
        (before.rounds, measured.rounds, before.most.rounds),
        (before.traffic.messages, measured.traffic.messages, before.most.traffic.messages),
        (before.traffic.bytes, measured.traffic.bytes, before.most.traffic.bytes),
    ):
        assert least <= found <= most


def test_aggregators_have_one_release_and_count_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the same noisy totals and model, and the number of refused reports."""
    share = steps.share_reports

    def spoil(*given: Any) -> list[SharedReports]:
        leader, helper = share(*given)
        return [leader, flipped(helper, "secret", 1, np.random.default_rng(1))]

    monkeypatch.setattr(steps, "share_reports", spoil)
    parameters = bound(SYSTEMS["counts"])
    run = played(ProtocolRunner("memory"), parameters, (4, 3))
    leader, helper = (run.results[name] for name in (LEADER, HELPER))
    assert leader is not None
    assert helper is not None
    assert (leader.reports, leader.refused) == (helper.reports, helper.refused) == (5, 2)
    assert np.array_equal(leader.totals[0].sums, helper.totals[0].sums)
    assert run.results["pool-0"] is None


def test_no_report_at_all_is_refused() -> None:
    """Without a report there is no total."""
    with pytest.raises(RunFailed, match="no client has a report"):
        played(ProtocolRunner("memory"), bound(SYSTEMS["counts"]), (0, 0))


class Boasting(ForwardingParty):
    """A pool that announces other numbers of reports to some aggregators."""

    def __init__(self, party: Party, reports: dict[str, int]) -> None:
        super().__init__(party)
        self._reports = reports

    @override
    async def send_all(self, peers: Iterable[str], message: vr.Message) -> None:
        for peer in peers:
            told = {"reports": self._reports[peer]} if peer in self._reports else {}
            await self.send(peer, message.model_copy(update=told))


@pytest.mark.parametrize(
    ("reports", "error", "reason"),
    [
        ({HELPER: 3}, Tampered, "expect different numbers of reports of pool-0"),
        ({LEADER: 10**9, HELPER: 10**9}, ProtocolViolation, "more reports than all parties have"),
    ],
)
def test_a_pool_that_lies_about_its_size_is_found(
    reports: dict[str, int], error: type[vr.VeilringError], reason: str
) -> None:
    """Nothing is reserved for reports beyond the declared number, and sizes are compared."""
    parameters = bound(SYSTEMS["counts"])

    async def play(party: Party, own: Clients | None, **public: Any) -> Verified | None:
        lying = Boasting(party, reports) if party.me == "pool-0" else party
        return await sum_reports(lying, own, **public)

    with pytest.raises(RunFailed, match=reason) as failed:
        played(ProtocolRunner("memory"), parameters, (4, 2), role=play)
    assert isinstance(failed.value.root, error)


def test_reports_fit_frames() -> None:
    """A grid is as fine as fits a frame, and longer reports are refused before anything is sent."""
    facts = facts_of(Features.of_numbers(4, 2), 3, 10**6)
    parameters = Prio(epsilon=10.0).bind(facts)
    assert parameters.plan.method == "grid"
    assert parameters.statistic.length <= CELLS_MAX
    summing_cost(parameters, (1, 1))
    wide = facts_of(Features.of_numbers(180, 2), 3, 10)
    with pytest.raises(vr.InputError, match="use fewer bits"):
        Prio(statistic="lda", bits=16).forecast_for(wide, 1)


def lost(pmf: Callable[[Ints, float], Floats], spread: float, apart: int, epsilon: float) -> float:
    """Return the δ at an ε of noise on a number that a row changes, by enumeration."""
    reach = 40 * int(spread) + apart
    k = np.arange(-reach, reach + 1)
    one, other = pmf(k, spread), pmf(k - apart, spread)
    return float(np.maximum(one - exp(epsilon) * other, 0.0).sum())


@pytest.mark.parametrize("name", ["means", "pure means", "lda", "pure counts"])
def test_the_noise_of_one_aggregator_alone_has_the_promised_loss(name: str) -> None:
    """Enumerated for the longest row along one axis; with 5 % less noise, the promise is broken."""
    parameters = bound(SYSTEMS[name])
    (noise,), plan = parameters.noises, parameters.plan
    pmf = discrete_laplace_pmf if plan.distribution == "laplace" else discrete_gaussian_pmf
    apart, spread = int(parameters.statistic.bound.value), float(noise.spread)
    allowed = plan.delta + 1e-12
    assert lost(pmf, spread, apart, plan.epsilon) <= allowed
    assert lost(pmf, 0.95 * spread, apart, plan.epsilon) > allowed
    assert plan.trust == AGGREGATORS


@pytest.mark.parametrize("name", ["means", "pure counts"])
def test_each_aggregator_adds_all_of_its_noise(name: str) -> None:
    """The mean square of one aggregator's noise is not 10 % below the plan, but for 1e-6."""
    parameters = bound(SYSTEMS[name])
    both, counted = verified(parameters, shared(parameters, rows_of(parameters, 1)))
    nothing, field = np.zeros_like(counted), parameters.form.scheme.field
    rng = np.random.default_rng(8)
    (noise,) = parameters.noises
    for each in both:
        drawn = [field.integers(each.noisy_share(nothing, rng)) for _ in range(800)]
        signed = [n - field.modulus * (2 * n > field.modulus) for row in drawn for n in row]
        squares = np.square(np.array(signed, np.float64) / noise.deviation(1))
        least = 1 - sqrt(2 * noise.kurtosis * log(1e6) / squares.size)
        assert least > 0.9
        assert least <= squares.mean() <= 1.1


def test_the_public_rule() -> None:
    """Few numbers have a grid; bins are counted if many rows outweigh the noise on each count."""

    def chosen(columns: int, classes: int, rows: int, **settings: Any) -> str:
        features = Features.of_numbers(columns, classes)
        return Prio(**settings).bind(facts_of(features, 3, rows)).plan.method

    assert chosen(4, 3, 112) == "grid"
    assert chosen(30, 2, 426) == "counts"
    assert chosen(30, 2, 426, epsilon=0.5) == chosen(30, 2, 426, delta=0.0) == "means"
    assert chosen(13, 3, 133) == chosen(64, 10, 1347) == "means"
    assert chosen(64, 2, 10**6) == "counts"


def test_the_promise_states_what_a_forged_report_can_do() -> None:
    """The guarantee about public facts is that of the plan, with the weight of a forged report."""
    facts = facts_of(Features.of_numbers(4, 3), 3, 112)
    promise = Prio().promise_about(facts)
    assert (promise.epsilon, promise.delta, promise.measure) == (1.0, 0.0, "pure ε-DP")
    assert "no more weight than an honest one" in promise.note
    means = Prio(statistic="means").promise_about(facts)
    assert means.delta == 1e-5
    assert "the largest value in each of 15 totals: 3.92 times" in means.note


@pytest.mark.parametrize(
    ("system", "facts", "field"),
    [
        (Prio(), facts_of(NUMBERS, 3, None), "rows"),
        (Prio(), facts_of(NUMBERS, 3, 0), "rows"),
        (Prio(), facts_of(NUMBERS, 3, REPORTS_MAX + 1), "rows"),
        (Prio(statistic="lda", delta=0.0), facts_of(NUMBERS, 3, 10), "statistic"),
        (Prio(statistic="grid"), facts_of(MIXED, 3, 10), "features"),
    ],
)
def test_facts_that_do_not_fit_are_refused(system: Prio, facts: vr.Facts, field: str) -> None:
    """The number of reports must be public and fit, and the statistic must fit the schema."""
    with pytest.raises(vr.InputError) as refused:
        system.bind(facts)
    assert refused.value.field == field


def test_rows_that_are_absent_send_empty_reports() -> None:
    """A world with a row less has as many reports, and its total lacks that row alone."""
    rows = rows_of(bound(Prio()), 6)
    fewer = vr.Rows(rows.features[1:], rows.labels[1:])
    facts = facts_of(MIXED, 1, 6)
    setups = [Prio(statistic="counts").setup({"pool": each}, facts) for each in (rows, fewer)]
    sizes = [
        [len(each) for each in setup.resident if isinstance(each, Clients)] for setup in setups
    ]
    assert sizes == [[6], [6]]
