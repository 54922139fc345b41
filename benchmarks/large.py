"""A simulated ring of 10,000 parties, one round of PP-TopK: CPU seconds and peak memory."""

import json
import subprocess
import sys

from benchmarks.measurement import Bound, Measurement

CPU_SECONDS = Bound("at most", 10.0)
PEAK_MIB = Bound("at most", 1024.0)


def measure(*, quick: bool) -> list[Measurement]:
    """Run fresh processes for k from 1 to 5, of which 1 and 5 if it has to be quick."""
    results = []
    for k in (1, 5) if quick else (1, 2, 3, 4, 5):
        command = [sys.executable, "-m", "benchmarks.large_ring", str(k)]
        samples = [
            json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603  (our own module)
            for _ in range(1 if quick else 3)
        ]
        cpu = tuple(sample["cpu_seconds"] for sample in samples)
        peak = tuple(sample["peak_mib"] for sample in samples)
        name = f"simulated ring of 10,000, k = {k}"
        results.append(Measurement(f"{name}, CPU", "s", cpu, CPU_SECONDS))
        results.append(Measurement(f"{name}, peak memory", "MiB", peak, PEAK_MIB))
    return results
