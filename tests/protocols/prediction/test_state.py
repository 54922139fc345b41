"""The one file of a server: damage is refused or harmless, and earlier files are named."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.protocols.prediction.serving import STATE, make_rules, opened, table

from veilring.errors import InputError, StoreFailed, VeilringError
from veilring.protocols.prediction.state import open_state

RULES = make_rules()
RECORDS = table(120)
PAGE = 4096


@pytest.fixture(params=["killed", "closed"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the folder of a server as a kill leaves it, or as it was closed."""
    folder, copy = tmp_path / "state", tmp_path / "whole"
    folder.mkdir()
    with opened(RULES, folder, RECORDS) as state:
        state.forget(RECORDS.ids[:20])
        state.add(RECORDS.take(range(3)))
        if request.param == "killed":
            shutil.copytree(folder, copy)
    if request.param == "closed":
        shutil.copytree(folder, copy)
    return copy


def require_refused_or_harmless(whole: Path, damaged: bytes) -> bool:
    """Return whether a damaged file is refused; otherwise all rows must be unchanged."""
    folder = whole.parent / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    (folder / STATE).write_bytes(damaged)
    try:
        with open_state(RULES, folder / STATE) as state:
            assert len(state) == 103
            assert state.add(RECORDS.take(range(20, 120))) == 0  # refuses another row
    except VeilringError:
        return True
    return False


def test_a_file_cut_at_any_page_is_refused(whole: Path) -> None:
    """Each shorter file is refused, as closed and as after a kill."""
    content = (whole / STATE).read_bytes()
    for end in range(0, len(content), 3 * PAGE):
        assert require_refused_or_harmless(whole, content[:end])


def test_flipped_bits_are_refused_or_harmless(whole: Path) -> None:
    """Of bits drawn from a seed, some are refused, and no other changes a row."""
    content, rng = (whole / STATE).read_bytes(), np.random.default_rng(5)
    refused = 0
    for bit in rng.integers(8 * len(content), size=60).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        refused += require_refused_or_harmless(whole, bytes(damaged))
    assert refused


def test_a_lost_file_is_refused_and_not_created_again(whole: Path) -> None:
    """Neither opening nor beginning replaces it."""
    (whole / STATE).unlink()
    for new in (False, True):
        with pytest.raises(StoreFailed, match="Restore it"):
            open_state(RULES, whole / STATE, new=new)
        assert not (whole / STATE).exists()


def test_the_folder_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """A server whose state was a folder is not started with an empty file."""
    for new in (False, True):
        with pytest.raises(InputError, match="is a folder, and the ledger is one file"):
            open_state(RULES, tmp_path, new=new)
    assert not list(tmp_path.iterdir())


def test_a_crash_between_budgets_and_rows_is_harmless(tmp_path: Path) -> None:
    """Records that have a budget but no row are added again, and get their row."""
    with opened(RULES, tmp_path, RECORDS.take(range(10))) as state:
        rows = state._rows  # noqa: SLF001  (the step that a crash prevents)
        state._join(RECORDS.take(range(10, 20)))  # noqa: SLF001  (the step before)
        assert len(set(rows.ids)) == 10
    with opened(RULES, tmp_path) as state:
        assert len(state) == 10
        assert state.add(RECORDS.take(range(20))) == 10
