"""The file of rows: crashes lose no acknowledged row, and other damage is refused."""

import io
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.prediction.serving import FEATURES, table
from typing_extensions import override

from veilring.errors import InputError, StoreFailed
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.rowfile import STEP_RECORDS_MAX, RowFile, open_rows, salvage

SCHEMA, TIE = bytes(32), b"a ledger's 16 id"
RECORDS = table(9)


class Disk(io.BytesIO):
    """An in-memory file that records each write."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.writes: list[tuple[int, bytes]] = []

    @override
    def write(self, content: Any, /) -> int:
        self.writes.append((self.tell(), bytes(content)))
        return super().write(content)


@dataclass
class Image:
    """A possible content of the file after a crash.

    Attributes:
        content: The content of the file.
        sure: The ids that were acknowledged and are not being forgotten.
        unsure: The ids of the interrupted step.
    """

    content: bytes
    sure: set[str]
    unsure: set[str]


def opened(path: Path, tie: bytes = TIE) -> RowFile:
    """Open an existing file of rows."""
    return open_rows(path, FEATURES, SCHEMA, tie, begin=False)


def rows_of(path: Path) -> dict[str, bytes]:
    """Return the rows that a server would find, by their ids."""
    rows = opened(path)
    found = {
        name: records.features[place].tobytes() + records.labels[place].tobytes()
        for records in rows.load()
        for place, name in enumerate(records.ids)
    }
    rows.close()
    return found


def expected(names: Iterable[str]) -> dict[str, bytes]:
    """Return the expected content for some of the records."""
    places = {name: place for place, name in enumerate(RECORDS.ids)}
    return {
        name: RECORDS.features[places[name]].tobytes() + RECORDS.labels[places[name]].tobytes()
        for name in names
    }


def written(path: Path) -> Path:
    """Write a file of six records, three of them forgotten and two of these replaced."""
    rows = open_rows(path, FEATURES, SCHEMA, TIE)
    rows.add(RECORDS.take(range(6)))
    rows.forget(RECORDS.ids[1:4])
    rows.add(RECORDS.take([6, 7]))
    rows.close()
    return path


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


HERE = {RECORDS.ids[place] for place in (0, 4, 5, 6, 7)}


def images(path: Path) -> Iterator[Image]:
    """Yield the possible states after a crash at each write, if a file grows and shrinks."""
    open_rows(path, FEATURES, SCHEMA, TIE).close()
    disk = Disk(path.read_bytes())
    rows = RowFile(disk, FEATURES, None)
    rows.check()
    steps: list[tuple[str, tuple[int, ...]]] = [
        ("add", (0, 1, 2, 3)),
        ("forget", (1, 2)),
        ("add", (4, 5, 6)),
        ("forget", (0, 5)),
    ]
    here: set[str] = set()
    for kind, places in steps:
        some = RECORDS.take(list(places))
        before, first = disk.getvalue(), len(disk.writes)
        getattr(rows, kind)(some if kind == "add" else some.ids)
        sure = here - set(some.ids)
        for content in torn(before, disk.writes[first:]):
            yield Image(content, sure, set(some.ids))
        here = sure | set(some.ids) if kind == "add" else sure
        yield Image(disk.getvalue(), here, set())


def torn(before: bytes, writes: list[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield a file after each of some writes, also with a part of the next one."""
    content = bytearray(before)
    for offset, part in writes:
        for size in (1, len(part) // 2, len(part) - 1):
            cut = bytearray(content)
            put(cut, offset, part[:size])
            yield bytes(cut)
        put(content, offset, part)
        yield bytes(content)


def put(content: bytearray, offset: int, part: bytes) -> None:
    """Write into a file, which grows if necessary."""
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(part)] = part


def is_refused(path: Path) -> bool:
    """Return whether a file is refused with its name and the remedy, and left unchanged."""
    before = path.read_bytes()
    try:
        opened(path).close()
    except StoreFailed as error:
        message = str(error)
    else:
        return False
    assert str(path) in message
    assert "estore" in message
    assert path.read_bytes() == before
    return True


def test_a_crash_at_any_write_loses_no_acknowledged_row(tmp_path: Path) -> None:
    """For any part of a write on disk, the file opens with all rows before the step."""
    path, seen = tmp_path / "rows.bin", 0
    for image in list(images(path)):
        path.write_bytes(image.content)
        found = rows_of(path)
        assert image.sure <= set(found) <= image.sure | image.unsure
        assert found == expected(found)
        assert rows_of(path) == found  # nor does opening it again change anything
        seen += 1
    assert seen > 60


def test_a_half_written_slot_is_zeroed(tmp_path: Path) -> None:
    """No byte is left of a row whose addition was interrupted and undone."""
    path, seen = tmp_path / "rows.bin", 0
    for image in list(images(path)):
        path.write_bytes(image.content)
        gone = image.unsure - set(rows_of(path))
        content = path.read_bytes()
        assert not any(name.encode() in content for name in gone)
        seen += len(gone)
    assert seen > 30


def test_damage_after_a_crash_is_refused_or_harmless(tmp_path: Path) -> None:
    """A flipped bit between a crash and the next start is not mistaken for a torn write."""
    path, draw, refused = tmp_path / "rows.bin", np.random.default_rng(0), 0
    for image in list(images(path)):
        for _ in range(8):
            content = bytearray(image.content)
            content[int(draw.integers(len(content)))] ^= 1 << int(draw.integers(8))
            path.write_bytes(content)
            if is_refused(path):
                refused += 1
            else:
                assert image.sure <= set(rows_of(path)) <= image.sure | image.unsure
    assert refused > 10


def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    """A flipped bit anywhere in the file is refused, or all rows still exist."""
    path = written(tmp_path / "rows.bin")
    whole, draw, refused = path.read_bytes(), np.random.default_rng(0), 0
    for where in [place for place, byte in enumerate(whole) if byte] + [80, 4200, 8300, 12289]:
        content = bytearray(whole)
        content[where] ^= 1 << int(draw.integers(8))
        path.write_bytes(content)
        if is_refused(path):
            refused += 1
        else:
            assert rows_of(path) == expected(HERE)
    assert refused > 200


def test_zeroed_pages_are_refused_or_harmless(tmp_path: Path) -> None:
    """A row zeroed by a disk is not mistaken for a free slot."""
    path = written(tmp_path / "rows.bin")
    whole = path.read_bytes()
    for size in (94, 512):
        for first in range(0, len(whole), size):
            path.write_bytes(
                whole[:first] + bytes(len(whole[first : first + size])) + whole[first + size :]
            )
            if not is_refused(path):
                assert rows_of(path) == expected(HERE)


def test_a_truncated_or_extended_file_is_refused(tmp_path: Path) -> None:
    """This includes an empty file: a file is created completely or not at all."""
    path = written(tmp_path / "rows.bin")
    whole = path.read_bytes()
    for size in (0, 1, 40, 72, 4096, 8191, 12288, len(whole) - 94, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert is_refused(path)
    for more in (b"\0", bytes(94), b"x" * 94):
        path.write_bytes(whole + more)
        assert is_refused(path)
    path.unlink()
    with pytest.raises(StoreFailed, match="is missing"):
        opened(path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    """Other features, schemas and ledgers, other programs' files and folders are refused."""
    path = tmp_path / "rows.bin"
    open_rows(path, FEATURES, SCHEMA, TIE).close()
    for features, schema in ((13, SCHEMA), (FEATURES, b"x" * 32)):
        with pytest.raises(InputError, match="rows"):
            open_rows(path, features, schema, TIE)
    with pytest.raises(StoreFailed, match="does not belong to the ledger"):
        opened(path, b"another ledger's")
    path.write_bytes(b"something else that is long enough to be taken for a head, or not" * 300)
    assert is_refused(path)
    with pytest.raises(StoreFailed):
        open_rows(tmp_path, FEATURES)


def test_a_file_of_another_format_is_refused_and_never_repaired(tmp_path: Path) -> None:
    """An older or newer file is refused by its format, and a repair leaves it unchanged."""
    path = tmp_path / "rows.bin"
    open_rows(path, FEATURES, SCHEMA, TIE).close()
    head = path.read_bytes()[: 16 + 4 + len(SCHEMA) + len(TIE)]
    older = head.replace(b"rows 2", b"rows 1")
    newer = head.replace(b"rows 2", b"rows 3")
    newer += zlib.crc32(newer).to_bytes(4, "little")
    for content, said in ((older, "format 1, of an older"), (newer, "format 3, of a newer")):
        path.write_bytes(content.ljust(20_000, b"\0"))
        before = path.read_bytes()
        with pytest.raises(InputError, match=said):
            opened(path)
        with pytest.raises(InputError, match=said):
            salvage(path, FEATURES, SCHEMA, TIE, overwrite=True)
        assert path.read_bytes() == before


def test_steps_are_counted_and_bounded(tmp_path: Path) -> None:
    """Each change of rows is a step, with at most as many rows as a mark can name."""
    path = tmp_path / "rows.bin"
    rows = opened(written(path))
    assert sum(map(len, rows.load())) == len(HERE)
    assert rows.steps == 3
    with pytest.raises(InputError, match="at most 1000 at once"):
        rows.add(table(STEP_RECORDS_MAX + 1))
    rows.add(table(STEP_RECORDS_MAX, seed=3))
    rows.close()
    assert len(rows_of(path)) == len(HERE) + STEP_RECORDS_MAX


@pytest.mark.parametrize("step", range(8))
def test_a_salvaged_file_has_all_sound_rows(tmp_path: Path, step: int) -> None:
    """Inspection changes nothing; the salvaged file opens without any damaged byte."""
    path = written(tmp_path / "rows.bin")
    whole, damaged = path.read_bytes(), bytearray(path.read_bytes())
    start = len(whole) - 6 * 94
    if step < 6:  # a place: rows 0, -, 7, 6, 4, 5
        damaged[start + 94 * step + 3] ^= 4
    elif step == 6:  # the head
        damaged[20] ^= 4
    else:
        del damaged[-100:]
    path.write_bytes(damaged)
    found = salvage(path, FEATURES, SCHEMA, TIE)
    assert path.read_bytes() == damaged
    assert salvage(path, FEATURES, SCHEMA, TIE, overwrite=True).ids == found.ids
    assert rows_of(path) == expected(found.ids)
    lost = {1: 0, 6: 0, 7: 2}.get(step, 1)
    assert len(found.ids) == len(HERE) - lost
    assert found.damaged == {1: 1}.get(step, lost)
    assert found.tied


def test_records_are_never_shown() -> None:
    """The text of a damaged file's content does not show the owners of rows."""
    rows = LabelledRecords(RECORDS.ids, RECORDS.features, RECORDS.labels)
    disk = Disk(b"")
    assert "patient" not in repr(rows) + repr(RowFile(disk, FEATURES, None))
