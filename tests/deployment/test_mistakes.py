"""Mistakes of an operator: `veilring check` finds each before the start, and says what to do."""

import datetime as dt
import json
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.deployment.commands import Deployment
from tests.deployment.trails import Keeper

from veilring.deployment import start
from veilring.deployment.connecting import Server
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import open_ledger
from veilring.privacy.statefile import back_up_state_file
from veilring.transport.roster import Member, Roster, load_identity, make_identity, save_identity

ME: Final = "party-0"
NOW: Final = dt.datetime.now(dt.UTC)


class Party:
    """The files of a party of noisy votes, to make a mistake in."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch

    def __truediv__(self, name: str) -> Path:
        return self.folder / (f"{ME}{name}" if name.startswith(".") else name)


Plant = Callable[[Party], object]


def edit(name: str, old: str, new: str) -> Plant:
    """Replace the first match of a pattern in a file."""

    def plant(party: Party) -> None:
        text, changed = re.subn(old, new, (party / name).read_text(), count=1, flags=re.MULTILINE)
        assert changed
        (party / name).write_text(text)

    return plant


def write(name: str, text: str) -> Plant:
    """Replace a file."""
    return lambda party: (party / name).write_text(text)


def remove(name: str) -> Plant:
    """Lose a file."""
    return lambda party: (party / name).unlink()


def configure(line: str) -> Plant:
    """Add a line to the configuration."""
    return edit(".toml", r"\A", f"{line}\n")


def row(cells: str) -> Plant:
    """Replace the cells of the first row."""
    return edit(".csv", r"\n.*\n", f"\n{cells}\n")


def at(days: float) -> Plant:
    """Set the clock some days from now."""

    def plant(party: Party) -> None:
        clock = NOW + dt.timedelta(days)
        for each in (start.Start, Server):
            party.patch.setattr(each.__init__, "__defaults__", (lambda: clock,))

    return plant


def spend(party: Party) -> None:
    """Charge the ledger."""
    with open_ledger(party / ".db", Budgets(total=2.0), amend=True) as ledger:
        ledger.charge(Charge("client", "key", b"request", b"answer", 1.0))


def change_the_budget(party: Party) -> None:
    """Give clients another budget after a charge."""
    spend(party)
    configure("client = 0.5")(party)


def new_key(party: Party) -> None:
    """Make a new key without a new roster."""
    (party / ".key").unlink()
    save_identity(make_identity(ME), party.folder)


def end_the_key(party: Party) -> None:
    """Keep a key beyond its year."""
    (party / ".key").unlink()
    old = make_identity(ME, now=NOW - dt.timedelta(400))
    save_identity(old, party.folder)
    roster = Roster.load(party / "roster.toml")
    me = roster.member(ME)
    late = Member.of(old, me.host, me.port)
    others = tuple(each for each in roster.members if each.name != ME)
    Roster((late, *others)).save(party / "roster.toml")


def restore_an_older_copy(party: Party) -> None:
    """Put a backup in the place of the state, without the steps of a restore."""
    back_up_state_file(party / ".db", party / "copy.db")
    spend(party)
    shutil.copy(party / "copy.db", party / ".db")


def overwrite(party: Party) -> None:
    """Overwrite a part of the state, as a broken disk does."""
    content = bytearray((party / ".db").read_bytes())
    content[4096:] = b"\x55" * len(content[4096:])
    (party / ".db").write_bytes(content)


def change_a_charge(party: Party) -> None:
    """Change one byte of what was paid for."""
    spend(party)
    content = (party / ".db").read_bytes()
    assert b"answer" in content
    (party / ".db").write_bytes(content.replace(b"answer", b"answes"))


def fill_the_disk(party: Party) -> None:
    """Leave less space than a charge needs."""
    party.patch.setattr(start, "FREE_BYTES_MIN", 1 << 80)


def keep_a_trail(party: Party) -> None:
    """Name the key of another party, after this one has begun its trail."""
    keeper = Keeper(load_identity(party / ".key"), ME)
    with keeper.open(party / ".db"):
        pass
    edit(".toml", f'"{ME}.key"', '"party-1.key"')(party)


MISTAKES: Final[Mapping[str, tuple[Plant, str, str]]] = {
    "a key that does not exist": (configure("budgett = 3"), "configuration", "no such key"),
    "a key that is missing": (edit(".toml", "^rows.*$", ""), "configuration", "the key is missing"),
    "a value of another type": (
        *(configure('outside_max = "a"'), "configuration", "a number from 0 to 1"),
    ),
    "a negative time": (configure("session_seconds = -1"), "configuration", "session_seconds is"),
    "a file that is not TOML": (configure("= 3"), "configuration", "at line 1"),
    "a role of an older version": (
        *(edit(".toml", '"member"', '"curator"'), "configuration", "was renamed"),
    ),
    "no configuration": (remove(".toml"), "configuration", "there is no file"),
    "no key": (remove(".key"), "identity", "there is no file"),
    "a key that others can read": (
        *(lambda party: (party / ".key").chmod(0o644), "identity", "run `chmod 600` on it"),
    ),
    "a damaged key": (edit(".key", "M", "!"), "identity", "allowed: a key file"),
    "the key of another party": (
        *(lambda party: shutil.copy(party / "party-1.key", party / ".key"), "identity", "the name"),
    ),
    "the key and not the state of another party": (keep_a_trail, "state", "the trail of party-0"),
    "a new key, but the old roster": (new_key, "identity", "is not the roster's key"),
    "a key that has ended": (end_the_key, "identity", "make a new key"),
    "a clock before the certificate": (at(-3), "clock", "set the clock"),
    "a clock that was set back": (at(-0.5), "clock", "the clock was set back"),
    "a certificate that ends soon": (at(350), "certificates", "days left: 1"),
    "no roster": (remove("roster.toml"), "identity", "there is no file"),
    "a name for two members": (
        *(edit("roster.toml", '"party-1"', '"party-2"'), "identity", "is for 'party-1'"),
    ),
    "a port that does not exist": (
        *(edit("roster.toml", r"port = \d+", "port = 70000"), "identity", "1 to 65535"),
    ),
    "an address of two members": (
        *(
            edit("roster.toml", r"(port = \d+)([\s\S]*?)port = \d+", r"\1\2\1"),
            "identity",
            "[1].port is",
        ),
    ),
    "another fingerprint": (
        *(edit("roster.toml", r'print = "\w{4}', 'print = "0000'), "identity", "certificate is"),
    ),
    "a damaged certificate": (
        *(edit("roster.toml", r"MIIB\w", "AAAAA"), "identity", "a PEM certificate"),
    ),
    "no terms": (remove("terms.toml"), "configuration", "there is no file"),
    "a parameter that does not exist": (
        *(edit("terms.toml", r"^radius = .*", "radios = 3"), "terms", "did you mean radius?"),
    ),
    "a system that does not exist": (
        *(edit("terms.toml", "noisy-votes", "loud-votes"), "configuration", "noisy-votes?"),
    ),
    "a range that is reversed": (
        *(edit("terms.toml", r"high = [\d.]+", "high = -1"), "terms", "high is -1.0; allowed"),
    ),
    "a budget below one price": (
        *(edit("terms.toml", "budget = .*", "budget = 0.1"), "terms", "budget is 0.1; allowed"),
    ),
    "no budget": (edit("terms.toml", "budget = .*", ""), "terms", "set the total"),
    "a class that is listed twice": (
        *(edit("terms.toml", "versicolor", "virginica"), "terms", "without repeated names"),
    ),
    "a class that is not listed": (
        *(edit("terms.toml", '"setosa",', ""), "rows", "'setosa'; allowed: one of"),
    ),
    "no policy": (remove(".policy.toml"), "policy", "there is no file"),
    "a rule that does not exist": (
        *(write(".policy.toml", "query_hour = 7"), "policy", "did you mean queries_hour?"),
    ),
    "a client that is not in the roster": (
        *(edit(".policy.toml", '"client"', '"zoe"'), "policy", "there is no zoe; allowed: party-0"),
    ),
    "hours without minutes": (
        *(write(".policy.toml", 'hours = "7-18"'), "policy", "such as 07:00-18:30"),
    ),
    "a policy that refuses every k": (
        *(write(".policy.toml", "k = 50"), "policy", "refuses every request"),
    ),
    "a policy below the price": (
        *(write(".policy.toml", "epsilon = 0.01"), "policy", "refuses every request"),
    ),
    "no rows": (remove(".csv"), "rows", "an existing CSV file"),
    "a file without a header": (write(".csv", ""), "rows", "there is no header"),
    "a column that is missing": (
        *(edit(".csv", r"sepal length \(cm\)", "length"), "rows", "as names.sepal length"),
    ),
    "a word for a number": (row("many,3,1,0.2,setosa"), "rows", "line 2: this is not a finite"),
    "an empty cell": (row("5,,1,0.2,setosa"), "rows", "line 2 is empty; fill it in"),
    "a misspelt class": (row("5,3,1,0.2,setose"), "rows", "did you mean setosa?"),
    "another unit": (
        *(edit("terms.toml", r"low = .*?, high = .*? ", "low = 40, high = 80 "), "rows", "unit"),
    ),
    "no state": (remove(".db"), "state", "Restore it"),
    "a folder that is not mounted": (
        *(configure('state = "gone/party-0.db"'), "state", "its disk may not be mounted"),
    ),
    "the state of another party": (
        *(lambda party: shutil.copy(party / "party-1.db", party / ".db"), "state", "right one"),
    ),
    "an older copy of the state": (restore_an_older_copy, "state", "older copy"),
    "a broken disk": (overwrite, "state", "damaged"),
    "a changed charge": (change_a_charge, "state", "damaged"),
    "other budgets than at the start": (*(change_the_budget, "state", "amend"),),
    "a budget of a stranger": (configure("clients = { zoe = 1.0 }"), "clients", "not clients"),
    "a full disk": (fill_the_disk, "disk", "free some space"),
    "an address of another machine": (
        *(configure('listen = "203.0.113.7"'), "port", "use an address of this machine"),
    ),
    "a socket with a long path": (
        *(configure(f'socket = "{"x" * 200}"'), "socket", "the path is too long"),
    ),
}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder without mistakes."""
    return Deployment(tmp_path_factory.mktemp("right") / "votes", "votes").folder


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_before_the_start(
    mistake: str, right: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names it: as a failure, or as a warning where the party would run."""
    plant, check, says = MISTAKES[mistake]
    folder = tmp_path / "votes"
    shutil.copytree(right, folder)
    plant(Party(folder, monkeypatch))
    found = checked(Deployment(folder))
    first = next(each for each in found if each["outcome"] != "ok")
    assert (first["name"], says in first["found"]) == (check, True), first


def checked(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the checks of a party with a mistake."""
    command = ("check", f"{ME}.toml", "--json", "--strict")
    try:
        done = deployment.call(*command, code=2)
    except AssertionError:
        done = deployment.call(*command, code=1)
    checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return checks


def test_a_port_in_use_is_found(right: Path) -> None:
    """Another process that listens there is an error."""
    config = (right / "roster.toml").read_text()
    port = int(re.findall(r"port = (\d+)", config)[0])
    with socket.create_server(("127.0.0.1", port)):
        (first,) = (each for each in checked(Deployment(right)) if each["outcome"] != "ok")
    assert (first["name"], first["outcome"]) == ("port", "failed")
