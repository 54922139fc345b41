"""A sweep from its plan to its files, in as many calls as it takes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from veilring.errors import ClusterError, SweepFailed
from veilring.scenarios.labelling import Progress
from veilring.scenarios.sweep.cells import Cell, Plan, check_cell, plan_cells, run_cell
from veilring.scenarios.sweep.engine import Engine, each_done
from veilring.scenarios.sweep.journal import Journal, open_journal
from veilring.scenarios.sweep.store import Files, open_files, write_results

LOCAL: Final = Engine()


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep that is done.

    Attributes:
        cells: All its cells, in the order of the rows of its files.
        kept: How many of them an earlier call had finished.
        files: Where it is.
    """

    cells: tuple[Cell, ...]
    kept: int
    files: Files


def run_sweep(
    plan: Plan, out: Path, *, engine: Engine = LOCAL, progress: Progress | None = None
) -> Sweep:
    """Run a scenario at all points of a grid and write one row a cell.

    What is finished is kept at once. The same call after an interruption, on any engine, runs what
    is left. The results are the same bytes on every engine and after any interruption; and a cell's
    are the same in every sweep of that scenario and that seed.

    Args:
        plan: What to go through.
        out: A path that ends in `.parquet`, where no results are yet.
        engine: Where cells are run.
        progress: Told how far the sweep is.

    Raises:
        ScenarioError: If any cell cannot be as it would have to be. Nothing was run.
        InputError: If `out` or `engine` cannot be used. Nothing was run.
        SweepFailed: If cells failed, or their workers died. All others are kept.
        KeyboardInterrupt: What was finished before is kept.
    """
    tell = progress or _tell_nobody
    cells = plan_cells(plan)
    files = open_files(out)
    with open_journal(files.journal, _identity(plan, cells)) as journal:
        kept = len(journal.outcomes)
        left = [cell for cell in cells if cell.name not in journal.outcomes]
        _check(left, tell)
        _run(left, len(cells), engine, journal, tell)
        write_results(files, cells, journal.outcomes)
    files.journal.unlink()
    return Sweep(cells, kept, files)


def _tell_nobody(doing: str, done: int, total: int) -> None:
    """Take the place of a progress that nobody asked for."""


def _identity(plan: Plan, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return what decides the results: what was asked for, and what files add to it."""
    digest = hashlib.sha256()
    for cell in cells:
        digest.update(f"{cell.name} {cell.seed} {cell.scenario.model_dump_json()}\n".encode())
    return {
        **{field.name: getattr(plan, field.name) for field in fields(plan)},
        "grid": {key: list(values) for key, values in plan.grid.items()},
        "overrides": list(plan.overrides),
        "veilring": metadata.version("veilring"),
        "sha256 of all settings": digest.hexdigest(),
    }


def _check(left: Sequence[Cell], tell: Progress) -> None:
    """Check one cell at each point; here, so that a data set is fetched once and not by each."""
    firsts = [cell for cell in left if cell.trial == 0]
    for done, cell in enumerate(firsts):
        tell("Checking the cells", done, len(firsts))
        check_cell(cell)


def _run(
    left: Sequence[Cell], total: int, engine: Engine, journal: Journal, tell: Progress
) -> None:
    doing, failures = "Running the cells", dict[str, str]()
    try:
        with each_done(run_cell, left, engine) as outcomes:
            tell(doing, total - len(left), total)
            for done, outcome in enumerate(outcomes, start=total - len(left) + 1):
                if outcome.failure:
                    failures[outcome.cell] = outcome.failure
                else:
                    journal.append(outcome)
                tell(doing, done, total)
    except ClusterError as error:
        failures["the workers"] = str(error)
        raise SweepFailed(failures, len(journal.outcomes), total, str(journal.path)) from error
    if failures:
        raise SweepFailed(failures, len(journal.outcomes), total, str(journal.path))
