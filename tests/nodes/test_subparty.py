"""A party within a subset of the parties of its session."""

from typing import Any

import pytest

from veilring.errors import InputError, RunFailed, VeilringError
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Parties, Party, SubParty, broadcast
from veilring.transport.messages import Message

PARTS = {"ann": ("ann", "bob"), "bob": ("ann", "bob"), "cid": ("cid", "dee"), "dee": ("cid", "dee")}


class Greeting(Message, kind="test.within.greeting"):
    """A name."""

    name: str


async def greet(party: Party) -> dict[str, Any]:
    """Greet all others of the subset, and return the properties of the inner party."""
    inside = SubParty(party, Parties(PARTS[party.me]))
    inside.round(1)
    await broadcast(inside, Greeting(name=inside.me))
    heard = [(await inside.receive(Greeting, sender=peer)).name for peer in inside.peers]
    same = (inside.session == party.session, inside.rng is party.rng)
    return {"heard": heard, "parties": inside.parties, "same": same}


async def accuse(party: Party) -> None:
    """Accuse a peer from within."""
    SubParty(party, party.parties).accuse(VeilringError("that cannot be"))


async def test_a_role_inside_sees_only_its_subset() -> None:
    """It has the subset's parties, and the session's name, rounds and randomness."""
    async with Cluster(list(PARTS), seed=0) as cluster:
        run = await cluster.run(greet)
    for name, seen in run.results.items():
        assert seen["parties"] == PARTS[name]
        assert seen["heard"] == [other for other in PARTS[name] if other != name]
        assert seen["same"] == (True, True)
    assert (run.cost.messages, run.cost.rounds) == (4, 1)


async def test_an_accusation_inside_ends_the_session() -> None:
    """The error is that of the whole run."""
    async with Cluster(3) as cluster:
        with pytest.raises(RunFailed, match="that cannot be"):
            await cluster.run(accuse)


async def test_a_part_without_the_party_is_refused() -> None:
    """A party cannot send within a subset to which it does not belong."""

    async def outside(party: Party) -> None:
        with pytest.raises(InputError, match=f"{party.me} is not among"):
            SubParty(party, Parties(["nobody", "else"]))

    async with Cluster(3) as cluster:
        await cluster.run(outside)
