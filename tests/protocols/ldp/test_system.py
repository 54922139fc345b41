"""LDP naive Bayes as a system: a collection in one session, its cost, guarantee and runtimes."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.generators import seeded
from tests.protocols.ldp.collecting import (
    REFUSALS,
    Lie,
    make_task,
    people,
    ragged_ids,
    require_equal,
)
from tests.refusals import require_refused

from veilring.data.table import Rows
from veilring.errors import ProtocolViolation, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import RUNTIMES, Cluster
from veilring.protocols.ldp.algorithm.survey import Tally, answer
from veilring.protocols.ldp.messages import BATCH_BYTES_MAX, ID_BYTES, ReportBatch
from veilring.protocols.ldp.roles import ClientPool, gather, gather_cost, gather_cost_bounds
from veilring.protocols.ldp.system import LDPBayes, LDPSetup, Respondents
from veilring.protocols.promise import Facts
from veilring.protocols.registry import find_system
from veilring.protocols.system import SERVER
from veilring.scenarios import load_scenario, run_scenario
from veilring.testing import ProtocolRunner, assert_cost

PARTIES = {"ada": 3000, "bob": 2000, "eve": 1000}
NAMES = ["census", "ada", "bob", "crowd", "nobody"]
TASK = make_task()


def pools() -> list[ClientPool | None]:
    """Return two single clients, a crowd and an empty pool, beside the collector."""
    rng = np.random.default_rng(1)
    return [None, *(people(count, rng) for count in (1, 1, 500, 0))]


def test_a_collection_costs_the_closed_form(run_protocol: ProtocolRunner) -> None:
    """One message per client, or per question of a pool, in one round, exact in bytes.

    An empty pool says so in one message. Only the aggregator learns the tally.
    """
    run = run_protocol(
        gather, NAMES, own=pools(), seed=7, watch=["census"], aggregator="census", task=TASK
    )
    asked = {name: [0, 0, 0] for name in NAMES[1:]}
    for seen in run.views["census"].received:
        assert isinstance(seen.message, ReportBatch)
        asked[seen.sender][seen.message.question] += len(seen.message.ids) // ID_BYTES
    assert [sum(counts) for counts in asked.values()] == [1, 1, 500, 0]
    found = run.results["census"]
    assert found is not None
    assert found.counts == tuple(map(sum, zip(*asked.values(), strict=True)))
    assert [run.results[name] for name in NAMES[1:]] == [None] * 4
    cost = gather_cost(TASK, list(asked.values()))
    assert cost.traffic.messages == 1 + 1 + 3 + 1
    assert_cost(run, messages=cost.traffic.messages, bytes=cost.traffic.bytes, rounds=1)


def test_a_collection_without_reports_is_the_empty_tally(run_protocol: ProtocolRunner) -> None:
    """If no pool has a client, the result is a tally of no reports."""
    run = run_protocol(gather, NAMES[::4], own=pools()[::4], aggregator="census", task=TASK)
    require_equal(run.results["census"], Tally.empty(TASK.survey))


@pytest.mark.parametrize("lie", [ragged_ids, *(each for each, _ in REFUSALS.values())])
async def test_a_lie_ends_the_collection_with_its_sender(lie: Lie) -> None:
    """Each report that no client sends ends the run with its sender's name."""
    liar = {"crowd": Alter(lie, only=(ReportBatch,))}
    async with Cluster(NAMES, own=pools()) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(gather, adversaries=liar, aggregator="census", task=TASK)
    errors = caught.value.errors.values()
    assert {e.culprit for e in errors if isinstance(e, ProtocolViolation)} == {"crowd"}


def test_a_pool_equals_its_clients() -> None:
    """Its reports, in the forecast number of full batches, add up to the algorithm's result."""
    crowd = people(100_000, np.random.default_rng(3))
    made = list(crowd.answer(TASK, np.random.default_rng(4)))
    answers = answer(TASK.survey, crowd.rows, crowd.labels, np.random.default_rng(4))
    found = Tally.of(TASK.survey, [(batch.question, batch.reports) for batch in made])
    require_equal(found, Tally.of(TASK.survey, answers))
    assert len(made) == gather_cost(TASK, [found.counts]).traffic.messages > 3
    assert all(each.payload_bytes <= BATCH_BYTES_MAX for each in made)
    clients = np.sort(np.concatenate([batch.clients for batch in made]))
    np.testing.assert_array_equal(clients, np.arange(100_000))
    ids = np.concatenate([batch.ids for batch in made])
    assert len(np.unique(ids, axis=0)) == 100_000


def blobs(count: int, name: str) -> Rows:
    """Return rows of two features in two separated classes."""
    rng = seeded("blobs", name)
    labels = rng.integers(0, 2, count)
    centres = np.array([[0.3, 0.7], [0.7, 0.3]])[labels]
    return Rows(np.clip(rng.normal(centres, 0.08), 0, 1), labels)


def made(system: LDPBayes) -> LDPSetup:
    """Return a system whose parties hold blobs."""
    parts = {name: blobs(count, name) for name, count in PARTIES.items()}
    return system.setup(parts, Facts(3, 2, 2, rows=sum(PARTIES.values())))


def test_a_run_of_gaussian_bayes_is_equal_on_every_runtime() -> None:
    """As for the other kind, costs, labels and transcripts are equal; the forecast is a range."""
    overrides = ["protocol.name=ldp-bayes", "protocol.kind=gaussian-bayes", "parties.count=4"]
    scenario = load_scenario("wine", overrides)
    first, *others = (run_scenario(scenario, runtime=each, seed=1) for each in RUNTIMES)
    for report in (first, *others):
        assert report.cost == report.forecast
        assert (report.transcript, report.labels) == (first.transcript, first.labels)
    system = scenario.protocol
    least = system.forecast(parties=4, queries=44, features=13, classes=3, rows=first.rows)
    assert "to" in str(least)


@given(drawn=st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_range_holds_for_all_draws(drawn: list[list[int]]) -> None:
    """It covers the cost of all draws, even for pools without clients."""
    cost = gather_cost(TASK, drawn)
    least = gather_cost_bounds(TASK, len(drawn), sum(map(sum, drawn)))
    assert least.most is not None
    assert least.rounds == cost.rounds == least.most.rounds
    for low, is_, high in zip(least.traffic, cost.traffic, least.most.traffic, strict=True):
        assert low <= is_ <= high


@pytest.mark.parametrize("kind", ["discrete-bayes", "gaussian-bayes"])
def test_labels_in_process_are_as_good(kind: Literal["discrete-bayes", "gaussian-bayes"]) -> None:
    """Their accuracy is that of a collection, and more queries cost nothing."""
    setup = made(LDPBayes(kind=kind, epsilon=4.0))
    test = blobs(1000, "test")
    labels = setup.label(test.features, seeded("label"))
    assert (labels == test.labels).mean() > 0.9
    np.testing.assert_array_equal(setup.label(test.features, seeded("other")), labels)
    spent = setup.spent(7)
    assert spent == setup.spent(1)
    assert (spent.times, spent.unit) == (1, "report")
    assert spent.epsilon is not None
    assert 4 * 0.999 < spent.epsilon <= 4


def test_a_client_answers_once() -> None:
    """Asked again it sends identical bytes, and another task gets another answer."""
    setup = made(LDPBayes())
    _, pool, *_ = setup.resident
    assert isinstance(pool, Respondents)
    rng = seeded("answers")
    first, again = (list(pool.answer(setup.task, rng)) for _ in range(2))
    assert all(one is other for one, other in zip(first, again, strict=True))
    other = made(LDPBayes(epsilon=2.0)).task
    assert other.digest != setup.task.digest
    assert next(pool.answer(other, rng)) is not first[0]


def test_the_promise_is_for_a_report_to_a_server() -> None:
    """A collection continues without some of the clients' parties, but not without its server."""
    setup = made(LDPBayes())
    assert setup.parties == (SERVER, *PARTIES)
    assert setup.can_do_with((SERVER, "bob"))
    assert not setup.can_do_with(tuple(PARTIES))
    assert not setup.can_do_with((SERVER,))
    promise = find_system("ldp-bayes")(epsilon=2.0).promise(parties=5)
    assert promise.guarantee == "ε = 2 for each report (ε-LDP)"
    assert promise.adjacency == "any two rows of one client"
    assert "server" in promise.against


def test_an_invalid_parameter_is_refused() -> None:
    """The error gives the allowed values."""
    system = find_system("ldp-bayes")
    for epsilon in (0.0, 21.0):
        require_refused("epsilon.*a number above 0 and up to 20", system, epsilon=epsilon)
    require_refused("bins.*a whole number from 2 to 1,024", system, bins=1)
    require_refused("oracle.*auto, de, oue, olh, hr or ss", system, oracle="delphi")
    require_refused("kind.*discrete-bayes or gaussian-bayes", system, kind="frequency")
    require_refused('smoothing.*a number of at least 1e-10, or "auto"', system, smoothing=-1.0)
    require_refused("variance_floor.*a number above 0 and up to 1", system, variance_floor=0.0)
