"""Deployed aggregators between which the network fails while clients report.

To run it manually: `python -m tests.deployment.prio_weather ROUNDS`.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
from benchmarks.ports import reserve_ports
from tests.deployment.commands import Deployment
from tests.deployment.crashing import report_crashes
from tests.deployment.prio_crashes import (
    AGGREGATORS,
    AT_ONCE,
    Collector,
    Crashes,
    compare,
    deploy_sum,
    finish,
    open_clients,
)
from tests.deployment.weather import BAD, HOST, Link, Weather

from veilring.transport.roster import Roster

WEATHER_SECONDS = 1.5
LIMITS = ("session_seconds = 4", "answer_seconds = 1")


def put_behind(deployed: Deployment, name: str, seed: int) -> list[Link]:
    """Give a member a roster in which the others are behind proxies; return these."""
    roster, links = Roster.load(deployed.folder / "roster.toml"), dict[str, Link]()
    for other in roster.parties:
        if other != name:
            links[other] = Link(reserve_ports(), roster.member(other).port, seed)
    own = f"roster-{name}.toml"
    roster.at({other: (HOST, link.port) for other, link in links.items()}).save(
        deployed.folder / own
    )
    deployed.edit(f"{name}.toml", '"roster.toml"', f'"{own}"')
    deployed.configure(name, *LIMITS)
    return list(links.values())


async def weather_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Let each weather pass between all members the given number of times."""
    deployed, seen = deploy_sum(folder), Crashes()
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    members = (*AGGREGATORS, "collector")
    links = [link for name in members for link in put_behind(deployed, name, seed)]
    try:
        async with AsyncExitStack() as stack:
            for link in links:
                await stack.enter_async_context(link.open())
            await asyncio.to_thread(deployed.serve, *AGGREGATORS)
            clients = await stack.enter_async_context(open_clients(folder, seen, rng))
            collector = Collector(deployed, rng.spawn(1)[0], seen)
            for kind in [
                each for _ in range(rounds) for each in chance.sample(list(BAD), len(BAD))
            ]:
                stop = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    for act in [*[clients.go_on] * AT_ONCE, collector.go_on]:
                        group.create_task(act(stop))
                    for link in links:
                        link.become(BAD[kind])
                    await asyncio.sleep(WEATHER_SECONDS)
                    for link in links:
                        link.become(Weather())
                    stop.set()
            await finish(clients, collector)
            assert "; trying again" in deployed.log("leader"), "no session broke off"
            await asyncio.to_thread(deployed.end_in_order)
        compare(deployed, clients, collector)
    finally:
        deployed.kill()
    return seen


if __name__ == "__main__":
    report_crashes(weather_rounds, end="")
