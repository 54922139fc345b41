"""Orders in which tasks that are ready at one instant take their turns, drawn from a seed.

A loop of asyncio runs them in the order in which they were made ready, and a program may rely on
that without knowing it. Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and
Nagarakatte, ASPLOS 2010) draws a priority for each task and always runs the highest; at a few
points, drawn beforehand, the task that is about to run falls below all others. A mistake that needs
d such orderings is found with probability of at least 1 / (n k^(d - 1)), n tasks and k turns.

Here the permutation is bounded: whoever is ready has had its turn before time goes on. Callbacks
that are no task's keep their places, as a connection hands over its messages in order.
"""

import asyncio
from collections import deque
from typing import Final

from numpy.random import Generator

_CHANGES: Final = 3
"""Points at which a priority falls: most known ordering mistakes need fewer (Burckhardt et al.)."""
_TURNS: Final = 2000
"""Within this many turns of tasks the points lie: about those of a world with faults."""


class Order:
    """Priorities of tasks.

    Args:
        rng: Source of the priorities and of the points at which they fall.
    """

    def __init__(self, rng: Generator) -> None:
        self._rng = rng
        self._priorities: dict[int, float] = {}
        self._falls = frozenset(rng.integers(_TURNS, size=_CHANGES).tolist())
        self._turns = 0

    def arrange(self, ready: "deque[asyncio.Handle]") -> None:
        """Put the tasks among what is ready into the order of their priorities."""
        if len(ready) < 2:  # noqa: PLR2004  (there is no other order)
            self._turns += len(ready)
            return
        handles = list(ready)
        places = [place for place, handle in enumerate(handles) if _task_of(handle) is not None]
        tasks = sorted((handles[place] for place in places), key=self._rank)
        for place, handle in zip(places, tasks, strict=True):
            handles[place] = handle
        ready.clear()
        ready.extend(handles)
        for handle in tasks:
            self._turns += 1
            if self._turns in self._falls:
                self._priorities[hash(_task_of(handle))] = 1.0 + self._turns

    def _rank(self, handle: asyncio.Handle) -> float:
        number = hash(_task_of(handle))
        if number not in self._priorities:
            self._priorities[number] = float(self._rng.random())
        return self._priorities[number]


def _task_of(handle: asyncio.Handle) -> "asyncio.Task[object] | None":
    owner = getattr(getattr(handle, "_callback", None), "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None
