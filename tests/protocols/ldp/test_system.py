"""LDP naive Bayes as a system: its guarantee, cost, and equal runs on every runtime."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.generators import seeded
from tests.protocols.ldp.collecting import make_task

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.protocols.ldp.roles import gather_cost, gather_cost_bounds
from veilring.protocols.ldp.system import LDPBayes, LDPSetup, Respondents
from veilring.protocols.promise import Facts, Forecast, total_cost
from veilring.protocols.registry import find_system
from veilring.protocols.system import SERVER
from veilring.scenarios import load_scenario, run_scenario

RUNTIMES = ("memory", "tls", "processes", "simulated")
PARTIES = {"ada": 3000, "bob": 2000, "eve": 1000}


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


@pytest.mark.parametrize("kind", ["discrete-bayes", "gaussian-bayes"])
def test_a_run_is_equal_on_every_runtime(kind: str) -> None:
    """Labels and transcripts are equal, and the cost is within the forecast's range."""
    overrides = [f"protocol.kind={kind}", "parties.count=4"]
    scenario = load_scenario("wine", ["protocol.name=ldp-bayes", *overrides])
    first, *others = (run_scenario(scenario, runtime=each, seed=1) for each in RUNTIMES)
    for report in (first, *others):
        assert report.cost == report.forecast
        assert (report.transcript, report.labels) == (first.transcript, first.labels)
        assert (report.spent.times, report.spent.unit) == (1, "report")
        assert report.spent.epsilon is not None
        assert 0.999 < report.spent.epsilon <= 1.0
    system = scenario.protocol
    least = system.forecast(parties=4, queries=44, features=13, classes=3, rows=first.rows)
    assert least.most is not None
    assert least.traffic.messages <= first.cost.messages <= least.most.traffic.messages
    assert least.traffic.bytes <= first.cost.bytes <= least.most.traffic.bytes
    assert "to" in str(least)


@given(drawn=st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_range_holds_for_all_draws(drawn: list[list[int]]) -> None:
    """It covers the cost of all draws, even for pools without clients."""
    task = make_task()
    assert len(task.survey.questions) == len(drawn[0])
    cost = gather_cost(task, drawn)
    least = gather_cost_bounds(task, len(drawn), sum(map(sum, drawn)))
    assert least.most is not None
    assert least.rounds == cost.rounds == least.most.rounds
    for low, is_, high in zip(least.traffic, cost.traffic, least.most.traffic, strict=True):
        assert low <= is_ <= high


def test_ranges_add_up() -> None:
    """The maximum cost of two runs adds up, even if one of them has no range."""
    least = LDPBayes().forecast(parties=3, queries=1, features=2, rows=10)
    exact = Forecast(2, least.traffic)
    both = total_cost(least, exact)
    assert both.rounds == 3
    assert both.most is not None
    assert least.most is not None
    assert both.most.traffic == least.most.traffic.plus(least.traffic)
    assert total_cost(exact, exact).most is None


@pytest.mark.parametrize("kind", ["discrete-bayes", "gaussian-bayes"])
def test_labels_in_one_process_are_as_good(
    kind: Literal["discrete-bayes", "gaussian-bayes"],
) -> None:
    """Their accuracy is that of a collection, and more queries cost nothing."""
    setup = made(LDPBayes(kind=kind, epsilon=4.0))
    test = blobs(1000, "test")
    labels = setup.label(test.features, seeded("label"))
    assert (labels == test.labels).mean() > 0.9
    np.testing.assert_array_equal(setup.label(test.features, seeded("other")), labels)
    assert setup.spent(7) == setup.spent(1)


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


def test_a_collection_needs_its_server() -> None:
    """It continues without some of the clients' parties."""
    setup = made(LDPBayes())
    assert setup.parties == (SERVER, *PARTIES)
    assert setup.can_do_with((SERVER, "bob"))
    assert not setup.can_do_with(tuple(PARTIES))
    assert not setup.can_do_with((SERVER,))


def test_the_promise_is_for_a_report() -> None:
    """The guarantee lists all assumptions, and each parameter works without the others."""
    promise = find_system("ldp-bayes")(epsilon=2.0).promise(parties=5)
    assert promise.guarantee == "ε = 2 for each report (ε-LDP)"
    assert promise.adjacency == "any two rows of one client"
    assert "server" in promise.against


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("epsilon", 0.0, "a number above 0 and up to 20"),
        ("epsilon", 21.0, "a number above 0 and up to 20"),
        ("bins", 1, "a whole number from 2 to 1,024"),
        ("oracle", "delphi", "auto, de, oue, olh, hr or ss"),
        ("kind", "frequency", "discrete-bayes or gaussian-bayes"),
        ("smoothing", -1.0, 'a number of at least 1e-10, or "auto"'),
        ("variance_floor", 0.0, "a number above 0 and up to 1"),
    ],
)
def test_an_invalid_parameter_is_refused(name: str, value: object, allowed: str) -> None:
    """The error gives the allowed values."""
    with pytest.raises(InputError) as caught:
        find_system("ldp-bayes")(**{name: value})
    assert caught.value.field.startswith(name)
    assert allowed in str(caught.value)
