"""The one file of a server: forgotten records vanish from it, and budgets are never refilled."""

import pickle
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.prediction.serving import (
    FEATURES,
    STATE,
    labels,
    make_rules,
    opened,
    requests,
    table,
)

from veilring.errors import InputError
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.records import ID_BYTES_MAX, LabelledRecords
from veilring.protocols.prediction.state import ChangeRefused, RowTable, open_state

RULES = make_rules()
RECORDS = table(100)
GONE, KEPT = RECORDS.ids[::2], RECORDS.take(range(1, 100, 2))
"""The records that are forgotten, and the others."""
THREE = table(3)
PLACE_BYTES = ID_BYTES_MAX + 2 + 2 * FEATURES  # an id, a label and features


def joined(one: LabelledRecords, other: LabelledRecords) -> LabelledRecords:
    """Return the records of both."""
    features, classes = np.vstack([one.features, other.features]), [*one.labels, *other.labels]
    return LabelledRecords((*one.ids, *other.ids), features, np.array(classes))


def stored(folder: Path, query: str) -> list[Any]:
    """Return a column that a ledger stores."""
    with closing(sqlite3.connect(folder / STATE)) as ledger:
        return [each for (each,) in ledger.execute(query)]


PLACES = "SELECT content FROM places ORDER BY number"
CHARGES = "SELECT units FROM journal"
"""The charges to records in each transaction."""


def content_of(folder: Path) -> bytes:
    """Return the content of all files of a server."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def traces(folder: Path, records: LabelledRecords) -> list[str]:
    """Return the records with an id or row in any file of a server, in any encoding."""
    found, content = [], content_of(folder)
    for name, row in zip(records.ids, records.features, strict=True):
        forms = (name.encode(), *(row.astype(kind).tobytes() for kind in ("<i2", "<f4", "<f8")))
        if any(form in content for form in forms):
            found.append(name)
    return found


def test_a_server_answers_as_if_it_never_had_forgotten_records(tmp_path: Path) -> None:
    """For one seed, labels equal those of a server without them, before and after a restart."""
    asked = requests(10, 5)
    with opened(RULES, None, KEPT) as state:
        expected = labels(state, asked)
    with opened(RULES, None, RECORDS) as state:
        assert labels(state, asked) != expected
    with opened(RULES, tmp_path, RECORDS) as state:
        assert state.forget(GONE) == len(GONE)
        assert len(state) == 50
        found = labels(state, asked[:5])
    with opened(RULES, tmp_path) as state:
        found += labels(state, asked[5:], first=5)
    assert found == expected


def test_no_byte_of_a_forgotten_record_is_left(tmp_path: Path) -> None:
    """Neither id, row and label nor what it paid for is in a slot, a log or memory, now or later.

    Once a record is forgotten, no file contains the charges to records of any transaction.
    """
    with opened(RULES, tmp_path, RECORDS) as state:
        labels(state, requests(4, 5))
        before, charges = stored(tmp_path, PLACES), stored(tmp_path, CHARGES)
        assert traces(tmp_path, RECORDS) == list(RECORDS.ids)  # so the search does find
        assert len(charges) == 4
        assert all(charge in content_of(tmp_path) for charge in charges)
        state.forget(GONE)
        assert traces(tmp_path, RECORDS) == list(KEPT.ids)
        assert stored(tmp_path, CHARGES) == []
        assert not any(charge in content_of(tmp_path) for charge in charges)
        for place, content in enumerate(stored(tmp_path, PLACES)):
            assert content == (before[place] if place % 2 else bytes(PLACE_BYTES))
        memory = (state._predictor, state._numbers, list(state._rows.ids))  # noqa: SLF001  (the test is what they hold)
        held = pickle.dumps(memory)
        for place, name in enumerate(RECORDS.ids):
            assert (name.encode() in held) == (name not in GONE)
            assert (RECORDS.directions[place].tobytes() in held) == (name not in GONE)
        labels(state, requests(4, 5, seed=9))
    assert traces(tmp_path, RECORDS) == list(KEPT.ids)
    with opened(RULES, tmp_path) as state:
        state.forget(KEPT.ids)
    assert traces(tmp_path, RECORDS) == []


@pytest.mark.parametrize("clients", ["together", "apart"])
def test_a_returning_record_has_its_remaining_budget(tmp_path: Path, clients: str) -> None:
    """Forgetting and adding a record, even after a restart, refills nothing."""
    rules, records = make_rules(clients=clients, queries=200), table(100)
    with opened(rules, tmp_path / "one", records) as state:
        stayed = labels(state, requests(20, 5)) + labels(state, requests(10, 5, seed=9), seed=1)
    with opened(rules, tmp_path / "other", records) as state:
        before = labels(state, requests(20, 5))
        state.forget(records.ids)
        assert len(state) == 0
        assert stored(tmp_path / "other", "SELECT count(*) FROM records WHERE live") == [0]
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
    with opened(RULES, tmp_path, records.take(range(2))) as state:
        assert state.add(records) == 18
        assert state.add(records) == 0
        swapped = replace(table(20, seed=8).take([0]), ids=records.ids[4:5])
        with pytest.raises(ChangeRefused) as refused:
            state.add(joined(table(3, seed=7), swapped))
        assert refused.value.place == 3
        assert len(state) == 20


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"ids": ("", "b", "c")}, r"\bids?\b"),
        ({"ids": ("a" * (ID_BYTES_MAX + 1), "b", "c")}, r"\bids?\b"),
        ({"ids": ("a", "a", "b")}, r"\bids?\b"),
        ({"ids": ("a\n", "b", "c")}, r"\bids?\b"),
        ({"features": 0 * THREE.features}, "features"),
        ({"features": THREE.features[:, :5]}, "features"),
        ({"labels": THREE.labels[:2]}, "labels"),
        ({"labels": THREE.labels + np.uint16(3)}, "labels"),
    ],
)
def test_invalid_records_are_refused(changed: dict[str, Any], field: str) -> None:
    """Invalid ids, too high classes, other features and rows that are not quantised are refused."""
    with opened(RULES, None) as state:
        with pytest.raises(InputError, match=field):
            state.add(replace(THREE, **changed))
        assert len(state) == 0
    assert "patient" not in repr(THREE)


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
        number = len(stored(tmp_path, PLACES))
        state.forget(records.ids[10:40])
        state.add(other)
        assert len(stored(tmp_path, PLACES)) == number
        expected = labels(state, requests(4, 5))
    with opened(RULES, None, joined(records.take([*range(10), *range(40, 50)]), other)) as state:
        assert labels(state, requests(4, 5)) == expected


def test_the_folder_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """A server whose state was a folder is not started with an empty file."""
    for new in (False, True):
        with pytest.raises(InputError, match="is a folder, and the ledger is one file"):
            open_state(RULES, tmp_path, new=new)
    assert not list(tmp_path.iterdir())


def test_a_crash_between_budgets_and_rows_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that have a budget but no row are added again, and get their row."""

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    records = table(20)
    with opened(RULES, tmp_path, records.take(range(10))) as state, monkeypatch.context() as broken:
        broken.setattr(RowTable, "add", crash)
        with pytest.raises(KeyboardInterrupt):
            state.add(records)
    assert stored(tmp_path, "SELECT count(*) FROM records") == [20]
    with opened(RULES, tmp_path) as state:
        assert len(state) == 10
        assert state.add(records) == 10
