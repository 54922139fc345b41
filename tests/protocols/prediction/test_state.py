"""The one file of a server: forgotten records vanish from it, and damage is refused or harmless."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from tests.protocols.prediction.serving import (
    FEATURES,
    STATE,
    everything,
    labels,
    make_rules,
    opened,
    requests,
    table,
)

from veilring.errors import InputError, StoreFailed, VeilringError
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.records import ID_BYTES_MAX, LabelledRecords
from veilring.protocols.prediction.state import ChangeRefused, open_state

RULES = make_rules()
GONE = tuple(range(0, 100, 2))
PLACE_BYTES = ID_BYTES_MAX + 2 + 2 * FEATURES  # an id, a label and features


def gone(records: LabelledRecords) -> list[str]:
    """Return the records to forget."""
    return [records.ids[place] for place in GONE]


def kept(records: LabelledRecords) -> LabelledRecords:
    """Return the other records."""
    return records.take([place for place in range(len(records)) if place not in GONE])


def live(folder: Path) -> int:
    """Return the number of active accounts of records in a ledger."""
    ledger = sqlite3.connect(folder / STATE)
    (count,) = ledger.execute("SELECT count(*) FROM records WHERE live").fetchone()
    ledger.close()
    return int(count)


def places(folder: Path) -> list[bytes]:
    """Return the contents of all places of a ledger."""
    ledger = sqlite3.connect(folder / STATE)
    return [each for (each,) in ledger.execute("SELECT content FROM places ORDER BY number")]


def journal(folder: Path) -> list[bytes]:
    """Return the charges to records in each transaction of a ledger."""
    ledger = sqlite3.connect(folder / STATE)
    entries = [units for (units,) in ledger.execute("SELECT units FROM journal")]
    ledger.close()
    return entries


def traces(folder: Path, records: LabelledRecords) -> list[str]:
    """Return the records with an id or row in any file of a server, in any encoding."""
    found, content = [], everything(folder)
    for name, row in zip(records.ids, records.features, strict=True):
        forms = (
            name.encode(),
            row.astype("<i2").tobytes(),
            row.astype("<f4").tobytes(),
            row.astype("<f8").tobytes(),
        )
        if any(form in content for form in forms):
            found.append(name)
    return found


def test_a_server_answers_as_if_it_never_had_forgotten_records(tmp_path: Path) -> None:
    """For one seed, labels equal those of a server without them, before and after a restart."""
    records, asked = table(100), requests(10, 5)
    with opened(RULES, None, kept(records)) as state:
        expected = labels(state, asked)
    with opened(RULES, None, records) as state:
        assert labels(state, asked) != expected
    with opened(RULES, tmp_path, records) as state:
        assert state.forget(gone(records)) == len(GONE)
        assert len(state) == 50
        found = labels(state, asked[:5])
    with opened(RULES, tmp_path) as state:
        for number, request in enumerate(asked[5:], 5):
            answer = state.answer("ann", request, np.random.default_rng([0, number]))
            found += answer.labels.tolist()
    assert found == expected


def test_no_byte_of_a_forgotten_record_is_in_any_file(tmp_path: Path) -> None:
    """Neither id nor row is in a used or free slot or a log, during the run or later."""
    records = table(100)
    with opened(RULES, tmp_path, records) as state:
        labels(state, requests(4, 5))
        assert traces(tmp_path, records) == list(records.ids)  # so the search does find
        state.forget(gone(records))
        assert traces(tmp_path, records) == list(kept(records).ids)
        labels(state, requests(4, 5, seed=9))
    assert traces(tmp_path, records) == list(kept(records).ids)
    with opened(RULES, tmp_path) as state:
        state.forget(kept(records).ids)
    assert traces(tmp_path, records) == []


def test_no_file_shows_the_answers_that_a_forgotten_record_paid_for(tmp_path: Path) -> None:
    """Once a record is forgotten, no file contains the charges to records of any transaction."""
    records = table(100)
    with opened(RULES, tmp_path, records) as state:
        labels(state, requests(4, 5))
        entries = journal(tmp_path)
        assert len(entries) == 4
        assert all(entry in everything(tmp_path) for entry in entries)
        state.forget(gone(records))
        assert journal(tmp_path) == []
        assert not any(entry in everything(tmp_path) for entry in entries)


def test_labels_of_forgotten_records_vanish_with_their_rows(tmp_path: Path) -> None:
    """The slot of a forgotten record contains only zeros."""
    records = table(100)
    with opened(RULES, tmp_path, records) as state:
        before = places(tmp_path)
        state.forget(gone(records))
        after = places(tmp_path)
    for place in range(100):
        assert after[place] == (bytes(PLACE_BYTES) if place in GONE else before[place])


def test_memory_contains_no_forgotten_row() -> None:
    """The predictor's buffers and the server's tables have neither row nor id."""
    records = table(100)
    with opened(RULES, None, records) as state:
        labels(state, requests(2, 5))
        state.forget(gone(records))
        rows = state._predictor._rows  # noqa: SLF001  (the test is that it is empty)
        held = b"".join(column.tobytes() for column in rows._buffers)  # noqa: SLF001  (as above)
        for place in GONE:
            assert records.directions[place].tobytes() not in held
        assert not set(gone(records)) & (set(state._numbers) | set(state._rows.ids))  # noqa: SLF001  (as above)


@pytest.mark.parametrize("clients", ["together", "apart"])
def test_a_returning_record_has_its_remaining_budget(tmp_path: Path, clients: str) -> None:
    """Forgetting and adding a record, even with another row or after a restart, refills nothing."""
    rules, records = make_rules(clients=clients, queries=200), table(100)
    with opened(rules, tmp_path / "one", records) as state:
        stayed = labels(state, requests(20, 5)) + labels(state, requests(10, 5, seed=9), seed=1)
    with opened(rules, tmp_path / "other", records) as state:
        before = labels(state, requests(20, 5))
        state.forget(records.ids)
        assert len(state) == 0
        assert live(tmp_path / "other") == 0
    with opened(rules, tmp_path / "other") as state:
        assert state.add(records) == 100
        found = before + labels(state, requests(10, 5, seed=9), seed=1)
    assert found == stayed
    with opened(rules, None, records) as state:
        assert labels(state, requests(10, 5, seed=9), seed=1) != stayed[100:]


def test_forgetting_again_and_unknown_records(tmp_path: Path) -> None:
    """Forgetting a record again changes nothing; an unknown id is refused by its position."""
    records = table(20)
    with opened(RULES, tmp_path, records) as state:
        assert state.forget(records.ids[:2]) == 2
        assert state.forget(records.ids[:3]) == 1
        with pytest.raises(ChangeRefused) as refused:
            state.forget([records.ids[5], records.ids[0], "never seen", "nor this"])
        assert refused.value.place == 2
        with pytest.raises(InputError, match=r"\bids?\b"):
            state.forget([records.ids[5], records.ids[5]])
        assert len(state) == 17
        assert labels(state, requests(1, 5))


def test_adding_again_and_with_another_row(tmp_path: Path) -> None:
    """An equal row is skipped; a different one is refused by its position, with all others."""
    records = table(20)
    with opened(RULES, tmp_path, records.take(range(10))) as state:
        assert state.add(records) == 10
        assert state.add(records) == 0
        more, other = table(3, seed=7), table(20, seed=8)
        swapped = LabelledRecords(
            (*more.ids, records.ids[4]),
            np.vstack([more.features, other.features[:1]]),
            np.append(more.labels, other.labels[:1]),
        )
        with pytest.raises(ChangeRefused) as refused:
            state.add(swapped)
        assert refused.value.place == 3
        assert len(state) == 20


def test_invalid_records_are_refused() -> None:
    """Invalid ids, too high classes, other features and rows that are not quantised are refused."""
    records = table(3)
    for ids in (
        ("", "b", "c"),
        ("a" * (ID_BYTES_MAX + 1), "b", "c"),
        ("a", "a", "b"),
        ("a\n", "b", "c"),
    ):
        with pytest.raises(InputError, match=r"\bids?\b"):
            LabelledRecords(ids, records.features, records.labels)
    with pytest.raises(InputError, match="features"):
        LabelledRecords(records.ids, records.features * 0, records.labels)
    with pytest.raises(InputError, match="labels"):
        LabelledRecords(records.ids, records.features, records.labels[:2])
    with opened(RULES, None) as state:
        with pytest.raises(InputError, match="labels"):
            state.add(LabelledRecords(records.ids, records.features, records.labels + np.uint16(3)))
        with pytest.raises(InputError, match="features"):
            state.add(LabelledRecords(records.ids, records.features[:, :5], records.labels))
        assert len(state) == 0
    assert "patient" not in repr(records)


def test_all_budgets_together_may_exceed_64_bits() -> None:
    """For budgets of any size, any number of records is accepted and answers queries."""
    rules = make_rules(epsilon=100_000.0)
    with opened(rules, None) as state:
        records = table(200)
        assert len(records) * rules.budget * UNITS > 2**63
        assert state.add(records) == 200
        assert len(labels(state, requests(4, 5))) == 20


def test_slots_are_reused(tmp_path: Path) -> None:
    """Additions after forgetting do not enlarge the file."""
    records, other = table(50), table(30, seed=4)
    with opened(RULES, tmp_path, records) as state:
        number = len(places(tmp_path))
        state.forget(records.ids[10:40])
        state.add(other)
        assert len(places(tmp_path)) == number
        expected = labels(state, requests(4, 5))
    with opened(
        RULES,
        None,
        LabelledRecords(
            (*records.ids[:10], *records.ids[40:], *other.ids),
            np.vstack([records.features[:10], records.features[40:], other.features]),
            np.concatenate([records.labels[:10], records.labels[40:], other.labels]),
        ),
    ) as state:
        assert labels(state, requests(4, 5)) == expected


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
