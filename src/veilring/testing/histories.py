"""Histories of operations, as a service's users see them, and checkers for them.

A role marks each of its operations with `operation`. An invariant reads those of all parties from
`recorded`, also those of parties that failed. An operation without a result may have happened or
not, and a checker must allow for both::

    async def counter(party, own, *, server):
        async with operation(party, "add", own) as op:
            await party.send(server, Add(amount=own))
            op.result = (await party.receive(Added, sender=server)).total
        …

    def adds_once(inputs, results):
        check_linearizable(recorded(), COUNTER)

Calls and returns have true times, whatever the clocks of parties show, and no two have the same. A
history is recorded by `veilring.testing.exploring.explore`, and within `recording()`; anywhere else
`operation` does nothing. Parties in processes of their own record nothing.

Linearizability is decided by the search of Wing and Gong ("Testing and verifying concurrent
objects", JPDC 17, 1993), with the memory of configurations that Lowe added ("Testing for
linearizability", CCPE 29, 2017).
"""

import asyncio
import math
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from veilring.errors import InputError
from veilring.nodes.party import Party
from veilring.simulation.loop import SimulatedLoop


class Unknown:
    """The result of an operation that has not returned."""

    def __repr__(self) -> str:
        return "?"


_UNKNOWN: Final = Unknown()


@dataclass(slots=True, eq=False)
class Operation:
    """One operation of one party.

    Attributes:
        kind: Such as "read" or "write".
        result: The result; an `Unknown` unless the operation has returned.
        called: The time of the call, in seconds.
        returned: The time of the return; infinite if the operation failed or did not end, so that
            it may have an effect at any time after the call, or none.
    """

    party: str
    kind: str
    argument: Any = None
    result: Any = None
    called: float = 0.0
    returned: float = math.inf

    @property
    def has_returned(self) -> bool:
        """Whether the operation has returned."""
        return self.returned < math.inf

    def __str__(self) -> str:
        given = "" if self.argument is None else repr(self.argument)
        if not self.has_returned:
            return f"{self.party}: {self.kind}({given}) from {self.called:.3f} s without an end"
        between = f"from {self.called:.3f} to {self.returned:.3f} s"
        return f"{self.party}: {self.kind}({given}) = {self.result!r} {between}"


@dataclass(slots=True)
class History:
    """The operations of one run, in the order of their calls."""

    operations: list[Operation] = field(default_factory=list)
    _latest: float = -math.inf

    def now(self) -> float:
        """Return the time of an event that comes after all earlier ones, in seconds."""
        loop = asyncio.get_running_loop()
        now = loop.environment.now if isinstance(loop, SimulatedLoop) else loop.time()
        self._latest = max(now, math.nextafter(self._latest, math.inf))
        return self._latest

    def attempted(self, kind: str) -> list[Any]:
        """Return the arguments of all operations of a kind."""
        return [each.argument for each in self.operations if each.kind == kind]

    def acknowledged(self, kind: str) -> list[Any]:
        """Return the arguments of the operations of a kind that have returned."""
        of_kind = (each for each in self.operations if each.kind == kind)
        return [each.argument for each in of_kind if each.has_returned]


_recorded: Final = ContextVar[History | None]("veilring_history", default=None)


@contextmanager
def recording() -> Iterator[History]:
    """Record the operations of all tasks that start within the block."""
    history = History()
    token = _recorded.set(history)
    try:
        yield history
    finally:
        _recorded.reset(token)


def recorded() -> History:
    """Return the history of the run that an invariant judges.

    Raises:
        InputError: If nothing is recorded here.
    """
    history = _recorded.get()
    if history is None:
        raise InputError.because(
            "no history is recorded here: call `recorded` in an invariant, or use `recording()`",
            field="history",
        )
    return history


@asynccontextmanager
async def operation(party: Party, kind: str, argument: Any = None) -> AsyncIterator[Operation]:  # noqa: ANN401  (what a role gives)
    """Record an operation: the call at the start of the block, the return at its end.

    The block sets `Operation.result`. If it ends with an error, the operation has no result.
    """
    history, made = _recorded.get(), Operation(party.me, kind, argument)
    if history is None:
        yield made
        return
    made.called = history.now()
    history.operations.append(made)
    yield made
    made.returned = history.now()


def check_agreement(decided: Mapping[str, Any]) -> None:
    """Check that all parties decided the same.

    Raises:
        AssertionError: If two of them differ.
    """
    if decided:
        first, value = next(iter(decided.items()))
        for party, other in decided.items():
            _require(other == value, f"{first} decided {value!r}, and {party} {other!r}")


def check_validity(decided: Mapping[str, Any], proposed: Collection[Any]) -> None:
    """Check that each party decided something that was proposed.

    Args:
        proposed: The proposals of all parties, also of those that failed.

    Raises:
        AssertionError: If nobody proposed a decision.
    """
    for party, value in decided.items():
        _require(value in proposed, f"{party} decided {value!r}, which nobody proposed")


def check_exactly_once(
    delivered: Mapping[str, Iterable[Hashable]],
    *,
    acknowledged: Iterable[Hashable],
    attempted: Iterable[Hashable],
) -> None:
    """Check that each party got each acknowledged item once, and nothing twice or unsent.

    Args:
        delivered: The items that each party got, by its name.
        acknowledged: The items that their senders know to be delivered.
        attempted: All items that were sent; those that are not acknowledged may be missing.

    Raises:
        AssertionError: If an item is missing, was delivered twice, or was never sent.
    """
    due, sent = list(acknowledged), set(attempted)
    for party, items in delivered.items():
        counts = Counter(items)
        for item, times in counts.items():
            _require(item in sent, f"{party} got {item!r}, which nobody sent")
            _require(times == 1, f"{party} got {item!r} {times} times")
        for item in due:
            _require(item in counts, f"{party} did not get {item!r}, which was acknowledged")


@dataclass(frozen=True, slots=True)
class Model:
    """The behaviour of an object that one process uses alone.

    Attributes:
        initial: The state at the start.
        step: Returns the states in which an operation may leave a state: none if the operation
            cannot have its result there. The result is an `Unknown` if the operation has not
            returned.
        groups: Returns groups of operations that can be left out of a history: if it was
            linearizable, then it still is. It makes the error short.
    """

    initial: Hashable
    step: Callable[[Any, Operation], Iterable[Hashable]]
    groups: Callable[[Sequence[Operation]], Iterable[Collection[Operation]]] = lambda _: ()


def register(initial: Hashable = None) -> Model:
    """Return a register: `write` sets its argument, and `read` returns the latest one."""

    def step(state: Hashable, each: Operation) -> Iterable[Hashable]:
        if each.kind == "write":
            return (each.argument,)
        return (state,) if isinstance(each.result, Unknown) or each.result == state else ()

    def groups(operations: Sequence[Operation]) -> Iterator[Collection[Operation]]:
        # Without any write of a value and all reads of it, each other read still finds its own.
        value = {
            each: each.argument if each.kind == "write" else each.result for each in operations
        }
        for written in dict.fromkeys(each.argument for each in operations if each.kind == "write"):
            if written != initial:
                yield [each for each in operations if value[each] == written]
        yield from ([each] for each in operations if each.kind == "read")

    return Model(initial, step, groups)


def check_linearizable(history: History | Iterable[Operation], model: Model) -> None:
    """Check that operations have their results as if each happened at one instant of its time.

    The time of the search is exponential in the number of operations that overlap.

    Raises:
        AssertionError: If there is no such order; it names a part of the history without one.
    """
    given = history.operations if isinstance(history, History) else history
    operations = _until(sorted(given, key=lambda each: each.called), math.inf)
    if not _has_order(operations, model):
        part = _smallest(operations, model)
        raise AssertionError(
            "not linearizable: no order explains these results: " + "; ".join(map(str, part))
        )


def _has_order(operations: Sequence[Operation], model: Model) -> bool:
    """Return whether a sequence of operations, in the order of calls, is linearizable.

    A configuration is the set of the operations that have happened, as bits, and the state.
    """
    due = sum(1 << place for place, each in enumerate(operations) if each.has_returned)
    left: list[tuple[int, Hashable]] = [(0, model.initial)]
    known = set(left)
    while left:
        done, state = left.pop()
        if done & due == due:
            return True
        for place in _next(operations, done):
            for after in model.step(state, operations[place]):
                reached = (done | 1 << place, after)
                if reached not in known:
                    known.add(reached)
                    left.append(reached)
    return False


def _next(operations: Sequence[Operation], done: int) -> Iterator[int]:
    """Yield the operations that may happen next: called before any other one has returned."""
    first = math.inf
    for place, each in enumerate(operations):
        if each.called > first:
            return
        if not done >> place & 1:
            first = min(first, each.returned)
            yield place


def _smallest(operations: list[Operation], model: Model) -> list[Operation]:
    """Return a part of a history that has no order either.

    It is the shortest beginning without an order, and then without each group that can be left out.
    """
    ends = sorted(each.returned for each in operations if each.has_returned)
    begin = next(part for end in ends if not _has_order(part := _until(operations, end), model))
    smaller = True
    while smaller:
        smaller = False
        for group in model.groups(begin):
            rest = [each for each in begin if each not in group]
            if group and not _has_order(rest, model):
                begin, smaller = rest, True
                break
    return begin


def _until(operations: Iterable[Operation], end: float) -> list[Operation]:
    """Return the operations as they were known at a time."""
    return [
        each
        if each.has_returned and each.returned <= end
        else Operation(each.party, each.kind, each.argument, _UNKNOWN, each.called)
        for each in operations
        if each.called <= end
    ]


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not holds:
        raise AssertionError(otherwise)
