"""State of earlier versions goes on: nothing spent, answered or stored is lost or done twice.

The files of `earlier.tar.xz` were made by the code of the versions themselves, with the calls that
the tests repeat: those of format 2 by the last version of that format, and those of format 3
likewise. A process ended with `close`, or as by a kill, some within a step of the file of rows.
"""

import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.cli.invoking import done, invoke, refused
from tests.deployment.commands import deploy
from tests.deployment.trails import Keeper

import veilring
from veilring.data.table import Rows
from veilring.deployment.gate import USAGE
from veilring.deployment.surveys.terms import SurveyTerms, former_digest
from veilring.deployment.upgrading import SECTIONS, undo_state_upgrade, upgrade_state
from veilring.errors import AskedBefore, BudgetExhausted, InputError, StoreFailed
from veilring.nodes.party import Parties
from veilring.privacy.budgets import UNITS, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import LEDGER, open_ledger, read_totals
from veilring.privacy.statefile import Section, open_state_file
from veilring.privacy.upgrade import Upgrade
from veilring.protocols.ldp.messages import Accepted, ReportVerdict
from veilring.protocols.ldp.outbox import Outbox
from veilring.protocols.ldp.store.base import Senders
from veilring.protocols.ldp.store.sqlite import SqliteStore
from veilring.protocols.prediction.client import make_request
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.state import ChangeRefused, ServerState, open_state
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.memory import QUERIES, SearchedRows, keys_of
from veilring.protocols.requests import RequestVerdict

BUDGETS: Final = Budgets("epsilon", 2000.5, 1500.0, {"bob": 0.5}, 0.5)
CHARGED: Final = [("ann", 0.25), ("ann", 1200.0), ("bob", 0.125)]
RULES: Final = IndKNN(queries=2000, epsilon=5.0, sigma2=4.0).bind(Facts(1, 3, 3))
TERMS: Final = SurveyTerms.of(
    protocol={"name": "ldp-bayes", "kind": "frequency", "epsilon": 1.0},
    features=[{"name": "age", "low": 0.0, "high": 100.0}],
)
ROWS: Final = "format-2/server-killed/state/rows.bin"


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files of earlier versions."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(Path(__file__).with_name("data") / "earlier.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202  (our own file)
    return folder


@pytest.fixture
def earlier(unpacked: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder."""
    return shutil.copytree(unpacked, tmp_path / "earlier")


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files with content; the log's index is rebuilt at each start."""
    files = (each for each in folder.rglob("*") if each.is_file())
    found = {str(each): each.read_bytes() for each in files if not each.name.endswith("-shm")}
    return {name: content for name, content in found.items() if content}


def upgraded(target: Path) -> tuple[Path, Upgrade]:
    """Convert state, and return its file and what was changed."""
    place, upgrade = upgrade_state(target)
    return Path(place), upgrade


@pytest.mark.parametrize(
    "name", ["format-2/ledger-closed", "format-2/ledger-killed", "format-3/ledger-killed"]
)
def test_a_ledger_goes_on(earlier: Path, name: str) -> None:
    """All budgets and charges are as before, equal requests are free, and no record is refilled."""
    path, upgrade = upgraded(earlier / name / "ledger")
    assert upgrade.rows["answers"] == 4
    assert "1 stored labels or releases of this member stay" in upgrade.notes[0]
    with open_ledger(path, BUDGETS) as ledger:
        spent = {each.name: (each.spent, each.answers) for each in ledger.totals().analysts}
        assert spent == {"ann": (_about(1200.25), 2), "bob": (0.125, 1)}
        for number, (who, amount) in enumerate(CHARGED):
            again = Charge(who, str(number), b"request %d" % number, b"another", amount)
            assert ledger.charge(again) == b"answer %d" % number
        assert ledger.find("party-0", "00", b"labels") == b"stored labels"
        assert ledger.totals().spent == _about(1200.375)
        with pytest.raises(BudgetExhausted):
            ledger.check("ann", 299.76)
        ledger.check("ann", 299.75)
        assert (ledger.records.remaining() / UNITS).tolist() == [0.3125, 0.3125, 0.0]
        slots = ledger.records.add(["row 1", "row 2", "row 3"])
        assert slots.tolist() == [0, 1, 2]
        paid = RecordCharge.of(slots[:1], 0.3125)
        ledger.charge(Charge("bob", "last", b"last", b"", 0.375, paid))


def _about(amount: float) -> Any:
    """Return an amount that format 2 counted to 15 digits."""
    return pytest.approx(amount, abs=2e-12)


def records(number: int) -> LabelledRecords:
    """Return the records of a step, which are always the same."""
    rng = np.random.default_rng(number)
    features = rng.integers(1, 1000, size=(5, 3)).astype(np.float32)
    ids = [f"record-{number}-{place}" for place in range(5)]
    return LabelledRecords.of(ids, features, rng.integers(3, size=5))


@pytest.mark.parametrize(
    ("name", "added", "forgotten"),
    [
        ("format-2/server-closed", 2, 1),
        ("format-2/server-killed", 2, 1),
        ("format-2/server-adding", 3, 1),
        ("format-2/server-forgetting", 2, 3),
        ("format-3/server-killed", 2, 1),
    ],
)
def test_a_prediction_server_goes_on(earlier: Path, name: str, added: int, forgotten: int) -> None:
    """Its folder becomes one file, in which each record has its row and what is left to spend."""
    path, _ = upgraded(earlier / name / "state")
    with open_state(RULES, path) as state:
        assert (len(state), state.answered) == (5 * added - forgotten, 4)
        queries = np.random.default_rng(7).integers(1, 1000, size=(4, 3)).astype(np.float32)
        answer = state.answer("ann", make_request(queries), np.random.default_rng(0))
        assert (answer.verdict, answer.labels.tolist()) == (RequestVerdict.ANSWERED, [0, 2, 2, 2])
        assert state.answered == 4
        kept = records(1).take([2, 3, 4])
        assert state.add(kept) == 0
        with pytest.raises(ChangeRefused, match="another row"):
            state.add(LabelledRecords(kept.ids, kept.features[::-1], kept.labels))
        assert _spent(state, "record-0-2") > 0
        assert state.add(records(0)) == 1
        assert _spent(state, "record-0-2") > 0


def _spent(state: ServerState, name: str) -> int:
    """Return the units that a record has spent, present or forgotten."""
    ledger = state._ledger  # noqa: SLF001  (what no message shows)
    (slot,) = ledger.records.add([f"0::{name}"])
    return int(ledger.records._spent[slot])  # noqa: SLF001  (likewise)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (None, "is missing"),
        (slice(0, 1), "is damaged in its header"),
        (slice(52, 53), "is damaged in its header"),
        (slice(4096, 12288), "is damaged in both of its marks"),
        (slice(12300, 12301), "is damaged in a row"),
        (slice(12288, None), "is cut off"),
        (0, "is damaged in its header"),
        (4096, "is damaged in both of its marks"),
        (4100, "is damaged in both of its marks"),
    ],
)
def test_damaged_rows_are_refused(earlier: Path, damage: slice | int | None, said: str) -> None:
    """As before, they are never taken for fewer records, and the folder stays as it is."""
    rows = earlier / ROWS
    content = bytearray(rows.read_bytes())
    if damage is None:
        rows.unlink()
    elif isinstance(damage, int):
        rows.write_bytes(content[:damage])
    elif damage.stop is None:
        rows.write_bytes(content[:-76])
    else:
        content[damage] = bytes(0xFF ^ each for each in content[damage])
        rows.write_bytes(content)
    before = contents(earlier)
    with pytest.raises(StoreFailed, match=f"rows.bin {said}.* Nothing was converted"):
        upgrade_state(rows.parent)
    assert contents(earlier) == before


def test_rows_of_another_age_are_refused(earlier: Path) -> None:
    """Rows that were restored without their ledger would bring forgotten records back."""
    older = earlier / "format-2/server-forgetting/state"
    shutil.copyfile(earlier / ROWS, older / "rows.bin")
    with pytest.raises(StoreFailed, match="belongs to another ledger"):
        upgrade_state(older)


def test_a_collection_goes_on(earlier: Path) -> None:
    """Each report stays counted once at the collector, and settled or waiting at its client."""
    path, upgrade = upgraded(earlier / "format-2/store/reports")
    outbox, _ = upgraded(earlier / "format-2/outbox/outbox")
    assert TERMS.task.digest.hex() in upgrade.notes[0]
    with closing(SqliteStore(path, TERMS.task)) as store, Outbox(outbox) as own:
        assert store.tally().clients == store.recount().clients == 5
        assert store.members() == {"ada": 3, "bob": 2}
        own.rename(former_digest(TERMS.task), TERMS.task)
        assert own.count(TERMS.task) == {None: 3, ReportVerdict.COUNTED: 5}
        names = [f"client-{number}" for number in range(8)]
        assert own.reported(TERMS.task, names).all()
        assert not own.can_afford(names, 1.0, 1.0).any()
        own.recognise("name", names, {"age": np.array(list("01234567"))})
        own.wait_again(TERMS.task, every=True)
        (batch,) = own.waiting(TERMS.task)
        group = Accepted(0, batch.ids, batch.reports, np.arange(8))
        (verdicts,) = store.keep([group], Senders(("ada",), np.zeros(8, np.int64)))
        assert verdicts.tolist() == [ReportVerdict.KNOWN] * 5 + [ReportVerdict.COUNTED] * 3


def test_a_memory_of_queries_goes_on(earlier: Path) -> None:
    """Queries are refused among other parties, and those with a failed check among any."""
    path, _ = upgraded(earlier / "format-3/memory/asked")
    with closing(open_state_file(path, QUERIES)) as file:
        memory = SearchedRows(Rows(np.zeros((0, 2)), np.zeros(0, np.int64)), file)
        asked, failed = np.array([[0.25, 0.5], [0.5, 0.75]]), np.array([[1.0, 1.0]])
        memory.refuse(keys_of(asked), Parties(("ada", "bob", "eve")))
        for queries in (asked, failed):
            with pytest.raises(AskedBefore):
                memory.refuse(keys_of(queries), Parties(("ada", "bob", "dan")))
        with pytest.raises(AskedBefore):
            memory.refuse(keys_of(failed), Parties(("ada", "bob", "eve")))


def test_a_converted_file_has_one_way_back(earlier: Path) -> None:
    """Going back is refused once something was spent, but not after a mere start.

    A start is entered in the trail, and so is what would be forgotten.
    """
    file = earlier / "format-2/ledger-killed/ledger"
    path, upgrade = upgraded(file)
    open_ledger(path, BUDGETS).close()
    keeper = Keeper()
    with keeper.open(path):
        pass
    assert undo_state_upgrade(path) == (path, upgrade.kept)
    upgrade_state(path)
    with keeper.open(path) as (trail, _):
        trail.append("answered", {"client": "ann"})
    with pytest.raises(InputError, match="has changed since its upgrade, in trail"):
        undo_state_upgrade(path)
    with open_ledger(path, BUDGETS) as ledger:
        ledger.charge(Charge("bob", "new", b"", b"", 0.125))
    with pytest.raises(
        InputError, match="has changed since its upgrade, in analysts, answers, trail"
    ):
        undo_state_upgrade(path)
    assert read_totals(path).spent == _about(1200.5)


def _change_a_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE analysts SET spent = 0")
        connection.commit()


def _cut_the_log(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def _damage_the_witness(path: Path) -> None:
    lock = path.with_name(f"{path.name}.lock")
    lock.write_bytes(lock.read_bytes()[:-5] + b"other")


def _leave_the_rest(path: Path) -> None:
    for end in ("-wal", ".lock"):
        path.with_name(f"{path.name}{end}").unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_change_a_row, "is damaged .its rows are not those that were written"),
        (_cut_the_log, "its last 1 transactions are missing"),
        (_damage_the_witness, "nothing shows whether"),
        (_leave_the_rest, "is not complete without its log"),
    ],
)
def test_an_earlier_file_has_its_own_checks(
    earlier: Path, damage: Callable[[Path], None], said: str
) -> None:
    """It is refused if its rows, its log or its witness are not those that were written."""
    path = earlier / "format-2/ledger-killed/ledger"
    damage(path)
    before = contents(earlier)
    with pytest.raises(StoreFailed, match=said):
        upgrade_state(path)
    after = contents(earlier)
    after.pop(f"{path}.lock")  # an empty one is begun
    assert after.items() <= before.items()


def test_an_unknown_format_is_refused(earlier: Path) -> None:
    """Format 1 had no seal, and has no conversion."""
    path = earlier / "format-2/ledger-closed/ledger"
    content = path.read_bytes()
    path.write_bytes(content[:63] + b"\1" + content[64:])
    said = refused("state", "upgrade", path)
    assert "ledger of format 1, which cannot be converted. Go on with the version" in said


def test_the_command_takes_a_configuration(earlier: Path, tmp_path: Path) -> None:
    """Serving, checking and asking name the command, which finds the state of a party."""
    folder = deploy(tmp_path / "trial", "owner")
    for each in folder.glob("owner.db*"):
        each.unlink()
    for each in (earlier / "format-2/ledger-killed").iterdir():
        shutil.copyfile(each, folder / each.name.replace("ledger", "owner.db"))
    said = f"Convert it with `veilring state upgrade {folder / 'owner.db'}`"
    assert said in refused("serve", folder / "owner.toml")
    assert said in refused("ledger", "show", folder / "owner.db")
    code, out, _ = invoke("check", folder / "owner.toml")
    assert code
    assert said in " ".join(out.split())
    for options in (["--dry-run"], []):
        out = done("state", "upgrade", folder / "owner.toml", *options)
        assert "ledger of format 2 → state file of format 4" in out
        assert "answers 4" in out
        assert ("kept as owner.db.format-2" in out) == (not options)
    assert "nothing was changed" in done("state", "upgrade", folder / "owner.toml")
    assert read_totals(folder / "owner.db").spent == _about(1200.375)
    assert "put owner.db.format-2 back" in done("state", "upgrade", folder / "owner.toml", "--undo")
    assert said in refused("ledger", "show", folder / "owner.db")
    assert "keeps no state" in refused("state", "upgrade", folder / "analyst-0.toml")
    both = "--dry-run", "--undo"
    assert "give either" in refused("state", "upgrade", folder / "owner.toml", *both)


def test_a_check_finds_sections_that_serving_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of usage of an earlier version is found before the server is stopped."""
    folder = deploy(tmp_path / "trial", "owner")
    with closing(open_state_file(folder / "owner.db", LEDGER)) as file:
        file.add(USAGE)
    for section in (USAGE, replace(USAGE, version=2)):
        monkeypatch.setattr("veilring.deployment.start.USAGE", section)
        code, out, _ = invoke("check", folder / "owner.toml")
        assert bool(code) == ("Convert it with `veilring state upgrade" in " ".join(out.split()))
    assert code


def test_every_section_is_upgraded() -> None:
    """No module has a section that the command does not know."""
    package = Path(veilring.__file__).parent
    paths = [path for path in package.rglob("*.py") if ": Final = Section(" in path.read_text()]
    names = (".".join(path.relative_to(package.parent).with_suffix("").parts) for path in paths)
    values = (value for name in names for value in vars(import_module(name)).values())
    assert {value for value in values if isinstance(value, Section)} == set(SECTIONS)
