"""Receiving from any peer: order, quorums, messages left unread, losses and mistakes."""

import asyncio
import math
from contextlib import AsyncExitStack

import pytest
from tests.roles import (
    Number,
    Word,
    ask_a_stranger,
    expect_a_word,
    hear_all,
    vote,
    vote_twice,
    wait_for_nobody,
)
from typing_extensions import override

from veilring import simulation
from veilring.errors import (
    Deadlock,
    InputError,
    PeerLost,
    PeerSilent,
    ProtocolViolation,
    RunFailed,
    VeilringError,
)
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, broadcast, receive_quorum
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.nodes.session import SessionLimits
from veilring.randomness import Streams
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.testing import ProtocolRunner
from veilring.transport.endpoint import MemoryNetwork
from veilring.transport.messages import Message

NAMES = ("ada", "bob", "cyd", "dan")


def test_messages_of_all_peers_are_received(run_protocol: ProtocolRunner) -> None:
    """A role gets each peer's message with its sender, of either type."""
    run = run_protocol(hear_all, NAMES)
    kinds = {"ada": "test.word", "bob": "test.number", "cyd": "test.word", "dan": "test.number"}
    for name, heard in run.results.items():
        assert sorted(heard) == sorted((peer, kinds[peer]) for peer in NAMES if peer != name)


async def speak_in_turn(party: Party, own: float) -> list[str]:
    """Say a word after a time, and return the order in which the words of two peers arrive."""
    party.round(1)
    await asyncio.sleep(own)
    await broadcast(party, Word(text=party.me))
    among = [name for name in party.peers if name != "dan"][:2]
    heard = [(await party.receive_any(Word, senders=among))[0] for _ in among]
    for peer in party.peers:
        if peer not in among:
            await party.receive(Word, sender=peer)
    return heard


def test_messages_come_in_order_of_arrival_from_the_given_senders() -> None:
    """The first to arrive is the first received; words of other peers wait for their turn."""

    async def main() -> Run[list[str]]:
        async with Cluster(NAMES, runtime="simulated", own=[3.0, 2.0, 1.0, 0.0]) as cluster:
            return await cluster.run(speak_in_turn)

    results = simulation.simulate(main()).results
    assert results == {
        "ada": ["cyd", "bob"],
        "bob": ["cyd", "ada"],
        "cyd": ["bob", "ada"],
        "dan": ["bob", "ada"],
    }


@pytest.mark.parametrize("needed", [0, 2, 3])
def test_a_quorum_is_of_different_peers(run_protocol: ProtocolRunner, needed: int) -> None:
    """As many peers as needed are heard, and unread votes of the others are no violation."""
    run = run_protocol(vote, NAMES, needed=needed)
    assert set(run.results.values()) == {needed}


def test_a_quorum_of_more_than_all_is_refused(run_protocol: ProtocolRunner) -> None:
    """The error names the number of senders."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(vote, NAMES, needed=4)
    assert isinstance(caught.value.root, InputError)
    assert "count is 4; allowed: 0 to 3, the number of senders" in str(caught.value.root)


async def count_survivors(party: Party) -> tuple[int, str]:
    """Count the peers that speak before they are lost, and return the loss that ends the wait."""
    party.tolerate_losses()
    party.round(1)
    if party.me != "ada":
        await asyncio.sleep(1 if party.me == "bob" else 100)
        await party.send("ada", Word(text="here"))
        return 0, ""
    heard = 0
    try:
        while True:
            await party.receive_any(Word, senders=("bob", "cyd"))
            heard += 1
    except PeerLost as error:
        return heard, error.peer


def test_a_wait_ends_when_all_its_senders_are_lost() -> None:
    """Messages sent before a loss still count; then the loss is raised."""
    faults = [Fault("crash", at, math.inf, (name,)) for at, name in ((5.0, "bob"), (3.0, "cyd"))]
    links = Topology(LinkModel(Constant(0.1)))

    async def main() -> Run[tuple[int, str]]:
        async with Cluster(NAMES, runtime=Simulated(links, faults)) as cluster:
            return await cluster.run(count_survivors)

    assert simulation.simulate(main()).results["ada"] == (1, "cyd")


async def wait_for_anybody(party: Party) -> None:
    """Wait for a word that nobody sends."""
    await party.receive_any((Word, Number))


def test_a_deadlock_says_who_waits_for_anybody() -> None:
    """The sentence has the kinds of message, and nobody is blamed."""

    async def main() -> None:
        async with Cluster(NAMES, runtime="simulated") as cluster:
            await cluster.run(wait_for_anybody)

    with pytest.raises(RunFailed) as caught:
        simulation.simulate(main())
    assert isinstance(caught.value.root, Deadlock)
    assert "ada is waiting for test.word or test.number from anybody" in str(caught.value.root)
    assert not blamed(caught.value)


def blamed(error: RunFailed) -> str:
    """Return the culprit of a failed run."""
    return error.culprit


def test_another_type_is_a_violation_by_its_sender(run_protocol: ProtocolRunner) -> None:
    """The error names the sender and both kinds."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(expect_a_word, NAMES)
    assert isinstance(caught.value.root, ProtocolViolation)
    assert "sent test.number where test.word was expected" in str(caught.value.root)


async def wait_twice(party: Party, *, first: tuple[str, ...]) -> None:
    """Let two tasks wait for messages of one peer."""
    if party.me != "ada":
        await party.receive(Word, sender="ada")
        return
    waiting = asyncio.create_task(party.receive_any(Word, senders=first or None))
    await asyncio.sleep(0)
    try:
        await party.receive(Word, sender="bob")
    finally:
        waiting.cancel()


@pytest.mark.parametrize("first", [(), ("bob", "cyd")])
def test_two_tasks_cannot_wait_for_one_peer(first: tuple[str, ...]) -> None:
    """The second wait is refused, as its message could go to either."""

    async def main() -> None:
        async with Cluster(NAMES, runtime="simulated") as cluster:
            await cluster.run(wait_twice, first=first)

    with pytest.raises(RunFailed, match="another task is already waiting for a message from bob"):
        simulation.simulate(main())


async def hear_two_groups(party: Party) -> list[str]:
    """Wait for two groups of peers at once, and return the first sender of each."""
    if party.me != "ada":
        await asyncio.sleep(party.parties.position(party.me))
        await party.send("ada", Word(text="here"))
        return []
    groups = ("bob",), ("dan", "cyd")
    waits = [party.receive_any(Word, senders=each) for each in groups]
    first = [sender for sender, _ in await asyncio.gather(*waits)]
    return [*first, (await party.receive_any(Word))[0]]


def test_tasks_may_wait_for_disjoint_groups() -> None:
    """Each gets the first message of its own group."""
    heard = ProtocolRunner("simulated")(hear_two_groups, NAMES).results["ada"]
    assert heard == ["bob", "cyd", "dan"]


async def wait_in_two_groups(party: Party) -> None:
    """Wait for two groups that share a peer, while nobody speaks."""
    groups = (NAMES[2:], NAMES[1:3]) if party.me == "ada" else ()
    await asyncio.gather(*(party.receive_any(Word, senders=each) for each in groups))


def test_groups_that_share_a_peer_cannot_be_awaited_at_once() -> None:
    """The error names the peer that both groups have."""
    with pytest.raises(RunFailed, match="another task is already waiting for a message from cyd"):
        ProtocolRunner("simulated")(wait_in_two_groups, NAMES)


def test_senders_are_peers(run_protocol: ProtocolRunner) -> None:
    """A name that is not a peer is refused with those that are."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(ask_a_stranger, NAMES[1:])
    assert "allowed: a peer of " in str(caught.value.root)


class Deafened(Adversary):
    """Receives a number in place of each message."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        return Number(number=len(sender))


def test_an_adversary_sees_what_arrives_from_anybody() -> None:
    """The messages pass through it, as those of `receive` do."""

    async def main() -> Run[list[tuple[str, str]]]:
        async with Cluster(NAMES, runtime="simulated", seed=1) as cluster:
            return await cluster.run(hear_all, adversaries={"ada": Deafened()})

    assert {kind for _, kind in simulation.simulate(main()).results["ada"]} == {"test.number"}


def test_unread_messages_are_no_disagreement(run_protocol: ProtocolRunner) -> None:
    """Two ends of a channel agree although one of them has read only the first message."""
    run = run_protocol(vote_twice, NAMES)
    assert set(map(tuple, run.results.values())) == {(1, 1)}
    assert run.cost.messages == 24


async def need_all(party: Party) -> str:
    """Wait for all peers of whom some are lost, and return the loss."""
    party.tolerate_losses()
    party.round(1)
    if party.me != "ada":
        await asyncio.sleep(100)
        return ""
    try:
        await receive_quorum(party, Word, 3)
    except PeerLost as error:
        return error.peer
    return ""


def test_a_quorum_ends_when_too_few_are_left() -> None:
    """The first loss that makes it impossible is raised, in an order that no hash decides."""
    faults = [Fault("crash", 1.0, math.inf, (name,)) for name in ("dan", "cyd")]

    async def main() -> Run[str]:
        async with Cluster(NAMES, runtime=Simulated(faults=faults)) as cluster:
            return await cluster.run(need_all)

    assert simulation.simulate(main()).results["ada"] == "dan"


def test_a_wait_needs_a_sender(run_protocol: ProtocolRunner) -> None:
    """An empty choice of senders is refused."""
    with pytest.raises(RunFailed, match=r"senders is \(\); allowed: at least one peer"):
        run_protocol(wait_for_nobody, NAMES)


async def test_an_inquiry_names_several_kinds() -> None:
    """Deployed parties that wait for either of two kinds report both, and none is called silent."""
    async with AsyncExitStack() as stack:
        network = MemoryNetwork(NAMES)
        limits = SessionLimits(session=0.5, answer=5.0)
        nodes = [
            await stack.enter_async_context(Node(network.endpoint(name), Streams(1), limits=limits))
            for name in NAMES
        ]
        session = Streams(1).token("session")
        played = [
            node.run(wait_for_anybody, session, Parties(NAMES), seconds=seconds)
            for node, seconds in zip(nodes, (limits.session, *[limits.joined] * 3), strict=True)
        ]
        ended = await asyncio.gather(*played, return_exceptions=True)
    assert not any(isinstance(error, PeerSilent) for error in ended)
    assert all(isinstance(error, VeilringError) for error in ended)
    assert any("test.word or test.number from anybody" in str(error) for error in ended)
