"""Fresh processes, which print lines of JSON: `python -m benchmarks.fresh label` or `ring K`.

`label`: eight parties as processes, from their start to the first label, twice. Each start prints
a line when the label arrives: seconds since the start (of the process itself for the first line,
which no clock in here can measure: null), and the CPU seconds of all processes of the start.

`ring K`: one round of PP-TopK in a simulated ring of 10,000 parties: the CPU seconds and the peak
memory of the whole process.
"""

import asyncio
import json
import sys
import time

import numpy as np

from veilring.nodes.cluster import Cluster

_LABEL_PARTIES = 8
_RING_PARTIES = 10_000


def _label() -> None:
    asyncio.run(_start(None, 0.0))
    asyncio.run(_start(time.perf_counter(), _cpu_seconds()))


async def _start(began: float | None, spent: float) -> None:
    from benchmarks.samples import wine_parties
    from veilring.protocols.ring.roles import private_knn

    rows, parameters = wine_parties(_LABEL_PARTIES, np.random.default_rng(0))
    query = np.full((1, parameters.facts.features), 0.5)
    async with Cluster(_LABEL_PARTIES, runtime="processes", own=rows) as cluster:
        client = cluster.parties[0]
        only = {client: {"queries": query}}
        await cluster.run(private_knn, only=only, client=client, parameters=parameters)
        seconds = None if began is None else time.perf_counter() - began
        _say(seconds=seconds, cpu_seconds=_cpu_seconds() - spent)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, those that have ended included."""
    import psutil

    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (me, *me.children(recursive=True)))


def _ring(k: int) -> None:
    from benchmarks.measurement import peak_mib
    from veilring import simulation
    from veilring.nodes.ring import deal_ring
    from veilring.protocols.ring.algorithm.topk import TopKParameters
    from veilring.protocols.ring.roles import pp_topk

    async def run() -> None:
        rng = np.random.default_rng(0)
        own = [rng.random((1, k)) for _ in range(_RING_PARTIES)]
        parameters = TopKParameters(k=k, P0=1.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
        async with Cluster(_RING_PARTIES, runtime="simulated", own=own, seed=0) as cluster:
            await cluster.run(pp_topk, ring=deal_ring(cluster.parties, rng), parameters=parameters)

    simulation.simulate(run())
    _say(cpu_seconds=time.process_time(), peak_mib=peak_mib())


def _say(**found: float | None) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "label":
        _label()
    else:
        _ring(int(sys.argv[2]))
