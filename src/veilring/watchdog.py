"""A watchdog: it ends a step of a role that computes without end, at its line.

An event loop runs one step of one task at a time, from one `await` to the next. While a step lasts,
no other party of the loop runs, and no time limit is noticed. A thread therefore observes the loops
of all runs. It ends a step that lasts too long by an exception in the thread of the loop, which
Python raises at the next bytecode. A call that never returns to Python, such as `time.sleep`,
cannot be ended so; the launcher of a party's process kills that process.
"""

import asyncio
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from math import inf
from typing import Any, ClassVar, Final

from veilring.errors import EndlessStep
from veilring.places import place_of_frame

HAS_THREADS: Final = sys.platform != "emscripten"
"""Whether threads can be started: Python in a browser has one, which nothing can watch."""
# On a real clock, a step may exceed the time limit of its run by this: the session can only fail.
# Shorter than the patience of a launcher with a process, which knows no line.
GRACE_SECONDS: Final = 2.0
# Simulated time does not pass in a step, so a step has a limit of processor time of its own: as
# long as a whole session on a real clock. A minute of NumPy is no mistake.
STEP_SECONDS: Final = 120.0
# Ten looks in the time that a step may take, and at least one in a second.
_LOOKS: Final = 10
_PAUSE_MAX_SECONDS: Final = 1.0


class Interruption(BaseException):
    """Ends a step. No `Exception`, so that a role that catches every error ends as well.

    Python makes the instance itself, so a subclass for each step has the details.
    """

    place: ClassVar[str] = ""
    limit: ClassVar[str] = ""

    @classmethod
    def found_in(cls, error: BaseException) -> "Interruption | None":
        """Return the interruption that an error is, or that is in a group of errors."""
        if isinstance(error, BaseExceptionGroup):
            return next(filter(None, map(cls.found_in, error.exceptions)), None)
        return error if isinstance(error, cls) else None

    def told(self, party: str) -> EndlessStep:
        """Return the error of a party whose role was in the step."""
        return EndlessStep(party, self.place, self.limit).with_traceback(self.__traceback__)


class _Watch:
    """A loop of this thread, during a run.

    Args:
        patience: The seconds that one step may last, on the given clock.
        limit: The limit that such a step exceeds, in words.
        due: The time from which these seconds count.
        turn: Returns a number that differs between two looks, unless the loop is in the same turn.
    """

    def __init__(  # noqa: PLR0917  (the limit, and the means to measure it)
        self,
        loop: asyncio.AbstractEventLoop,
        patience: float,
        limit: str,
        clock: Callable[[], float],
        due: float = -inf,
        turn: Callable[[], int] | None = None,
    ) -> None:
        self.pause = patience / _LOOKS
        self._loop, self._thread = loop, threading.get_ident()
        self._patience, self._limit, self._clock, self._due = patience, limit, clock, due
        self._turns, self._turn = 0, turn or self._ask_for_turn
        self._step: tuple[int, asyncio.Task[Any]] | None = None
        self._since = 0.0

    def look(self) -> None:
        """End the step that the loop is in if it has lasted too long."""
        now, task = self._clock(), asyncio.current_task(self._loop)
        step = None if task is None or now < self._due else (self._turn(), task)
        if step is None or step != self._step:
            self._step, self._since = step, now
        elif now - self._since >= self._patience:
            self._since = now  # a role that catches even this is interrupted again
            self._interrupt(step[1])

    def _ask_for_turn(self) -> int:
        self._loop.call_soon_threadsafe(self._count_turn)
        return self._turns

    def _count_turn(self) -> None:
        self._turns += 1

    def _interrupt(self, task: asyncio.Task[Any]) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  (documented; nothing else has it)
        place = f"the task {task.get_name()}, at {place_of_frame(frame)}"
        details = {"place": place, "limit": self._limit}
        interruption = type("Interruption", (Interruption,), details)
        thread = ctypes.c_ulong(self._thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(interruption))


class _Patrol:
    """The watched loops, and the thread that observes them: it ends at a look that finds none."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Observe nothing yet; a forked process has no other thread, and perhaps a taken lock."""
        self._lock = threading.Lock()
        self._watches: set[_Watch] = set()
        self._hurry = threading.Event()
        self._pause = _PAUSE_MAX_SECONDS
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, watch: _Watch) -> Iterator[None]:
        """Observe a loop until the block is left."""
        with self._lock:
            self._watches.add(watch)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="veilring-watchdog", daemon=True
                )
                self._thread.start()
            elif watch.pause < self._pause:
                self._hurry.set()
        try:
            yield
        finally:
            with self._lock:
                self._watches.discard(watch)

    def _run(self) -> None:
        while watches := self._observed():
            for watch in watches:
                with suppress(RuntimeError):  # its loop was closed meanwhile
                    watch.look()
            self._hurry.wait(self._pause)
            self._hurry.clear()

    def _observed(self) -> tuple[_Watch, ...]:
        """Return all watches, and set the pause until the next look."""
        with self._lock:
            watches = tuple(self._watches)
            self._pause = min([_PAUSE_MAX_SECONDS, *(watch.pause for watch in watches)])
            if not watches:
                self._thread = None
            return watches


_patrol: Final = _Patrol()
if hasattr(os, "register_at_fork"):  # not every system can fork
    os.register_at_fork(after_in_child=_patrol.begin)


def watch_until(seconds: float | None) -> AbstractContextManager[None]:
    """Watch the running loop, on a real clock, during a run with a time limit, if it has one."""
    if seconds is None or not HAS_THREADS:
        return nullcontext()
    limit = f"its time limit of {seconds:g} s (`seconds`)"
    due = time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    return _patrol.over(_Watch(loop, GRACE_SECONDS, limit, time.monotonic, due))


@contextmanager
def watch_steps(
    loop: asyncio.AbstractEventLoop, seconds: float, turn: Callable[[], int]
) -> Iterator[None]:
    """Watch a simulated loop of this thread, in which a step may take some processor time.

    Args:
        turn: Returns the number of turns of the loop so far.

    Raises:
        EndlessStep: If a task that plays no role took longer.
    """
    if not HAS_THREADS:
        yield
        return
    limit = f"{seconds:g} s of processor time (`step_seconds` of `simulate`)"
    with _patrol.over(_Watch(loop, seconds, limit, _processor_clock(), turn=turn)):
        try:
            yield
        except BaseException as error:
            if interruption := Interruption.found_in(error):
                raise interruption.told("a task") from None
            raise


def _processor_clock() -> Callable[[], float]:
    """Return a clock of the processor time of this thread, which other threads can read."""
    if hasattr(time, "pthread_getcpuclockid"):
        return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
    return time.process_time
