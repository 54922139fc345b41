"""Playing one batch: on the simulated clock over the network's links, and in memory for seconds."""

import asyncio
from dataclasses import dataclass
from typing import Any

from veilring import simulation
from veilring.errors import UnforeseenCost
from veilring.nodes.cluster import Cluster
from veilring.nodes.cost import Traffic
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Memory, Runtime, Simulated
from veilring.protocols.forecast import Forecast
from veilring.scenarios.comparison.stages import Stage
from veilring.simulation import Topology


@dataclass(frozen=True, slots=True)
class Played:
    """What a batch cost: forecast by the closed form, and measured to be just that.

    Attributes:
        rounds: Communication rounds.
        messages: Of the protocol.
        bytes: Of its frames.
        setup_messages: Before its first round.
        setup_bytes: Of those.
        simulated_seconds: On the simulated clock, over the links that were asked for.
        seconds: In this process, on this machine: the computing, and no network.
    """

    rounds: int
    messages: int
    bytes: int
    setup_messages: int
    setup_bytes: int
    simulated_seconds: float
    seconds: float

    @property
    def all_messages(self) -> int:
        """With those of the set-up."""
        return self.messages + self.setup_messages

    @property
    def all_bytes(self) -> int:
        """With those of the set-up."""
        return self.bytes + self.setup_bytes


def play(stage: Stage, topology: Topology, seed: int) -> Played:
    """Play a batch twice, and hold what it cost against the closed form. No event loop may run.

    Args:
        stage: Who takes part, with what.
        topology: The links between them.
        seed: Of the parties' randomness and of the links; the same in both plays.

    Raises:
        RunFailed: If a party failed.
        UnforeseenCost: If a play cost anything else than the closed form says.
    """
    simulated = simulation.run(_run(stage, Simulated(topology), seed))
    forecast = _require_forecast(stage, simulated)
    here = asyncio.run(_run(stage, Memory(), seed))
    _require_forecast(stage, here)
    return Played(
        forecast.rounds,
        *forecast.traffic,
        *forecast.setup,
        simulated_seconds=simulated.seconds,
        seconds=here.seconds,
    )


async def _run(stage: Stage, runtime: Runtime, seed: int) -> Run[Any]:
    async with Cluster(stage.parties, runtime=runtime, own=stage.own, seed=seed) as cluster:
        return await cluster.run(stage.role, only=stage.only, watch=stage.watch, **stage.public)


def _require_forecast(stage: Stage, run: Run[Any]) -> Forecast:
    forecast, cost = stage.forecast(run), run.cost
    found = Forecast(cost.rounds, Traffic(cost.messages, cost.bytes), cost.setup)
    if found != forecast:
        raise UnforeseenCost(forecast, found)
    return forecast
