"""Analyst and data owner: what ends their session, and whom it blames; the requests as bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.radius.parties import QUERIES, RADII, RULES, asked, labelling

from veilring.errors import FrameError, InputError, ProtocolViolation, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.privacy.budgets import Budgets
from veilring.protocols.radius.messages import LabelAnswer, LabelRequest, label_cost
from veilring.protocols.radius.owner import ask_nearest, ask_within
from veilring.protocols.requests import REQUEST_KEY_BYTES
from veilring.transport.frames import FRAME_BYTES_MAX, frame_size, pack
from veilring.transport.messages import Message, decode, encode

ANALYST, OWNER = "party-0", "party-1"
SESSION = bytes(16)
Role = Callable[[Party, object], Awaitable[object]]


def failure(role: Role, *own: object) -> RunFailed:
    """Return the error that ends a session of an analyst and an owner."""

    async def main() -> None:
        async with Cluster(2, own=list(own), seed=1) as cluster:
            await cluster.run(role)

    with pytest.raises(RunFailed) as failed:
        asyncio.run(main())
    return failed.value


async def without_checks(party: Party, own: object) -> object:
    """Send a request without checking the rules."""
    if isinstance(own, LabelRequest):
        await party.send(party.peers[0], own)
        return await party.receive(LabelAnswer, sender=party.peers[0])
    return await labelling(party, own)


BAD = {
    "features": ask_within(np.hstack([QUERIES, QUERIES]), RADII, 0.5),
    "nothing": ask_within(QUERIES[:0], RADII[:0], 0.5),
    "outside": ask_within(QUERIES + 0.9, RADII, 0.5),
    "nan": ask_within(QUERIES * np.nan, RADII, 0.5),
    "radii": ask_within(QUERIES, RADII[1:], 0.5),
    "negative": ask_within(QUERIES, -RADII, 0.5),
    "infinite": ask_within(QUERIES, RADII * np.inf, 0.5),
    "not a radius": ask_within(QUERIES, RADII * np.nan, 0.5),
    "wide": ask_within(QUERIES, RADII + 1.2, 0.5),
    "free": ask_within(QUERIES, RADII, 0.0),
    "cheap": ask_within(QUERIES, RADII, 1e-9),
    "dear": ask_within(QUERIES, RADII, 1.5),
    "no price": ask_within(QUERIES, RADII, float("nan")),
    "huge k": ask_nearest(QUERIES, 1 << 40, 0.5),
    "both": LabelRequest(key=bytes(16), epsilon=0.5, k=3, queries=QUERIES, radii=RADII),
    "many": ask_within(np.tile(QUERIES, (300, 1)), np.tile(RADII, 300), 0.5),
}


@pytest.mark.parametrize("name", BAD)
def test_a_request_that_no_honest_analyst_sends_ends_the_session(name: str) -> None:
    """An analyst refuses to send it, and the owner reports a violation without any draw."""
    with pytest.raises(InputError):
        RULES.check(BAD[name])
    error = failure(without_checks, BAD[name], Budgets(total=1.0)).errors[OWNER]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == ANALYST


async def lying(party: Party, own: object) -> object:
    """Answer with the party's own data."""
    if isinstance(own, LabelAnswer):
        await party.receive(LabelRequest, sender=party.peers[0])
        await party.send(party.peers[0], own)
        return None
    return await labelling(party, own)


@pytest.mark.parametrize(
    ("labels", "radii"),
    [
        (np.zeros(4), np.zeros(5)),
        (np.zeros(5), np.zeros(0)),
        (np.full(5, 2), np.zeros(5)),
        (np.zeros(5), np.full(5, -1.0)),
        (np.zeros(5), np.full(5, np.inf)),
    ],
    ids=["labels", "radii", "class", "negative", "infinite"],
)
def test_an_answer_that_no_honest_owner_sends_is_refused(labels: object, radii: object) -> None:
    """An analyst accepts no labels from an answer that does not fit its request."""
    whole = np.asarray(labels, dtype=np.uint16)
    answer = LabelAnswer(verdict=0, left=0.0, labels=whole, radii=np.asarray(radii))
    error = failure(lying, ask_nearest(QUERIES, 10, 0.5), answer).errors[ANALYST]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == OWNER


LABELS = np.zeros(5, dtype=np.uint16)
ANSWER = LabelAnswer(verdict=0, left=0.0, labels=LABELS, radii=np.zeros(0))


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (asked(""), {"key": bytes(REQUEST_KEY_BYTES - 1)}),
        (asked(""), {"key": bytes(REQUEST_KEY_BYTES + 1)}),
        (asked(""), {"k": -1}),
        (asked(""), {"queries": np.zeros(3)}),
        (asked(""), {"queries": np.zeros((3, 2), dtype=np.float32)}),
        (asked(""), {"radii": np.zeros((3, 1))}),
        (asked(""), {"epsilon": "free"}),
        (ANSWER, {"verdict": 4}),
        (ANSWER, {"left": -1.0}),
        (ANSWER, {"left": float("nan")}),
    ],
)
def test_an_invalid_message_is_a_broken_frame(message: Message, changed: dict[str, Any]) -> None:
    """A field of another type, shape, length or range is refused before a role sees it."""
    fields: dict[str, Any] = {name: getattr(message, name) for name in message.names} | changed
    with pytest.raises(FrameError):
        decode(pack((SESSION, message.kind, *fields.values())))


def test_a_key_depends_on_the_whole_request() -> None:
    """Equal requests have equal keys, and any other content or name has another key."""
    same = ask_within(QUERIES.copy(), RADII.copy(), 0.5)
    others = [
        ask_within(QUERIES, RADII, 0.5, name="again"),
        ask_within(QUERIES, RADII, 0.25),
        ask_within(QUERIES, RADII * 2, 0.5),
        ask_within(QUERIES[::-1].copy(), RADII, 0.5),
        ask_nearest(QUERIES, 1, 0.5),
        ask_nearest(QUERIES, 2, 0.5),
    ]
    assert same.key == asked("").key
    assert len({same.key, *(other.key for other in others)}) == 7


@given(st.integers(1, 200), st.integers(1, 20), st.sampled_from([0, 1, 127, 128, 70_000]))
def test_the_closed_form_has_the_size_of_any_content(queries: int, features: int, k: int) -> None:
    """The size depends only on the numbers of queries and features and on k."""
    rng = np.random.default_rng(queries)
    points, radii = rng.random((queries, features)), rng.random(queries)
    request = ask_nearest(points, k, 0.3) if k else ask_within(points, radii, 0.7)
    labels = rng.integers(1 << 16, size=queries).astype(np.uint16)
    answer = LabelAnswer(verdict=3, left=0.123, labels=labels, radii=radii if k else np.zeros(0))
    forecast = label_cost(queries, features, k).traffic
    assert forecast.messages == 2
    assert forecast.bytes == sum(frame_size(encode(SESSION, each)) for each in (request, answer))
    assert forecast.bytes < 320 + queries * (8 * features + 10)
    assert forecast.bytes < FRAME_BYTES_MAX
