"""`veilring state` and `veilring ledger`: state is created once, copied, and summed up."""

import json
import shutil
import signal
from operator import attrgetter
from pathlib import Path
from typing import Final

import pytest
from tests.cli.invoking import done, refused
from tests.deployment.commands import deploy

from veilring.errors import StoreFailed
from veilring.privacy.budgets import Budgets, Charge, RecordCharge
from veilring.privacy.ledger import LEDGER, Ledger, open_ledger, read_totals
from veilring.privacy.statefile import Section, open_state_file
from veilring.protocols.ldp.outbox import OUTBOX
from veilring.protocols.ldp.store.sqlite import REPORTS
from veilring.protocols.ranksearch.memory import QUERIES

STATES: Final = [
    ("release", "party-1", "serve"),
    ("votes", "party-1", "serve"),
    ("owner", "owner", "serve"),
    ("prediction", "server", "serve"),
    ("survey", "collector", "serve"),
    ("survey", "survey-client-0", "submit survey-client-0.csv"),
    ("places", "client", "ask --near 37.75,-122.35 --epsilon 4"),
]
"""A party of each deployment that keeps state, and its command."""
BUDGETS: Final = Budgets(total=2.0, analysts={"bob": 0.5}, record=0.123)


@pytest.mark.parametrize(("system", "party", "command"), STATES)
def test_a_party_without_its_state_does_not_start(
    system: str, party: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with exit code 2, the place, the cause and the remedy, and Ctrl-C works as before.

    Reports of a lost outbox would be made again, and their clients would pay twice.
    """
    monkeypatch.chdir(deploy(tmp_path / "trial", system))
    for path in Path().glob(f"{party}.db*"):
        path.unlink()
    before = sorted(Path().iterdir())
    word, *options = command.split()
    said = refused(word, f"{party}.toml", *options)
    assert f"at {Path(party).absolute()}.db" in said
    assert "its disk may not be mounted" in said
    assert "create it with `veilring state new CONFIG`" in said
    assert ("clients report again with new noise" in said) == (word == "submit")
    assert sorted(Path().iterdir()) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "created the state" in done("state", "new", f"{party}.toml")
    assert any(Path().glob(f"{party}.db*"))


def test_state_is_never_created_twice(tmp_path: Path) -> None:
    """A second `state new` is refused, and so is one whose lock file shows that state was lost.

    Roles that keep nothing, and members that spend no ε, need no state.
    """
    folder = deploy(tmp_path / "trial", "owner")
    words = ("state", "new", folder / "owner.toml")
    assert "there is a ledger at" in refused(*words)
    (folder / "owner.db").unlink()
    assert "missing or empty, although owner.db.lock" in refused(*words)
    said = refused("state", "new", folder / "analyst-0.toml")
    assert "client keeps no state" in said
    assert not list(folder.glob("analyst-0.db*"))


@pytest.mark.parametrize("kind", [LEDGER, REPORTS, OUTBOX, QUERIES], ids=attrgetter("name"))
def test_one_command_copies_each_kind_of_state(kind: Section, tmp_path: Path) -> None:
    """The copy is one file, complete without a log, that can be copied again."""
    path, copy = tmp_path / "kept.db", tmp_path / "copy.db"
    open_state_file(path, kind, new=True).close()
    out = done("state", "backup", path, copy)
    assert f"copied {path} to {copy}" in out.replace("\n", "")
    assert [each.name for each in tmp_path.glob("copy*")] == ["copy.db"]
    done("state", "backup", copy, tmp_path / "again.db")


@pytest.mark.parametrize("command", [("state", "backup"), ("ledger", "show")], ids=" ".join)
@pytest.mark.parametrize("content", [None, b"", b"veilring" * 1000])
def test_only_files_of_state_are_copied_or_shown(
    command: tuple[str, ...], content: bytes | None, tmp_path: Path
) -> None:
    """A file that is missing or of another program is refused, and nothing is left behind."""
    path = tmp_path / "kept.db"
    if content is not None:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    said = refused(*command, path, *([tmp_path / "copy.db"] if "backup" in command else []))
    kind = "a state file of" if "backup" in command else "a ledger of"
    assert ("an existing file" if content is None else f"{kind} veilring") in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a ledger in which two analysts have spent."""
    path = tmp_path / "queries.ledger"
    with open_ledger(path, BUDGETS, new=True) as ledger:
        slots = ledger.records.add(["someone"])
        for number, (analyst, amount) in enumerate([("ann", 0.25), ("ann", 0.5), ("bob", 0.125)]):
            records = RecordCharge.of(slots, 0.0123)
            ledger.charge(Charge(analyst, str(number), b"?", b"!", amount, records))
    return path


def charge(ledger: Ledger, number: int, amount: float) -> None:
    """Charge a third analyst."""
    ledger.charge(Charge("cid", str(number), b"?", b"!", amount))


def test_show_prints_totals(path: Path) -> None:
    """It shows answers, spending and remainder by analyst and in total.

    The JSON contains neither the records' budgets nor their spending.
    """
    lines = done("ledger", "show", path).splitlines()
    rows = [line.replace("│", " ").split() for line in lines]
    assert ["ann", "2", "0.75", "1.125"] in rows
    assert ["bob", "1", "0.125", "0.375"] in rows
    assert ["all", "3", "0.875", "1.125"] in rows
    assert json.loads(done("ledger", "show", path, "--json")) == {
        "unit": "epsilon",
        "spent": 0.875,
        "budget": 2.0,
        "answers": 3,
        "analysts": [
            {"name": "ann", "spent": 0.75, "budget": None, "answers": 2},
            {"name": "bob", "spent": 0.125, "budget": 0.5, "answers": 1},
        ],
        "delta": 0.0,
    }


def test_json_has_the_given_numbers_of_large_amounts(tmp_path: Path) -> None:
    """A budget and a charge are printed as they were given, also above 1,000."""
    path = tmp_path / "queries.ledger"
    with open_ledger(path, Budgets(total=100_000.0, analyst=1500.3), new=True) as ledger:
        charge(ledger, 0, 1500.3)
    shown = json.loads(done("ledger", "show", path, "--json"))
    assert (shown["budget"], shown["spent"]) == (100_000.0, 1500.3)
    assert shown["analysts"][0]["budget"] == shown["analysts"][0]["spent"] == 1500.3


def test_a_backup_is_complete_and_its_return_is_explicit(path: Path) -> None:
    """A backup contains every earlier charge, and opens in place only without the ledger's lock.

    Totals are shown, and backups made, while the ledger continues to be written.
    """
    copy = path.with_name("copy")
    with open_ledger(path, BUDGETS) as ledger:
        charge(ledger, 0, 0.25)
        done("state", "backup", path, copy)
        charge(ledger, 1, 0.5)
        assert json.loads(done("ledger", "show", path, "--json"))["spent"] == 1.625
    assert [each.name for each in path.parent.glob("copy*")] == ["copy"]
    assert read_totals(copy).spent == 1.125
    told = refused("state", "backup", path, copy)
    assert ("copy is " in told, "does not exist" in told) == (True, True)
    copy.replace(path)
    with pytest.raises(StoreFailed, match=r"last \d transactions are .* queries\.ledger\.lock"):
        open_ledger(path, BUDGETS)
    path.with_name("queries.ledger.lock").unlink()
    with open_ledger(path, BUDGETS) as ledger:
        assert ledger.totals().spent == 1.125


def test_a_backup_is_restored_after_a_kill(path: Path, tmp_path: Path) -> None:
    """With the killed process's four files moved away, the copy opens with its charges.

    The help names each of the files to move away first.
    """
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    with open_ledger(path, BUDGETS) as ledger:
        done("state", "backup", path, copy)
        charge(ledger, 0, 0.25)
        killed.mkdir()
        for each in tmp_path.glob("queries.ledger*"):
            shutil.copy(each, killed)
    left = {each.name.removeprefix("queries.ledger") for each in killed.iterdir()}
    assert left == {"", "-wal", "-shm", ".lock"}
    shown = done("state", "backup", "--help")
    assert all(f" {end}" in shown for end in left - {""})
    for each in tuple(killed.iterdir()):
        each.unlink()
    shutil.copy(copy, killed / "queries.ledger")
    with open_ledger(killed / "queries.ledger", BUDGETS) as ledger:
        assert ledger.totals().spent == 0.875
