"""Reports that a collector makes durable in a second, beside plain inserts into SQLite.

Eight submitting processes send over mutual TLS to one `veilring serve`; an acknowledged report is
in a committed transaction with synchronous = FULL. The reference inserts the same number of rows
from memory, with `executemany` in transactions of a fixed size and the same durability: no network,
no checks, no sums.
"""

import os
import secrets
import sqlite3
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.collecting import BATCHED, Drive, drive_collection, drive_rounds
from benchmarks.measurement import Bound, Measurement, ratios

SURVEY_CLIENTS = 8
REPORT_BYTES = 8
# What one transaction of the collector holds when it is busy, more or less.
GROUPS = {"single": 2_000, "batched": 50_000}
AT_ONCE = {"single": 1, "batched": BATCHED}
# 50,000 a second where plain inserts of 80,000 rows make 270,000.
SINGLE = Bound("at most", 5.4)
# A collector must not slow down while it grows.
GROWTH = Bound("at least", 0.8)


def measure(*, quick: bool) -> list[Measurement]:
    """Send a million reports each way; 80,000 if it has to be quick."""
    reports, repetitions = (80_000, 1) if quick else (1_000_000, 3)
    results = []
    for how in ("single", "batched"):
        runs = [
            (_collect(reports, AT_ONCE[how]), _insert(reports, GROUPS[how]))
            for _ in range(repetitions)
        ]
        name = f"{reports:,} reports, {how}"
        for what, said in (("seconds", "beside plain inserts"), ("spent", "CPU beside theirs")):
            timed = [(run[what], reference[what]) for run, reference in runs]
            bound = SINGLE if (how, what) == ("single", "seconds") else None
            results.append(ratios(f"{name}, {said}", timed, bound, per=reports))
        rates = tuple(reports / run["seconds"] for run, _ in runs)
        results.append(Measurement(f"{name}, durable", "/s", rates))
        units = {"cpu": "us", "client": "us", "wire": "B", "disk": "B", "peak": "MiB"}
        for what, unit in units.items():
            values = tuple(run[what] for run, _ in runs)
            results.append(Measurement(f"{name}, {_WHAT[what]}", unit, values))
    return results


def measure_growth(*, quick: bool) -> list[Measurement]:
    """Send ten million single reports to one collector, a million at a time; or two of 80,000."""
    rounds, reports = (2, 80_000) if quick else (10, 1_000_000)
    found = drive_rounds(rounds, reports, Drive(SURVEY_CLIENTS, AT_ONCE["single"], _cpu_seconds))
    first, last = found[0], found[-1]
    name = f"{reports:,} single reports after {reports * (rounds - 1):,}"
    return [
        Measurement(
            f"{name}, rate beside that of the first",
            "x",
            (first.seconds / last.seconds,),
            GROWTH,
            detail=", ".join(f"{reports / each.seconds:,.0f} /s" for each in found),
        ),
        Measurement(
            f"{name}, CPU of the collector beside that of the first",
            "x",
            (last.spent / first.spent,),
            detail=", ".join(f"{each.spent / reports * 1e6:.1f} us" for each in found),
        ),
    ]


_WHAT = {
    "cpu": "CPU of the collector a report",
    "client": "CPU of a submitting process a report",
    "wire": "bytes of a report on the wire",
    "disk": "bytes of a report on disk",
    "peak": "collector's peak memory",
}


def _collect(reports: int, at_once: int) -> dict[str, float]:
    """Run a collection, and return its seconds, bytes and peak memory."""
    found = drive_collection(reports, Drive(SURVEY_CLIENTS, at_once, _cpu_seconds))
    return {
        "seconds": found.seconds,
        "spent": found.spent,
        "cpu": found.spent / reports * 1e6,
        "client": found.client_cpu / reports * 1e6,
        "wire": found.wire_bytes / reports,
        "disk": found.disk_bytes / reports,
        "peak": found.mib,
    }


def _cpu_seconds(process: int) -> float:
    spent = psutil.Process(process).cpu_times()
    return float(spent.user + spent.system)


def _insert(reports: int, group: int) -> dict[str, float]:
    """Return the seconds of plain inserts, and their CPU seconds."""
    rows = [(secrets.token_bytes(16), 0, os.urandom(REPORT_BYTES)) for _ in range(reports)]
    with tempfile.TemporaryDirectory() as name:
        database = sqlite3.connect(Path(name) / "plain.sqlite", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE r (id BLOB PRIMARY KEY, q INTEGER, b BLOB) WITHOUT ROWID")
        start, spent = time.perf_counter(), time.process_time()
        for first in range(0, reports, group):
            database.execute("BEGIN")
            database.executemany("INSERT INTO r VALUES (?, ?, ?)", rows[first : first + group])
            database.execute("COMMIT")
        found = {"seconds": time.perf_counter() - start, "spent": time.process_time() - spent}
        database.close()
    return found
