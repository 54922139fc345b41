"""A simulated crash between two messages of one step."""

import asyncio
import math
from traceback import walk_tb

import pytest
from tests.roles import Word

from veilring import simulation
from veilring.errors import PeerLost, RunFailed, VeilringError
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party, broadcast
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.simulation import LinkModel, Topology
from veilring.simulation.faults import Fault

PARTIES = ("ada", "bob", "cyd", "dan")


async def decide(party: Party, *, after: float = 1.0) -> str:
    """Decide as the first party says after some seconds, or not at all if it is lost."""
    party.tolerate_losses()
    party.round(1)
    leader = party.parties[0]
    if party.me == leader:
        if after:
            await asyncio.sleep(after)
        await broadcast(party, Word(text="yes"))
        return "yes"
    try:
        return (await party.receive(Word, sender=leader)).text
    except PeerLost:
        return "nothing"


async def _decided(sends: int, bandwidth: float = math.inf, after: float = 1.0) -> Run[str]:
    fault = Fault("mid-send", 0.0, math.inf, ("ada",), float(sends))
    links = Topology(LinkModel(bandwidth_bytes_per_second=bandwidth))
    async with Cluster(PARTIES, runtime=Simulated(links, [fault]), seed=1) as cluster:
        return await cluster.run(decide, after=after)


@pytest.mark.parametrize("after", [0.0, 1.0])
@pytest.mark.parametrize("bandwidth", [math.inf, 1e5])
@pytest.mark.parametrize("sends", [1, 2, 3])
def test_a_crash_falls_between_two_messages(sends: int, bandwidth: float, after: float) -> None:
    """One peer for each message that has left has the last word, also in the very first step."""
    run = simulation.simulate(_decided(sends, bandwidth, after))
    assert run.lost == ("ada",)
    peers = PARTIES[1:]
    assert run.results == {
        peer: "yes" if place < sends else "nothing" for place, peer in enumerate(peers)
    }
    assert run.cost.messages == sends


def test_without_enough_messages_nobody_crashes() -> None:
    """The fault then has no effect."""
    run = simulation.simulate(_decided(4))
    assert not run.lost
    assert set(run.results.values()) == {"yes"}


async def ask_for_ever(party: Party, *, caught: type[VeilringError]) -> str:
    """Ask for a word of the first party again and again, whatever happens."""
    party.tolerate_losses()
    if party.me == "ada":
        await asyncio.sleep(100)
        return ""
    while True:
        try:
            return (await party.receive(Word, sender="ada")).text
        except caught:
            continue


@pytest.mark.parametrize("caught", [PeerLost, VeilringError])
def test_a_role_that_asks_a_lost_peer_for_ever_is_ended(caught: type[VeilringError]) -> None:
    """The loop never waits, and ends with a named error, even if the role catches that one."""
    fault = Fault("crash", 1.0, math.inf, ("ada",))

    async def main() -> None:
        async with Cluster(PARTIES, runtime=Simulated(faults=[fault]), seed=1) as cluster:
            await cluster.run(ask_for_ever, caught=caught)

    with pytest.raises(RunFailed) as failed:
        simulation.simulate(main())
    error = failed.value.errors["bob"]
    assert "the role met one error 100,000 times: a loop without end" in str(error)
    assert caught is VeilringError or "in ask_for_ever" in "".join(error.__notes__)


async def count_frames(party: Party) -> int:
    """Ask a lost peer again, and return the length of the traceback at last."""
    party.tolerate_losses()
    frames = 0
    if party.me == "ada":
        await asyncio.sleep(100)
    for _ in range(50 if party.me == "bob" else 0):
        try:
            await party.receive(Word, sender="ada")
        except PeerLost as error:
            frames = len(list(walk_tb(error.__traceback__)))
    return frames


def test_an_error_that_is_raised_again_does_not_grow() -> None:
    """A role that meets a loss often keeps no frames of the earlier times."""
    fault = Fault("crash", 1.0, math.inf, ("ada",))

    async def main() -> int:
        async with Cluster(PARTIES, runtime=Simulated(faults=[fault]), seed=1) as cluster:
            return (await cluster.run(count_frames)).results["bob"]

    assert simulation.simulate(main()) < 10
