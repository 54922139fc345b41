"""Rosters, identities and new keys: their files, their errors, and what agrees."""

import datetime as dt
import hashlib
import re
import ssl
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.cli.invoking import invoke
from tests.transport.towns import Town, both_fail, with_key

from veilring.deployment.expiry import expiry_warnings
from veilring.errors import InputError, ScenarioError
from veilring.privacy.files import PRIVATE_MODE
from veilring.transport.roster import (
    HOST_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    PORT_MAX,
    Identity,
    Member,
    Roster,
    load_identity,
    make_identity,
    read_certificate,
    save_identity,
    write_identity,
)

NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)


def test_an_identity_has_a_key_and_a_certificate() -> None:
    """Its fingerprint is the SHA-256 of the SubjectPublicKeyInfo; its printed form has no key."""
    identity = make_identity("alice", valid_days=10, now=NOON)
    public = identity.private_key.public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert identity.fingerprint == hashlib.sha256(spki).hexdigest()
    assert identity.fingerprint != make_identity("alice").fingerprint
    name, certificate = read_certificate(identity.certificate_pem)
    assert name == "alice"
    assert certificate.not_valid_before_utc == NOON - dt.timedelta(days=1)
    assert certificate.not_valid_after_utc == NOON + dt.timedelta(days=10)
    certificate.verify_directly_issued_by(certificate)
    assert "private_key" not in repr(identity)


def test_names_and_validities_are_limited() -> None:
    """A name has no characters special in file names or logs; a certificate is valid for a day."""
    for name in ("a", "A.b_c-9", "x" * NAME_CHARACTERS_MAX):
        assert make_identity(name).name == name
    for name in ("", ".hidden", "-option", "a/b", "a b", "a\n", "é", "x" * 65):
        with pytest.raises(InputError, match=r"is not a name: it must have 1 to 64 of"):
            make_identity(name)
    with pytest.raises(InputError, match="valid_days is 0"):
        make_identity("alice", valid_days=0)


def test_saved_identities_are_restored_and_never_overwritten(tmp_path: Path) -> None:
    """A saved identity is one file that only its owner can read, with no draft beside it."""
    identity = make_identity("alice")
    path = save_identity(identity, tmp_path)
    assert path == tmp_path / "alice.key"
    assert stat.S_IMODE(path.stat().st_mode) == PRIVATE_MODE
    with pytest.raises(InputError, match="does not exist yet"):
        save_identity(make_identity("alice"), tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    back = load_identity(path)
    assert (back.name, back.certificate) == ("alice", identity.certificate)
    assert back.private_key.private_numbers() == identity.private_key.private_numbers()


def test_an_unfit_key_file_is_refused(tmp_path: Path) -> None:
    """It has one P-256 key with its certificate, and no permission for group or others."""
    alice = make_identity("alice")
    path = save_identity(alice, tmp_path)
    other = save_identity(make_identity("bob"), tmp_path).read_text()
    key, certificate = re.findall(
        r"-----BEGIN.*?-----END [A-Z ]+-----\n", path.read_text(), re.DOTALL
    )
    mixed = key + other[other.index("-----BEGIN CERT") :]
    strange = Identity("alice", alice.certificate, ec.generate_private_key(ec.SECP384R1()))
    encoded = alice.certificate.public_bytes(Encoding.DER)
    later = encoded.replace(bytes.fromhex("a003020102"), bytes.fromhex("a00302013d"), 1)
    of_version_61 = key + ssl.DER_cert_to_PEM_cert(later)
    assert later != encoded
    serial = encoded.index(bytes.fromhex("a003020102")) + 7  # behind the version, a tag and a size
    below_zero = encoded[:serial] + bytes([encoded[serial] | 0x80]) + encoded[serial + 1 :]
    of_serial_below_zero = key + ssl.DER_cert_to_PEM_cert(below_zero)
    other_curve = write_identity(strange).decode()
    others = (mixed, other_curve, of_version_61, of_serial_below_zero)
    for text in (certificate, key, "\x00\x01", *others):
        path.write_text(text)
        with pytest.raises(InputError, match=r"P-256|unencrypted|PEM certificate"):
            load_identity(path)
    for mode in (0o640, 0o604, 0o620, 0o601):
        path.chmod(mode)
        with pytest.raises(InputError, match=f"mode {mode:o}, .*chmod 600"):
            load_identity(path)


ALICE = Member.of(make_identity("alice"), "alice.example", 7000)
BOB = Member.of(make_identity("bob"), "127.0.0.1", PORT_MAX)
CAROL = Member.of(make_identity("carol"), kind="client")
CAROL_AGAIN = make_identity("carol")
ROSTER = Roster((ALICE, BOB, CAROL))


def test_saved_rosters_are_restored(tmp_path: Path) -> None:
    """Its members are found in order, by name, by key and by kind."""
    ROSTER.save(tmp_path / "roster.toml")
    roster = Roster.load(tmp_path / "roster.toml")
    assert (roster, roster.hash) == (ROSTER, ROSTER.hash)
    assert roster.names == ("alice", "bob", "carol")
    assert roster.parties == ("alice", "bob")
    assert roster.member("bob") == BOB
    assert roster.owner(CAROL.fingerprint) == CAROL
    assert roster.owner("0" * 64) is None
    with pytest.raises(InputError, match="mallory"):
        roster.member("mallory")


def test_hash_depends_on_members_order_keys_and_kinds_and_not_on_addresses() -> None:
    """Members that agree on each other have equal hashes, whatever networks they are in."""
    again = Member.of(make_identity("alice"), "alice.example", 7000)
    dave = Member.of(make_identity("dave"), kind="client")
    client = Member.of(make_identity("bob"), kind="client")
    others = [(BOB, ALICE, CAROL), (ALICE, BOB), (ALICE, BOB, CAROL, dave), (again, BOB, CAROL)]
    hashes = {Roster(members).hash for members in (*others, ROSTER.members, (ALICE, client, CAROL))}
    assert len(hashes) == len(others) + 2
    assert all(len(digest) == 32 for digest in hashes)
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


def ended(roster: Roster) -> Roster:
    """Return the roster with previous keys whose last day was yesterday."""
    until = {each: TODAY - DAY if each.previous else None for each in roster.members}
    return Roster(tuple(replace(each, previous_until=day) for each, day in until.items()))


def bare(roster: Roster) -> Roster:
    """Return the roster without previous keys."""
    return Roster(tuple(replace(m, previous="", previous_until=None) for m in roster.members))


def accepting(before: Roster, key: Identity, until: dt.date = UNTIL) -> Roster:
    """Return the roster with a new key of a member, whose previous one is accepted up to a day."""
    return with_key(before, key).replacing(before, until, TODAY)


class Rotation(Town):
    """Two parties and a client, one of which gets a new key.

    Attributes:
        new: The roster that accepts its new and its previous key.
    """

    def __init__(self, name: str = "alice") -> None:
        super().__init__(("alice", "bob"), ("carol",))
        self.key = make_identity(name)
        self.new = accepting(self.roster, self.key)


@pytest.fixture
def rotation() -> Iterator[Rotation]:
    """Return a town in which alice gets a new key."""
    with closing(Rotation()) as rotation:
        yield rotation


ALL = ("alice", "bob", "carol")


@pytest.mark.parametrize(
    "updated", [("bob",), ("alice",), ("carol",), ("alice", "bob"), ALL], ids=" and ".join
)
@pytest.mark.parametrize("name", ALL)
async def test_members_get_the_new_roster_and_then_the_new_key(
    name: str, updated: tuple[str, ...]
) -> None:
    """Some have the old roster and some the new one; then some the one without the old key."""
    town = Rotation(name)
    for key, rest, some in (
        (town.identities[name], town.roster, town.new),
        (town.key, town.new, bare(town.new)),
    ):
        town.identities[name] = key
        town.rosters = dict.fromkeys(ALL, rest) | dict.fromkeys(updated, some)
        async with town.start_all() as endpoints:
            assert set(endpoints["carol"].connected) == {"alice", "bob"}
            assert "bob" in endpoints["alice"].connected


ENDED, DIFFER = f"was accepted until {TODAY - DAY};", "the rosters differ"


@pytest.mark.parametrize(
    ("name", "has_new", "at_bob", "says"),
    [
        ("alice", False, lambda t: ended(t.new), f"key of alice {ENDED} let alice use its"),
        (
            "carol",
            False,
            lambda t: ended(t.new),
            f"the previous roster, which {ENDED} give it ours",
        ),
        ("carol", True, lambda t: accepting(t.roster, CAROL_AGAIN), DIFFER),
        ("carol", True, lambda t: accepting(with_key(t.roster, CAROL_AGAIN), t.key), DIFFER),
    ],
    ids=["previous key ended", "previous roster ended", "other new keys", "other previous keys"],
)
async def test_rosters_that_do_not_agree_are_named(
    name: str, has_new: bool, at_bob: Callable[[Rotation], Roster], says: str
) -> None:
    """Both sides learn which key or roster has ended and what to do, or that the rosters differ."""
    town = Rotation(name)
    town.rosters = {"alice": town.new if has_new else town.roster, "bob": at_bob(town)}
    assert all(says in each for each in await both_fail(town))


async def test_own_previous_key_that_has_ended_is_named_at_once(rotation: Rotation) -> None:
    """A party does not start with a key that no peer accepts."""
    rotation.roster = ended(rotation.new)
    with pytest.raises(InputError, match=f"was accepted until {TODAY - DAY}; use the new key"):
        await rotation.start("alice")


def test_hashes_cover_the_keys_that_are_accepted(rotation: Rotation) -> None:
    """Previous keys and their last days count; the entries of ended ones may be removed."""
    old, new = rotation.roster, rotation.new
    assert ended(new).hashes(TODAY) == bare(new).hashes(TODAY) == (new.hash,)
    assert (len(new.hashes(UNTIL)), len(new.hashes(UNTIL + DAY))) == (3, 1)
    longer = accepting(old, rotation.key, UNTIL + DAY)
    assert len({each.hashes(TODAY)[0] for each in (new, bare(new), longer)}) == 3


def test_only_keys_may_differ_from_the_previous_roster(rotation: Rotation) -> None:
    """A roster that changes more than keys, or changes none, replaces no other without a stop."""
    bob = make_identity("bob")
    old, new = rotation.roster, with_key(rotation.roster, bob)
    for other, until, says in (
        (Roster(new.members[::-1]), UNTIL, "other members, or another order"),
        (Roster(new.members[1:]), UNTIL, "other members, or another order"),
        (old, UNTIL, "has the same keys"),
        (new, TODAY - DAY, f"until is .*; allowed: {TODAY} or later"),
    ):
        with pytest.raises(InputError, match=says):
            other.replacing(old, until, TODAY)
    with pytest.raises(InputError, match=f"accepts a previous key of alice until {UNTIL}; wait"):
        accepting(rotation.new, bob)


def test_bad_entries_are_named(rotation: Rotation) -> None:
    """A previous key is another one, with the member's name and a last day that is a date."""
    rotating = rotation.new.member("alice")
    for changed, says in (
        ({"previous": ""}, "alice has only one of previous and previous_until"),
        ({"previous_until": None}, "alice has only one of previous and previous_until"),
        ({"previous": CAROL.certificate}, "certificate of alice is for 'carol'"),
        ({"previous": rotating.certificate}, "key of alice is its key"),
    ):
        with pytest.raises(InputError, match=says):
            replace(rotating, **changed)
    text = rotation.new.to_toml()
    assert Roster.from_toml(text) == rotation.new
    with pytest.raises(ScenarioError, match="previous_until is 'soon'; allowed: a date"):
        Roster.from_toml(text.replace(f"previous_until = {UNTIL}", 'previous_until = "soon"'))


def test_the_command_makes_and_shows_the_roster(tmp_path: Path) -> None:
    """`keys roster --previous --until` adds previous keys, and `keys show` prints them."""
    invoke("keys", "new", "ada", "bob", "--out", tmp_path / "old")
    invoke("keys", "new", "ada", "--out", tmp_path / "new")
    ada, bob, new = (tmp_path / f"{who}.member.toml" for who in ("old/ada", "old/bob", "new/ada"))
    before, after = tmp_path / "before.toml", tmp_path / "after.toml"
    assert invoke("keys", "roster", ada, bob, "--out", before)[0] == 0
    words = ("keys", "roster", new, bob, "--previous", before, "--out", after)
    assert "--previous and --until" in invoke(*words)[2]
    made = invoke(*words, "--until", str(UNTIL))
    assert made[0] == 0
    assert invoke("keys", "show", after) == made
    old = Roster.load(before).member("ada").fingerprint
    assert f"{old} accepted until {UNTIL}" in made[1]
    assert Roster.load(after).hashes(TODAY)[0].hex() in made[1]


def test_the_end_of_a_previous_key_is_announced(rotation: Rotation) -> None:
    """Parties warn of it each day, beginning 30 days before."""
    alice = rotation.new.member("alice")
    now = dt.datetime.now(dt.UTC).replace(year=TODAY.year, month=TODAY.month, day=TODAY.day)
    said = f"the previous key of alice is accepted until {UNTIL} (days left: 30); let alice"
    assert any(each.sentence.startswith(said) for each in expiry_warnings((alice,), now))
    assert expiry_warnings((alice,), now - DAY) == []
