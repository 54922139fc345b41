"""Writing reports: a folder of files, whole or not at all."""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from veilring.errors import InputError
from veilring.privacy.files import open_private
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.parquet.rows import PIECE_BYTES_MAX, ROW_BYTES, require_possible
from veilring.protocols.ldp.task import Task


def write_parquet(
    task: Task, reports: Iterable[tuple[int, Reports]], folder: Path
) -> tuple[Path, ...]:
    """Write reports as files of a new folder, which appears when all of them are there.

    Args:
        task: What they answer.
        reports: Questions and reports to them, in any order; each report once.
        folder: Where to; there is nothing yet.

    Returns:
        The files, each of about `PIECE_BYTES_MAX` before it is compressed; at least one.

    Raises:
        InputError: If the folder is there already, or a report is not one of the task's.
    """
    if folder.exists():
        raise InputError("folder", folder, "one that is not there yet")
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of a process that died over it
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


def _parts(
    task: Task, reports: Iterable[tuple[int, Reports]]
) -> Iterator[list[tuple[int, Reports]]]:
    """Yield what goes to each file: at least one, without reports if there are none."""
    part: list[tuple[int, Reports]] = []
    room, is_first = PIECE_BYTES_MAX, True
    for question, some in reports:
        require_possible(task, question, some, "reports")
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
    import polars as pl  # noqa: PLC0415  (0.3 s, and a client needs none)

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
