"""Tasks and futures whose hashes do not depend on where they lie in memory.

`asyncio.wait`, `as_completed`, `TaskGroup` and `all_tasks` keep tasks and futures in sets, and
visit them in the order of their hashes. By default those are addresses: the same program would
visit them in another order in another process.
"""

import asyncio
import inspect
import itertools
from typing import Any, TypeVar

from typing_extensions import override

_T = TypeVar("_T")


class NumberedTask(asyncio.Task[_T]):
    """A task that hashes to the number that its loop gave it."""

    __slots__ = ("_number",)

    @override
    def __init__(self, *args: Any, number: int, **options: Any) -> None:
        self._number = number  # first, for asyncio hashes a task while it is being made
        super().__init__(*args, **options)

    @override
    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[_T]):
    """A future that takes its number when first hashed: few ever are, and all are created often."""

    __slots__ = ("_number", "numbers")
    numbers: "itertools.count[int]"

    @override
    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number: int = next(self.numbers)
            return self._number


def started_by_as_completed() -> bool:
    """Say whether the caller's caller works for `asyncio.as_completed`.

    It puts bare coroutines into a set and starts them in the order of their addresses, which
    nothing outside can mend.
    """
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame else None
    while frame is not None and frame.f_globals is vars(asyncio.tasks):
        if frame.f_code.co_qualname.startswith(("as_completed", "_AsCompletedIterator")):
            return True
        frame = frame.f_back
    return False
