"""The depth of a run: the longest chain of messages in which each depends on the one before."""

import asyncio

import networkx as nx
import numpy as np
import pytest
from tests.nodes.worlds import NAMES
from tests.roles import Word, exchange_five_times, pass_on, swap_concurrently

from veilring.errors import RoundsDiffer
from veilring.nodes.adversary import Adversary
from veilring.nodes.journal import Meter, total_cost
from veilring.nodes.party import Party
from veilring.protocols.promise import Forecast
from veilring.testing import ProtocolRunner, assert_cost
from veilring.testing.auditing import RoleClaims, Verdict, check_role
from veilring.testing.auditing.findings import QUICK
from veilring.transport.endpoint import QUEUED_FRAMES_MAX

PARTIES = ("ada", "bob", "cyd", "dan")


def played_at_random(seed: int) -> tuple[list[Meter], "nx.DiGraph[int]"]:
    """Return the meters of a random run, and the messages of its rounds with their dependencies."""
    rng = np.random.default_rng(seed)
    meters = {name: Meter(name) for name in PARTIES}
    wires: dict[tuple[str, str], list[tuple[int, int]]] = {}
    known: dict[str, list[int]] = {name: [] for name in PARTIES}
    needs: nx.DiGraph[int] = nx.DiGraph()
    word = Word(text="w")
    for number in range(int(rng.integers(1, 40))):
        sender, receiver = (str(name) for name in rng.choice(PARTIES, 2, replace=False))
        if rng.random() < 0.5 and (wire := wires.get((sender, receiver))):
            sent, round_ = wire.pop(0)
            meters[receiver]((sender, receiver), round_, word, b"frame")
            known[receiver].append(sent)
            continue
        round_ = int(rng.integers(3))
        meters[sender]((sender, receiver), round_, word, b"frame")
        wires.setdefault((sender, receiver), []).append((number, round_))
        needs.add_node(number, weight=int(round_ > 0))
        needs.add_edges_from((earlier, number) for earlier in known[sender])
    return list(meters.values()), needs


@pytest.mark.parametrize("seed", range(200))
def test_is_the_longest_path_of_dependencies(seed: int) -> None:
    """It equals networkx' longest path over the messages of the protocol, set-up left out."""
    meters, needs = played_at_random(seed)
    for before, after in needs.edges:
        needs.edges[before, after]["weight"] = needs.nodes[after]["weight"]
    first = {node: {"weight": needs.nodes[node]["weight"]} for node in needs}
    needs.add_edges_from((-1, node, weight) for node, weight in first.items())
    assert total_cost(meters).depth == nx.dag_longest_path_length(needs)


def test_a_chain_needs_no_record_of_a_lost_sender() -> None:
    """The messages of a party whose process died count once, as others received them."""
    meters, _ = played_at_random(7)
    whole, rest = total_cost(meters), total_cost(meters[1:])
    assert rest.messages == whole.messages - whole.by_party["ada"].messages + sum(
        messages
        for meter in meters[1:]
        for ((sender, _), number, _), messages, _ in meter.totals()
        if sender == "ada" and number
    )
    assert 0 < rest.depth <= whole.depth


def test_a_test_learns_that_rounds_are_declared_wrong(run_protocol: ProtocolRunner) -> None:
    """The fixture warns and `assert_cost` fails; both say which message depends on which."""
    told = r"rounds: 1 declared, 5 measured; test\.word from \w+ to \w+ in round 1 was sent after"
    with pytest.warns(RoundsDiffer, match=told):
        run = run_protocol(exchange_five_times, NAMES)
    assert_cost(run, messages=30)
    with pytest.raises(AssertionError, match=told):
        assert_cost(run, rounds=1)


async def exchange_with_input(party: Party, _own: int) -> None:
    """Declare one round, and take five."""
    await exchange_five_times(party)


def test_an_audit_contradicts_wrong_rounds() -> None:
    """The claim about the rounds of a role is contradicted, with the two messages."""
    subject = RoleClaims(exchange_with_input, dict.fromkeys(NAMES, 0), lambda *_: None)
    claims = {claim.claim: claim for claim in check_role(subject, QUICK, seed=1)}
    assert claims["result"].verdict is Verdict.HOLDS
    assert claims["rounds"].verdict is Verdict.CONTRADICTED
    assert "in round 1 was sent after" in claims["rounds"].finding


def test_an_adversary_may_lengthen_the_chain(run_protocol: ProtocolRunner) -> None:
    """With an adversary the fixture does not warn: its messages are not the role's."""
    run = run_protocol(exchange_five_times, NAMES, adversaries={"bob": Adversary()})
    assert run.cost.depth == 5


def test_messages_are_counted_at_both_ends(run_protocol: ProtocolRunner) -> None:
    """Each party's received traffic is what its peers sent to it, and nothing is lost."""
    cost = run_protocol(pass_on, NAMES).cost
    before = {"ada": "cy", "bob": "ada", "cy": "bob"}
    assert cost.received == {name: cost.by_party[peer] for name, peer in before.items()}
    assert not cost.lost.messages


def test_concurrent_tasks_are_not_judged(run_protocol: ProtocolRunner) -> None:
    """Their messages have one order, in which some seem to depend on others that they do not."""
    run = run_protocol(swap_concurrently, NAMES)
    assert run.cost.is_concurrent
    assert Forecast.measured(run.cost).rounds == 1
    assert_cost(run, messages=6, rounds=1)


async def count_twice(party: Party) -> None:
    """Send more numbers from two tasks at once than can be on their way."""

    async def count(task: int) -> None:
        for number in range(2 * QUEUED_FRAMES_MAX):
            await party.send("bob", Word(text=str(number)))
            if number % 3 == task:
                await asyncio.sleep(0)

    if party.me == "ada":
        await asyncio.gather(count(0), count(1))
    else:
        for number in range(4 * QUEUED_FRAMES_MAX):
            await party.receive(Word, sender="ada")
            if number % 7 == 0:
                await asyncio.sleep(0)


def test_messages_of_two_tasks_keep_their_order(run_protocol: ProtocolRunner) -> None:
    """A message that waits for room is not overtaken by a later one of another task."""
    run = run_protocol(count_twice, PARTIES[:2])
    assert run.cost.setup.messages == 4 * QUEUED_FRAMES_MAX


def test_a_long_chain_and_many_unread_messages_take_no_long_time() -> None:
    """Depth and lost messages are found in one pass over the messages of each party."""
    ping, pong = Meter("ada"), Meter("bob")
    word = Word(text="w")
    for number in range(20_000):
        for sender, receiver in ((ping, pong), (pong, ping)):
            for end in (sender, receiver):
                end((sender.party, receiver.party), number + 1, word, b"frame")
    assert total_cost([ping, pong]).depth == 40_000
    hub, peers = Meter("hub"), [f"peer-{number}" for number in range(2000)]
    for peer in peers:
        hub(("hub", peer), 1, word, b"frame")
    cost = total_cost([hub, *map(Meter, peers)])
    assert cost.lost.messages == cost.messages == 2000
