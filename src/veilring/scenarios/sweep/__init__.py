"""Sweeps: a scenario at all points of a grid, on many processes or machines, one row per run.

Finished cells are saved in a journal, and the results in Parquet.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final

from veilring.errors import ClusterError, InputError, SweepFailed
from veilring.extras import require_extra
from veilring.privacy.checks import require
from veilring.scenarios.runner import Progress, ignore_progress
from veilring.scenarios.sweep.cells import (
    CELLS_MAX,
    Cell,
    CellOutcome,
    Grid,
    Place,
    Plan,
    Row,
    Value,
    check_cell,
    parse_grid,
    places_at,
    plan_cells,
    points,
    root_seed,
    run_cell,
)
from veilring.scenarios.sweep.engine import Engine, each_done

if TYPE_CHECKING:
    import polars as pl

__all__ = (
    "CELLS_MAX",
    "Engine",
    "Files",
    "Grid",
    "Plan",
    "Value",
    "merge_shards",
    "parse_grid",
    "run_sweep",
)

_SUFFIX: Final = ".parquet"
_SHARD: Final = "shard"
_SHARDS: Final = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
_VERSION: Final = "veilring"
_SHOWN: Final = 20  # missing shards, which fit in a few lines


class Files:
    """The files of a sweep, or of one of its shards.

    Attributes:
        results: One row per cell; the same bytes however the sweep was run.
        journal: The finished cells. A shard writes no other file.
    """

    def __init__(self, out: Path, shard: str | None = None) -> None:
        part = "" if shard is None else f".{shard.replace('/', '-of-')}"
        self.results = out
        self.timing = out.with_suffix(f".timing{_SUFFIX}")
        self.journal = out.with_name(f"{out.name}{part}.journal")


def open_files(out: Path, shard: str | None = None) -> Files:
    """Return the files of a sweep, creating their folder if necessary, before anything is run."""
    require_extra("polars")
    allowed = f"a path that ends in {_SUFFIX}, where no results are yet"
    require(out.suffix == _SUFFIX, "out", out, allowed)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out", out, f"{allowed} ({error})") from error
    files = Files(out, shard)
    # Next to a journal they are those of a sweep that died before it could remove the journal.
    if out.exists() and not files.journal.exists():
        raise InputError.because(f"{out} exists already, and nothing is overwritten", field="out")
    return files


def write_results(
    files: Files, places: Sequence[Place], outcomes: Mapping[str, CellOutcome]
) -> None:
    """Write results and timings in the given order, each file completely or not at all."""
    each = [(place, outcomes[place.name]) for place in places]
    timing = [{**place.point, "trial": place.trial, **outcome.timing} for place, outcome in each]
    _write(files.timing, timing)
    _write(files.results, [{**place.key, **outcome.results} for place, outcome in each])


def _write(path: Path, rows: Sequence[Row]) -> None:
    import polars as pl

    names = dict.fromkeys(name for row in rows for name in row)
    frame = pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        # Everything that determines the bytes is explicit, so no changed default can change them.
        frame.write_parquet(file, compression="zstd", compression_level=3, statistics=True)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _column(name: str, values: Sequence[Value | None]) -> "pl.Series":
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int}:
        return pl.Series(name, values, dtype=pl.Int64)
    if kinds <= {int, float}:
        numbers = (None if value is None else float(value) for value in values)
        return pl.Series(name, list(numbers), dtype=pl.Float64)
    texts = (None if value is None else _text(value) for value in values)
    return pl.Series(name, list(texts), dtype=pl.String)


def _text(value: Value) -> str:
    """Return a value as a scenario would write it, for a column that also contains strings."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# A disk takes milliseconds to confirm a write, as long as a small cell runs. Once a second, that
# costs nothing, and the loss of a second is harmless.
SYNC_SECONDS: Final = 1.0


class SweepJournal:
    """The saved outcomes."""

    def __init__(
        self,
        path: Path,
        file: IO[bytes],
        outcomes: Mapping[str, CellOutcome],
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self._file, self._outcomes, self._clock = file, dict(outcomes), clock
        self._synced = clock()

    @property
    def outcomes(self) -> Mapping[str, CellOutcome]:
        """The outcomes in it, by the cell's name."""
        return MappingProxyType(self._outcomes)

    def append(self, outcome: CellOutcome) -> None:
        """Save an outcome."""
        _append_line(self._file, asdict(outcome))
        self._outcomes[outcome.cell] = outcome
        if self._clock() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Wait until everything is on disk."""
        os.fsync(self._file.fileno())
        self._synced = self._clock()


@contextmanager
def open_journal(
    path: Path, sweep: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
) -> Iterator[SweepJournal]:
    """Open a sweep's journal, or create it."""
    with path.open("ab+", buffering=0) as file:
        _lock(file, path)
        lines = _whole_lines(file)
        if len(lines) > 1:
            file.truncate(sum(len(line) + 1 for line in lines))
            _require_same(path, _parse(path, 1, lines[0]), sweep)
        else:  # a journal without a cell belongs to no sweep
            file.truncate(0)
            _append_line(file, sweep)
        numbered = enumerate(lines[1:], start=2)
        outcomes = (_outcome(path, number, line) for number, line in numbered)
        journal = SweepJournal(path, file, {each.cell: each for each in outcomes}, clock)
        journal.sync()
        try:
            yield journal
        finally:
            journal.sync()
            file.close()
            if not journal.outcomes:
                path.unlink()


def _lock(file: IO[bytes], path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError.because(
            f"{path} is locked: another sweep is writing it", field="out"
        ) from None


def _whole_lines(file: IO[bytes]) -> list[bytes]:
    """Return the lines, except for an unfinished last one."""
    file.seek(0)
    content = file.read()
    return content[: content.rfind(b"\n") + 1].splitlines()


def _append_line(file: IO[bytes], entry: Mapping[str, Any]) -> None:
    line = memoryview(json.dumps(entry).encode() + b"\n")
    while line:
        line = line[file.write(line) :]


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        raise InputError.because(_broken(path, number), field="journal")
    return entry


def _outcome(path: Path, number: int, line: bytes) -> CellOutcome:
    entry = _parse(path, number, line)
    try:
        return CellOutcome(**entry)
    except TypeError:
        raise InputError.because(_broken(path, number), field="journal") from None


def _broken(path: Path, number: int) -> str:
    return f"line {number} of {path} was not written by a sweep; remove the file to start over"


def _require_same(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    if differs := _difference(theirs, ours):
        raise InputError.because(
            f"{path} belongs to another sweep: its {differs}; give the same "
            "arguments to continue that sweep, name another file, or remove this one",
            field="out",
        )


def _difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Return a phrase for the first value in which two sweeps differ, or an empty text."""
    for name in (*ours, *theirs):
        if theirs.get(name) != ours.get(name):
            return f"{name} is {json.dumps(theirs.get(name))}, not {json.dumps(ours.get(name))}"
    return ""


LOCAL: Final = Engine()


@dataclass(frozen=True, slots=True)
class Sweep:
    """A finished sweep, or a finished shard.

    Attributes:
        cells: All its cells, in the order of the rows of its files.
    """

    cells: tuple[Cell, ...]
    kept: int
    files: Files


def run_sweep(
    plan: Plan,
    out: Path,
    *,
    engine: Engine = LOCAL,
    progress: Progress | None = None,
    shard: str | None = None,
) -> Sweep:
    """Run a scenario at all points of a grid and write one row per cell.

    Finished cells are saved at once. Repeating the call after an interruption, on any engine, runs
    the remaining ones. The results are the same bytes on every engine and after any interruption,
    and those of a cell are the same in every sweep of that scenario and seed.

    Args:
        shard: Such as `2/8`: run only every eighth cell, from the third one on. Nothing but the
            journal is then written; `merge_shards` makes the results from those of all shards.

    Raises:
        SweepFailed: If cells failed, or their workers died. All others are saved.
        KeyboardInterrupt: Cells finished before are saved.
    """
    tell = progress or ignore_progress
    cells = plan_cells(plan)
    own = cells if shard is None else cells[_slice_of(shard, len(cells))]
    files = open_files(out, shard)
    sweep = _identity(plan, cells) | ({} if shard is None else {_SHARD: shard})
    with open_journal(files.journal, sweep) as journal:
        kept = len(journal.outcomes)
        left = [cell for cell in own if cell.name not in journal.outcomes]
        _check(left, tell)
        _run(left, len(own), engine, journal, tell)
        if shard is None:
            write_results(files, own, journal.outcomes)
    if shard is None:
        files.journal.unlink()
    return Sweep(own, kept, files)


def _slice_of(shard: str, cells: int) -> slice:
    """Return the positions of the cells of a shard, which has at least one."""
    found = _SHARDS.fullmatch(shard)
    index, count = map(int, found.groups()) if found else (0, 0)
    allowed = f"0/N to N-1/N, with N from 1 to {cells:,}, the number of runs"
    require(index < count <= cells, "--shard", shard, allowed)
    return slice(index, None, count)


def _identity(plan: Plan, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the values that determine the results: the arguments, and the content of files."""
    digest = hashlib.sha256()
    for cell in cells:
        digest.update(f"{cell.name} {cell.seed} {cell.scenario.model_dump_json()}\n".encode())
    return {
        **{field.name: getattr(plan, field.name) for field in fields(plan)},
        "grid": {key: list(values) for key, values in plan.grid.items()},
        "overrides": list(plan.overrides),
        "seed": root_seed(plan, cells[0].scenario),
        _VERSION: metadata.version("veilring"),
        "sha256 of all settings": digest.hexdigest(),
    }


@dataclass(frozen=True, slots=True)
class _Shard:
    path: Path
    index: int
    count: int
    sweep: Mapping[str, Any]
    outcomes: Mapping[str, CellOutcome]

    def __str__(self) -> str:
        return f"shard {self.index}/{self.count} ({self.path})"


def merge_shards(paths: Sequence[Path], out: Path) -> int:
    """Write the results of a sweep from the journals of all its shards.

    They are the bytes that one machine writes. The scenario's files are not read.

    Returns:
        The number of rows.

    Raises:
        InputError: If a shard is missing, unfinished or given twice, or belongs to another sweep or
            another version of veilring.
    """
    files = open_files(out)
    shards = [_read_shard(path) for path in paths]
    _require_all(shards)
    places = _places_of(shards[0])
    outcomes = dict[str, CellOutcome]()
    for shard in shards:
        own = [place.name for place in places[shard.index :: shard.count]]
        found = {name: shard.outcomes[name] for name in own if name in shard.outcomes}
        if len(found) < len(own):
            done = f"{len(found):,} of its {len(own):,} runs are finished"
            raise _unmergeable(f"{shard} is incomplete: {done}; repeat its command")
        outcomes |= found
    write_results(files, places, outcomes)
    return len(places)


def _places_of(shard: _Shard) -> list[Place]:
    """Return the places of all cells of the sweep to which a shard belongs."""
    try:
        grid = {key: tuple(values) for key, values in shard.sweep["grid"].items()}
        trials, seed = shard.sweep["trials"], shard.sweep["seed"]
        return [place for point in points(grid) for place in places_at(point, trials, seed)]
    except (LookupError, TypeError, AttributeError):
        raise _unmergeable(_broken(shard.path, 1)) from None


def _read_shard(path: Path) -> _Shard:
    try:
        with path.open("rb") as file:
            lines = _whole_lines(file)
    except OSError as error:
        raise InputError("shard", path, f"a journal that can be read ({error})") from error
    sweep = _parse(path, 1, lines[0] if lines else b"")
    found = _SHARDS.fullmatch(str(sweep.pop(_SHARD, None)))
    if found is None:
        raise _unmergeable(f"{path} belongs to a whole sweep; repeat its command to finish it")
    ours = {_VERSION: metadata.version("veilring")}
    if differs := _difference({_VERSION: sweep.get(_VERSION)}, ours):
        raise _unmergeable(f"{path} is from another version: its {differs}; run its shard again")
    outcomes = (_outcome(path, number, line) for number, line in enumerate(lines[1:], start=2))
    index, count = map(int, found.groups())
    if index >= count:
        raise _unmergeable(_broken(path, 1))
    return _Shard(path, index, count, sweep, {each.cell: each for each in outcomes})


def _require_all(shards: Sequence[_Shard]) -> None:
    """Reject shards that are not all shards of one sweep."""
    first, by_index = shards[0], dict[int, _Shard]()
    for shard in shards:
        if differs := _difference(shard.sweep, first.sweep):
            raise _unmergeable(f"{shard} and {first} are of two sweeps: its {differs}")
        if shard.count != first.count:
            raise _unmergeable(f"{shard} and {first} divide the sweep differently")
        if other := by_index.get(shard.index):
            raise _unmergeable(f"{shard} is given twice, also as {other.path}")
        by_index[shard.index] = shard
    if missing := first.count - len(by_index):
        absent = (f"{n}/{first.count}" for n in range(first.count) if n not in by_index)
        more = f" and {missing - _SHOWN:,} more" if missing > _SHOWN else ""
        raise _unmergeable(f"these shards are missing: {', '.join(islice(absent, _SHOWN))}{more}")


def _unmergeable(text: str) -> InputError:
    return InputError.because(text, field="shard")


def _check(left: Sequence[Cell], tell: Progress) -> None:
    """Check one cell at each point here, so that a data set is fetched once rather than by each."""
    firsts = [next(cells) for _, cells in groupby(left, key=attrgetter("point"))]
    for done, cell in enumerate(firsts):
        tell("Checking the cells", done, len(firsts))
        check_cell(cell)


def _run(
    left: Sequence[Cell], total: int, engine: Engine, journal: SweepJournal, tell: Progress
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
