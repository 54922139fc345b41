"""The messages between analyst and owner, as bytes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import FrameError
from veilring.protocols.radius.messages import LabelAnswer, LabelRequest, label_cost
from veilring.protocols.radius.owner import ask_nearest, ask_within
from veilring.protocols.requests import REQUEST_KEY_BYTES
from veilring.transport.frames import FRAME_BYTES_MAX, frame_size, pack
from veilring.transport.messages import decode, encode

SESSION = bytes(16)
QUERIES = np.random.default_rng(1).random((3, 2))
REQUEST = ask_within(QUERIES, np.full(3, 0.1), 0.5)


def test_messages_are_restored() -> None:
    """A request and an answer are decoded exactly."""
    labels = np.arange(3, dtype=np.uint16)
    answer = LabelAnswer(verdict=0, left=0.0, labels=labels, radii=np.zeros(0))
    for message in (REQUEST, ask_nearest(QUERIES, 5, 0.5), answer):
        assert decode(encode(SESSION, message)) == (SESSION, message)


@pytest.mark.parametrize(
    "changed",
    [
        {"key": bytes(REQUEST_KEY_BYTES - 1)},
        {"key": bytes(REQUEST_KEY_BYTES + 1)},
        {"k": -1},
        {"queries": np.zeros(3)},
        {"queries": np.zeros((3, 2), dtype=np.float32)},
        {"radii": np.zeros((3, 1))},
        {"epsilon": "free"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_an_invalid_request_is_refused(changed: dict[str, Any]) -> None:
    """A field of another type, shape or length is a broken frame."""
    fields: dict[str, Any] = {each: getattr(REQUEST, each) for each in LabelRequest.names} | changed
    with pytest.raises(FrameError):
        decode(pack((SESSION, LabelRequest.kind, *fields.values())))


@pytest.mark.parametrize("changed", [{"verdict": 4}, {"left": -1.0}, {"left": float("nan")}])
def test_an_invalid_answer_is_refused(changed: dict[str, Any]) -> None:
    """An unknown verdict and an invalid remainder are broken frames."""
    labels = np.zeros(3, dtype=np.uint16)
    answer: dict[str, Any] = {"verdict": 0, "left": 0.0, "labels": labels, "radii": np.zeros(0)}
    fields = answer | changed
    with pytest.raises(FrameError):
        decode(pack((SESSION, LabelAnswer.kind, *fields.values())))


def test_a_key_depends_on_the_whole_request() -> None:
    """Equal requests have equal keys, and any other content or name has another key."""
    radii = np.full(3, 0.1)
    same = ask_within(QUERIES.copy(), radii.copy(), 0.5)
    others = [
        ask_within(QUERIES, radii, 0.5, name="again"),
        ask_within(QUERIES, radii, 0.25),
        ask_within(QUERIES, radii * 2, 0.5),
        ask_within(QUERIES[::-1].copy(), radii, 0.5),
        ask_nearest(QUERIES, 1, 0.5),
        ask_nearest(QUERIES, 2, 0.5),
    ]
    assert same.key == REQUEST.key
    assert len({REQUEST.key, *(other.key for other in others)}) == 7


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
