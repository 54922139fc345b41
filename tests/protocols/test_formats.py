"""The versions of messages: no message changes while the number that greetings compare stays.

`formats.json` has a hash for each number: of the fields of all messages of a system, and of the
order in which each party sends them in short runs. To write the hashes of the present numbers:

    python -m tests.protocols.test_formats
"""

import hashlib
import json
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import pytest
from tests.protocols.test_served import played

import veilring as vr
from veilring.protocols.registry import BUILT_IN
from veilring.testing.auditing.findings import AuditedSystem
from veilring.transport.handshake import PROTOCOL_VERSION

PARTIES: Final = 5  # as many as two cycles of a sum need
TABLE: Final = Path(__file__).parent / "formats.json"
GREETINGS: Final = "greetings and sessions"
SUMS: Final = ("masks.", "ring.sum.", "ring.commit", "ring.reveal")
KINDS: Final = {
    "private-knn": ("ring.", "masks.", "peers."),
    "rank-search": ("ranksearch.", "masks.", "ring.queries", "peers."),
    "release": ("release.", "masks.", "dropouts.", "result."),
    "noisy-votes": ("noisyvotes.", "peers.", *SUMS),
    "prio": ("prio.",),
    "ldp-bayes": ("ldp.",),
    "data-owner": ("radius.",),
    "ind-knn": ("prediction.",),
    "tree-walk": ("treewalk.",),
    GREETINGS: ("transport.", "session."),
}
"""The kinds of messages of each system, those of its deployment included."""
OF_AUTHORS: Final = "chunks."
"""The messages that no built-in system sends: they are for protocols of other authors."""
DEPLOYED: Final = tuple(f"veilring.protocols.{name}" for name in ("once", "peers", "prio.messages"))
REMEDY: Final = (
    "the messages of {name} changed. Raise {number}, so that parties of both versions refuse each"
    " other, and run `python -m tests.protocols.test_formats`"
)


def messages() -> dict[str, type[vr.Message]]:
    """Return all messages of veilring, by their kinds."""
    for module in (*(path.partition(":")[0] for path in BUILT_IN.values()), *DEPLOYED):
        import_module(module)
    found, unread = dict[str, type[vr.Message]](), [vr.Message]
    while unread:
        below = unread.pop().__subclasses__()
        unread += below
        found |= {each.kind: each for each in below if each.__module__.startswith("veilring.")}
    return found


def described(annotation: Any, metadata: list[Any]) -> str:
    """Return the type of a field in words that no version of Python, NumPy or pydantic changes."""
    arrays = [repr(each) for each in metadata if isinstance(each, vr.Array)]
    if arrays:
        return arrays[0]
    least = "".join(f" of {each.min_length}" for each in metadata if hasattr(each, "min_length"))
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        parts = (getattr(each, "metadata", None) or [each] for each in inner[1:])
        return described(inner[0], [*metadata, *chain.from_iterable(parts)])
    if origin is Literal:
        return f"one of {inner}"
    if origin in {Union, UnionType}:
        return " or ".join(sorted(described(each, []) for each in inner))
    if origin is tuple:
        return f"tuple{least} ({', '.join(described(e, []) for e in inner if e is not ...)})"
    return f"{annotation.__name__}{least}"


def fields(kind: type[vr.Message]) -> list[str]:
    """Return the name and the type of each field."""
    return [
        f"{name}: {described(field.annotation, list(field.metadata))}"
        for name, field in kind.model_fields.items()
    ]


def variants(system: type[vr.System]) -> Iterator[vr.System]:
    """Yield a system with each of its sums, and with dropouts: they send different messages."""
    field = system.model_fields.get("sum")
    if field is None:
        yield system()
        return
    for losing in ({}, {"lost": 1}) if "lost" in system.model_fields else ({},):
        for value in get_args(field.annotation):
            yield system(sum=value, **({"cycles": 2} if value == "cycles" else {}), **losing)


def order(system: vr.System) -> dict[str, list[str]]:
    """Return the kinds that each party sends in a short run, in their order."""
    example = system.example(parties=PARTIES)
    setup = AuditedSystem(system, example).setup()
    run = vr.simulate(played(setup, example.queries, runtime="simulated", seed=1, trace=True))
    sent = {name: list[str]() for name in setup.parties}
    for message in run.trace:
        sent[message.sender].append(message.kind)
    return sent


def number_of(name: str) -> tuple[str, str]:
    """Return the number that greetings compare, and where it is declared."""
    if name == GREETINGS:
        return str(PROTOCOL_VERSION), "PROTOCOL_VERSION in veilring.transport.handshake"
    system = vr.find_system(name)
    place = f"{system.__name__}.messages_format in {system.__module__}"
    return str(system.messages_format), place


def hash_of(name: str) -> str:
    """Return the hash of the messages of a system, or of greetings."""
    runs = [] if name == GREETINGS else [order(each) for each in variants(vr.find_system(name))]
    seen = {kind for run in runs for kinds in run.values() for kind in kinds}
    assert all(kind.startswith(KINDS[name]) for kind in seen), seen
    said = {kind: fields(each) for kind, each in messages().items() if kind.startswith(KINDS[name])}
    text = json.dumps([said, runs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_message_has_a_new_number(name: str) -> None:
    """Parties of two versions refuse each other when they connect if their messages differ."""
    (number, place), known = number_of(name), json.loads(TABLE.read_text(encoding="utf-8"))
    assert known[name].get(number) == hash_of(name), REMEDY.format(name=name, number=place)


def test_every_message_belongs_to_a_number() -> None:
    """A new message of a built-in system is part of a hash, and a new system has one."""
    assert set(KINDS) == {*BUILT_IN, GREETINGS}
    covered = (*chain.from_iterable(KINDS.values()), OF_AUTHORS)
    assert [kind for kind in messages() if not kind.startswith(covered)] == []


class _Before(vr.Message, kind="test.format-before"):
    number: int
    words: tuple[bytes, ...]


class _After(vr.Message, kind="test.format-after"):
    number: int | None
    words: tuple[str, ...]


def test_a_hash_depends_on_the_names_and_types_of_fields() -> None:
    """Another name, type, dtype, number of axes or length is another message."""
    assert fields(_Before) == ["number: int", "words: tuple (bytes)"]
    assert fields(_After) == ["number: NoneType or int", "words: tuple (str)"]
    assert fields(messages()["ring.topk.vector"])[1] == "values: Array('float64', 2)"
    assert fields(messages()["masks.key"]) == ["public: bytes of 32"]


def write() -> None:
    """Write the hashes of the present numbers; those of earlier numbers stay."""
    known = json.loads(TABLE.read_text(encoding="utf-8"))
    for name in KINDS:
        known.setdefault(name, {})[number_of(name)[0]] = hash_of(name)
    TABLE.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
