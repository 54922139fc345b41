"""The trails of parties: their entries, the proof that they are whole, and what they leave out."""

import asyncio
import datetime as dt
import hashlib
import json
import logging
import sqlite3
import time
from contextlib import closing
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from tests.deployment.commands import PARTIES, Command, Deploy, wait_until
from tests.deployment.members import all_served
from tests.deployment.test_peers import written
from tests.deployment.test_statistics import asked
from tests.deployment.test_statistics import serve as serve_statistics
from tests.deployment.test_statistics import written as statistics_written
from tests.deployment.trails import (
    NAME,
    NOON,
    Keeper,
    answer_requests,
    entries_of,
    roster_of,
    verified,
)
from tests.protocols.prediction.serving import make_rules, table

from veilring.data.table import Rows
from veilring.deployment.config import Schema
from veilring.deployment.gate import open_admission
from veilring.deployment.owner import OwnerTerms
from veilring.deployment.policy import Policy, Request
from veilring.deployment.prediction import PredictionTerms
from veilring.deployment.trail import (
    ORDER,
    REPEAT_SECONDS,
    TRAIL,
    Verified,
    answer_digest,
    export_trail,
    read_salt,
    read_trail,
)
from veilring.errors import (
    BudgetExhausted,
    InputError,
    PolicyRefused,
    RunFailed,
    SessionAborted,
    StoreFailed,
)
from veilring.nodes.party import Party
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import LEDGER, open_ledger, read_totals
from veilring.privacy.statefile import open_state_file
from veilring.protocols.admission import Admitted, Asked, pack_labels
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.prediction.client import add_at_server, forget_at_server
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import ADD, FORGET, PredictionServer
from veilring.protocols.prediction.state import ServerState, open_state
from veilring.protocols.promise import Facts
from veilring.protocols.radius.owner import Owner, ask_within
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.release.system import Release
from veilring.protocols.ring.system import PrivateKNN
from veilring.testing import ProtocolRunner
from veilring.transport.roster import (
    Member,
    Roster,
    make_identity,
    read_identity,
    save_identity,
    write_identity,
)

SEED: Final = 0x7A11
CLIENT: Final = {"client": "clerk"}
TERMS: Final = Request("", "noisy-votes")
LOG: Final = logging.getLogger(NAME)


@pytest.fixture
def keeper() -> Keeper:
    """Return a party that keeps a trail."""
    return Keeper()


@pytest.fixture
def kept(tmp_path: Path, keeper: Keeper) -> Path:
    """Return a state file with a trail of four entries."""
    path = tmp_path / "ada.db"
    with keeper.open(path) as (trail, _):
        trail.append("refused", CLIENT | {"rule": "k: 5; the policy says 6"})
        number = trail.append("admitted", CLIENT | {"queries": 3, "epsilon": 0.5})
        trail.append("answered", CLIENT | {"of": number}, answer=b"the answer")
    return path


@pytest.fixture
def export(tmp_path: Path, keeper: Keeper, kept: Path) -> Path:
    """Return an export of that trail."""
    path = tmp_path / "ada.jsonl"
    export_trail(kept, path, keeper.identity, keeper.roster, NOON)
    return path


def test_an_export_is_verified_with_the_roster_alone(
    keeper: Keeper, kept: Path, export: Path
) -> None:
    """It has the entries of the state file, and a last line that is signed over them."""
    found, lines = verified(kept, keeper.roster), export.read_text().splitlines()
    assert found == verified(export, keeper.roster)
    assert (found.party, found.entries, found.keys) == (NAME, 4, (keeper.identity.fingerprint,))
    assert found.head == hashlib.sha256(lines[3].encode()).hexdigest()
    kinds = [entry["kind"] for entry in entries_of(export)]
    assert kinds == ["start", "refused", "admitted", "answered", "end"]
    assert entries_of(export)[:-1] == entries_of(kept)
    assert export.stat().st_mode & 0o077 == 0


def _require_found(path: Path, content: bytes, roster: Roster) -> None:
    path.write_bytes(content)
    with pytest.raises((StoreFailed, InputError)):
        verified(path, roster)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_each_flipped_bit_and_cut_of_an_export_is_found(
    tmp_path: Path, keeper: Keeper, step: int
) -> None:
    """One bit is enough, and so is the loss of any end but that of the last line."""
    path, export, roster = tmp_path / "ada.db", tmp_path / "ada.jsonl", keeper.roster
    with keeper.open(path) as (trail, _):
        trail.append("answered", CLIENT, answer=b"!")
    export_trail(path, export, keeper.identity, roster, NOON)
    content = export.read_bytes()
    for place in range(0, 8 * (len(content) - 1), step**2):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        _require_found(export, bytes(changed), roster)
    for end in range(0, len(content) - 1, step**2):
        _require_found(export, content[:end], roster)
    signature = json.loads(content.splitlines()[-1])["signature"]
    r, s = decode_dss_signature(bytes.fromhex(signature))
    mirrored = encode_dss_signature(r, ORDER - s).hex()  # valid for ECDSA, without the key
    _require_found(export, content.replace(signature.encode(), mirrored.encode()), roster)


def test_each_removed_moved_repeated_or_cut_entry_is_found(export: Path, keeper: Keeper) -> None:
    """No other sequence of the lines of an export passes for the export."""
    content, roster = export.read_bytes(), keeper.roster
    lines = content.splitlines(keepends=True)
    count = len(lines)
    others = [lines[:n] + lines[n + 1 :] for n in range(count)]
    others += [[*lines[:n], lines[n], *lines[n:]] for n in range(count)]
    for one, two in combinations(range(count), 2):
        swapped = lines.copy()
        swapped[one], swapped[two] = swapped[two], swapped[one]
        others.append(swapped)
    others += [lines[:n] for n in range(count)]
    for other in others:
        _require_found(export, b"".join(other), roster)


def _forged(path: Path, statement: str, *values: object) -> None:
    """Change a trail as a program can that writes the state file with all its marks."""
    with closing(open_state_file(path, LEDGER, TRAIL)) as file, file.transaction() as connection:
        connection.execute(statement, values)


CHANGES: Final = [
    ("UPDATE trail SET line = replace(line, 'clerk', 'clark') WHERE number = ?", range(2, 5)),
    ("UPDATE trail SET line = line || ' ' WHERE number = ?", range(1, 5)),
    ("DELETE FROM trail WHERE number = ?", range(1, 5)),
    ("UPDATE trail SET number = 9 WHERE number = ?", range(1, 4)),
    ("INSERT INTO trail SELECT 5, line FROM trail WHERE number = ?", range(1, 5)),
]


@pytest.mark.parametrize(("change", "numbers"), CHANGES)
def test_changed_rows_of_a_state_file_are_found(
    keeper: Keeper, kept: Path, change: str, numbers: range
) -> None:
    """Its seal detects changes by other programs; the chain also those that renew the seal.

    Only a removed end needs more: the seal, the witness, or an earlier export.
    """
    before = kept.read_bytes()
    for number in numbers:
        with closing(sqlite3.connect(kept)) as other, other:
            other.execute(change, (number,))
        with pytest.raises(StoreFailed, match="not those that were written"):
            verified(kept, keeper.roster)
        with pytest.raises(StoreFailed, match="not those that were written"), keeper.open(kept):
            pass
        kept.write_bytes(before)
        if not (change.startswith("DELETE") and number == 4):
            _forged(kept, change, number)
            with pytest.raises(StoreFailed, match=r"entry \d of the trail"):
                verified(kept, keeper.roster)
        kept.with_name("ada.db.lock").unlink(missing_ok=True)
        kept.write_bytes(before)


def _verified_after(earlier: list[str], roster: Roster, path: Path) -> Verified:
    return verified(path, roster, earlier=earlier)


def test_a_trail_that_was_written_again_is_found(
    tmp_path: Path, keeper: Keeper, kept: Path, export: Path
) -> None:
    """The party itself cannot change or drop an entry that it has exported before."""
    with read_trail(export) as lines:
        earlier = list(lines)
    with keeper.open(kept) as (trail, _):
        trail.append("admitted", CLIENT)
    check = partial(_verified_after, earlier, keeper.roster)
    assert check(kept).entries == 6
    other = tmp_path / "other.db"
    with keeper.open(other):
        pass
    with pytest.raises(StoreFailed, match="entry 1 of the trail is another one than in the"):
        check(other)
    _forged(kept, "DELETE FROM trail WHERE number > ?", 3)
    with pytest.raises(StoreFailed, match="entry 3 of the trail is the last one, but an earlier"):
        check(kept)


def test_an_older_state_file_is_found(keeper: Keeper, kept: Path) -> None:
    """The witness beside it has counted later transactions."""
    before = kept.read_bytes()
    with keeper.open(kept):
        pass
    assert verified(kept, keeper.roster).entries == 5
    kept.write_bytes(before)
    with pytest.raises(StoreFailed, match="its last 1 transactions are missing"):
        verified(kept, keeper.roster)


def test_a_renewed_key_continues_the_trail(tmp_path: Path, keeper: Keeper) -> None:
    """Each key of the party continues the entries of the one before, in a process or after it.

    A key that was renewed in a process vouches for the next one, so any earlier roster suffices.
    """
    path, first = tmp_path / "ada.db", keeper.identity
    with keeper.open(path) as (trail, _):
        keeper.identity = read_identity(write_identity(first))  # which is no other key
        trail.append("admitted", CLIENT)
        second = keeper.renew()
        trail.append("admitted", CLIENT)
    assert [entry["kind"] for entry in entries_of(path)] == ["start", "admitted", "key", "admitted"]
    for known in (first, second):
        found = verified(path, roster_of(known))
        assert found.keys == (first.fingerprint, second.fingerprint)
    third = keeper.renew()
    with keeper.open(path):  # with the third key
        pass
    for roster in (keeper.roster, roster_of(third)):
        assert verified(path, roster).keys[2:] == (third.fingerprint,)
    for stranger in (first, second, make_identity(NAME)):
        with pytest.raises(StoreFailed, match="by a key that is not in the roster"):
            verified(path, roster_of(stranger))


def test_a_renewed_key_is_entered_without_an_event(tmp_path: Path, keeper: Keeper) -> None:
    """Then the next process needs no roster that has the previous key."""
    path, first = tmp_path / "ada.db", keeper.identity
    with keeper.open(path) as (trail, _):
        second = keeper.renew()
        trail.renew_key()
        trail.renew_key()  # which it has entered
    assert [entry["kind"] for entry in entries_of(path)] == ["start", "key"]
    assert verified(path, roster_of(second)).keys == (first.fingerprint, second.fingerprint)


def test_a_key_without_its_predecessor_in_the_roster_needs_both_rosters(
    keeper: Keeper, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The party has not recognised the entries before, and says so; they need their own roster."""
    other = Keeper()
    with other.open(kept):
        assert "has another signature than by its key or its previous key" in caplog.text
    with pytest.raises(StoreFailed, match="follows entries by a key that is not in the roster"):
        verified(kept, other.roster)
    assert verified(kept, other.roster, keeper.roster).entries == 5
    with other.open(kept):
        pass
    with pytest.raises(StoreFailed, match="follows entries by a key that is not in the roster"):
        verified(kept, other.roster)


def test_nobody_without_a_key_of_the_party_writes_its_trail(
    tmp_path: Path, keeper: Keeper, kept: Path
) -> None:
    """Entries of a thief who writes the state file are found, also below later ones of the party.

    Nor can the thief name the key of the party as the next one.
    """
    thief, roster = Keeper(), keeper.roster
    with thief.open(kept) as (trail, _):
        trail.append("admitted", CLIENT)
    with pytest.raises(StoreFailed, match="by a key that is not in the roster"):
        verified(kept, roster)
    for identity in (thief.identity, keeper.identity):
        with pytest.raises(StoreFailed, match="by a key that is not in the roster"):
            export_trail(kept, tmp_path / "stolen.jsonl", identity, roster, NOON)
    assert not (tmp_path / "stolen.jsonl").exists()
    before = entries_of(kept)[-1]
    point = entries_of(kept)[0]["key"]
    entry = before | {"number": 7, "kind": "key", "continues": True, "key": point}
    entry["previous"] = hashlib.sha256(_line(before).encode()).hexdigest()
    entry["vouched"] = _signed_by(thief, point)
    del entry["signature"]
    entry["signature"] = _signed_by(thief, _line(entry))
    with keeper.open(kept):
        pass
    with pytest.raises(StoreFailed, match="follows entries by a key that is not in the roster"):
        verified(kept, roster)
    _forged(kept, "UPDATE trail SET line = ? WHERE number = 7", _line(entry))
    with pytest.raises(StoreFailed, match="entry 7 of the trail has a wrong signature"):
        verified(kept, roster)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _signed_by(keeper: Keeper, text: str) -> str:
    return keeper.identity.private_key.sign(text.encode(), ec.ECDSA(hashes.SHA256())).hex()


def test_equal_events_share_an_entry(tmp_path: Path, keeper: Keeper) -> None:
    """A client that repeats itself adds two entries in `REPEAT_SECONDS`, whatever it does."""
    path = tmp_path / "ada.db"
    with keeper.open(path) as (trail, _):
        for _ in range(3):
            for _ in range(1000):
                trail.append_once("ann", "refused", {"client": "ann"})
            trail.append_once("bob", "refused", {"client": "bob"})
            keeper.now += dt.timedelta(seconds=REPEAT_SECONDS)
        trail.append("admitted", CLIENT)
        keeper.now -= dt.timedelta(days=1)  # a clock that was set back delays nothing
        trail.append_once("ann", "refused", {"client": "ann"})
    shown = [
        (each["kind"], each.get("client"), each.get("of"), each.get("times"))
        for each in entries_of(path)[1:]
    ]
    both = [("refused", "ann", None, None), ("refused", "bob", None, None)]
    repeats = [("repeated", None, number, 999) for number in (2, 5, 8)]
    again = [("admitted", "clerk", None, None), ("refused", "ann", None, None)]
    assert shown == [*both, repeats[0], *both, repeats[1], *both, repeats[2], *again]
    assert verified(path, keeper.roster).entries == len(shown) + 1


def test_a_salt_opens_one_entry(tmp_path: Path, keeper: Keeper) -> None:
    """Equal answers have different hashes, and the salt of one entry tells nothing of another."""
    path, labels = tmp_path / "ada.db", np.array([2, 0, 1])
    with keeper.open(path) as (trail, _):
        numbers = [trail.append("answered", CLIENT, answer=pack_labels(labels)) for _ in range(2)]
    salts = [read_salt(path, number) for number in numbers]
    found = [entry["answer"] for entry in entries_of(path)[1:]]
    packed = np.array([2, 0, 1], "<i8").tobytes()
    assert found == [answer_digest(salt, packed) for salt in salts]
    assert len({*found, *salts}) == 4
    for number in (0, 4):
        with pytest.raises(InputError, match="the number of an entry, up to 3"):
            read_salt(path, number)


def _fail(_number: int) -> None:
    raise ZeroDivisionError


def test_an_entry_is_as_durable_as_its_transaction(tmp_path: Path, keeper: Keeper) -> None:
    """One that fails leaves no entry, closes the file, and lets nothing more leave."""
    path = tmp_path / "ada.db"
    with keeper.open(path) as (trail, file):
        trail.append_once("ann", "answered", CLIENT, answer=b"!")
        with pytest.raises(ZeroDivisionError), file.transaction() as connection:
            _fail(trail.append("admitted", CLIENT, connection=connection))
        for act in (trail.append, partial(trail.append_once, "ann")):
            with pytest.raises(InputError, match="is closed"):
                act("answered", CLIENT, answer=b"!")
    assert [entry["kind"] for entry in entries_of(path)] == ["start", "answered"]


FIELDS: Final = {
    *("number", "time", "previous", "kind", "signature", "client", "peer", "service", "session"),
    *("request", "system", "reveal", "k", "queries", "epsilon", "charged", "stored", "peers"),
    *("of", "answer"),
}
"""The fields of entries about requests, none of which is a row, a query or a label."""
SYSTEMS: Final = {
    "ring": (PrivateKNN(), None),
    "rank-search": (RankSearch(reveal="label"), None),
    "votes": (NoisyVotes(epsilon=1.0, radius=0.3), 10.0),
    "release": (Release(epsilon=1.0), 10.0),
}


def only(entries: list[Any]) -> dict[str, Any]:
    """Return the one entry in a list."""
    (found,) = entries
    return dict(found)


@pytest.mark.parametrize("name", SYSTEMS)
async def test_an_answer_of_members_is_traced_to_all_of_them(tmp_path: Path, name: str) -> None:
    """The asked member entered the answer, and each member its session, price and peers.

    A repeated request has the same name; its stored answer costs nothing and is entered once.
    Neither labels nor queries are in a trail.
    """
    system, budget = SYSTEMS[name]
    deployed = written(tmp_path / name, system, budget)
    async with all_served(deployed.folder) as served:
        labels = await served.labels(0, 3)
        if budget is not None:
            assert await served.labels(0, 3) == labels
            assert await served.labels(0, 3) == labels
    made = {each: only(deployed.trail(each, "admitted")) for each in PARTIES}
    assert len({entry["session"] for entry in made.values()}) == 1
    for each, entry in made.items():
        assert sorted([each, *entry["peers"]]) == sorted(PARTIES)
        assert entry["queries"] == (1 if name == "release" else 3)
        assert entry.get("epsilon") == (None if budget is None else 1.0)
        assert entry.get("charged", False) == (budget is not None)
        assert entry.get("client") == (None if name == "release" else "client")
        assert entry.get("reveal") == getattr(system, "reveal", None)
        assert entry["system"] == system.name
        assert entry.get("peer") == (None if each == "party-0" else "party-0")
        assert set(entry) <= FIELDS
        assert each == "party-0" or not deployed.trail(each, "answered")
    answers = deployed.trail("party-0", "answered")
    assert set().union(*answers) <= FIELDS
    assert len(answers) == (2 if name == "votes" else 1)
    assert {entry["client"] for entry in answers} == {"client"}
    assert {entry["request"] for entry in answers} == {made["party-0"]["request"]}
    if name != "release":  # whose answer is the release
        assert answers[0]["of"] == made["party-0"]["number"]
        path, classes = deployed.folder / "party-0.db", sorted(set(IRIS))
        packed = pack_labels(np.array([classes.index(label) for label in labels]))
        for answer in answers:
            assert answer["answer"] == answer_digest(read_salt(path, answer["number"]), packed)


IRIS: Final = ("setosa", "versicolor", "virginica")


async def test_statistics_are_traced(tmp_path: Path) -> None:
    """Each member enters that it took part, and the asked one each client that gets the numbers."""
    deployed = statistics_written(tmp_path / "exact")
    async with serve_statistics(deployed.folder):
        await asked(deployed.folder)
    made = [only(deployed.trail(each, "admitted")) for each in PARTIES]
    assert len({entry["session"] for entry in made}) == 1
    answer = only(deployed.trail("party-0", "answered"))
    assert (answer["client"], answer["system"]) == ("client", "statistics")
    assert answer["request"] == made[0]["request"]


@pytest.mark.parametrize(
    ("system", "server", "client", "kind"),
    [
        ("owner", "owner", "analyst-0", OwnerTerms),
        ("prediction", "server", "client-0", PredictionTerms),
    ],
)
def test_an_answer_of_a_server_is_entered_with_its_charge(
    deploy: Deploy, system: str, server: str, client: str, kind: type[Schema]
) -> None:
    """One entry has request, price and answer; a repetition has another, for a stored answer.

    The commands show, export and verify them, also while the server is running.
    """
    deployed = deploy(system)
    deployed.serve(server)
    words = ("ask", f"{client}.toml", f"{client}.csv")
    first = deployed.call(*words).stdout
    assert deployed.call(*words).stdout == first
    shown = json.loads(deployed.call("trail", "show", f"{server}.toml", "--json").stdout)
    (_, rules, answer, again) = shown
    assert [each["kind"] for each in shown] == ["start", "policy", "answered", "answered"]
    assert rules["policy"]["queries_hour"] == 10_000
    assert answer["charged"]
    assert again["stored"]
    assert answer["request"] == again["request"]
    assert {answer["client"], again["client"]} == {client}
    assert answer.get("epsilon") == (1.0 if system == "owner" else None)
    said = deployed.call("trail", "show", f"{server}.toml", "--client", client).stdout
    assert len(said.splitlines()) == 2
    assert f"answered client={client}" in said.replace(f"request={answer['request']} ", "")
    deployed.call("trail", "export", f"{server}.toml", "out.jsonl")
    assert "exist" in deployed.call("trail", "export", f"{server}.toml", "out.jsonl", code=2).stderr
    whole = deployed.call("trail", "verify", f"{server}.toml").stdout
    assert f"complete and unchanged: 4 entries of {server}" in whole
    alone = deployed.call("trail", "verify", "out.jsonl", "--roster", "roster.toml", "--json")
    assert json.loads(alone.stdout)["entries"] == 4
    deployed.call("trail", "verify", "out.jsonl", code=2)
    deployed.edit("out.jsonl", client, f"{client[:-1]}1")
    later = ("--earlier=out.jsonl", "--roster=roster.toml")
    assert "entry 2" in deployed.call("trail", "verify", f"{server}.db", *later, code=1).stderr
    broken = deployed.call("trail", "verify", "out.jsonl", "--roster=roster.toml", code=1)
    assert "entry 2 of the trail has a wrong signature" in broken.stderr  # it names the clients
    salt = deployed.call("trail", "show", f"{server}.toml", "--salt=3").stdout.strip()
    classes = kind.load(deployed.folder / "terms.toml").classes
    packed = pack_labels(np.array([classes.index(label) for label in first.split()[1:]]))
    assert answer["answer"] == answer_digest(bytes.fromhex(salt), packed)


async def test_refusals_are_entered_with_their_rule(tmp_path: Path) -> None:
    """The member that refuses enters the exact rule and who asked; the others enter no answer."""
    ring = written(tmp_path / "ring", PrivateKNN())
    (ring.folder / "party-1.policy.toml").write_text("queries_total = 5")
    async with all_served(ring.folder) as served:
        await served.labels(0, 3)
        for _ in range(3):
            with pytest.raises(SessionAborted):
                await served.labels(3, 6)
    refused = only(ring.trail("party-1", "refused"))
    assert refused["rule"] == "queries_total: 3 of 5 are used, and 3 are asked"
    assert (refused["client"], refused["peer"], refused["queries"]) == ("client", "party-0", 3)
    assert len(ring.trail("party-0", "answered")) == 1
    for name in PARTIES:
        ended = ring.trail(name, "failed") + ring.trail(name, "answered")
        played = {each["number"] for each in ring.trail(name, "admitted")}
        assert {each["of"] for each in ended} <= played
        assert {each["error"] for each in ring.trail(name, "failed")} <= {"SessionAborted"}


async def test_a_lack_of_budget_is_entered(tmp_path: Path) -> None:
    """It is a refusal by the ledger, and nothing is charged or answered."""
    votes = written(tmp_path / "votes", NoisyVotes(epsilon=1.0, radius=0.3), 1.0)
    async with all_served(votes.folder) as served:
        await served.labels(0, 3)
        with pytest.raises(BudgetExhausted):
            await served.labels(3, 6)
    refused = only(votes.trail("party-0", "refused"))
    assert (refused["rule"], refused["client"]) == ("budget: that of party-0", "client")
    assert len(votes.trail("party-0", "answered")) == len(votes.trail("party-2", "admitted")) == 1


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (SessionAborted("bob", "Busy"), "SessionAborted"),
        (asyncio.CancelledError(), "CancelledError"),
        (ValueError("a row"), "InternalError"),
    ],
)
def test_a_request_that_fails_is_entered(
    tmp_path: Path, keeper: Keeper, error: BaseException, name: str
) -> None:
    """The name of an error of the program is left out, and so is a request that never began."""
    path, server = tmp_path / "ada.db", cast("Any", keeper)
    with keeper.open(path) as (trail, file):
        gate = open_admission(server, None, TERMS, LOG, file=file, trail=trail)
        for counts in (False, True):
            with pytest.raises(type(error)), gate(Asked("clerk", 3)) as admitted:
                _count_and_fail(admitted, error, counts=counts)
    (admitted_entry, failed) = entries_of(path)[2:]
    assert (failed["kind"], failed["of"], failed["error"]) == ("failed", 3, name)
    assert (admitted_entry["number"], admitted_entry["queries"]) == (3, 3)
    assert "a row" not in json.dumps(failed)


def _count_and_fail(admitted: Admitted, error: BaseException, *, counts: bool) -> None:
    if counts:
        admitted.count()
    raise error


def test_refusals_are_entered_for_each_client(tmp_path: Path, keeper: Keeper) -> None:
    """A client has its own refusals, also if other members ask for it.

    A member that invents names adds one entry altogether.
    """
    path, server = tmp_path / "ada.db", cast("Any", keeper)
    clients = (Member.of(make_identity(name), kind="client") for name in ("clerk", "mallory"))
    keeper.roster = Roster((*keeper.roster.members, *clients))
    with keeper.open(path) as (trail, file):
        policy = Policy(clients=("ann",))
        gate = open_admission(server, policy, TERMS, LOG, file=file, trail=trail)
        for client in ("clerk", *["mallory"] * 9):
            with pytest.raises(PolicyRefused), gate(Asked(client, 1, peer="bob")):
                pass
        for name in ("carol", *map("stranger-{}".format, range(99))):
            with pytest.raises(PolicyRefused, match=f"roster: {name} is not in it"):
                gate(Asked(name, 1, peer="bob")).__enter__()
    refused = [each for each in entries_of(path) if each["kind"] == "refused"]
    assert [each["client"] for each in refused] == ["clerk", "mallory", "carol"]
    assert (refused[2]["rule"], refused[2]["peer"]) == ("roster: carol is not in it", "bob")


def test_changes_by_administrators_are_entered(tmp_path: Path, keeper: Keeper) -> None:
    """Each has the number of records before it is made, and no rule about clients applies to it."""
    path, server, names = tmp_path / "ada.db", cast("Any", keeper), ["ada", "registrar"]
    records = table(3)
    other = LabelledRecords(records.ids, -records.features, records.labels)

    async def change(party: Party, own: Any, *, gate: Any, state: ServerState) -> object:
        predicting = PredictionServer(state, run_inline, names, gate)
        if party.me == "registrar":
            is_forgetting = isinstance(own, tuple)
            return await (forget_at_server if is_forgetting else add_at_server)(party, own)
        serve = predicting.forget if isinstance(own, tuple) else predicting.add
        await serve(party, "registrar")
        return None

    with keeper.open(path) as (trail, file), open_state(make_rules(), None) as state:
        gate = open_admission(server, Policy(clients=()), TERMS, LOG, file=file, trail=trail)
        run = ProtocolRunner("memory")
        for own in (records, records.ids[:1]):
            run(change, names, own=[own, own], seed=1, gate=gate, state=state)
        with pytest.raises(RunFailed):
            run(change, names, own=[other, other], seed=1, gate=gate, state=state)
    _, _, added, forgotten, wrong, failed = entries_of(path)
    assert [each["kind"] for each in (added, forgotten, wrong)] == ["changed"] * 3
    assert [each["records"] for each in (added, forgotten, wrong)] == [3, 1, 3]
    assert (added["client"], added["service"], forgotten["service"]) == ("registrar", ADD, FORGET)
    assert (failed["kind"], failed["of"], failed["error"]) == ("failed", 5, "ChangeRefused")


def test_a_lack_of_budget_after_the_charge_is_a_failure(tmp_path: Path, keeper: Keeper) -> None:
    """A request that was counted has an outcome, also if another member refuses it then."""
    path, server = tmp_path / "ada.db", cast("Any", keeper)
    with keeper.open(path) as (trail, file):
        gate = open_admission(server, None, TERMS, LOG, file=file, trail=trail)
        for _ in range(2):
            with gate(Asked("clerk", 3)) as admitted:
                admitted.count()
                admitted.refuse("budget: that of bob")
    kinds = [(each["kind"], each.get("of")) for each in entries_of(path)[2:]]
    assert kinds == [("admitted", None), ("failed", 3), ("admitted", None), ("failed", 5)]


def test_an_owner_enters_refusals_by_its_ledger(tmp_path: Path, keeper: Keeper) -> None:
    """A budget that does not suffice, and a key that was used, are the rules of entries."""
    rng, path, server = np.random.default_rng(SEED), tmp_path / "ada.db", cast("Any", keeper)
    rules = DataOwner(radius=0.2).bind(Facts(1, 2, 2, 9))
    rows = Rows(rng.random((9, 2)), np.arange(9) % 2)
    first, dear = (ask_within(rng.random((1, 2)), np.full(1, 0.2), e) for e in (0.5, 0.75))
    with keeper.open(path) as (trail, file), open_ledger(file, Budgets(total=1.0)) as ledger:
        gate = open_admission(server, None, TERMS, LOG, file=file, trail=trail)
        owner = Owner(rows, rules, ledger, run_inline, gate)
        for request in (first, dear, dear.model_copy(update={"key": first.key})):
            owner.answer_once("clerk", request, rng)
    kinds = [(entry["kind"], entry.get("rule")) for entry in entries_of(path)[2:]]
    used = "key: it was used for a different request"
    assert kinds == [("answered", None), ("refused", "budget: total"), ("refused", used)]


async def test_no_answer_leaves_before_its_entry(tmp_path: Path) -> None:
    """A member that cannot enter an answer ends without storing or sending it."""
    votes = written(tmp_path / "votes", NoisyVotes(epsilon=1.0, radius=0.3), 2.0)
    async with all_served(votes.folder) as served:
        served.members["party-0"].till.ledger.file.connection.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON main.trail WHEN NEW.line LIKE '%answered%'"
            " BEGIN SELECT RAISE(ABORT, 'attempt to write'); END"
        )
        with pytest.raises(SessionAborted, match="StoreFailed"):
            await served.labels(0, 3)
        with pytest.raises(StoreFailed, match="attempt to write"):
            await served.until_ended("party-0")
        assert not votes.trail("party-0", "answered")
        await served.serve("party-0")
        assert len(await served.labels(0, 3)) == 3
    played = votes.trail("party-0", "admitted")
    assert only(votes.trail("party-0", "answered"))["of"] == played[1]["number"]
    assert len(played) == len(votes.trail("party-2", "admitted")) == 2


async def test_a_party_without_other_state_keeps_a_trail_if_told(tmp_path: Path) -> None:
    """`veilring check` says whether one is kept; a policy may be added to the state later."""
    ring = written(tmp_path / "ring", PrivateKNN())
    policy = 'policy = "party-0.policy.toml"'
    ring.edit("party-0.toml", policy, "")
    for each in ring.folder.glob("party-0.db*"):
        each.unlink()
    checked = ring.call("check", "party-0.toml").output
    assert "trail          none is kept; set `trail = true`" in checked
    ring.configure("party-0", "trail = true")
    ring.call("state", "new", "party-0.toml")
    assert "trail          it is kept in party-0.db" in ring.call("check", "party-0.toml").output
    for policies in ("", policy):
        ring.configure("party-0", policies)
        async with all_served(ring.folder) as served:
            await served.labels(0, 3)
    assert len(ring.trail("party-0", "answered")) == 2
    said = [each.get("policy") is None for each in ring.trail("party-0", "policy")]
    assert said == [True, False]


def test_a_party_without_private_rows_keeps_no_trail(deploy: Deploy) -> None:
    """The command says so."""
    places = deploy("places")
    shown = places.call("check", "server.toml").output
    assert "none is kept, because no answer depends on private rows" in shown
    refused = places.call("trail", "show", "server.toml", code=2).stderr
    assert "a party of the role server keeps no trail" in refused
    for name in ("client.toml", "none.db", "none.jsonl"):
        assert "veilring: " in places.call("trail", "show", name, code=2).stderr


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_kill_at_any_time_leaves_no_answer_without_its_entry(tmp_path: Path, kills: int) -> None:
    """Each answer that was told is entered and charged, and each charge is entered."""
    rng = np.random.default_rng(SEED)
    for kill in range(kills):
        folder = tmp_path / str(kill // 5)  # the same party is killed five times
        path, output = folder / "ada.db", folder / "told"
        if not folder.exists():
            folder.mkdir()
            keeper = Keeper()
            save_identity(keeper.identity, folder)
            with keeper.open(path) as (_, file):
                open_ledger(file, Budgets())
        command = Command(folder, output=output, body=answer_requests)
        wait_until(lambda: bool(output.read_text()))  # noqa: B023  (it is called at once)
        time.sleep(rng.exponential(0.01))
        command.kill()
        assert verified(path, keeper.roster).party == NAME
        entries = entries_of(path)
        assert len([each for each in entries if each.get("charged")]) == read_totals(path).answers
        answered = {each["request"] for each in entries if each["kind"] == "answered"}
        assert set(output.read_text().split()) <= answered
