"""Rate limits: budgets, repeated log lines, and frames per turn, on a test clock."""

import asyncio
import logging
from collections import deque

import pytest

from veilring.transport.pacing import (
    FRAMES_PER_TURN_MAX,
    LINES_KEPT,
    REPEAT_SECONDS,
    SparingLog,
    TokenBuckets,
    TurnOutcome,
    Turns,
)

LOG = logging.getLogger("veilring.tests.pacing")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_budget_is_spent_and_refills() -> None:
    """A key has its burst at once and its rate afterwards, never more than the burst."""
    clock = Clock()
    budgets = TokenBuckets(3, 2.0, clock)
    assert [budgets.spend("ada") for _ in range(4)] == [True, True, True, False]
    assert budgets.spend("bob")
    clock.now = 0.5
    assert [budgets.spend("ada") for _ in range(2)] == [True, False]
    budgets.refund("ada")
    assert budgets.spend("ada")
    clock.now = 100.0
    assert budgets.left("ada") == 3


def test_a_full_budget_takes_no_memory() -> None:
    """Keys with a full budget, such as former source addresses, are forgotten."""
    clock = Clock()
    budgets = TokenBuckets(3, 2.0, clock)
    for number in range(1_000):
        clock.now += 1.0
        assert budgets.spend(f"host {number}")
    assert len(vars(budgets)["_spent"]) <= 2


def test_a_line_is_repeated_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand equal lines become two, and the second gives their number."""
    clock = Clock()
    lines = SparingLog(LOG, clock)
    with caplog.at_level(logging.INFO, LOG.name):
        for _ in range(1_000):
            lines.say(logging.INFO, "ada", "late", "%s is late", "ada")
        clock.now = REPEAT_SECONDS
        lines.say(logging.INFO, "ada", "late", "%s is late", "ada")
        lines.say(logging.INFO, "bob", "late", "%s is late", "bob")
    assert caplog.messages == [
        "ada is late",
        "ada is late (and 999 more like this in 60 s)",
        "bob is late",
    ]


def test_many_different_lines_are_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that causes endless new lines silences only itself."""
    lines = SparingLog(LOG, Clock())
    with caplog.at_level(logging.INFO, LOG.name):
        for number in range(1_000):
            lines.say(logging.INFO, "ada", str(number), "line %d", number)
        lines.say(logging.INFO, "bob", "0", "line of bob")
    assert len(caplog.messages) == LINES_KEPT + 2
    assert caplog.messages[-1] == "line of bob"


class Queue:
    """A queue that takes turns."""

    def __init__(self, name: str, frames: int, taken: list[str]) -> None:
        self._name, self._taken = name, taken
        self._frames = deque(range(frames))

    def step(self) -> TurnOutcome:
        """Take one item."""
        if not self._frames:
            return TurnOutcome.NONE_LEFT
        self._frames.popleft()
        self._taken.append(self._name)
        return TurnOutcome.TAKEN


async def test_frames_are_processed_in_turn_and_a_few_per_loop_turn() -> None:
    """A long and a short queue alternate, and the loop turns in between."""
    taken: list[str] = []
    turns = Turns()
    turns.join(Queue("flood", 100, taken))
    assert len(taken) == FRAMES_PER_TURN_MAX
    turns.join(Queue("honest", 2, taken))
    assert len(taken) == FRAMES_PER_TURN_MAX
    await asyncio.sleep(0)
    assert len(taken) == 2 * FRAMES_PER_TURN_MAX
    assert taken[FRAMES_PER_TURN_MAX:].count("honest") == 2
    for _ in range(100 // FRAMES_PER_TURN_MAX):
        await asyncio.sleep(0)
    assert taken.count("flood") == 100
