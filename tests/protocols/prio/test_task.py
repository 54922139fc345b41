"""The identity of a task of verified sums."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.prio.reports import make_task

from veilring.errors import InputError
from veilring.protocols.prio.task import PARAMETERS, Task, Vdaf, name_task, read_task_name


def test_a_task_is_its_canonical_bytes() -> None:
    """Decoding gives an equal task, and its id is the hash of its bytes."""
    vdaf = Vdaf(kind="sumvec64", bits=8, length=100, chunk_length=30, proofs=3)
    task = make_task(vdaf, epsilon=1.0, closes=1_800_000_000, terms={"asks": ["a", 1.5]})
    again = Task.decode(task.encoded)
    assert again == task
    assert again.task_id == hashlib.sha256(task.encoded).digest() == task.task_id


@pytest.mark.parametrize("key", ["leader", "helper", "time_precision", "minimum", "closes"])
def test_each_parameter_changes_the_identity(key: str) -> None:
    """Two tasks that differ in any value have different ids."""
    given: dict[str, Any] = {key: "https://other.example/" if "er" in key[-2:] else 7}
    assert make_task(**given).task_id != make_task().task_id


def test_other_bytes_of_the_same_task_are_refused() -> None:
    """A task has one encoding: spaces, another order, or numbers beyond JSON are refused."""
    encoded = make_task(terms={"a": 1.5}).encoded
    spaced = json.dumps(json.loads(encoded)).encode()
    infinite = encoded.replace(b"1.5", b"1e999")
    unknown = encoded.replace(b'"format"', b'"colour":1,"format"')
    for wrong in (spaced, infinite, unknown, encoded[:-1], b"", b"[" * 100_000):
        with pytest.raises(InputError):
            Task.decode(wrong)


@pytest.mark.parametrize(
    "url",
    [
        "http://leader.example/",
        "https://leader.example",
        "https://user@leader.example/",
        "https://leader.example/?a",
        "https://leader.example/#a",
        "https://leader.example:0/",
        "https://leader.example:x/",
        "https:///",
        "https://leader.example/\n/",
        "https://löwe.example/",
        "ftp://leader.example/",
        "http://127.0.0.1.example/",
        "https://leader.example/" + "a" * 3000 + "/",
    ],
)
def test_an_unfit_address_is_refused(url: str) -> None:
    """An aggregator has an address with TLS that ends with a slash, with nothing behind."""
    with pytest.raises(ValueError, match="leader"):
        make_task(leader=url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80/", "http://localhost/", "http://[::1]:9/a/"])
def test_plain_http_is_for_this_machine(url: str) -> None:
    """An address without TLS is allowed on loopback."""
    assert make_task(leader=url).leader == url


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_kind_has_exactly_its_parameters(kind: str) -> None:
    """A parameter too few or too many is refused."""
    due = dict.fromkeys(PARAMETERS[kind], 4)
    assert Vdaf.model_validate({"kind": kind, **due}).parameters == due
    for key in ("bits", "length", "chunk_length", "proofs"):
        changed = {each: 4 for each in due if each != key} if key in due else {**due, key: 4}
        with pytest.raises(ValueError, match="has the parameters"):
            Vdaf.model_validate({"kind": kind, **changed})


@given(st.binary(min_size=32, max_size=32))
def test_a_name_is_read_back(task_id: bytes) -> None:
    """The name of a task has 43 characters, and gives its id."""
    name = name_task(task_id)
    assert len(name) == 43
    assert read_task_name(name) == task_id


@given(st.text(max_size=50))
def test_only_the_name_itself_is_read(text: str) -> None:
    """Any text is either the one name of an id, or is refused."""
    task_id = read_task_name(text)
    assert task_id is None or name_task(task_id) == text
