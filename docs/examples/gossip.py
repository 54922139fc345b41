"""Gossip: a rumour that each party passes on once, to a few peers that it draws at random.

A party that is lost, or that nobody happens to draw, does not hear it.

Source: Demers et al., "Epidemic algorithms for replicated database maintenance", PODC 1987.
"""

import asyncio
import math
from contextlib import suppress
from typing import Any, Final

from veilring import (
    Cluster,
    Fault,
    Forecast,
    InputError,
    LinkModel,
    Message,
    Party,
    PeerLost,
    Run,
    Simulated,
    Topology,
    simulate,
)
from veilring.errors import SessionAborted
from veilring.nodes.cluster import RUNTIMES
from veilring.protocols.promise import repeated
from veilring.simulation import LogNormal
from veilring.testing import ProtocolRunner

FANOUT: Final = 3
PATIENCE_SECONDS: Final = 20.0
"""The time after which a party stops waiting, far above that of all hops."""


class Rumour(Message, kind="gossip.rumour"):
    """A rumour, and the number of times that it was passed on before."""

    text: str
    hops: int


async def gossip(
    party: Party, own: str | None, *, fanout: int = FANOUT, patience: float = PATIENCE_SECONDS
) -> str | None:
    """Pass a rumour on, and return it; None if it was not heard in time.

    Args:
        own: The rumour, at the party that starts it.
        fanout: The number of peers to which each party passes it on.
        patience: The seconds for which a party waits.
    """
    if not 1 <= fanout < len(party.parties):
        raise InputError("fanout", fanout, f"1 to {len(party.parties) - 1}")
    party.tolerate_losses()
    party.leave_unread()
    chosen = party.rng.choice(len(party.peers), fanout, replace=False)
    rumour = Rumour(text=own or "", hops=0)
    if own is None:
        try:
            async with asyncio.timeout(patience):
                _, rumour = await party.receive_any(Rumour)
        except (TimeoutError, PeerLost):
            return None
    party.round(rumour.hops + 1)
    for place in chosen:
        with suppress(PeerLost, SessionAborted):
            await party.send(party.peers[place], Rumour(text=rumour.text, hops=rumour.hops + 1))
    return rumour.text


def forecast(reached: int, rounds: int, text: str, fanout: int = FANOUT) -> Forecast:
    """Return the cost of a rumour that reaches some parties in some rounds, if none is lost."""
    return Forecast(rounds, repeated(reached * fanout, Rumour(text=text, hops=1)))


def share_reached(fanout: float) -> float:
    """Return the share of many parties that hear a rumour: z = 1 - exp(-fanout z), from above."""
    share = 1.0
    for _ in range(100):
        share = 1 - math.exp(-fanout * share)
    return share


INPUTS: Final = {"ada": None, "ben": "it rains", "cy": None, "dee": None, "eli": None}


async def among(parties: int, lost: int) -> Run[str | None]:
    """Run it at a median latency of 50 ms, and lose some parties before they hear anything."""
    links = Topology(LinkModel(latency=LogNormal(median_seconds=0.05, sigma=0.3)))
    names = [f"party-{number}" for number in range(parties)]
    faults = [Fault("crash", 0.001, math.inf, (name,)) for name in names[parties - lost :]]
    own = ["it rains"] + [None] * (parties - 1)
    async with Cluster(names, runtime=Simulated(links, faults), own=own, seed=1) as cluster:
        return await cluster.run(gossip, trace=True)


def main() -> None:
    """Run it on all runtimes, and with churn."""
    names, own = tuple(INPUTS), list(INPUTS.values())
    for runtime in RUNTIMES:
        run: Run[Any] = ProtocolRunner(runtime)(gossip, names, own=own)
        print(f"{runtime:10}", set(run.results.values()), run.cost.messages, "messages")
    print(
        "forecast               ", forecast(len(names), 1, "it rains").traffic.messages, "messages"
    )
    print("\n100 parties, median latency 50 ms:")
    for lost in (0, 10, 30):
        run = simulate(among(100, lost))
        reached = sum(heard is not None for heard in run.results.values()) / (100 - lost)
        expected = share_reached(FANOUT * (100 - lost) / 100)
        times = [each.received_seconds for each in run.trace if each.received_seconds]
        print(
            f"  {lost:2} lost: {reached:.0%} of the others reached, {expected:.0%} expected;",
            end=" ",
        )
        print(f"{run.cost.messages} messages, {run.cost.rounds} rounds, {max(times):.2f} s")


if __name__ == "__main__":
    main()
