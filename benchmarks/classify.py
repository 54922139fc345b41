"""The throughput of a released model: on arrays in memory, and on CSV files by the command.

Seconds are CPU time of one core, so that other work on the machine counts little: linear
algebra takes one thread.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from benchmarks.measurement import Bound, Measurement, apart
from veilring.data.sources import load
from veilring.deployment.examples.folder import write_table
from veilring.protocols.release.model import ReleasedModel
from veilring.protocols.release.system import Release
from veilring.scenarios.direct import run

ROWS: Final = 100_000
ROWS_SECOND: Final = 100_000.0
TABLES: Final = ("wine", "digits")
STATISTICS: Final = ("means", "lda", "counts", "trees")


def measure(*, quick: bool) -> list[Measurement]:
    """Measure each statistic on tables of 13 and of 64 columns, and the command on both."""
    times = 3 if quick else 15
    bound = Bound("at least", ROWS_SECOND)
    in_memory = [
        _rate(f"{statistic} of {name}", apart(_label, name, statistic, times), bound)
        for name in TABLES
        for statistic in STATISTICS
    ]
    files = [
        _rate(f"veilring classify, CSV of {name}", apart(_command, name, 1 if quick else 3))
        for name in TABLES
    ]
    return in_memory + files


def _rate(name: str, seconds: list[float], bound: Bound | None = None) -> Measurement:
    return Measurement(name, "rows/s", tuple(ROWS / each for each in seconds), bound)


def _model(name: str, **parameters: Any) -> ReleasedModel:
    table = load(name)
    system = Release.model_validate(parameters)
    queries = table.take(np.arange(2))
    return cast("ReleasedModel", run(system, table.partition(3, seed=1), queries).model)


def _label(name: str, statistic: str, times: int) -> list[float]:
    """Return the seconds in which `ROWS` rows of a table were labelled, again and again."""
    model, table = _model(name, statistic=statistic), load(name)
    rows = table.X[np.arange(ROWS) % len(table)]
    model.predict(rows)
    taken = []
    for _ in range(times):
        start = time.process_time()
        model.predict(rows)
        taken.append(time.process_time() - start)
    return taken


def _command(name: str, times: int) -> list[float]:
    """Return the seconds that the command took for a file of `ROWS` rows, again and again."""
    table, taken = load(name), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        model, rows = Path(folder) / "model.json", Path(folder) / "rows.csv"
        _model(name).save(model)
        write_table(rows, table.take(np.arange(ROWS) % len(table)))
        command = [sys.executable, "-m", "veilring", "classify", str(model), str(rows)]
        for _ in range(times):
            before = _of_children()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            taken.append(_of_children() - before)
    return taken


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
