"""The order in which tasks that are ready at one instant take turns, drawn from a seed.

An asyncio loop runs them in the order in which they became ready, and a program may unknowingly
rely on that. Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte,
ASPLOS 2010) draws a priority for each task and always runs the highest; at a few points, drawn
beforehand, the task about to run gets the lowest priority. A bug that needs d such orderings is
found with probability of at least 1 / (n k^(d - 1)), for n tasks and k turns.

Here the permutation is bounded: every ready task gets its turn before time advances. Callbacks that
belong to no task keep their places, because a connection delivers its messages in order.
"""

import asyncio
from collections import deque
from typing import Final

from numpy.random import Generator

_CHANGES: Final = 3
"""The number of points at which a priority drops: most known ordering bugs need fewer (Burckhardt
et al.)."""
_TURNS: Final = 2000
"""The number of turns of tasks among which these points are drawn: about that of a world with
faults."""


class Order:
    """Priorities of tasks."""

    def __init__(self, rng: Generator) -> None:
        self._rng = rng
        self._priorities: dict[int, float] = {}
        self._falls = frozenset(rng.integers(_TURNS, size=_CHANGES).tolist())
        self._turns = 0

    def arrange(self, ready: "deque[asyncio.Handle]") -> None:
        """Put the tasks among the ready callbacks into the order of their priorities."""
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
