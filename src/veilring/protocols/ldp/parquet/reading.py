"""Adding reports up, piece by piece: a piece is what one process looks at at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.chunks import how_many
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.parquet.rows import (
    COLUMNS,
    PIECE_BYTES_MAX,
    ROW_BYTES,
    impossible,
    require_possible,
)
from veilring.protocols.ldp.task import Task

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one file.

    Attributes:
        path: Absolute, so that it means the same in each process.
        first: The first row, counted from 0.
        reports: How many.
    """

    path: Path
    first: int
    reports: int


def cut(task: Task, paths: Iterable[Path], *, at_once: int | None = None) -> tuple[Piece, ...]:
    """Return pieces that together cover files, without reading any report.

    Args:
        task: What the reports are said to answer.
        paths: The files.
        at_once: How many reports a piece may have; as many as `PIECE_BYTES_MAX` unless given.

    Raises:
        InputError: If there is no file, one is named twice, or one cannot be read as Parquet with
            these columns; or if no report may be in a piece.
    """
    files = [path.resolve() for path in paths]
    for number, path in enumerate(files):
        if path in files[:number]:
            raise InputError("paths", f"{path} twice", "each file once: its reports would be too")
    if not files:
        raise InputError("paths", "no file", "at least one file of reports")
    widest = max(question.report_bytes for question in task.survey.questions)
    step = how_many(at_once, max(1, PIECE_BYTES_MAX // (widest + ROW_BYTES)))
    return tuple(
        Piece(path, first, min(step, rows - first))
        for path in files
        for rows in (_count(path),)
        for first in range(0, rows, step)
    )


def _count(path: Path) -> int:
    import polars as pl  # noqa: PLC0415  (0.3 s, and a client needs none)

    allowed = "a Parquet file with the columns task and report (binary) and question (integer)"
    try:
        scan = pl.scan_parquet(path, glob=False)
        schema = scan.collect_schema()
        rows = int(scan.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError("paths", f"{path} ({type(error).__name__})", allowed) from error
    kinds = [schema.get(name) for name in COLUMNS]
    task, question, report = kinds
    if task != pl.Binary or report != pl.Binary or question is None or not question.is_integer():
        raise InputError("paths", f"{path} with {dict(zip(COLUMNS, kinds, strict=True))}", allowed)
    return rows


def tally_parquet(task: Task, paths: Iterable[Path], *, at_once: int | None = None) -> Tally:
    """Return the tally of all reports in some files, piece by piece, in this process.

    Args:
        task: What they answer.
        paths: The files.
        at_once: As for `cut`; the tally is the same.

    Raises:
        InputError: If a file is not one of reports, or a report is to another task, or such as no
            client could have made: files were checked when they were written.
    """
    total = Tally.empty(task.survey)
    for piece in cut(task, paths, at_once=at_once):
        total += tally_piece(task, piece)
    return total


def tally_piece(task: Task, piece: Piece) -> Tally:
    """Return the tally of one piece; those of all pieces add up to that of the files.

    Raises:
        InputError: As `tally_parquet`.
    """
    import polars as pl  # noqa: PLC0415  (as above)

    frame = _read(piece)
    is_ours = (pl.col("task") == pl.lit(task.digest)).fill_null(value=False)
    if not frame.select(is_ours.all()).item():
        made_for = f"{piece.path}, in which some are to another task"
        raise InputError("reports", made_for, f"reports to the task {task.digest.hex()[:16]}…")
    # What is no number of a question, whatever its type, is none that there is.
    asked = frame["question"].cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    total = Tally.empty(task.survey)
    sums, counts = list(total.sums), list(total.counts)
    for question in np.unique(asked).tolist():
        reports = _reports(task, piece, question, frame["report"].filter(asked == question))
        sums[question] = task.survey.questions[question].aggregate(reports)
        counts[question] = len(reports)
    return Tally(tuple(sums), tuple(counts))


def _read(piece: Piece) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415  (as above)

    scan = pl.scan_parquet(piece.path, glob=False).select(COLUMNS)
    try:
        return scan.slice(piece.first, piece.reports).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError("paths", piece.path, f"a file that can be read ({error})") from error


def _reports(task: Task, piece: Piece, question: int, told: "pl.Series") -> Reports:
    width = 0
    if 0 <= question < len(task.survey.questions):
        width = task.survey.questions[question].report_bytes
    if not width or not told.bin.size().eq(width).fill_null(value=False).all():
        raise impossible(piece.path)
    reports = np.frombuffer(b"".join(told.to_list()), np.uint8).reshape(-1, width)
    require_possible(task, question, reports, str(piece.path))
    return reports
