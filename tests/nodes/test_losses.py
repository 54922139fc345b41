"""Roles that tolerate lost peers, and the results of their runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.nodes.three import FIRST, NAMES, three_nodes
from tests.roles import Word

from veilring.errors import (
    InputError,
    PeerGivenUp,
    PeerLost,
    ProtocolViolation,
    RunFailed,
    SessionAborted,
    VeilringError,
)
from veilring.nodes.node import Node
from veilring.nodes.party import Party, Standing
from veilring.nodes.run import Outcome, join_outcomes

Script = Callable[[Party], Awaitable[Any]]


async def hear(party: Party, sender: str) -> str:
    """Return the next word of a peer, or the name of the error raised instead."""
    try:
        return (await party.receive(Word, sender=sender)).text
    except (PeerLost, SessionAborted) as error:
        return type(error).__name__


async def tell(party: Party, to: str) -> str:
    """Send a word; return the name of the error if sending fails."""
    try:
        await party.send(to, Word(text=party.me))
    except (PeerLost, SessionAborted) as error:
        return type(error).__name__
    return "sent"


async def played(nodes: dict[str, Node], **scripts: Script) -> dict[str, Any]:
    """Play a script at each of the given nodes, and return the results or errors."""
    runs = [nodes[name].run(script, FIRST, NAMES) for name, script in scripts.items()]
    results = await asyncio.gather(*runs, return_exceptions=True)
    return dict(zip(scripts, results, strict=True))


async def test_a_lost_peer_affects_only_its_own_messages() -> None:
    """Messages sent before a loss are received before it, and other peers are unaffected."""
    async with three_nodes() as nodes:

        async def crash(party: Party) -> None:
            await party.send("ada", Word(text="last words"))
            nodes["bob"].abort()

        async def go_on(party: Party) -> list[str]:
            party.tolerate_losses()
            heard = [await hear(party, "cy")]
            heard += [await hear(party, "bob") for _ in range(3)]
            return [*heard, await tell(party, "bob"), await tell(party, "cy")]

        async def talk(party: Party) -> str:
            party.tolerate_losses()
            assert await hear(party, "bob") == "PeerLost"
            await party.send("ada", Word(text="cy"))
            return await hear(party, "ada")

        found = await played(nodes, ada=go_on, bob=crash, cy=talk)
        assert found["ada"] == ["cy", "last words", "PeerLost", "PeerLost", "PeerLost", "sent"]
        assert found["cy"] == "ada"
        standing = nodes["ada"].standings()[FIRST]
        assert standing.without == ("bob",)


async def test_an_abort_is_a_loss_with_a_reason() -> None:
    """The others continue; the error names the reason and the culprit."""
    async with three_nodes() as nodes:

        async def break_off(party: Party) -> None:
            raise ProtocolViolation("cy", f"did what {party.me} saw")

        async def go_on(party: Party) -> VeilringError | str:
            party.tolerate_losses()
            try:
                await party.receive(Word, sender="bob")
            except SessionAborted as error:
                await tell(party, "cy" if party.me == "ada" else "ada")
                await hear(party, "cy" if party.me == "ada" else "ada")
                return error
            return "nothing happened"

        found = await played(nodes, ada=go_on, bob=break_off, cy=go_on)
        for name in ("ada", "cy"):
            error = found[name]
            assert isinstance(error, SessionAborted)
            assert (error.by, error.reason, error.culprit) == ("bob", "ProtocolViolation", "cy")


async def test_messages_of_a_peer_that_was_given_up_are_dropped() -> None:
    """Messages from and to such a peer are dropped, and end no session."""
    async with three_nodes() as nodes:
        done = asyncio.Event()

        async def give_up(party: Party) -> list[str]:
            party.tolerate_losses()
            assert await hear(party, "cy") == "cy"
            party.give_up("bob")
            heard = [await hear(party, "bob"), await tell(party, "bob")]
            done.set()
            return [*heard, await hear(party, "cy"), await hear(party, "bob")]

        async def late(party: Party) -> None:
            await party.send("ada", Word(text="early"))
            await party.send("cy", Word(text="early"))
            await done.wait()
            await party.send("ada", Word(text="late"))
            await party.send("cy", Word(text="late"))

        async def talk(party: Party) -> None:
            assert await hear(party, "bob") == "early"
            await party.send("ada", Word(text="cy"))
            assert await hear(party, "bob") == "late"
            await party.send("ada", Word(text="cy again"))

        found = await played(nodes, ada=give_up, bob=late, cy=talk)
        assert found == {
            "ada": ["PeerGivenUp", "PeerGivenUp", "cy again", "PeerGivenUp"],
            "bob": None,
            "cy": None,
        }


async def test_giving_up_wakes_waiting_tasks() -> None:
    """A task that waits for a peer is woken at once when the peer is given up."""
    async with three_nodes() as nodes:

        async def give_up(party: Party) -> str:
            party.tolerate_losses()
            waiting = asyncio.create_task(hear(party, "bob"))
            await asyncio.sleep(0)
            party.give_up("bob")
            return await waiting

        assert await played(nodes, ada=give_up) == {"ada": "PeerGivenUp"}


async def test_no_peer_is_given_up_without_tolerance() -> None:
    """The role must first declare that it tolerates losses."""
    async with three_nodes() as nodes:

        async def give_up(party: Party) -> None:
            party.give_up("bob")

        found = await played(nodes, ada=give_up)
        assert isinstance(found["ada"], InputError)


def outcome(
    party: str, error: VeilringError | None = None, without: tuple[str, ...] | None = ()
) -> Outcome:
    """Return an outcome of a role that tolerates losses, or does not."""
    standing = Standing(party, without=without)
    channels = {(party, peer): f"{party} to {peer}" for peer in NAMES if peer != party}
    return Outcome(
        party, None if error else f"of {party}", error, channels=channels, standing=standing
    )


class TestRuns:
    """A run consists of the remaining parties, if all of them tolerate losses."""

    @pytest.mark.parametrize(
        "error", [PeerLost("cy"), PeerGivenUp("ada"), SessionAborted("ada", "TooManyLost")]
    )
    def test_lost_parties_have_no_results(self, error: VeilringError) -> None:
        """This includes crashed parties, and parties given up that ended for lack of the others."""
        run = join_outcomes(
            [outcome("ada", None, ("cy",)), outcome("bob"), outcome("cy", error)], 0
        )
        assert run.results == {"ada": "of ada", "bob": "of bob"}
        assert run.lost == ("cy",)
        assert set(run.channels) == {("ada", "bob"), ("bob", "ada")}

    def test_a_party_that_crashed_after_all_others_ended_is_lost(self) -> None:
        """The party is lost even if no other party has noticed."""
        run = join_outcomes([outcome("ada"), outcome("bob"), outcome("cy", PeerLost("cy"))], 0)
        assert run.lost == ("cy",)

    @pytest.mark.parametrize(
        "outcomes",
        [
            [outcome("ada", None, None), outcome("bob"), outcome("cy", PeerLost("cy"))],
            [outcome("ada", None, None), outcome("bob", None, None), outcome("cy", PeerLost("cy"))],
            [outcome("ada"), outcome("bob"), outcome("cy", PeerLost("bob"))],
            [outcome("ada", None, ("cy",)), outcome("cy", ProtocolViolation("bob", "lied"))],
            [outcome("ada", PeerLost("cy")), outcome("cy", PeerLost("cy"))],
        ],
    )
    def test_any_other_error_fails_the_run(self, outcomes: list[Outcome]) -> None:
        """A party without tolerance, an unexpected loss, a violation and no result each fail it."""
        with pytest.raises(RunFailed):
            join_outcomes(outcomes, 0)
