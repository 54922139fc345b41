"""Terms in the greeting: members with different terms report the keys that differ."""

import pytest

from veilring.transport.handshake import (
    PROTOCOL_VERSION,
    TERMS_CHARACTERS_MAX,
    Hello,
    check_hello,
    terms_text,
)
from veilring.transport.identity import make_identity
from veilring.transport.roster import Member, Roster

ADA, BOB = make_identity("ada"), make_identity("bob")
ROSTER = Roster((Member.of(ADA, "h", 1), Member.of(BOB, "h", 2)))
KEYS = {"protocol.k": "5", "protocol.sum": '"ring"'}


def refusal(theirs: str, ours: str) -> str:
    """Return the reason for which ada refuses bob's greeting, if any."""
    hello = Hello(
        version=PROTOCOL_VERSION, roster=ROSTER.hash, sender="bob", receiver="ada", terms=theirs
    )
    found = check_hello(hello, ROSTER, me="ada", peer="bob", terms=ours)
    return found.reason if found else ""


def test_keys_that_differ_are_named_with_both_values() -> None:
    """A key that only one side has is shown as missing on the other."""
    ours = terms_text(KEYS)
    assert refusal(ours, ours) == ""
    changed = terms_text(KEYS | {"protocol.k": "7", "edition": "2"})
    said = "the terms differ: edition: 2 at bob, nothing at ada; protocol.k: 7 at bob, 5 at ada"
    assert refusal(changed, ours) == said


def test_a_member_without_terms_compares_none() -> None:
    """Records administrators and survey clients get the terms from the party that they ask."""
    assert refusal("", terms_text(KEYS)) == refusal(terms_text(KEYS), "") == ""


@pytest.mark.parametrize("text", ["[]", "{", "[" * 5000, '{"a": {"b": 1}}', '{"\\u0007": "x"}'])
def test_invalid_terms_are_refused_like_others(text: str) -> None:
    """The terms that a peer sends appear in errors as one short line of printable characters."""
    said = refusal(text, terms_text(KEYS))
    assert said.startswith("the terms differ: ")
    assert said.isprintable()


def test_long_terms_are_compared_by_a_hash() -> None:
    """A greeting stays small for any number of keys."""
    many = {f"key {number}": "x" for number in range(TERMS_CHARACTERS_MAX)}
    ours, theirs = terms_text(many), terms_text(many | {"key 1": "y"})
    assert max(len(ours), len(theirs)) < 100
    assert "terms: " in refusal(theirs, ours)
