"""Reports in Parquet files: each is counted once for any division of files, and no others."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.ldp.collecting import batches, make_task, require_equal
from tests.refusals import require_refused

from veilring.protocols.ldp import parquet
from veilring.protocols.ldp.algorithm.bayes import learn
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.parquet import cut_pieces, tally_parquet, tally_piece, write_parquet

Files = tuple[Path, ...]
CLIENTS = 500
TASK = make_task()


def reports() -> list[tuple[int, Reports]]:
    """Return reports to three questions, in many small batches."""
    return [(batch.question, batch.reports) for batch in batches(TASK, CLIENTS, at_once=37)]


DIRECT = Tally.of(TASK.survey, reports())
"""The tally of the same reports without files."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Write the reports to several files."""
    folder = tmp_path_factory.mktemp("parquet") / "reports"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PIECE_BYTES_MAX", 10_000)
        return write_parquet(TASK, reports(), folder)


def test_files_contain_all_written_reports(files: Files) -> None:
    """Files have the requested size and only the reports, of which they have the exact tally."""
    assert len(files) == 4
    frame = pl.concat([pl.read_parquet(file) for file in files])
    assert frame.columns == list(parquet.REPORT_COLUMNS)
    assert set(frame["task"]) == {TASK.digest}
    told = sorted((asked, row.tobytes()) for asked, some in reports() for row in some)
    assert sorted(zip(frame["question"], frame["report"], strict=True)) == told
    found = tally_parquet(TASK, files)
    require_equal(found, DIRECT)
    assert repr(learn(TASK.survey, found)) == repr(learn(TASK.survey, DIRECT))


@settings(deadline=None, max_examples=25)
@given(st.integers(10, CLIENTS + 1), st.permutations(range(CLIENTS)))
def test_pieces_add_up_in_any_order(files: Files, at_once: int, order: list[int]) -> None:
    """Pieces cover each file once, and their tallies add up in any order."""
    pieces = cut_pieces(TASK, files, at_once=at_once)
    require_refused("at_once", cut_pieces, TASK, files, at_once=-at_once)
    assert max(piece.reports for piece in pieces) <= at_once
    total = Tally.empty(TASK.survey)
    for number in [place for place in order if place < len(pieces)]:
        total += tally_piece(TASK, pieces[number])
    require_equal(total, DIRECT)


def test_a_piece_is_bounded(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any file, a piece has as many rows as the widest reports allow, or one row."""
    widest = max(question.report_bytes for question in TASK.survey.questions)
    for limit in (1, 1000, 5000):
        monkeypatch.setattr(parquet, "PIECE_BYTES_MAX", limit)
        pieces = cut_pieces(TASK, files)
        assert sum(piece.reports for piece in pieces) == CLIENTS
        for piece in pieces:
            assert piece.reports == 1 or piece.reports * widest < limit


CHANGES: list[dict[str, pl.Expr]] = [
    {"task": pl.lit(bytes(32))},
    {"task": pl.lit(None, dtype=pl.Binary)},
    {"question": pl.lit(3)},
    {"question": pl.lit(-1)},
    {"question": pl.lit(2**63, dtype=pl.UInt64)},
    {"question": pl.lit(None, dtype=pl.UInt32)},
    {"report": pl.lit(None, dtype=pl.Binary)},
    {"report": pl.lit(b"")},
    {"report": pl.lit(b"\x00\x00\x00")},
    {"question": pl.lit(0), "report": pl.lit(b"\x03")},  # the fourth of three classes
    {"question": pl.lit(1), "report": pl.lit(b"\x00\x01")},  # a bit beyond the domain
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_a_bad_report_is_refused(files: Files, change: dict[str, pl.Expr], tmp_path: Path) -> None:
    """A report to another task or question, or of another width or domain, is refused."""
    frame, path = pl.read_parquet(files[0]), tmp_path / "changed.parquet"
    changed = frame[50:51].with_columns(**change)
    pl.concat([frame[:50], changed, frame[51:]], how="vertical_relaxed").write_parquet(path)
    require_refused(r"changed\.parquet", tally_parquet, TASK, [path])
    require_refused("for a task other than", tally_parquet, make_task(epsilon=2.0), files)


def test_an_invalid_file_of_reports_is_refused(tmp_path: Path, files: Files) -> None:
    """A missing path, other columns, a text, no paths, and a file named twice are refused."""
    good, path = {"task": [b"t"], "question": [0], "report": [b"a"]}, tmp_path / "other.parquet"
    strange = ("task", ["t"]), ("question", [0.0]), ("report", ["a"])
    frames = [pl.DataFrame({**good, column: cells}) for column, cells in strange]
    for frame in (pl.DataFrame(good).drop("task"), *frames):
        frame.write_parquet(path)
        require_refused(r"other\.parquet.*task and report", cut_pieces, TASK, [path])
    (tmp_path / "text.parquet").write_text("task,question,report")
    for path in (tmp_path / "none.parquet", tmp_path / "text.parquet"):
        require_refused(path.name, cut_pieces, TASK, [path])
    require_refused("no file", cut_pieces, TASK, [])
    again = files[0].parent / ".." / files[0].parent.name / files[0].name
    require_refused("twice", cut_pieces, TASK, [files[0], again])


def test_a_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    """A bad report leaves no file, nothing is overwritten, and an empty collection is a file."""
    wrong, folder = np.full((1, 1), 3, dtype=np.uint8), tmp_path / "reports"
    require_refused("no question", write_parquet, TASK, [*reports(), (0, wrong)], folder)
    assert list(tmp_path.iterdir()) == []
    write_parquet(TASK, reports(), folder)
    require_refused("does not exist", write_parquet, TASK, reports(), folder)
    (empty,) = write_parquet(TASK, [], tmp_path / "empty")
    require_equal(tally_parquet(TASK, [empty]), Tally.empty(TASK.survey))
