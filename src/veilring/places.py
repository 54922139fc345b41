"""The place at which a role is: the file, line and function of its code, for errors."""

import asyncio
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

# The packages that a role calls: its own code is above them.
_BENEATH: Final = ("asyncio", "veilring.nodes", "veilring.simulation", "veilring.transport")


def place_of_task(task: asyncio.Task[Any]) -> str:
    """Return the place at which a task was suspended, in a role if it plays one."""
    return _innermost(_suspended(task))


def place_of_frame(frame: FrameType | None) -> str:
    """Return the place that a running frame is at, in a role if it plays one."""
    return _innermost(reversed(list(_running(frame))))


def _suspended(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    coroutine: object = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)


def _running(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _innermost(frames: Iterator[FrameType]) -> str:
    """Return the place of the last frame of a role; of the first frame if there is no role."""
    place = "an unknown line"
    for frame in frames:
        package = frame.f_globals.get("__package__") or ""
        if place == "an unknown line" or not package.startswith(_BENEATH):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_qualname}"
    return place
