"""A fresh process: one round of PP-TopK in a simulated ring of 10,000 parties.

Usage: python -m benchmarks.large_ring K

Prints one line of JSON: the CPU seconds and the peak memory of the whole process.
"""

import json
import resource
import sys
import time

import numpy as np

from veilring import simulation
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.protocols.ring import TopKParameters, pp_topk

PARTIES = 10_000
_KIB_IN_MIB = 1024  # Linux counts peak memory in KiB


async def _run(k: int) -> None:
    rng = np.random.default_rng(0)
    own = [rng.random((1, k)) for _ in range(PARTIES)]
    parameters = TopKParameters(k=k, P0=1.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
    async with Cluster(PARTIES, runtime="simulated", own=own, seed=0) as cluster:
        await cluster.run(pp_topk, ring=deal_ring(cluster.parties, rng), parameters=parameters)


if __name__ == "__main__":
    simulation.run(_run(int(sys.argv[1])))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_IN_MIB
    print(json.dumps({"cpu_seconds": time.process_time(), "peak_mib": peak}))
