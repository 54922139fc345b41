"""An asyncio event loop whose time is a SimPy environment.

When a callback is ready, the loop runs it; callbacks take no simulated time. When none is, the
loop's selector does not sleep: it processes the next event of SimPy. Timers are events of SimPy, so
that all that is due at one instant, timers and messages alike, happens in the order in which it was
scheduled. Nothing depends on memory addresses, hash seeds or real time.

Two things stay outside: asynchronous generators that are still alive at the end are closed by
asyncio in no fixed order (close them with `contextlib.aclosing`), and finalizers of objects in
reference cycles run when the garbage collector likes.
"""

import asyncio
import contextvars
import functools
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from simpy import Environment
from simpy.events import Event
from typing_extensions import TypeVarTuple, Unpack, override

from veilring.errors import Deadlock, InputError, SimulationError
from veilring.simulation.instants import timeout_at
from veilring.simulation.refusals import refuse_real_world, refused
from veilring.simulation.stepping import SteppingSelector, Timer
from veilring.simulation.tasks import NumberedFuture, NumberedTask, started_by_as_completed

_Ts = TypeVarTuple("_Ts")


@refuse_real_world
class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on the clock of a SimPy environment, deterministic to the bit.

    Sockets, threads, subprocesses and signal handlers raise `SimulationError`. When every task
    waits and SimPy has no event left, `run_until_complete` raises `Deadlock`; the tasks can still
    be cancelled afterwards, as `asyncio.Runner` does. An error in a process of SimPy that nobody
    waits for ends the run.

    Args:
        environment: Where events and processes live; a new one if none is given.
    """

    def __init__(self, environment: Environment | None = None) -> None:
        self.environment = Environment() if environment is None else environment
        self._task_numbers = itertools.count(1)
        self._future_numbers = itertools.count(1)
        self._waits: list[Callable[[], Iterable[str]]] = []
        self._judge: Callable[[], tuple[str, str]] | None = None
        self._thread = threading.get_ident()
        selector = SteppingSelector(self.environment, self._step, self._deadlock)
        super().__init__(selector)
        selector.sealed = True  # what was registered until now is asyncio's own wake-up pipe

    def _step(self) -> None:
        self.environment.step()

    @override
    def run_forever(self) -> None:
        self._thread = threading.get_ident()
        super().run_forever()

    @override
    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self.environment.now

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` at a simulated instant, after all else that is scheduled for it.

        Raises:
            InputError: If `when` is not a number.
            RuntimeError: If the loop is closed.
        """
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        if context is None:
            context = contextvars.copy_context()
        timer = Timer(when, callback, args, self, context)
        due = functools.partial(self.call_soon, callback, *args, context=context)
        timer.wait(timeout_at(self.environment, when), due)
        return timer

    @override
    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call `callback` soon; only from the loop's own thread, say in a signal handler.

        Raises:
            SimulationError: If called from another thread, whose timing nothing can replay.
        """
        if threading.get_ident() != self._thread:
            raise refused("loop.call_soon_threadsafe from another thread", "use one thread")
        return super().call_soon_threadsafe(callback, *args, context=context)

    @override
    def create_future(self) -> asyncio.Future[Any]:
        future: NumberedFuture[Any] = NumberedFuture(loop=self)
        future.numbers = self._future_numbers
        return future

    @override
    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """Start a task; its default name counts the tasks of this loop.

        Raises:
            SimulationError: If called by `asyncio.as_completed`, which starts bare coroutines in
                the order of their addresses.
            RuntimeError: If the loop is closed.
        """
        if started_by_as_completed():
            coro.close()
            instead = "give it tasks: it starts coroutines in the order of their addresses"
            raise refused("asyncio.as_completed over bare coroutines", instead)
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        if self.get_task_factory() is not None:
            return super().create_task(coro, name=name, context=context, **options)
        number = next(self._task_numbers)
        label = f"Task-{number}" if name is None else str(name)
        return NumberedTask(coro, number=number, loop=self, name=label, context=context, **options)

    def describe_waits(
        self,
        describe: Callable[[], Iterable[str]],
        judge: Callable[[], tuple[str, str]] | None = None,
    ) -> None:
        """Ask `describe` when there is a deadlock.

        Args:
            describe: Returns one sentence for each actor it knows that waits: who waits for what
                from whom. None if nobody does.
            judge: Returns the actor at fault, or an empty string, and a sentence that says why.
        """
        self._waits.append(describe)
        self._judge = judge or self._judge

    def _deadlock(self) -> Deadlock:
        waits = tuple(sentence for describe in self._waits for sentence in describe())
        if not waits:
            waits = tuple(f"{task.get_name()} ({_work(task)}) waits" for task in self._pending())
        culprit, verdict = self._judge() if self._judge is not None and waits else ("", "")
        return Deadlock(waits or ("the loop runs without any task",), culprit, verdict)

    def _pending(self) -> list[asyncio.Task[Any]]:
        return sorted(asyncio.all_tasks(self), key=hash)

    async def shutdown_tasks(self) -> None:
        """Cancel all other tasks, oldest first, and wait for them to end.

        `asyncio.Runner` cancels what is left in the order of a set, which depends on what ran in
        the process before.
        """
        tasks = [task for task in self._pending() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _work(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "a coroutine")


def running_environment() -> Environment:
    """Return the SimPy environment of the running loop.

    Raises:
        SimulationError: If the running loop, if any, is not simulated.
    """
    return _running_loop().environment


def wait_event(event: Event) -> asyncio.Future[Any]:
    """Return a future with the outcome of an event of SimPy, to be awaited by a task.

    An event's failure counts as handled once it is handed to the future. If the future was
    cancelled before, the failure ends the run, as it does in SimPy when no process waits for it.

    Raises:
        SimulationError: If the running loop, if any, is not simulated.
        InputError: If the event belongs to another environment and so would never happen here.
    """
    loop = _running_loop()
    if event.env is not loop.environment:
        raise InputError("event", "of another environment", "an event of running_environment()")
    future: asyncio.Future[Any] = loop.create_future()
    if event.callbacks is None:
        _settle(future, event)
    else:
        event.callbacks.append(functools.partial(_settle, future))
    return future


def _settle(future: asyncio.Future[Any], event: Event) -> None:
    if future.done():
        return
    outcome: Any = event.value
    if event.ok:
        future.set_result(outcome)
    else:
        event.defused = True
        future.set_exception(outcome)


def _running_loop() -> SimulatedLoop:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if not isinstance(loop, SimulatedLoop):
        raise SimulationError("no simulated clock runs here; start with veilring.simulation.run")
    return loop
