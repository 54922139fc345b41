"""Rosters, identities and new keys: their files, their errors, and what agrees."""

import datetime as dt
import hashlib
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.transport.towns import Town, both_fail
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.deployment.connecting import expiry_warnings
from veilring.errors import InputError, ScenarioError
from veilring.transport.roster import (
    HOST_CHARACTERS_MAX,
    KEY_FILE_MODE,
    NAME_CHARACTERS_MAX,
    PORT_MAX,
    Identity,
    Member,
    Roster,
    load_identity,
    make_identity,
    read_certificate,
    save_identity,
)

NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)


def test_fingerprint_is_that_of_the_public_key() -> None:
    """It is the SHA-256 of the SubjectPublicKeyInfo, in hexadecimal."""
    identity = make_identity("alice")
    public = identity.private_key.public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert identity.fingerprint == hashlib.sha256(spki).hexdigest()
    assert identity.fingerprint != make_identity("alice").fingerprint


def test_certificate_has_name_and_validity() -> None:
    """It is valid from a day before until `valid_days` after, and is not an authority."""
    identity = make_identity("alice", valid_days=10, now=NOON)
    name, certificate = read_certificate(identity.certificate_pem)
    assert name == "alice"
    assert certificate.not_valid_before_utc == NOON - dt.timedelta(days=1)
    assert certificate.not_valid_after_utc == NOON + dt.timedelta(days=10)
    certificate.verify_directly_issued_by(certificate)


def test_the_key_is_not_shown() -> None:
    """The printed form of an identity contains no part of its key."""
    assert "private_key" not in repr(make_identity("alice"))


@pytest.mark.parametrize(
    "name", ["", ".hidden", "-option", "a/b", "a b", "a\n", "é", "x" * (NAME_CHARACTERS_MAX + 1)]
)
def test_unfit_names_are_refused(name: str) -> None:
    """A name contains no characters special in file names or logs, and is not too long."""
    with pytest.raises(InputError, match=r"is not a name: it must have 1 to 64 of"):
        make_identity(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * NAME_CHARACTERS_MAX])
def test_names_at_the_limits_are_accepted(name: str) -> None:
    """Names of the minimum and the maximum length are valid."""
    assert make_identity(name).name == name


def test_validity_is_at_least_a_day() -> None:
    """A certificate with an empty validity is refused."""
    with pytest.raises(InputError, match="valid_days is 0"):
        make_identity("alice", valid_days=0)


def test_saved_identities_are_restored(tmp_path: Path) -> None:
    """A saved identity is loaded from one file that only its owner can read."""
    identity = make_identity("alice")
    path = save_identity(identity, tmp_path)
    assert path == tmp_path / "alice.key"
    assert stat.S_IMODE(path.stat().st_mode) == KEY_FILE_MODE
    assert list(tmp_path.iterdir()) == [path]
    back = load_identity(path)
    assert (back.name, back.certificate) == ("alice", identity.certificate)
    assert back.private_key.private_numbers() == identity.private_key.private_numbers()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """An existing key file is left unchanged, and no draft is left beside it."""
    path = save_identity(make_identity("alice"), tmp_path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="does not exist yet"):
        save_identity(make_identity("alice"), tmp_path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_accessible_to_others_is_refused(mode: int, tmp_path: Path) -> None:
    """A key file with any permission for group or others is not loaded."""
    path = save_identity(make_identity("alice"), tmp_path)
    path.chmod(mode)
    with pytest.raises(InputError, match=f"mode {mode:o}, .*chmod 600"):
        load_identity(path)


def write(path: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    path.touch(mode=KEY_FILE_MODE)
    path.write_text(text)
    return path


def test_a_broken_key_file_is_refused(tmp_path: Path) -> None:
    """A file without a key or a certificate, or with a mismatch of both, is refused."""
    good = save_identity(make_identity("alice"), tmp_path).read_text()
    other = save_identity(make_identity("bob"), tmp_path).read_text()
    key, certificate = re.findall(r"-----BEGIN.*?-----END [A-Z ]+-----\n", good, re.DOTALL)
    bad = {"no key": certificate, "no certificate": key, "noise": "\x00\x01",
           "mixed": key + other[other.index("-----BEGIN CERT"):]}  # fmt: skip
    for number, text in enumerate(bad.values()):
        with pytest.raises(InputError):
            load_identity(write(tmp_path / f"{number}.key", text))


def test_a_key_on_another_curve_is_refused(tmp_path: Path) -> None:
    """Only P-256 keys are loaded, and the certificate's curve is checked too."""
    alice = make_identity("alice")
    strange = Identity("alice", alice.certificate, ec.generate_private_key(ec.SECP384R1()))
    with pytest.raises(InputError, match="P-256"):
        load_identity(save_identity(strange, tmp_path))


ALICE = Member.of(make_identity("alice"), "alice.example", 7000)
BOB = Member.of(make_identity("bob"), "127.0.0.1", PORT_MAX)
CAROL = Member.of(make_identity("carol"), kind="client")
ROSTER = Roster((ALICE, BOB, CAROL))


def test_saved_rosters_are_restored(tmp_path: Path) -> None:
    """A saved roster is loaded in order, with the same hash."""
    path = tmp_path / "roster.toml"
    ROSTER.save(path)
    assert Roster.load(path) == ROSTER
    assert Roster.load(path).hash == ROSTER.hash


def test_members_are_found() -> None:
    """Members are found by name, by key and by kind, in the order of the roster."""
    assert ROSTER.names == ("alice", "bob", "carol")
    assert ROSTER.parties == ("alice", "bob")
    assert ROSTER.member("bob") is BOB
    assert ROSTER.owner(CAROL.fingerprint) is CAROL
    assert ROSTER.owner("0" * 64) is None
    with pytest.raises(InputError, match="mallory"):
        ROSTER.member("mallory")


def test_hash_depends_on_members_order_keys_and_kinds() -> None:
    """Rosters have equal hashes only if they agree on members and their order."""
    again = Member.of(make_identity("alice"), "alice.example", 7000)
    dave = Member.of(make_identity("dave"), kind="client")
    client = Member.of(make_identity("bob"), kind="client")
    others = [(BOB, ALICE, CAROL), (ALICE, BOB), (ALICE, BOB, CAROL, dave), (again, BOB, CAROL)]
    hashes = {Roster(members).hash for members in (*others, ROSTER.members, (ALICE, client, CAROL))}
    assert len(hashes) == len(others) + 2
    assert all(len(digest) == 32 for digest in hashes)


def test_hash_omits_addresses() -> None:
    """A host may have different addresses in different networks."""
    moved = ROSTER.at({"bob": ("10.0.0.2", 1)})
    assert moved.hash == ROSTER.hash
    assert (moved.member("bob").host, moved.member("bob").port) == ("10.0.0.2", 1)
    assert moved.member("alice") == ALICE


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"name": "al ice"}, "name"),
        ({"name": "bob"}, "certificate"),
        ({"kind": "server"}, "kind"),
        ({"host": ""}, "host"),
        ({"host": "x" * (HOST_CHARACTERS_MAX + 1)}, "host"),
        ({"host": "a\nb"}, "host"),
        ({"port": 0}, "port"),
        ({"port": -1}, "port"),
        ({"port": PORT_MAX + 1}, "port"),
        ({"kind": "client"}, "host"),
        ({"fingerprint": "0" * 64}, "fingerprint"),
        ({"certificate": "none"}, "certificate"),
        ({"certificate": BOB.certificate}, "certificate"),
    ],
)
def test_an_unfit_member_is_refused(changed: dict[str, Any], field: str) -> None:
    """Each field is checked, in code and in a file, and the error names it."""
    with pytest.raises(InputError) as caught:
        replace(ALICE, **changed)
    assert caught.value.field == field
    content = tomllib.loads(ROSTER.to_toml())
    content["members"][0] |= changed
    with pytest.raises(ScenarioError) as told:
        Roster.from_toml(tomli_w.dumps(content))
    assert told.value.field == f"members[0].{field}"


def test_duplicate_members_are_refused() -> None:
    """A roster has members, and no two share a name or a key."""
    with pytest.raises(InputError, match="roster has no members"):
        Roster(())
    with pytest.raises(InputError, match=r"members\[2\].name is 'alice'"):
        Roster((ALICE, BOB, Member.of(make_identity("alice"), "h", 1)))
    same = make_identity("same")
    object.__setattr__(twin := Member.of(same, "h", 1), "name", "twin")
    with pytest.raises(InputError, match=r"members\[1\].fingerprint"):
        Roster((Member.of(same, "h", 1), twin))


TEXT = ROSTER.to_toml()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "format"),
        ("[", "roster"),
        (TEXT.replace("format = 1", "format = 2"), "format"),
        (TEXT.replace("format = 1", "format = 1\nextra = 1"), "roster"),
        ("format = 1\nmembers = 3", "roster"),
        ("format = 1\nmembers = [3]", "members[0]"),
        ("format = 1\nmembers = []", "members"),
        (TEXT.replace("port = 7000", 'port = "7000"'), "members[0].port"),
        (TEXT.replace("port = 7000", "port = true"), "members[0].port"),
        (TEXT.replace("port = 7000", "prot = 7000"), "members[0].prot"),
        (TEXT.replace('name = "bob"\n', ""), "members[1]"),
        (TEXT.replace('name = "bob"', 'name = "alice"'), "members[1].certificate"),
        (TEXT.replace('kind = "client"', ""), "members[2].host"),
    ],
)
def test_an_unfit_file_is_refused(text: str, field: str) -> None:
    """Mistakes in a file are named by their dotted key."""
    with pytest.raises(ScenarioError) as caught:
        Roster.from_toml(text)
    assert caught.value.field == field


TODAY = dt.datetime.now(dt.UTC).date()
DAY = dt.timedelta(days=1)
UNTIL = TODAY + 30 * DAY


def with_new_key(roster: Roster, name: str) -> Roster:
    """Return the roster with a new key of a member, and no previous one."""
    old = roster.member(name)
    new = Member.of(make_identity(name), old.host, old.port, old.kind)
    return Roster(tuple(new if each is old else each for each in roster.members))


def ended(roster: Roster) -> Roster:
    """Return the roster with previous keys whose last day was yesterday."""
    return Roster(
        tuple(
            replace(each, previous_until=TODAY - DAY) if each.previous else each
            for each in roster.members
        )
    )


class Rotation(Town):
    """Two parties and a client, one of which gets a new key.

    Attributes:
        new: The roster that accepts its new and its previous key.
    """

    def __init__(self, name: str = "alice") -> None:
        super().__init__(("alice", "bob"), ("carol",))
        self.key = make_identity(name)
        old = self.roster.member(name)
        new = Member.of(self.key, old.host, old.port, old.kind)
        members = (new if each is old else each for each in self.roster.members)
        self.new = Roster(tuple(members)).replacing(self.roster, UNTIL, TODAY)


@pytest.fixture
def rotation() -> Iterator[Rotation]:
    """Return a town in which alice gets a new key."""
    rotation = Rotation()
    yield rotation
    rotation.close()


@pytest.mark.parametrize(
    "updated",
    [("bob",), ("alice",), ("carol",), ("alice", "bob"), ("alice", "bob", "carol")],
    ids=" and ".join,
)
async def test_members_get_the_new_roster_one_after_another(
    rotation: Rotation, updated: tuple[str, ...]
) -> None:
    """While some have the new roster and others the old one, all connect with their old keys."""
    rotation.rosters = dict.fromkeys(updated, rotation.new)
    async with rotation.start_all() as endpoints:
        assert set(endpoints["carol"].connected) == {"alice", "bob"}
        assert "bob" in endpoints["alice"].connected


@pytest.mark.parametrize("name", ["alice", "bob", "carol"])
async def test_the_new_key_is_used_last(name: str) -> None:
    """Once all members have the new roster, its new key connects to all of them."""
    town = Rotation(name)
    town.roster, town.identities[name] = town.new, town.key
    async with town.start_all() as endpoints:
        assert set(endpoints["carol"].connected) == {"alice", "bob"}


async def test_a_new_key_is_unknown_to_the_old_roster(rotation: Rotation) -> None:
    """A new key that is used too early is refused."""
    rotation.identities["alice"], rotation.rosters["alice"] = rotation.key, rotation.new
    assert "self-signed certificate" in (await both_fail(rotation))[1]


async def test_a_previous_key_ends(rotation: Rotation) -> None:
    """After its last day both sides learn when it ended, and what to do."""
    rotation.rosters["bob"] = ended(rotation.new)
    reason = f"the previous key of alice was accepted until {TODAY - DAY}; restart alice with its"
    assert all(reason in each for each in await both_fail(rotation))


async def test_a_previous_roster_ends() -> None:
    """After the last day the old roster is refused by name, and the error shows its last day."""
    town = Rotation("carol")
    town.rosters["bob"] = ended(town.new)
    reason = f"alice has the previous roster, which was accepted until {TODAY - DAY}; give it ours"
    assert all(reason in each for each in await both_fail(town))


async def test_two_new_rosters_never_agree() -> None:
    """Members that were given different new keys of a third refuse each other."""
    town = Rotation("carol")
    other = with_new_key(town.roster, "carol").replacing(town.roster, UNTIL, TODAY)
    town.rosters = {"alice": town.new, "bob": other}
    assert all("the rosters differ" in each for each in await both_fail(town))


async def test_different_previous_keys_never_agree() -> None:
    """Equal new keys are not enough: the hash covers previous keys and their last days."""
    town = Rotation("carol")
    liar = with_new_key(town.roster, "carol")
    bare = Roster(tuple(replace(m, previous="", previous_until=None) for m in town.new.members))
    town.rosters = {"alice": town.new, "bob": bare.replacing(liar, UNTIL, TODAY)}
    assert all("the rosters differ" in each for each in await both_fail(town))
    hashes = {town.new.hashes(TODAY)[0], bare.hashes(TODAY)[0]}
    hashes.add(bare.replacing(town.roster, UNTIL + DAY, TODAY).hashes(TODAY)[0])
    assert len(hashes) == 3


async def test_own_previous_key_that_has_ended_is_named_at_once(rotation: Rotation) -> None:
    """A party does not start with a key that no peer accepts."""
    rotation.roster = ended(rotation.new)
    with pytest.raises(InputError, match=f"was accepted until {TODAY - DAY}; use the new key"):
        await rotation.start("alice")


def test_ended_keys_do_not_count(rotation: Rotation) -> None:
    """The entries of keys that have ended may be removed by one member after another."""
    bare = Roster(tuple(replace(m, previous="", previous_until=None) for m in rotation.new.members))
    assert ended(rotation.new).hashes(TODAY) == bare.hashes(TODAY) == (bare.hash,)
    assert len(rotation.new.hashes(UNTIL)) == 2
    assert len(rotation.new.hashes(UNTIL + DAY)) == 1


def test_only_keys_may_differ_from_the_previous_roster(rotation: Rotation) -> None:
    """A roster that changes more than keys, or changes none, replaces no other without a stop."""
    old, new = rotation.roster, with_new_key(rotation.roster, "bob")
    for other, until, says in (
        (Roster(new.members[::-1]), UNTIL, "other members, or another order"),
        (Roster(new.members[1:]), UNTIL, "other members, or another order"),
        (old, UNTIL, "has the same keys"),
        (new, TODAY - DAY, f"until is .*; allowed: {TODAY} or later"),
    ):
        with pytest.raises(InputError, match=says):
            other.replacing(old, until, TODAY)
    with pytest.raises(InputError, match=f"accepts a previous key of alice until {UNTIL}; wait"):
        with_new_key(rotation.new, "bob").replacing(rotation.new, UNTIL, TODAY)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"previous": ""}, "alice has only one of previous and previous_until"),
        ({"previous_until": None}, "alice has only one of previous and previous_until"),
        ({"previous": make_identity("eve").certificate_pem}, "certificate of alice is for 'eve'"),
        ({"previous": ALICE.certificate, "previous_until": UNTIL}, "key of alice is its key"),
    ],
    ids=["no key", "no day", "the key of another", "the current key"],
)
def test_bad_entries_are_named(changed: dict[str, Any], says: str) -> None:
    """A previous key is another one, with the member's name and a last day."""
    rotating = replace(ALICE, previous=make_identity("alice").certificate_pem, previous_until=UNTIL)
    with pytest.raises(InputError, match=says):
        replace(rotating, **changed)


def test_days_that_are_no_dates_are_refused(rotation: Rotation) -> None:
    """In a roster file, the last day is a date of TOML."""
    text = rotation.new.to_toml()
    assert Roster.from_toml(text) == rotation.new
    with pytest.raises(ScenarioError, match="previous_until is 'soon'; allowed: a date"):
        Roster.from_toml(text.replace(f"previous_until = {UNTIL}", 'previous_until = "soon"'))


def test_the_command_makes_and_shows_the_roster(tmp_path: Path) -> None:
    """`keys roster --previous --until` adds previous keys, and `keys show` prints them."""
    files = list[str]()
    for folder, name in (("old", "ada"), ("old", "bob"), ("new", "ada")):
        identity = make_identity(name)
        (tmp_path / folder).mkdir(exist_ok=True)
        save_identity(identity, tmp_path / folder)
        Roster((Member.of(identity, "127.0.0.1", 7000 + len(files)),)).save(
            tmp_path / folder / f"{name}.member.toml"
        )
        files.append(str(tmp_path / folder / f"{name}.member.toml"))
    ada, bob, new = files
    before, after = str(tmp_path / "before.toml"), str(tmp_path / "after.toml")
    run = CliRunner().invoke
    assert run(app, ["keys", "roster", ada, bob, "--out", before]).exit_code == 0
    words = ["keys", "roster", new, bob, "--previous", before, "--out", after]
    assert "--previous and --until" in run(app, words).output
    made = run(app, [*words, "--until", str(UNTIL)])
    assert made.exit_code == 0, made.output
    shown = run(app, ["keys", "show", after]).output
    assert shown == made.output
    old = Roster.load(tmp_path / "before.toml").member("ada").fingerprint
    assert f"{old} accepted until {UNTIL}" in shown
    assert Roster.load(tmp_path / "after.toml").hashes(TODAY)[0].hex() in shown


def test_the_end_of_a_previous_key_is_announced(rotation: Rotation) -> None:
    """Parties warn of it each day, beginning 30 days before."""
    alice = rotation.new.member("alice")
    now = dt.datetime.now(dt.UTC).replace(year=TODAY.year, month=TODAY.month, day=TODAY.day)
    said = f"the previous key of alice is accepted until {UNTIL} (days left: 30); restart alice"
    assert any(line.startswith(said) for line in expiry_warnings((alice,), now))
    assert expiry_warnings((alice,), now - DAY) == []
