"""The ring: a batch beside single queries, start-up, and 10,000 parties."""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from benchmarks.measurement import Bound, Measurement, pairs, ratios
from benchmarks.samples import wine_parties
from veilring.arrays import Floats
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.protocols.ring.roles import private_knn

BATCH_PARTIES = 5
AT_ONCE = 8


def measure_batch(*, quick: bool) -> list[Measurement]:
    """Compare a batch of 1,000 queries with 1,000 sessions of one each; 200 if it has to be quick.

    PP-kNN among five parties in memory. The single queries run a few at a time, as a client would
    send them.
    """
    queries, repetitions = (200, 3) if quick else (1_000, 5)
    rng = np.random.default_rng(0)
    rows, parameters = wine_parties(BATCH_PARTIES, rng)
    asked = rng.random((queries, parameters.facts.features))
    with asyncio.Runner() as runner:
        cluster = Cluster(BATCH_PARTIES, own=rows, seed=0)
        runner.run(cluster.__aenter__())
        ring = deal_ring(cluster.parties, rng)

        async def ask(batch: Floats) -> None:
            client = cluster.parties[0]
            only = {client: {"queries": batch}}
            await cluster.run(
                private_knn, only=only, client=client, parameters=parameters, ring=ring
            )

        async def batch() -> float:
            start = time.perf_counter()
            await ask(asked)
            return time.perf_counter() - start

        async def singles() -> float:
            places = asyncio.Semaphore(AT_ONCE)

            async def one(query: Floats) -> None:
                async with places:
                    await ask(query)

            start = time.perf_counter()
            await asyncio.gather(*(one(asked[n : n + 1]) for n in range(queries)))
            return time.perf_counter() - start

        timed = pairs(lambda: runner.run(batch()), lambda: runner.run(singles()), repetitions)
        runner.run(cluster.__aexit__(None, None, None))
    name = f"PP-kNN, a batch of {queries:,} beside single queries, times faster"
    return [ratios(name, timed, faster=True, per=queries)]


@dataclass(slots=True)
class _Samples:
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measurements(self, name: str, bound: Bound | None) -> list[Measurement]:
        return [
            Measurement(f"8 processes to first label, {name}", "s", tuple(self.seconds), bound),
            Measurement(f"8 processes to first label, {name}, CPU", "s", tuple(self.cpu)),
        ]


def measure_startup(*, quick: bool) -> list[Measurement]:
    """Start eight processes up to a first label: seconds, and CPU seconds of all of them together.

    Cold: from the start of a fresh interpreter, so that all imports and the fork server are in it.
    Warm: a second cluster in the same program. These are times, not ratios: nothing else does this.
    """
    cold, warm = _Samples(), _Samples()
    for _ in range(2 if quick else 5):
        start = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.fresh", "label"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            first = _line(process)
            cold.seconds.append(time.perf_counter() - start)
            second = _line(process)
        cold.cpu.append(first["cpu_seconds"])
        warm.seconds.append(second["seconds"])
        warm.cpu.append(second["cpu_seconds"])
    return [*cold.measurements("cold", Bound("at most", 2.0)), *warm.measurements("warm", None)]


def _line(process: subprocess.Popen[bytes]) -> dict[str, float]:
    if process.stdout is None or not (line := process.stdout.readline()):
        raise RuntimeError("the fresh process ended without a label; its errors are above")
    parsed: dict[str, float] = json.loads(line)
    return parsed


CPU_SECONDS = Bound("at most", 10.0)
PEAK_MIB = Bound("at most", 1024.0)


def measure_large(*, quick: bool) -> list[Measurement]:
    """Run one round of PP-TopK in a simulated ring of 10,000 parties, in fresh processes.

    For k from 1 to 5, of which 1 and 5 if it has to be quick: CPU seconds and peak memory.
    """
    results = []
    for k in (1, 5) if quick else (1, 2, 3, 4, 5):
        command = [sys.executable, "-m", "benchmarks.fresh", "ring", str(k)]
        samples = [
            json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            for _ in range(1 if quick else 3)
        ]
        cpu = tuple(sample["cpu_seconds"] for sample in samples)
        peak = tuple(sample["peak_mib"] for sample in samples)
        name = f"simulated ring of 10,000, k = {k}"
        results.append(Measurement(f"{name}, CPU", "s", cpu, CPU_SECONDS))
        results.append(Measurement(f"{name}, peak memory", "MiB", peak, PEAK_MIB))
    return results
