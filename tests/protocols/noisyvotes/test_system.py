"""Noisy votes as a system: guarantee, forecast, runs on all runtimes, and refusals."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.protocols.noisyvotes import guarantee, worst_plans
from veilring.protocols.noisyvotes.system import NoisyVotes, VotesSetup
from veilring.protocols.promise import Facts
from veilring.protocols.ring import SumMethod
from veilring.scenarios import Report, load_scenario, run_scenario

FACTS = Facts(parties=5, features=2, classes=3, rows=150)
QUERIES = np.random.default_rng(3).random((20, 2))
WAYS = (
    ("radius=0.5",),
    ("radius=0.5", "sum=ring"),
    ("radius=0.5", "sum=masks"),
    ("radius=0.5", "sum=cycles", "cycles=2"),
    ("k=5", "epsilon=100.0"),
)


def parts(parties: int = 5) -> dict[str, Rows]:
    """Return rows in the unit square whose class is the third of the square that contains them."""
    rng = np.random.default_rng(2)
    places = rng.random((FACTS.rows or 0, 2))
    labels = (places[:, 0] * 3).astype(np.int64)
    return {f"party-{n}": Rows(places[n::parties], labels[n::parties]) for n in range(parties)}


def ready(**parameters: Any) -> VotesSetup:
    """Return parties that are ready to vote."""
    setup = NoisyVotes(**parameters).setup(parts(), FACTS)
    assert isinstance(setup, VotesSetup)
    return setup


@cache
def played(runtime: str, *parameters: str) -> Report:
    """Return the report of a run on wine."""
    protocol = [f"protocol.{parameter}" for parameter in parameters]
    overrides = ["protocol.name=noisy-votes", "parties.count=5", "data.queries=10", *protocol]
    return run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=1)


@pytest.mark.parametrize("parameters", WAYS, ids=" ".join)
@pytest.mark.parametrize("runtime", ["memory", "tls", "processes", "simulated"])
def test_a_run_has_the_forecast_cost_on_every_runtime(
    runtime: str, parameters: tuple[str, ...]
) -> None:
    """Cost, labels and transcript equal those of the runtime in memory."""
    here, there = played("memory", *parameters), played(runtime, *parameters)
    assert there.cost == there.forecast
    assert (there.transcript, there.labels) == (here.transcript, here.labels)
    assert there.spent.times == 1


@pytest.mark.parametrize("k", [0, 10])
def test_peers_in_one_process_have_the_labels_of_peers_on_a_network(k: int) -> None:
    """With negligible noise, both give the pooled majority."""
    setup = ready(epsilon=1e5, radius=0.3, k=k)
    first = setup.label(QUERIES, np.random.default_rng(1))
    again = setup.label(QUERIES, np.random.default_rng(2))
    np.testing.assert_array_equal(first, again)
    assert setup.find_wrong(QUERIES, {"party-0": first, "party-1": again}, setup.parties) == []
    assert setup.find_wrong(QUERIES, {"party-0": first[1:]}, setup.parties)


def test_the_forecast_covers_all_batches() -> None:
    """Queries beyond a batch begin another; a batch is no larger than its noise allows."""
    one = NoisyVotes(batch=10).forecast(parties=5, queries=10, features=2, classes=3)
    three = NoisyVotes(batch=10).forecast(parties=5, queries=30, features=2, classes=3)
    assert (three.rounds, three.traffic.bytes) == (3 * one.rounds, 3 * one.traffic.bytes)
    assert ready(epsilon=100 * 2.0**-15).batch_max == 99


def test_about_k_the_forecast_needs_the_number_of_rows() -> None:
    """The grid depends on the number of rows."""
    system = NoisyVotes(k=5, public_rows=True)
    assert system.forecast(queries=4, features=2, rows=100).rounds == 7
    for wrong in (system, NoisyVotes(k=5)):
        with pytest.raises(InputError, match="give `rows`"):
            wrong.forecast(queries=4, features=2)


def test_the_promise_is_epsilon_against_tolerated_coalitions() -> None:
    """With shares, a coalition of the tolerated size leaves enough noise."""
    promise = NoisyVotes(epsilon=0.5, tolerated=3).promise(parties=8)
    assert (promise.epsilon, promise.unit, promise.delta) == (0.5, "batch", 0.0)
    assert "at most 3 of them collude" in promise.threat_model
    assert promise.adjacency == "one row added or removed"
    assert "number of rows is public" in promise.note


@pytest.mark.parametrize(
    ("parameters", "method"),
    [({"tolerated": 0}, SumMethod("shares")), ({"tolerated": 2, "sum": "ring"}, SumMethod())],
)
def test_a_coalition_that_leaves_too_little_noise_costs_more_than_epsilon(
    parameters: dict[str, Any], method: SumMethod
) -> None:
    """The guarantee is then a full batch's maximum loss, which no smaller batch exceeds."""
    setup = ready(epsilon=1.0, radius=0.3, batch=50, **parameters)
    tolerated, public = setup.parameters.tolerated, setup.parameters
    promise = setup.system.promise(parties=5)
    assert promise.epsilon is not None
    assert promise.epsilon > 1.0
    assert "privacy loss is larger" in promise.note
    for queries in (1, 10, 50):
        plans = worst_plans(public, queries)
        together = max(1, tolerated)
        loss = guarantee(plans, 5, together, method, tolerated=tolerated)
        assert loss <= promise.epsilon * (1 + 1e-12)
    assert setup.spent(3).epsilon == pytest.approx(3 * promise.epsilon)
    answer = setup.answer(QUERIES, np.random.default_rng(1))
    assert setup.loss_of(answer) <= promise.epsilon


def test_spent_is_epsilon_for_each_batch() -> None:
    """Repeating a batch adds nothing."""
    spent = ready(epsilon=0.5).spent(3)
    assert spent.epsilon == pytest.approx(1.5)
    assert (spent.times, spent.unit) == (3, "batch")


def test_remaining_parties_can_vote_if_they_add_enough_noise() -> None:
    """They must exceed the tolerated number and suffice for the cycles."""
    setup = ready(tolerated=3)
    assert setup.can_do_with(["a", "b", "c", "d"])
    assert not setup.can_do_with(["a", "b", "c"])
    assert not ready(sum="cycles", cycles=2).can_do_with(["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 0.0}, r"epsilon is 0\.0; allowed: a number above 1/32768 and up to"),
        ({"epsilon": 1.5 * 2.0**-15}, "epsilon is .*; allowed: a larger number"),
        ({"epsilon": 2.0**-14, "k": 5}, "epsilon_"),
        ({"radius": -1.0}, 'radius.* a number of at least 0, or "auto"'),
        ({"k": -1}, "k is -1; allowed: a whole number of at least 0"),
        ({"tolerated": 5}, "tolerated is 5; allowed: below the number of parties, 5"),
        ({"sum": "cycles"}, r"cycles is 1; allowed: 2 or more if sum"),
        ({"sum": "cycles", "cycles": 3}, r"cycles is 3; allowed: at most 2 for 5 parties"),
        ({"sum": "star"}, "sum is .*star.*; allowed: ring, cycles, shares or masks"),
        ({"batch": 0}, "batch is 0; allowed: a whole number from 1 to"),
        ({"count_share": 1.0}, r"count_share is 1\.0; allowed: a number from 0\.01 to 0\.99"),
        ({"radios": 0.1}, "radios"),
    ],
    ids=str,
)
def test_an_invalid_parameter_is_named(wrong: dict[str, Any], said: str) -> None:
    """A parameter out of range is refused, and the message gives the allowed values."""
    with pytest.raises(InputError, match=said):
        NoisyVotes(**wrong).setup(parts(), FACTS)


def test_a_grid_supports_few_features() -> None:
    """With more, `auto` selects annuli."""
    wide = Facts(parties=5, features=7, classes=2)
    assert NoisyVotes(k=5).bind(wide).features == 7
    with pytest.raises(InputError, match=r"features is 7; allowed: .* 1 to 6"):
        NoisyVotes(k=5, conversion="grid").bind(wide)
