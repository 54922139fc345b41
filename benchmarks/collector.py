"""Reports that a collector makes durable in a second, beside plain inserts into SQLite.

Eight submitting processes send over mutual TLS to one `veilring serve`; an acknowledged report is
in a committed transaction with synchronous = FULL. The reference inserts the same number of rows
from memory, with `executemany` in transactions of a fixed size and the same durability: no network,
no checks, no sums.
"""

import json
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.measurement import Measurement, ratios
from veilring.data import load_table
from veilring.deployment.trials.survey import Trial, write_collection
from veilring.transport.sockets import bind
from veilring.transport.tls import LOOPBACK

__all__ = ("measure",)

SUBMITTERS = 8
REPORT_BYTES = 8
# What one transaction of the collector holds when it is busy, more or less.
GROUPS = {"single": 2_000, "batched": 50_000}
AT_ONCE = {"single": 1, "batched": 8_192}
_MIB = 1 << 20


def measure(*, quick: bool) -> list[Measurement]:
    """Send a million reports each way; 80,000 if it has to be quick."""
    reports, repetitions = (80_000, 1) if quick else (1_000_000, 3)
    results = []
    for how in ("single", "batched"):
        runs = [
            (_collect(reports, AT_ONCE[how]), _insert(reports, GROUPS[how]))
            for _ in range(repetitions)
        ]
        timed = [(run["seconds"], reference) for run, reference in runs]
        name = f"{reports:,} reports, {how}"
        results.append(ratios(f"{name}, beside plain inserts", timed, per=reports))
        rates = tuple(reports / run["seconds"] for run, _ in runs)
        results.append(Measurement(f"{name}, durable", "/s", rates))
        for what, unit in (("cpu", "us"), ("wire", "B"), ("disk", "B"), ("peak", "MiB")):
            values = tuple(run[what] for run, _ in runs)
            results.append(Measurement(f"{name}, {_WHAT[what]}", unit, values))
    return results


_WHAT = {
    "cpu": "CPU of the collector a report",
    "wire": "bytes of a report on the wire",
    "disk": "bytes of a report on disk",
    "peak": "collector's peak memory",
}


def _collect(reports: int, at_once: int) -> dict[str, float]:
    """Run a collection, and return its seconds, bytes and peak memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "survey"
        with bind(LOOPBACK, 0) as free:
            port = free.getsockname()[1]
        trial = Trial("discrete-bayes", 1.0, 1_000, SUBMITTERS)
        submitters = write_collection(load_table("wine"), trial, folder, seed=0, port=port)
        with (folder / "log").open("w") as log:
            serve = [sys.executable, "-m", "veilring", "serve", str(folder / "collector.toml")]
            collector = subprocess.Popen(serve, stderr=log)  # noqa: S603  (our own module)
            try:
                found = _drive(folder, submitters, reports // SUBMITTERS, at_once, collector.pid)
            finally:
                collector.terminate()
                collector.wait()
        # One that left in order has moved its log into the file.
        return found | {"disk": (folder / "reports.sqlite").stat().st_size / reports}


def _drive(
    folder: Path, submitters: tuple[str, ...], each: int, at_once: int, collector: int
) -> dict[str, float]:
    processes = [
        subprocess.Popen(  # noqa: S603  (our own module)
            [
                sys.executable,
                "-m",
                "benchmarks.collecting",
                str(folder),
                name,
                str(each),
                str(at_once),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in submitters
    ]
    for process in processes:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("a submitter did not come; its errors are above")
    cpu = psutil.Process(collector).cpu_times()
    for process in processes:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    found = [json.loads(process.communicate()[0]) for process in processes]
    total = each * len(submitters)
    if sum(one["counted"] for one in found) != total:
        raise RuntimeError("not every report was counted")
    spent = psutil.Process(collector).cpu_times()
    return {
        "seconds": max(one["ended"] for one in found) - min(one["began"] for one in found),
        "cpu": (spent.user + spent.system - cpu.user - cpu.system) / total * 1e6,
        "wire": sum(one["bytes"] for one in found) / len(found),
        "peak": _peak_mib(collector),
    }


def _peak_mib(process: int) -> float:
    """Return the most memory that a process had; Linux alone tells."""
    path = Path(f"/proc/{process}/status")
    if not path.exists():
        return float("nan")
    lines = path.read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / _MIB


def _insert(reports: int, group: int) -> float:
    """Return the seconds of plain inserts."""
    rows = [(secrets.token_bytes(16), 0, os.urandom(REPORT_BYTES)) for _ in range(reports)]
    with tempfile.TemporaryDirectory() as name:
        database = sqlite3.connect(Path(name) / "plain.sqlite", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE r (id BLOB PRIMARY KEY, q INTEGER, b BLOB) WITHOUT ROWID")
        start = time.perf_counter()
        for first in range(0, reports, group):
            database.execute("BEGIN")
            database.executemany("INSERT INTO r VALUES (?, ?, ?)", rows[first : first + group])
            database.execute("COMMIT")
        seconds = time.perf_counter() - start
        database.close()
    return seconds
