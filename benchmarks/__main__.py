"""Runs the benchmarks, prints a table, and writes all numbers as JSON."""

import argparse
import json
import os
import platform
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import Measurement, Skipped

# As wide as the longest row, also where the output goes to a file.
TABLE_WIDTH = 150
NAMES = (
    "hop",
    "topk",
    "prediction",
    "simulated",
    "batch",
    "sweep",
    "startup",
    "large",
    "ldp",
    "ledger",
    "cliques",
    "owner",
    "collector",
    "treewalk",
    "flood",
)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given again")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller sizes")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results.json"))
    given = parser.parse_args()
    results: dict[str, list[Measurement]] = {}
    skipped: dict[str, str] = {}
    for name in given.only or NAMES:
        try:
            results[name] = _measure_of(name)(quick=given.quick)
        except Skipped as reason:
            skipped[name] = str(reason)
    _show(results, skipped)
    document = {
        "machine": _machine(),
        "quick": given.quick,
        "results": {name: [m.as_json() for m in found] for name, found in results.items()},
        "skipped": skipped,
    }
    given.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _measure_of(name: str) -> Callable[..., list[Measurement]]:
    measure: Callable[..., list[Measurement]] = import_module(f"benchmarks.{name}").measure
    return measure


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _show(results: dict[str, list[Measurement]], skipped: dict[str, str]) -> None:
    table = Table("what", "median", "min", "max", "bound", "", "medians behind it")
    for measurement in (m for found in results.values() for m in found):
        bound = measurement.bound
        table.add_row(
            measurement.name,
            _number(measurement.median, measurement.unit),
            _number(min(measurement.values), measurement.unit),
            _number(max(measurement.values), measurement.unit),
            f"{bound.side} {_number(bound.value, measurement.unit)}" if bound else "",
            measurement.verdict,
            measurement.detail,
        )
    console = Console(width=TABLE_WIDTH)
    console.print(table)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}")


def _number(value: float, unit: str) -> str:
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


if __name__ == "__main__":
    main()
