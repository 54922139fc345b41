"""Terms in the greeting: members with different terms report the keys that differ."""

import datetime as dt

import pytest

from veilring.errors import FrameError
from veilring.transport.handshake import (
    PROTOCOL_VERSION,
    REASON_CHARACTERS_MAX,
    TERMS_CHARACTERS_MAX,
    About,
    Hello,
    check_hello,
)
from veilring.transport.roster import Member, Roster, make_identity

ADA, BOB = make_identity("ada"), make_identity("bob")
ROSTER = Roster((Member.of(ADA, "h", 1), Member.of(BOB, "h", 2)))
KEYS = {"protocol.k": "5", "protocol.sum": '"ring"'}


def refusal(theirs: str, ours: dict[str, str]) -> str:
    """Return the reason for which ada refuses bob's greeting, if any."""
    hello = Hello(
        version=PROTOCOL_VERSION, roster=ROSTER.hash, sender="bob", receiver="ada", about=theirs
    )
    found = check_hello(
        hello, ROSTER, me="ada", peer="bob", ours=About.of_terms(ours), today=dt.date(2030, 6, 1)
    )
    return found.reason if found else ""


def about(terms: dict[str, str]) -> str:
    """Return the description of a side with these terms."""
    return About.of_terms(terms).text


def test_keys_that_differ_are_named_with_both_values() -> None:
    """A key that only one side has is shown as missing on the other."""
    assert refusal(about(KEYS), KEYS) == ""
    changed = about(KEYS | {"protocol.k": "7", "edition": "2"})
    said = "the terms differ: edition: 2 at bob, nothing at ada; protocol.k: 7 at bob, 5 at ada"
    assert refusal(changed, KEYS) == said


def test_formats_are_named_before_all_other_keys() -> None:
    """An older side is named even if a hundred other keys differ with the format."""
    many = {f"a {number}": "x" * 100 for number in range(100)} | {"votes format": "2"}
    said = refusal(about(dict.fromkeys(many, "y") | {"votes format": "1"}), many)
    older = "votes format: 1 at bob, 2 at ada (update veilring at bob, which is older)"
    assert said.startswith(f"the terms differ: {older}; a 0: ")
    assert said.endswith(" more")
    assert len(said) < REASON_CHARACTERS_MAX


def test_long_values_are_compared_in_full() -> None:
    """Two keys or values that differ only after the shown part still differ."""
    long = "x" * 100
    assert refusal(about({"a": f"{long}1"}), {"a": f"{long}2"}).startswith("the terms differ: a: ")
    assert refusal(about({f"{long}1": "a"}), {f"{long}2": "a"}).startswith("the terms differ: xx")


def test_a_member_without_terms_compares_none() -> None:
    """Records administrators and survey clients get the terms from the party that they ask."""
    assert refusal("", KEYS) == refusal(about({}), KEYS) == refusal(about(KEYS), {}) == ""


@pytest.mark.parametrize("text", ["[]", "{", "[" * 5000, '{"terms": {"a": {"b": 1}}}'])
def test_an_invalid_description_is_refused(text: str) -> None:
    """A peer cannot skip the comparison of terms with a text that nobody can read."""
    with pytest.raises(FrameError):
        refusal(text, KEYS)


def test_the_terms_of_a_peer_are_shown_in_printable_characters() -> None:
    """The terms that a peer sends appear in errors as one short line of printable characters."""
    said = refusal(about({"\u0007" * 100: "\n"}), KEYS)
    assert said.startswith("the terms differ: ????")
    assert said.isprintable()


def test_parts_of_later_versions_are_ignored() -> None:
    """A later version may describe itself in more words."""
    assert refusal('{"terms": {"a": "1"}, "colour": ["red"]}', {"a": "1"}) == ""


def test_long_terms_are_compared_by_a_hash() -> None:
    """A greeting stays small for any number of keys."""
    many = {f"key {number}": "x" for number in range(TERMS_CHARACTERS_MAX)}
    theirs = about(many | {"key 1": "y"})
    assert max(len(about(many)), len(theirs)) < 200
    assert "terms: " in refusal(theirs, many)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (("1.0", 1e9), ("1.0", 1e9 + 60), []),
        (("1.0", 1e9), ("", None), []),
        (("1.1", 1e9), ("1.0", 1e9), ["bob runs veilring 1.0, we run 1.1"]),
        (("1", 1e9), ("1", 1e9 - 2_592_000), ["our clock and that of bob differ by 30 days"]),
        (("1", 1e9), ("1", 1e9 + 3600), ["our clock and that of bob differ by 60 minutes"]),
    ],
)
def test_sides_name_other_versions_and_clocks(
    ours: tuple[str, float], theirs: tuple[str, float | None], said: list[str]
) -> None:
    """Versions of veilring and clocks that differ are named, because they may explain a failure."""
    here, there = (About(veilring=v, clock=clock) for v, clock in (ours, theirs))
    assert here.differences("bob", there) == said
