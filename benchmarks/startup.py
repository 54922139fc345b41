"""Eight processes from start to first label: seconds, and CPU seconds of all processes together.

Cold: from the start of a fresh interpreter, so that all imports and the fork server are in it.
Warm: a second cluster in the same program. These are times, not ratios: nothing else does this.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field

from benchmarks.measurement import Bound, Measurement


@dataclass(slots=True)
class _Samples:
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measurements(self, name: str, bound: Bound | None) -> list[Measurement]:
        return [
            Measurement(f"8 processes to first label, {name}", "s", tuple(self.seconds), bound),
            Measurement(f"8 processes to first label, {name}, CPU", "s", tuple(self.cpu)),
        ]


def measure(*, quick: bool) -> list[Measurement]:
    """Start afresh a few times."""
    cold, warm = _Samples(), _Samples()
    for _ in range(2 if quick else 5):
        start = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.first_label"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603  (our own module)
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
