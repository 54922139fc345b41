"""Histories: recorded with true times, and judged as an enumeration of all orders judges them."""

import asyncio
import math
from collections.abc import Sequence
from itertools import permutations

import pytest
from docs.examples import replicated_register, services
from docs.examples.services import COUNTER
from hypothesis import given
from hypothesis import strategies as st
from tests.roles import Number

from veilring import simulation
from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.runtimes import Simulated
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.testing.exploring import Campaign, explore
from veilring.testing.histories import (
    History,
    Model,
    Operation,
    Unknown,
    check_agreement,
    check_exactly_once,
    check_linearizable,
    check_validity,
    operation,
    recorded,
    recording,
    register,
)

REGISTER = register(0)


@st.composite
def histories(draw: st.DrawFn, kinds: Sequence[str]) -> list[Operation]:
    """Draw up to five operations, with small numbers and times, some without an end."""
    made = []
    for number in range(draw(st.integers(1, 5))):
        kind, called = draw(st.sampled_from(kinds)), draw(st.integers(0, 8))
        returned = draw(st.one_of(st.just(math.inf), st.integers(called, 10)))
        argument = None if kind == "read" else draw(st.integers(1, 2))
        result = Unknown() if returned == math.inf else draw(st.integers(0, 4))
        made.append(Operation(f"p{number}", kind, argument, result, called, returned))
    return made


def has_order(operations: Sequence[Operation], model: Model) -> bool:
    """Try every order of every choice of the operations that may have happened."""
    due = [each for each in operations if each.has_returned]
    open_ones = [each for each in operations if not each.has_returned]
    for chosen in range(1 << len(open_ones)):
        some = due + [each for n, each in enumerate(open_ones) if chosen >> n & 1]
        for order in permutations(some):
            later = [(a, b) for n, a in enumerate(order) for b in order[n + 1 :]]
            if any(b.returned < a.called for a, b in later):
                continue
            states = {model.initial}
            for each in order:
                states = {after for state in states for after in model.step(state, each)}
            if states:
                return True
    return False


def part_of(operations: Sequence[Operation], model: Model) -> str:
    """Return the error of the checker; empty if it finds an order."""
    try:
        check_linearizable(operations, model)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("kinds", "model"),
    [(("read", "write"), REGISTER), (("add", "read"), COUNTER)],
    ids=["register", "counter"],
)
@given(data=st.data())
def test_the_search_agrees_with_all_orders(
    kinds: tuple[str, ...], model: Model, data: st.DataObject
) -> None:
    """A history is linearizable if and only if one of all orders explains it."""
    operations = data.draw(histories(kinds))
    assert (part_of(operations, model) == "") == has_order(operations, model)


@given(data=st.data())
def test_groups_leave_a_linearizable_history_linearizable(data: st.DataObject) -> None:
    """A group of a register that a short error leaves out is never the cause of its failure."""
    operations = data.draw(histories(("read", "write")))
    if has_order(operations, REGISTER):
        for group in REGISTER.groups(operations):
            assert has_order([each for each in operations if each not in group], REGISTER)


def test_the_error_names_the_smallest_part() -> None:
    """Of twenty values, those of the one stale read and its write are left."""
    made = []
    for number in range(1, 21):
        made.append(Operation("ada", "write", number, None, 10 * number, 10 * number + 1))
        read = number if number != 7 else 6
        made.append(Operation("ben", "read", None, read, 10 * number + 2, 10 * number + 3))
    assert part_of(made, REGISTER) == (
        "not linearizable: no order explains these results: "
        "ada: write(6) = None from 60.000 to 61.000 s; "
        "ada: write(7) = None from 70.000 to 71.000 s; "
        "ben: read() = 6 from 72.000 to 73.000 s"
    )


def test_an_operation_without_an_end_may_have_happened_or_not() -> None:
    """A write that failed explains a read of either value, but not first the new, then the old."""
    write = Operation("ada", "write", 1, None, 0.0)
    new, old = Operation("ben", "read", None, 1, 1, 2), Operation("cy", "read", None, 0, 3, 4)
    assert part_of([write, new], REGISTER) == part_of([write, old], REGISTER) == ""
    assert "ada: write(1) from 0.000 s without an end" in part_of([write, new, old], REGISTER)


def test_decisions_and_deliveries_are_checked() -> None:
    """Parties agree on what somebody proposed, and get each acknowledged item once."""
    check_agreement({})
    check_agreement({"a": 1, "b": 1})
    with pytest.raises(AssertionError, match="a decided 1, and b 2"):
        check_agreement({"a": 1, "b": 2})
    check_validity({"a": 1}, {1, 2})
    with pytest.raises(AssertionError, match="a decided 3, which nobody proposed"):
        check_validity({"a": 3}, {1, 2})
    check_exactly_once({"a": [1, 2], "b": [2]}, acknowledged=[2], attempted=[1, 2])
    for items, sentence in (([2, 2], "2 times"), ([2, 3], "nobody sent"), ([1], "did not get 2")):
        with pytest.raises(AssertionError, match=sentence):
            check_exactly_once({"a": items}, acknowledged=[2], attempted=[1, 2])


async def tell(party: Party, own: int) -> None:
    """Send a number round, as an operation that ends when the other one has arrived."""
    (peer,) = party.peers
    for _ in range(2):
        async with operation(party, "tell", own) as op:
            await party.send(peer, Number(number=own))
            op.result = (await party.receive(Number, sender=peer)).number


def told(*faults: Fault) -> tuple[History, bool]:
    """Return the history of a run of two parties, and whether it failed."""
    links = Topology(LinkModel(latency=Constant(0.5)))

    async def main() -> bool:
        async with Cluster(2, runtime=Simulated(links, faults), own=[1, 2], seed=1) as cluster:
            try:
                await cluster.run(tell)
            except RunFailed:
                return True
        return False

    with recording() as history:
        return history, simulation.simulate(main())


def test_times_of_a_history_are_true_and_distinct() -> None:
    """Clocks that run fast or jump change no time, and no two events have the same."""
    plain, failed = told()
    turned, _ = told(Fault("skew", 0.0, 9.0, ("party-0",), 3.0))
    assert not failed
    times = [time for each in plain.operations for time in (each.called, each.returned)]
    assert len(set(times)) == len(times) == 8
    assert [str(each) for each in turned.operations] == [str(each) for each in plain.operations]
    assert str(plain.operations[0]) == "party-0: tell(1) = 2 from 0.000 to 0.500 s"


def test_operations_of_a_lost_party_stay_in_the_history() -> None:
    """Its last one has no result, because nobody knows whether it happened."""
    history, failed = told(Fault("crash", 0.7, 9.0, ("party-1",)))
    assert failed
    assert sorted(history.attempted("tell")) == [1, 1, 2, 2]
    assert sorted(history.acknowledged("tell")) == [1, 1, 2]


def test_nothing_is_recorded_outside_a_recording() -> None:
    """The role runs all the same, and who asks for the history is told the reason."""

    async def main() -> None:
        async with Cluster(2, own=[1, 2]) as cluster:
            await cluster.run(tell)

    asyncio.run(main())
    with pytest.raises(InputError, match="call `recorded` in an invariant"):
        recorded()
    with recording() as history:
        asyncio.run(main())
        assert recorded() is history
    assert len(history.acknowledged("tell")) == 4


SERVICES = {
    "echo": (services.echo, services.WORDS, services.repeats, "matches"),
    "broadcast": (services.spread, services.WORDS, services.reaches_all, "remembers"),
    "counter": (services.count, services.NUMBERS, services.counts_once, "remembers"),
    "register": (
        replicated_register.replicated,
        replicated_register.OPERATIONS,
        replicated_register.is_a_register,
        "asks",
    ),
}
"""Each with its inputs, its checker, and the public argument without which it is wrong."""


def played(name: str, seeds: int, **public: bool) -> Campaign:
    """Explore a service."""
    role, inputs, invariant, _ = SERVICES[name]
    return explore(role, inputs, invariant=invariant, seeds=seeds, **public)  # type: ignore[arg-type]  # of different roles


# In 100 worlds, a mistake that one world in 33 shows is found with a probability of 95 %.
@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("seeds", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_services_survive_partitions(name: str, seeds: int) -> None:
    """No world with any fault, partitions among them, makes a service lie to its users."""
    campaign = played(name, seeds)
    assert campaign.failures == {}
    assert min(campaign.succeeded, campaign.failed) > seeds
    assert min(campaign.struck[kind] for kind in ("halves", "isolation", "one-way")) > 0


@pytest.mark.parametrize("name", SERVICES)
def test_services_with_a_mistake_are_found(name: str) -> None:
    """Answers to other calls, repeated calls that count twice, and old copies are found."""
    assert played(name, 8, **{SERVICES[name][3]: False}).failures
