"""How an asyncio loop hands its waiting over to SimPy: a selector that steps, timers that queue."""

import asyncio
import math
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from simpy import Environment
from simpy.events import Event
from typing_extensions import override

from veilring.errors import Deadlock
from veilring.simulation.refusals import refused


class SteppingSelector(selectors.BaseSelector):
    """A selector that makes time pass instead of waiting for files.

    Args:
        environment: Whose events are processed.
        step: Processes the next of them.
        deadlock: Builds the error for when there is none.
    """

    def __init__(
        self, environment: Environment, step: Callable[[], None], deadlock: Callable[[], Deadlock]
    ) -> None:
        self.sealed = False
        self._peek, self._step, self._deadlock = environment.peek, step, deadlock
        self._keys: dict[Any, selectors.SelectorKey] = {}

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # One event at a time: a signal's callback must not wait for a long row of silent ones.
        if timeout != 0:
            if self._peek() == math.inf:
                raise self._deadlock()
            self._step()
        return []

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.sealed:
            raise refused("watching a file or socket", "use simulated links or events of SimPy")
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._keys[fileobj] = key
        return key

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    @override
    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class Timer(asyncio.TimerHandle):
    """A timer that waits in SimPy's queue."""

    __slots__ = ("_due", "_event", "_soon")
    _due: Callable[[], asyncio.Handle]
    _event: Event
    _soon: asyncio.Handle | None

    def wait(self, event: Event, due: Callable[[], asyncio.Handle]) -> None:
        """Call `due` when `event` happens."""
        self._event, self._due, self._soon = event, due, None
        event.callbacks.append(self._ring)

    def _ring(self, _event: Event) -> None:
        self._soon = self._due()

    @override
    def cancel(self) -> None:
        super().cancel()
        if self._event.callbacks is not None:
            self._event.callbacks.clear()
        if self._soon is not None:
            self._soon.cancel()
