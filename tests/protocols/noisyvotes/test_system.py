"""The party and the system of noisy votes: equal on every runtime, at the closed form's cost."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from papers.answers import audited_epsilon
from tests.protocols.dropout_worlds import Lie
from tests.protocols.noisyvotes.worlds import CERTAIN, WITHIN, five_parts, no_rows
from tests.protocols.ring.worlds import NAMES, RING, culprits, play

from veilring import simulation
from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.noisyvotes.algorithm.noise import GaussianPlan
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    worst_plans,
)
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer
from veilring.protocols.noisyvotes.roles import VotesBatch, private_votes, queries_max, votes_cost
from veilring.protocols.noisyvotes.system import NoisyVotes, VotesSetup
from veilring.protocols.promise import Facts, Forecast
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import ByGrid
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.attacks import CoalitionView, recover_groups, recover_input
from veilring.protocols.ring.roles import SumShare
from veilring.simulation import Constant, LinkModel, Topology
from veilring.testing import ProtocolRunner

METHODS = [SumMethod("shares"), SumMethod("masks"), SumMethod(), SumMethod("cycles", 2)]
MEMORY = ProtocolRunner("memory")
ROWS, PARTS = five_parts(120)
QUERIES = np.random.default_rng(2).random((9, 2))


def ask(queries: Floats = QUERIES, **more: object) -> dict[str, dict[str, object]]:
    """Return the keyword arguments of the client's role only."""
    return {"party-2": {"queries": queries, **more}}


def vote(runner: ProtocolRunner = MEMORY, **given: Any) -> Run[VotesAnswer]:
    """Have five parties vote on a batch, by default without noise and in memory."""
    usual: dict[str, Any] = {"own": PARTS, "only": ask(), "client": "party-2", "parameters": WITHIN}
    return runner(private_votes, NAMES, **usual | given)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_all_parties_learn_all_votes(run_protocol: ProtocolRunner, method: SumMethod) -> None:
    """Without noise the totals are the counts of the pooled table, at the cost forecast."""
    parameters = replace(WITHIN, sum=method)
    run = vote(run_protocol, parameters=parameters)
    counts = count_votes(QUERIES, np.full(9, 0.2), ROWS, 3)
    for answer in run.results.values():
        np.testing.assert_array_equal(answer.totals, counts)
        np.testing.assert_array_equal(answer.labels, counts.argmax(axis=1))
    assert Forecast.measured(run.cost) == votes_cost(5, 9, parameters)


@pytest.mark.parametrize(
    ("delta", "transcript"),
    [(0.0, "3d9c75e37ccf7a45"), (1e-5, "7e486ad71cae3b9a")],
    ids=["pure", "gaussian"],
)
def test_the_transcript_is_the_same_on_every_runtime(
    run_protocol: ProtocolRunner, delta: float, transcript: str
) -> None:
    """One seed gives one transcript and one noise, on any runtime."""
    parameters = NoisyVotesParameters(2, 3, 0.5, tolerated=2, delta=delta)
    only = ask(radii=np.linspace(0.7, 0.8, 9))
    run = vote(run_protocol, only=only, parameters=parameters)
    first, *others = run.results.values()
    assert all(np.array_equal(other.totals, first.totals) for other in others)
    assert Forecast.measured(run.cost) == votes_cost(5, 9, parameters)
    assert isinstance(first.spent[0], GaussianPlan) == bool(delta)
    assert run.transcript[:16] == transcript


NEAREST = (
    NearestRows(5, CERTAIN, rows=120),
    NearestRows(5, CERTAIN, epsilon_count=CERTAIN, conversion=ByGrid(1e-3)),
    NearestRows(5, CERTAIN, rows=120, conversion=ByAnnuli()),
    NearestRows(5, CERTAIN, epsilon_count=CERTAIN, conversion=ByAnnuli(4)),
)


@pytest.mark.parametrize("near", [WithinRadius(0.2), *NEAREST])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_rounds_are_the_longest_chain_of_messages(
    near: WithinRadius | NearestRows, method: SumMethod
) -> None:
    """Counting, converting and voting cost the closed form, in rounds of one hop each.

    The queries take one hop before the first round.
    """
    parameters = replace(WITHIN, neighbours=near, sum=method)
    runtime = Simulated(Topology(LinkModel(latency=Constant(1.0))))
    given: dict[str, Any] = {
        "only": ask(),
        "client": "party-2",
        "parameters": parameters,
        "ring": RING,
    }
    run = simulation.simulate(play(private_votes, PARTS, runtime=runtime, **given))
    answer = run.result
    counted = isinstance(near, NearestRows) and near.rows is None
    assert answer.rows == (120 if counted else None)
    np.testing.assert_array_equal(answer.totals, count_votes(QUERIES, answer.radii, ROWS, 3))
    assert len(answer.spent) == 1 + isinstance(near, NearestRows) + counted
    expected = votes_cost(5, 9, parameters, drawn=False, rows=answer.rows)
    assert Forecast.measured(run.cost) == expected
    set_up = 2 if method.name == "masks" else 1  # queries, and keys
    assert run.seconds == expected.rounds + set_up


def test_only_an_impossible_lie_is_noticed() -> None:
    """A party that distributes queries outside the unit cube is named.

    One that adds wrong votes shifts the totals by them, and the run does not stop.
    """

    def ask_nonsense(batch: VotesBatch) -> VotesBatch:
        return VotesBatch(queries=batch.queries + 2, radii=batch.radii)

    def add_a_thousand(share: SumShare) -> SumShare:
        return SumShare(values=share.values + np.uint64(1000))

    with pytest.raises(RunFailed) as caught:
        vote(adversaries={"party-2": Lie(VotesBatch, ask_nonsense)})
    assert culprits(caught.value) == {"party-2"}
    run = vote(adversaries={"party-4": Lie(SumShare, add_a_thousand)})
    counts = count_votes(QUERIES, np.full(9, 0.2), ROWS, 3)
    np.testing.assert_array_equal(run.results["party-0"].totals, counts + 4 * 1000)


FEW = NearestRows(5, 1.0, epsilon_count=0.3)


@pytest.mark.parametrize(
    ("given", "message", "names"),
    [
        ({"own": [no_rows(3)] * 5}, "rows have 3 features", NAMES),
        ({"only": {}}, "needs a batch of queries", ["party-2"]),
        ({"only": ask(np.zeros((4097, 2)))}, "there are 4097 queries", ["party-2"]),
        ({"only": ask(radii=np.zeros(9))}, "leave the radii out", ["party-2"]),
        ({"only": ask(QUERIES.astype(complex))}, "queries must be real numbers", ["party-2"]),
        (  # its noise might end midway
            {"parameters": NoisyVotesParameters(2, 3, 9 * 2.0**-15, FEW, tolerated=0)},
            "9 queries are too many",
            ["party-2"],
        ),
    ],
)
def test_invalid_input_is_refused(given: dict[str, Any], message: str, names: list[str]) -> None:
    """Rows of another schema are refused at once, and a client's batch before it is sent."""
    with pytest.raises(RunFailed, match=message) as caught:
        vote(**given)
    errors = caught.value.errors
    refused = {name: str(e) for name, e in errors.items() if isinstance(e, InputError)}
    assert sorted(refused) == names
    assert all(message in said for said in refused.values())


@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
def test_numbers_of_any_width_are_accepted(kind: str) -> None:
    """Queries and radii in single precision or whole numbers keep their values."""
    queries, radii = np.eye(2).astype(kind), np.ones(2).astype(kind)
    parameters = NoisyVotesParameters(2, 3, CERTAIN)
    run = vote(only=ask(queries, radii=radii), parameters=parameters)
    np.testing.assert_array_equal(run.result.totals, count_votes(np.eye(2), np.ones(2), ROWS, 3))


def test_the_largest_batch_fits_its_frames() -> None:
    """A batch of `queries_max` queries is answered: none of its messages exceeds a frame."""
    near = NearestRows(3, CERTAIN, rows=9, conversion=ByAnnuli(400))
    parameters = NoisyVotesParameters(1, 2, CERTAIN, near)
    most = queries_max(parameters)
    assert most < queries_max(WITHIN) == 4096
    queries = np.linspace(0, 1, most)[:, None]
    run = vote(own=[no_rows(1)] * 5, only=ask(queries), parameters=parameters)
    assert len(run.result.labels) == most


def heard(method: SumMethod, victim: str, tolerated: int) -> float:
    """Return the neighbours' evidence on a victim's rows from one networked run.

    The victim has a row at every second place. Balls are points, so each place has an ε of 1 and
    separate noise: one run is thousands of trials.
    """
    queries, there = np.linspace(0, 1, 1600)[:, None], np.arange(1600) % 2 == 0
    table = Rows(queries[there], np.zeros(800, dtype=np.int64))
    own = [table if name == victim else no_rows(1) for name in NAMES]
    around = {RING.predecessor(victim), RING.successor(victim)}
    points = WithinRadius(0.0)
    parameters = replace(WITHIN, features=1, classes=1, epsilon_vote=1.0, neighbours=points)
    parameters = replace(parameters, tolerated=tolerated, sum=method)
    run = vote(own=own, only=ask(queries), parameters=parameters, ring=RING, watch=around, seed=8)
    view = CoalitionView(RING, {name: run.views[name] for name in around})
    fixed = FixedPoint(0, 5)
    alone = recover_input(view, victim, method=method, fixed=fixed)
    assert (alone is None) == (method.cycles > 1)
    groups = recover_groups(view, method=method, fixed=fixed)
    seen = next(values for group, values in groups.items() if victim in group)[:, 0]
    one, other = (
        np.bincount(np.clip(part, -2, 3).astype(int) + 2, minlength=6)
        for part in (seen[there], seen[~there])
    )
    return audited_epsilon(one, other)


def test_two_neighbours_disprove_epsilon_in_a_ring_but_not_in_cycles() -> None:
    """In a ring they miss only the victim's share, and on two cycles all honest shares."""
    assert heard(SumMethod(), "party-4", tolerated=2) > 1.0
    assert 0.3 < heard(SumMethod("cycles", 2), "party-4", tolerated=2) <= 1.0


FACTS = Facts(parties=5, features=2, classes=3, rows=120)
ASKED = np.random.default_rng(3).random((20, 2))


def ready(**parameters: Any) -> VotesSetup:
    """Return parties that are ready to vote."""
    setup = NoisyVotes(**parameters).setup(dict(zip(NAMES, PARTS, strict=True)), FACTS)
    assert isinstance(setup, VotesSetup)
    return setup


@pytest.mark.parametrize("k", [0, 10])
def test_peers_in_one_process_have_the_labels_of_peers_on_a_network(k: int) -> None:
    """With negligible noise, both give the pooled majority."""
    setup = ready(epsilon=1e5, radius=0.3, k=k)
    first = setup.label(ASKED, np.random.default_rng(1))
    again = setup.label(ASKED, np.random.default_rng(2))
    np.testing.assert_array_equal(first, again)
    assert setup.find_wrong(ASKED, {"party-0": first, "party-1": again}, setup.parties) == []
    assert setup.find_wrong(ASKED, {"party-0": first[1:]}, setup.parties)


def test_the_forecast_covers_all_batches() -> None:
    """Queries beyond a batch begin another; a batch is no larger than its noise allows.

    About k, the forecast needs the number of rows for the grid, which many features exclude.
    """
    one = NoisyVotes(batch=10).forecast(parties=5, queries=10, features=2, classes=3)
    three = NoisyVotes(batch=10).forecast(parties=5, queries=30, features=2, classes=3)
    assert (three.rounds, three.traffic.bytes) == (3 * one.rounds, 3 * one.traffic.bytes)
    assert ready(epsilon=100 * 2.0**-15).batch_max == 99
    system = NoisyVotes(k=5, public_rows=True)
    assert system.forecast(queries=4, features=2, rows=100).rounds == 7
    for wrong in (system, NoisyVotes(k=5)):
        with pytest.raises(InputError, match="give `rows`"):
            wrong.forecast(queries=4, features=2)
    assert NoisyVotes(k=5).bind(Facts(parties=5, features=7, classes=2)).features == 7


def test_the_promise_is_epsilon_against_tolerated_coalitions() -> None:
    """With shares, a coalition of the tolerated size leaves enough noise, in each batch.

    The δ is that of the system, 0 for pure noise; that of several batches adds up.
    """
    promise = NoisyVotes(epsilon=0.5, tolerated=3).promise(parties=8)
    assert (promise.epsilon, promise.unit, promise.delta) == (0.5, "batch", 1e-5)
    pure = NoisyVotes(delta=0.0).promise(parties=8)
    assert (pure.delta, pure.measure) == (0.0, "pure ε-DP")
    assert "at most 3 of the 8 collude" in promise.threat_model
    assert promise.adjacency == "one row added or removed"
    assert "number of rows is public" in promise.note
    spent = ready(epsilon=0.5).spent(3)
    assert (spent.epsilon, spent.delta) == pytest.approx((1.5, 3e-5))
    assert (spent.times, spent.unit) == (3, "batch")


@pytest.mark.parametrize(
    ("parameters", "method"),
    [({"tolerated": 0}, SumMethod("shares")), ({"tolerated": 2, "sum": "ring"}, SumMethod())],
)
def test_a_coalition_that_leaves_too_little_noise_costs_more_than_epsilon(
    parameters: dict[str, Any], method: SumMethod
) -> None:
    """The guarantee is then a full batch's maximum loss, which no smaller batch exceeds."""
    setup = ready(epsilon=1.0, radius=0.3, batch=50, **parameters)
    tolerated, promise = setup.parameters.tolerated, setup.system.promise(parties=5)
    assert promise.epsilon is not None
    assert promise.epsilon > 1.0
    assert "larger than the 1 that was chosen" in promise.note
    for queries in (1, 10, 50):
        plans = worst_plans(setup.parameters, queries)
        loss = guarantee(plans, 5, max(1, tolerated), method, tolerated=tolerated)
        assert loss <= promise.epsilon * (1 + 1e-12)
    assert setup.spent(3).epsilon == pytest.approx(3 * promise.epsilon)
    answer = setup.answer(ASKED, np.random.default_rng(1))
    assert setup.loss_of(answer) <= promise.epsilon


def test_remaining_parties_can_vote_if_they_add_enough_noise() -> None:
    """They must exceed the tolerated number and suffice for the cycles."""
    setup = ready(tolerated=3)
    assert setup.can_do_with(["a", "b", "c", "d"])
    assert not setup.can_do_with(["a", "b", "c"])
    assert not ready(sum="cycles", cycles=2).can_do_with(["a", "b", "c", "d"])
