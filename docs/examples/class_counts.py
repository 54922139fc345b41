"""Counts the rows of each class over all parties without revealing any party's own counts.

Each pair of parties shares a mask that one adds and the other subtracts; masks cancel in the total.
A coalition of n - 2 learns the sum of the other two parties and nothing more (Bonawitz et al.,
"Practical secure aggregation for privacy-preserving machine learning", CCS 2017, without dropouts).
"""

import asyncio
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from veilring import Array, Cluster, Message, Party, ProtocolViolation, Run, broadcast, simulation
from veilring.nodes.cluster import RUNTIMES, RuntimeName

Words = NDArray[np.uint64]


class Mask(Message, kind="counts.mask"):
    """A mask that one party adds and another subtracts."""

    words: Annotated[Words, Array("<u8", 1)]


class Masked(Message, kind="counts.masked"):
    """A party's counts under all its masks."""

    words: Annotated[Words, Array("<u8", 1)]


async def class_counts(party: Party, own: Words) -> Words:
    """Add up the counts of all parties, modulo 2**64."""
    masked, here = own.copy(), party.parties.position(party.me)
    party.round(1)
    for peer in party.parties[here + 1 :]:
        mask = party.rng.integers(0, 2**64, size=own.shape, dtype=np.uint64)
        masked += mask
        await party.send(peer, Mask(words=mask))
    for peer in party.parties[:here]:
        masked -= await hear(party, Mask, peer, own.shape)
    party.round(2)
    await broadcast(party, Masked(words=masked))
    others = [await hear(party, Masked, peer, own.shape) for peer in party.peers]
    total: Words = np.add.reduce([masked, *others])
    return total


async def hear(
    party: Party, kind: type[Mask | Masked], sender: str, shape: tuple[int, ...]
) -> Words:
    """Receive words and check their shape; pydantic has checked everything else."""
    words = (await party.receive(kind, sender=sender)).words
    if words.shape != shape:
        raise ProtocolViolation(sender, f"sent {words.shape} where {shape} was expected")
    return words


def forecast(parties: int) -> dict[str, int]:
    """Return the closed form: a mask for each pair of parties, and a broadcast by each party."""
    return {"messages": 3 * parties * (parties - 1) // 2, "rounds": 2}


async def count_on(runtime: RuntimeName) -> Run[Words]:
    """Count the rows of four parties."""
    own = [np.array(counts, np.uint64) for counts in ([5, 0, 1], [2, 2, 2], [0, 9, 0], [1, 1, 4])]
    async with Cluster(4, runtime=runtime, own=own, seed=7) as cluster:
        return await cluster.run(class_counts)


def main() -> None:
    """Run it on all four runtimes."""
    transcripts = set()
    for runtime in RUNTIMES:
        start = simulation.simulate if runtime == "simulated" else asyncio.run
        run = start(count_on(runtime))
        cost = run.cost
        print(f"{runtime:10}", run.result, cost.messages, "messages", cost.rounds, "rounds")
        transcripts.add(run.transcript)
    print("forecast  ", forecast(4))
    print("different transcripts:", len(transcripts))


if __name__ == "__main__":
    main()
