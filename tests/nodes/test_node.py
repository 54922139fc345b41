"""Sessions at nodes on one in-memory network: their start, concurrency and end."""

import asyncio

import pytest
from tests.nodes.three import FIRST, NAMES, SECOND, listen_to_ada, pass_word, three_nodes
from tests.roles import Word, pass_on

from veilring.errors import (
    ClusterError,
    EndpointClosed,
    InputError,
    PeerLost,
    SessionAborted,
    SessionTimeout,
)
from veilring.nodes.party import Parties, Party


async def test_messages_reach_the_right_parties() -> None:
    """A message reaches its addressee from its sender."""
    async with three_nodes() as nodes:
        words = await asyncio.gather(*(n.run(pass_on, FIRST, NAMES) for n in nodes.values()))
    assert words == ["cy", "ada", "bob"]


async def test_sessions_run_side_by_side_and_do_not_mix() -> None:
    """Any number of sessions share the connections of a node."""
    async with three_nodes() as nodes:
        runs = [
            node.run(pass_on, bytes([number]) * 16, NAMES)
            for number in range(50)
            for node in nodes.values()
        ]
        words = await asyncio.gather(*runs)
    assert words == ["cy", "ada", "bob"] * 50


async def test_a_message_before_its_session_is_kept() -> None:
    """A party may open a session later than its peers."""
    async with three_nodes() as nodes:
        early = [asyncio.create_task(nodes[n].run(pass_on, FIRST, NAMES)) for n in ("ada", "bob")]
        await asyncio.sleep(0.01)
        assert await nodes["cy"].run(pass_on, FIRST, NAMES) == "bob"
        assert await asyncio.gather(*early) == ["cy", "ada"]


async def test_a_session_name_is_never_used_twice() -> None:
    """A used session name is refused, so that no session can be replayed."""
    async with three_nodes() as nodes:
        await asyncio.gather(*(n.run(pass_on, FIRST, NAMES) for n in nodes.values()))
        with pytest.raises(ClusterError, match="used this session name"):
            await nodes["ada"].run(pass_on, FIRST, NAMES)


async def test_a_stranger_to_the_session_is_refused_at_the_edge() -> None:
    """Only participants can take part in a session."""
    async with three_nodes() as nodes:
        with pytest.raises(InputError, match="ada is not among the parties"):
            await nodes["ada"].run(pass_on, FIRST, Parties(["bob", "cy", "dan"]))


async def test_a_lost_peer_ends_every_session_that_needs_it_and_no_other() -> None:
    """Only sessions that need the crashed peer report it, by name."""
    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        with_cy = asyncio.create_task(nodes["bob"].run(listen_to_ada, FIRST, NAMES))
        without = asyncio.create_task(nodes["bob"].run(listen_to_ada, SECOND, pair))
        await asyncio.sleep(0)
        nodes["cy"].abort()
        with pytest.raises(PeerLost, match="cy was lost"):
            await with_cy
        await nodes["ada"].run(pass_word, SECOND, pair)
        assert await without == "after"


async def test_a_session_with_a_lost_peer_fails_at_once() -> None:
    """A session that could never end is not begun."""
    async with three_nodes() as nodes:
        await nodes["cy"].close()
        await asyncio.sleep(0.01)
        with pytest.raises(PeerLost, match="cy left"):
            await nodes["ada"].run(pass_on, FIRST, NAMES)


async def test_a_silent_peer_ends_the_session_at_its_limit() -> None:
    """The error at a session's limit names what it waited for."""
    async with three_nodes() as nodes:
        with pytest.raises(SessionTimeout, match=r"0\.05 s: bob is waiting for test\.word"):
            await nodes["bob"].run(listen_to_ada, FIRST, NAMES, seconds=0.05)


async def test_a_failed_role_reveals_only_the_kind_of_error() -> None:
    """The abort notice contains no data of the failed party."""

    async def fail(party: Party) -> None:
        await asyncio.sleep(0)
        raise ValueError(f"the secret of {party.me} is 42")

    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        results = await asyncio.gather(
            nodes["ada"].run(fail, FIRST, pair),
            nodes["bob"].run(listen_to_ada, FIRST, pair),
            return_exceptions=True,
        )
    assert isinstance(results[0], ValueError)
    assert isinstance(results[1], SessionAborted)
    assert (results[1].by, results[1].reason, results[1].culprit) == ("ada", "InternalError", "")


async def test_a_roles_own_time_limit_is_its_own_error() -> None:
    """It is raised where it was set, and peers do not treat it as a disk failure or timeout."""

    async def hurry(_party: Party) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        results = await asyncio.gather(
            nodes["ada"].run(hurry, FIRST, pair),
            nodes["bob"].run(listen_to_ada, FIRST, pair),
            return_exceptions=True,
        )
    assert type(results[0]) is TimeoutError
    assert isinstance(results[1], SessionAborted)
    assert (results[1].by, results[1].reason) == ("ada", "InternalError")


async def test_a_cancelled_role_tells_its_peers() -> None:
    """A party that is stopped does not leave the others waiting."""
    pair = Parties(["ada", "bob"])

    async def wait(party: Party) -> None:
        await party.receive(Word, sender="bob")

    async with three_nodes() as nodes:
        waiting = asyncio.create_task(nodes["ada"].run(wait, FIRST, pair))
        listening = asyncio.create_task(nodes["bob"].run(listen_to_ada, FIRST, pair))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(SessionAborted, match="PeerStopped: ada is shutting down"):
            await listening
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_closing_a_node_ends_its_sessions() -> None:
    """A node that shuts down ends its open sessions with an error that says so."""
    async with three_nodes() as nodes:
        listening = asyncio.create_task(nodes["bob"].run(listen_to_ada, FIRST, NAMES))
        await asyncio.sleep(0)
        await nodes["bob"].close()
        with pytest.raises(EndpointClosed, match="shutting down"):
            await listening


async def test_rounds_never_go_back() -> None:
    """Marking an earlier round is a mistake of the role's author."""

    async def go_back(party: Party) -> None:
        await asyncio.sleep(0)
        party.round(2)
        party.round(1)

    async with three_nodes() as nodes:
        with pytest.raises(InputError, match="rounds must not decrease"):
            await nodes["ada"].run(go_back, FIRST, NAMES)


async def test_two_tasks_may_not_wait_for_one_peer() -> None:
    """It would be undefined which task gets the message, so the second wait is refused."""

    async def wait_twice(party: Party) -> None:
        async with asyncio.TaskGroup() as waiting:
            waiting.create_task(party.receive(Word, sender="bob"))
            waiting.create_task(party.receive(Word, sender="bob"))

    async with three_nodes() as nodes:
        with pytest.raises(ExceptionGroup) as caught:
            await nodes["ada"].run(wait_twice, FIRST, NAMES)
        assert caught.group_contains(InputError, match="another task")


async def test_a_party_cannot_wait_for_itself_or_a_stranger() -> None:
    """Waiting for a party that can never answer is refused at once."""

    async def wait_for(party: Party, sender: str) -> None:
        await party.receive(Word, sender=sender)

    async with three_nodes() as nodes:
        for number, sender in enumerate(("ada", "dan")):
            with pytest.raises(InputError, match="a peer of ada: bob, cy"):
                await nodes["ada"].run(wait_for, bytes([number]) * 16, NAMES, sender)
