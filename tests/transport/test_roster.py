"""The roster: reading, writing, and errors that name the wrong key."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from veilring.errors import InputError, ScenarioError
from veilring.transport.roster import HOST_CHARACTERS_MAX, PORT_MAX, Member, Roster, make_identity

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
        (TEXT.replace('name = "bob"\n', ""), "members[1].name"),
        (TEXT.replace('name = "bob"', 'name = "alice"'), "members[1].certificate"),
        (TEXT.replace('kind = "client"', ""), "members[2].host"),
    ],
)
def test_an_unfit_file_is_refused(text: str, field: str) -> None:
    """Mistakes in a file are named by their dotted key."""
    with pytest.raises(ScenarioError) as caught:
        Roster.from_toml(text)
    assert caught.value.field == field
