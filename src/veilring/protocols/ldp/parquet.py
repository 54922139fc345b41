"""Reports in Parquet files, to be summed elsewhere: on a cluster, or years later.

A row is a report: the hash of its task, its question and its bytes. There are no ids, so a file
does not reveal the senders of reports. The writer makes sure that each report occurs once, as in a
collector's store. Tallies can be added, so files may be divided and distributed in any way.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from veilring.errors import InputError
from veilring.extras import require_extra
from veilring.privacy.files import open_private
from veilring.protocols.ldp.algorithm.packing import reports_at_once
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.messages import Task

if TYPE_CHECKING:
    import polars as pl
REPORT_COLUMNS: Final = ("task", "question", "report")
"""Binary of 32 bytes, unsigned integer, and binary of the question's `report_bytes`."""
# Bytes of reports processed at once: a process uses a few times this amount of memory, and computes
# much longer than the call takes.
PIECE_BYTES_MAX: Final = 1 << 26
ROW_BYTES: Final = 64
"""The memory in bytes that Polars and Python need per row in addition to its report."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of rows in one file, from the number of the first row on."""

    path: Path
    first: int
    reports: int


def write_parquet(
    task: Task, reports: Iterable[tuple[int, Reports]], folder: Path
) -> tuple[Path, ...]:
    """Write reports as files in a new folder, which appears when all files are complete.

    Args:
        reports: Pairs of a question and reports to it, in any order; each report once.

    Returns:
        The files, each of about `PIECE_BYTES_MAX` before compression; at least one.
    """
    require_extra("polars")
    if folder.exists():
        raise InputError(
            "folder", folder, "the path of a folder that does not exist; nothing is overwritten"
        )
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # left by a process that died
    draft.mkdir(parents=True)
    try:
        names = [
            _write(task, part, draft / f"part-{number:05}.parquet")
            for number, part in enumerate(_parts(task, reports))
        ]
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return tuple(folder / name for name in names)


Spread = Callable[
    [Callable[[Piece], Tally], Sequence[Piece]], AbstractContextManager[Iterable[Tally]]
]
"""Runs a function on each piece of some files, and yields the results as they arrive."""


@contextmanager
def _in_this_process(
    work: Callable[[Piece], Tally], pieces: Sequence[Piece]
) -> Iterator[Iterable[Tally]]:
    yield map(work, pieces)


def tally_parquet(
    task: Task,
    paths: Iterable[Path],
    spread: Spread = _in_this_process,
    *,
    at_once: int | None = None,
) -> Tally:
    """Return the tally of all reports in files, exactly the same wherever they are added up.

    Args:
        paths: The files; on a cluster, its workers find them under the same absolute paths.
        spread: Where pieces of the files are added up, like the engines of a sweep.
        at_once: As in `cut_pieces`; it does not affect the tally.
    """
    total = Tally.empty(task.survey)
    pieces = cut_pieces(task, paths, at_once=at_once)
    if pieces:
        with spread(partial(tally_piece, task), pieces) as tallies:
            for each in tallies:
                total += each
    return total


def cut_pieces(
    task: Task, paths: Iterable[Path], *, at_once: int | None = None
) -> tuple[Piece, ...]:
    """Return pieces that together cover the files, without reading any report.

    Args:
        at_once: The maximum number of reports in a piece; by default limited by `PIECE_BYTES_MAX`.
    """
    require_extra("polars")
    files = [path.resolve() for path in paths]
    for number, path in enumerate(files):
        if path in files[:number]:
            raise InputError.because(
                f"{path} is given twice, so its reports would be counted twice", field="paths"
            )
    if not files:
        raise InputError.because("there are no files of reports; give at least one", field="paths")
    widest = max(question.report_bytes for question in task.survey.questions)
    step = reports_at_once(at_once, max(1, PIECE_BYTES_MAX // (widest + ROW_BYTES)))
    return tuple(
        Piece(path, first, min(step, rows - first))
        for path in files
        for rows in (_count(path),)
        for first in range(0, rows, step)
    )


def tally_piece(task: Task, piece: Piece) -> Tally:
    """Return the tally of one piece; the tallies of all pieces add up to the files' tally."""
    import polars as pl

    frame = _read(piece)
    is_ours = (pl.col("task") == pl.lit(task.digest)).fill_null(value=False)
    if not frame.select(is_ours.all()).item():
        raise InputError.because(
            f"{piece.path} has reports for a task other than {task.digest.hex()[:16]}…; use the "
            "terms and the version of veilring with which they were collected",
            field="reports",
        )
    # a question that is not a number of any type does not exist
    asked = frame["question"].cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    return Tally.of(
        task.survey,
        (
            (each, _reports(task, piece, each, frame["report"].filter(asked == each)))
            for each in np.unique(asked).tolist()
        ),
    )


def _parts(
    task: Task, reports: Iterable[tuple[int, Reports]]
) -> Iterator[list[tuple[int, Reports]]]:
    """Yield the contents of each file: at least one, even without reports."""
    part: list[tuple[int, Reports]] = []
    room, is_first = PIECE_BYTES_MAX, True
    for question, some in reports:
        _require_possible(task, question, some, "reports")
        size = some.shape[1] + ROW_BYTES
        first = 0
        while first < len(some):
            taken = some[first : first + max(1, room // size)]
            part.append((question, taken))
            first += len(taken)
            room -= len(taken) * size
            if room < size:
                yield part
                part, room, is_first = [], PIECE_BYTES_MAX, False
    if part or is_first:
        yield part


def _write(task: Task, part: Sequence[tuple[int, Reports]], path: Path) -> str:
    import polars as pl

    rows = [
        data[start : start + some.shape[1]]
        for _, some in part
        for data in (some.tobytes(),)
        for start in range(0, len(data), some.shape[1])
    ]
    questions = np.repeat(
        np.array([question for question, _ in part], dtype=np.uint32),
        np.array([len(some) for _, some in part], dtype=np.int64),
    )
    frame = pl.DataFrame(
        {"question": questions, "report": pl.Series(rows, dtype=pl.Binary)}
    ).select(pl.lit(task.digest).alias("task"), "question", "report")
    with open_private(path, "wb") as file:
        frame.write_parquet(file, compression="zstd", compression_level=3, statistics=False)
        file.flush()
        os.fsync(file.fileno())
    return path.name


def _count(path: Path) -> int:
    import polars as pl

    allowed = "a Parquet file with the columns task and report (binary) and question (integer)"
    try:
        scan = pl.scan_parquet(path, glob=False)
        schema = scan.collect_schema()
        rows = int(scan.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError.because(
            f"{path} cannot be read ({type(error).__name__}); it must be {allowed}", field="paths"
        ) from error
    kinds = [schema.get(name) for name in REPORT_COLUMNS]
    task, question, report = kinds
    if task != pl.Binary or report != pl.Binary or question is None or not question.is_integer():
        raise InputError.because(
            f"{path} has the columns {dict(zip(REPORT_COLUMNS, kinds, strict=True))}; it "
            f"must be {allowed}",
            field="paths",
        )
    return rows


def _read(piece: Piece) -> "pl.DataFrame":
    import polars as pl

    scan = pl.scan_parquet(piece.path, glob=False).select(REPORT_COLUMNS)
    try:
        return scan.slice(piece.first, piece.reports).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError("paths", piece.path, f"a file that can be read ({error})") from error


def _reports(task: Task, piece: Piece, question: int, column: "pl.Series") -> Reports:
    width = 0
    if 0 <= question < len(task.survey.questions):
        width = task.survey.questions[question].report_bytes
    if not width or not column.bin.size().eq(width).fill_null(value=False).all():
        raise _impossible(piece.path)
    reports = np.frombuffer(b"".join(column.to_list()), np.uint8).reshape(-1, width)
    _require_possible(task, question, reports, str(piece.path))
    return reports


def _require_possible(task: Task, question: int, reports: Reports, where: object) -> None:
    questions = task.survey.questions
    if not 0 <= question < len(questions) or not questions[question].accept(reports).all():
        raise _impossible(where)


def _impossible(where: object) -> InputError:
    return InputError.because(
        f"some reports in {where} could not have been made by any client: they fit no question",
        field="reports",
    )
