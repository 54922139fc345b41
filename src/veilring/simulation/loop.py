"""An asyncio event loop whose time is a SimPy environment.

When a callback is ready, the loop runs it; callbacks take no simulated time. When none is, the loop
does not sleep: it processes the next event of SimPy. Timers are events of SimPy, so everything due
at one instant, timers and messages alike, happens in the order in which it was scheduled. Nothing
depends on memory addresses, hash seeds or real time.

There are two exceptions: asynchronous generators that are still alive at the end are closed by
asyncio in no fixed order (close them with `contextlib.aclosing`), and finalizers of objects in
reference cycles run at any time chosen by the garbage collector.

An asyncio loop runs tasks that are ready at one instant in the order in which they became ready,
and a program may unknowingly rely on that; here the order can be drawn from a seed. Probabilistic
concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010) draws a priority
for each task and always runs the highest; at a few points, drawn beforehand, the task about to run
gets the lowest priority. A bug that needs d such orderings is found with probability of at least 1
/ (n k^(d - 1)), for n tasks and k turns.

Here the permutation is bounded: every ready task gets its turn before time advances. Callbacks that
belong to no task keep their places, because a connection delivers its messages in order.
"""

import asyncio
import contextvars
import functools
import hashlib
import heapq
import itertools
import math
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

from numpy.random import Generator
from simpy import Environment
from simpy.events import NORMAL, Event
from typing_extensions import TypeVarTuple, Unpack, override

from veilring.errors import Deadlock, InputError, SimulationError
from veilring.places import place_of_task
from veilring.simulation.clocks import OWN_CLOCK
from veilring.watchdog import HAS_THREADS, STEP_SECONDS, watch_steps

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
        owners = map(_task_of, ready)
        tasks = {place: hash(task) for place, task in enumerate(owners) if task is not None}
        ranked = sorted(tasks, key=lambda place: self._rank(tasks[place]))
        handles = [ready[place] for place in ranked]
        for place, handle in zip(tasks, handles, strict=True):
            ready[place] = handle
        for place in ranked:
            self._turns += 1
            if self._turns in self._falls:
                self._priorities[tasks[place]] = 1.0 + self._turns

    def _rank(self, number: int) -> float:
        if number not in self._priorities:
            self._priorities[number] = float(self._rng.random())
        return self._priorities[number]


def _task_of(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    owner = getattr(getattr(handle, "_callback", None), "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


EACH_TASK: Final[contextvars.ContextVar[Callable[[Any], Any] | None]] = contextvars.ContextVar(
    "EACH_TASK", default=None
)
"""Wraps the coroutine of each new task of a party, for example to measure its steps."""

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
# Between two events, callbacks hand results to each other: some tens in a row. A role that yields
# between the rows of a table with `asyncio.sleep(0)` takes thousands; more is a loop without end.
STEPS_MAX: Final = 100_000
# Links without latency deliver all messages of a run at one instant, and then each task handles a
# few thousand events there; more than this number for each task is a loop without end. A million
# events take a minute.
EVENTS_MAX: Final = 2**18
_ALTERNATIVES: Final = {
    "wait for an event of SimPy (veilring.simulation.wait_event)": (
        "add_reader add_writer remove_reader remove_writer"
    ),
    "send over simulated links (veilring.simulation.SimulatedNetwork)": (
        "sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto"
        " sock_connect sock_accept sock_sendfile sendfile create_connection create_server"
        " create_datagram_endpoint create_unix_connection create_unix_server"
        " connect_accepted_socket start_tls getaddrinfo getnameinfo"
    ),
    "model it as a process of SimPy, or run it before the simulation": (
        "connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell"
    ),
    "schedule a simulated event, or handle the signal outside the simulation": (
        "add_signal_handler remove_signal_handler"
    ),
    "call the function directly: it takes no simulated time": (
        "run_in_executor set_default_executor"
    ),
}
REFUSED: Final = {name: each for each, names in _ALTERNATIVES.items() for name in names.split()}
"""The refused methods of an event loop, each with an alternative."""


def _refused(tried: str, instead: str) -> SimulationError:
    """Return the error for an attempt to use the real world in the simulation."""
    return SimulationError(f"{tried} would leave the simulated clock; {instead}")


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(_loop: object, *_args: object, **_options: object) -> NoReturn:
        raise _refused(f"loop.{name}", instead)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuse with `SimulationError`; {instead}."
    return refuse


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop on the clock of a SimPy environment, deterministic to the bit.

    Sockets, threads, subprocesses and signal handlers raise `SimulationError`. When every task is
    waiting and SimPy has no event left, `run_until_complete` raises `Deadlock`, unless a function
    given to `at_deadlock` ends a wait; the tasks can still be cancelled afterwards, as by
    `asyncio.Runner`. After `STEPS_MAX` steps without an event, or `EVENTS_MAX` events for each task
    at one instant, it raises `SimulationError`: a task never waits, or waits for no time. An error
    in a process of SimPy that nobody waits for ends the run.

    Args:
        environment: The SimPy environment; by default a new one.
        order: The order in which ready tasks take turns; by default that in which they became
            ready.
    """

    def __init__(
        self, environment: Environment | None = None, *, order: Order | None = None
    ) -> None:
        self.environment = Environment() if environment is None else environment
        self._order = order
        self._task_numbers = itertools.count(1)
        self.future_numbers = itertools.count(1)
        self._releases: list[Callable[[], bool]] = []
        self._limits: list[asyncio.TimerHandle] = []
        self._next_limit = math.inf
        self.turns = 0
        """The number of times that the loop ran what was ready."""
        self._turns_max = STEPS_MAX  # until the next event
        self._events, self._events_max = 0, EVENTS_MAX  # at this instant
        self._thread = threading.get_ident()
        super().__init__()

    def _step(self, due: float) -> None:
        environment = self.environment
        while self._next_limit < due:
            limit = heapq.heappop(self._limits)
            self._next_limit = self._limits[0].when() if self._limits else math.inf
            self.call_at(limit.when(), _reach, limit)
            due = environment.peek()
        self._events = self._events + 1 if due == environment._now else 0  # noqa: SLF001  (`now` is slower)
        environment.step()
        if self._order is not None:
            # everything that arrives at one instant is ready at one instant
            while environment.peek() == due:
                environment.step()

    def _run_once(self) -> None:
        """Run what is ready; if nothing is, make time pass until something becomes so.

        In place of asyncio's own, which looks after files and its heap of timers: here are none.
        One event at a time: a signal's callback must not wait for a long series of silent ones.
        """
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]  # asyncio's own, which has no types
        queue = self.environment._queue  # noqa: SLF001  (as in `peek`)
        while not ready and not self._stopping:  # type: ignore[attr-defined]  # likewise
            due = queue[0][0] if queue else math.inf
            if due == math.inf:
                self._release()
            else:
                self._step(due)
            self._turns_max = self.turns + STEPS_MAX
        self.turns += 1
        if self.turns > self._turns_max:
            self._turns_max = self.turns + STEPS_MAX  # so that the tasks can still be cancelled
            steps = f"{STEPS_MAX:,} steps at {self.time():g} s, and no event"
            raise _endless(steps, _tasks_of(ready))
        if self._events > self._events_max:
            self._check_instant(_tasks_of(ready))
        if self._order is not None:
            self._order.arrange(ready)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001  (in place of asyncio's own)
                handle._run()  # noqa: SLF001  (likewise)

    @override
    def run_forever(self) -> None:
        self._thread = threading.get_ident()
        super().run_forever()

    @override
    def time(self) -> float:
        """Return the simulated time in seconds, as read on the clock of the running party."""
        clock = OWN_CLOCK.get()
        return self.environment.now if clock is None else clock.read()

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` at a simulated time, after everything already scheduled for it."""
        if self._closed:  # type: ignore[attr-defined]  # asyncio's own, which has no types
            raise RuntimeError("Event loop is closed")
        timer = Timer(when, callback, args, self, context)
        clock = OWN_CLOCK.get()
        timer.wait(when if clock is None else clock.instant(when))
        if clock is not None:
            clock.keep(timer)
        return timer

    def ring(self, timer: "Timer") -> None:
        """Call the callback of a timer soon, because it is due."""
        self._ready.append(timer)  # type: ignore[attr-defined]  # asyncio's own, which has no types

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._closed or self._debug:  # type: ignore[attr-defined]  # then asyncio checks more
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # asyncio's own, which has no types
        return handle

    @override
    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call `callback` soon; only from the loop's thread, because others cannot be replayed."""
        if threading.get_ident() != self._thread:
            raise _refused("loop.call_soon_threadsafe from another thread", "use one thread")
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _write_to_self(self) -> None:
        """Do nothing: asyncio wakes a loop that sleeps, and this one never does."""

    def cancel_from_outside(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task from another thread, like Ctrl-C in the loop's own; no replay has it."""
        super().call_soon_threadsafe(task.cancel)

    @override
    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    @override
    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """Start a task; its default name is its number among the tasks of this loop."""
        if _started_by_as_completed():
            coro.close()
            instead = "give it tasks: it starts coroutines in the order of their addresses"
            raise _refused("asyncio.as_completed over bare coroutines", instead)
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        if (wrap := EACH_TASK.get()) is not None:
            coro = wrap(coro)
        if self.get_task_factory() is not None:
            return super().create_task(coro, name=name, context=context, **options)
        number = next(self._task_numbers)
        label = f"Task-{number}" if name is None else str(name)
        return NumberedTask(coro, number=number, loop=self, name=label, context=context, **options)

    def at_deadlock(self, release: Callable[[], bool]) -> None:
        """Call `release` at each deadlock; it returns whether it has ended a task's wait."""
        self._releases.append(release)

    def _release(self) -> None:
        released = [release() for release in self._releases]
        if not any(released):
            waits = [f"{task.get_name()} ({_work(task)}) is waiting" for task in self._pending()]
            raise Deadlock(tuple(waits) or ("the loop is running without any task",))

    def limit(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `callback` after some simulated seconds, unless there is a deadlock before."""
        limit = asyncio.TimerHandle(self.time() + seconds, callback, (), self)
        heapq.heappush(self._limits, limit)
        self._next_limit = self._limits[0].when()
        return limit

    def _check_instant(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Refuse more than `EVENTS_MAX` events for each task, as soon as a task can be named."""
        self._events_max = EVENTS_MAX * max(1, len(self._pending()))
        if tasks and self._events > self._events_max:
            events, self._events = self._events, 0  # so that the tasks can still be cancelled
            raise _endless(f"{events:,} events at {self.time():g} s", tasks)

    def _pending(self) -> list[asyncio.Task[Any]]:
        return sorted(asyncio.all_tasks(self), key=hash)

    async def shutdown_tasks(self) -> None:
        """Cancel all other tasks, oldest first, and wait for them to end.

        `asyncio.Runner` cancels the remaining tasks in the order of a set, which depends on what
        ran in the process before.
        """
        tasks = [task for task in self._pending() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


for _name, _instead in REFUSED.items():
    setattr(SimulatedLoop, _name, _refusal(_name, _instead))


def _reach(limit: asyncio.TimerHandle) -> None:
    if not limit.cancelled():
        limit._run()  # noqa: SLF001  (in place of asyncio's own)


def _work(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "a coroutine")


def _tasks_of(ready: Iterable[asyncio.Handle]) -> list[asyncio.Task[Any]]:
    """Return the tasks among the owners of handles."""
    return [task for task in map(_task_of, ready) if task is not None]


def _endless(found: str, tasks: Sequence[asyncio.Task[Any]]) -> SimulationError:
    which = f": {tasks[0].get_name()}, at {place_of_task(tasks[0])}" if tasks else ""
    return SimulationError(
        f"{found}: a loop that never waits{which}; wait for a message on links with a latency, or"
        " sleep for longer than 0 s"
    )


class LoopTrace:
    """A running hash (BLAKE2b) over `(time, what)`.

    Attributes:
        entries: The entries `(seconds, what)`, if kept.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.count = 0
        self.entries: list[tuple[float, str]] = []
        self._keep = keep
        self._hash = hashlib.blake2b(digest_size=16)

    def record(self, seconds: float, what: str) -> None:
        """Add an entry; the time is hashed to the last bit."""
        self.count += 1
        text = what.encode()
        self._hash.update(struct.pack("<dI", seconds, len(text)) + text)
        if self._keep:
            self.entries.append((seconds, what))

    @property
    def digest(self) -> str:
        """The hash of all entries so far, 32 hexadecimal digits."""
        return self._hash.hexdigest()


class TracedLoop(SimulatedLoop):
    """A simulated loop that records each event of SimPy and each callback made ready."""

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        trace: LoopTrace,
        order: Order | None = None,
    ) -> None:
        self.trace = trace
        super().__init__(environment, order=order)

    @override
    def _step(self, due: float) -> None:
        super()._step(due)
        self.trace.record(self.environment.now, "event")

    @override
    def ring(self, timer: "Timer") -> None:
        self.trace.record(self.environment.now, _describe(timer._callback))  # type: ignore[attr-defined]  # noqa: SLF001  (asyncio's own)
        super().ring(timer)

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        self.trace.record(self.environment.now, _describe(callback))
        return super().call_soon(callback, *args, context=context)


def _describe(callback: Callable[..., Any]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def simulate(
    main: Coroutine[Any, Any, _T],
    *,
    env: Environment | None = None,
    debug: bool = False,
    trace: LoopTrace | None = None,
    order: Order | None = None,
    step_seconds: float = STEP_SECONDS,
) -> _T:
    """Run `main` in the simulation and return its result.

    Tasks that are left when it ends are cancelled, oldest first. Events of SimPy scheduled after
    its end stay in `env` and do not happen.

    Args:
        env: The SimPy environment to run in; by default a new one, at 0 s.
        trace: The record of events, if wanted.
        order: The order in which ready tasks take turns; by default that in which they became
            ready.
        step_seconds: The processor time that one step of a task may take, from one `await` to the
            next. Simulated time does not pass in a step, so only this ends one that has no end.

    Raises:
        EndlessStep: If a step took longer. In a role it ends the role.
        SimulationError: If an event loop is already running in this thread, except a browser's.
        Deadlock: If all tasks are waiting for something that will never happen.
    """
    if HAS_THREADS and _current_loop() is not None:
        main.close()
        raise SimulationError("an event loop is already running here; await the coroutine instead")
    loop = (
        SimulatedLoop(env, order=order)
        if trace is None
        else TracedLoop(env, trace=trace, order=order)
    )
    results = list[_T]()

    async def keep_result() -> None:
        # When it restores SIGINT's handler, Python formats the main task with its result
        # (`signal.signal` words an error that it drops): for a large run that would take as long as
        # the run.
        results.append(await main)

    keep_result.__qualname__ = getattr(main, "__qualname__", "main")  # `Deadlock` names it
    runner = asyncio.Runner(debug=debug, loop_factory=lambda: loop)
    with _outer_loop_aside(), runner:
        try:
            with watch_steps(loop, step_seconds, lambda: loop.turns):
                runner.run(keep_result())
        finally:
            if asyncio.all_tasks(loop):
                loop.run_until_complete(loop.shutdown_tasks())
            if env is None:
                loop.environment._queue.clear()  # noqa: SLF001  (a cycle keeps the environment)
    return results[0]


@contextmanager
def _outer_loop_aside() -> Iterator[None]:
    """Let another loop run inside a step of a running one: a browser's runs as long as its page.

    The functions are those that asyncio has for other event loops.
    """
    outer = _current_loop()
    if outer is None:
        yield
        return
    task = asyncio.current_task(outer)
    if task is not None:
        asyncio._leave_task(outer, task)  # noqa: SLF001  (documented)
    asyncio._set_running_loop(None)  # noqa: SLF001  (as in asyncio's own `run_forever`)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)  # noqa: SLF001  (likewise)
        if task is not None:
            asyncio._enter_task(outer, task)  # noqa: SLF001  (documented)


Start: TypeAlias = Callable[[], Coroutine[Any, Any, _T]]
"""A function that makes the coroutine."""
Runner: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""A function that runs a coroutine on a new loop in this thread: `simulate` or `asyncio.run`."""


def complete(start: Start[_T], runner: Runner = simulate) -> _T:
    """Run a coroutine to its end and return its result. If interrupted, cancel it first.

    In a notebook a loop runs in the thread of the cells, and asyncio allows one loop per thread:
    the coroutine then runs on a loop of its own in another thread. A browser has no other thread,
    and its loop never ends; but without sockets, simulated time does for any runner.
    """
    if not HAS_THREADS:
        return simulate(start())
    if _current_loop() is None:
        return cast("_T", runner(start()))
    outcome, stop = begin(start, runner)
    try:
        return outcome.result()
    except KeyboardInterrupt:
        stop()
        wait([outcome])
        raise


def begin(start: Start[_T], runner: Runner) -> tuple[Future[_T], Callable[[], None]]:
    """Start a coroutine in a thread of its own.

    Returns:
        The future result, and a function that cancels the coroutine.
    """
    begun: Future[asyncio.Task[Any]] = Future()

    async def main() -> _T:
        begun.set_result(cast("asyncio.Task[Any]", asyncio.current_task()))
        return await start()

    def stop() -> None:
        either: tuple[Future[Any], ...] = (begun, outcome)
        wait(either, return_when=FIRST_COMPLETED)
        if begun.done():
            _cancel(begun.result())

    context = contextvars.copy_context()
    executor = ThreadPoolExecutor(1, "veilring-run")
    outcome: Future[_T] = executor.submit(lambda: context.run(lambda: runner(main())))
    executor.shutdown(wait=False)
    return outcome, stop


def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task of another thread's loop."""
    loop = task.get_loop()
    with suppress(RuntimeError):  # the task has ended meanwhile, and its loop is closed
        if isinstance(loop, SimulatedLoop):
            loop.cancel_from_outside(task)
        else:
            loop.call_soon_threadsafe(task.cancel)


def running_environment() -> Environment:
    """Return the SimPy environment of the running loop."""
    return _running_loop().environment


def wait_event(event: Event) -> asyncio.Future[Any]:
    """Return a future for the outcome of an event of SimPy, which a task can await.

    An event's failure counts as handled once it is passed to the future. If the future was
    cancelled before, the failure ends the run, as in SimPy when no process waits for it.
    """
    loop = _running_loop()
    if event.env is not loop.environment:
        raise InputError.because(
            "the event belongs to another environment; use one of running_environment()",
            field="event",
        )
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
    loop = _current_loop()
    if not isinstance(loop, SimulatedLoop):
        raise SimulationError(
            "no simulated clock is running here; start one with veilring.simulation.simulate"
        )
    return loop


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Instant(Event):
    """An event that happens exactly at `instant`, which is not past."""

    _ok = True

    @override
    def __init__(self, environment: Environment, instant: float, value: object = None) -> None:
        # As in a `Timeout`, which happens at `now + (instant - now)`: rounding may move that.
        self.env, self._value = environment, value
        self.callbacks = []
        place = (instant, NORMAL, next(environment._eid), self)  # noqa: SLF001  (as in `schedule`)
        heapq.heappush(environment._queue, place)  # noqa: SLF001  (likewise)


def timeout_at(environment: Environment, instant: float, value: object = None) -> Event:
    """Return an event that happens exactly at `instant`, after everything scheduled for it.

    A `Timeout` of SimPy happens at `now + (instant - now)`, which floating point may round away
    from `instant`. Two events for one instant would then happen at different times, possibly in the
    wrong order.

    Args:
        instant: The time in seconds on that clock. The past means now; infinity means never.
    """
    now = environment.now
    if not instant > now:
        if math.isnan(instant):
            raise InputError("instant", instant, "seconds on the simulated clock")
        instant = now
    return Instant(environment, instant, value)


class Timer(asyncio.TimerHandle):
    """A timer that waits in SimPy's queue."""

    __slots__ = ("_event", "_has_rung")
    _event: Event
    _loop: SimulatedLoop

    def wait(self, instant: float) -> None:
        """Ring at a simulated time."""
        self._has_rung = False
        self._event = timeout_at(self._loop.environment, instant)
        self._event.callbacks.append(self._ring)

    @property
    def is_pending(self) -> bool:
        """Whether it has neither rung nor been cancelled."""
        return not self._has_rung and not self.cancelled()

    def move(self, instant: float) -> None:
        """Ring at another simulated time."""
        self._forget_event()
        self.wait(instant)

    def _forget_event(self) -> None:
        if self._event.callbacks is not None:
            self._event.callbacks.clear()

    def _ring(self, _event: Event) -> None:
        self._has_rung = True
        self._loop.ring(self)

    @override
    def cancel(self) -> None:
        super().cancel()
        self._forget_event()


class NumberedTask(asyncio.Task[_T]):
    """A task whose hash is the number that its loop gave it."""

    __slots__ = ("_number",)

    @override
    def __init__(self, *args: Any, number: int, **options: Any) -> None:
        self._number = number  # first, because asyncio hashes a task while it is being created
        super().__init__(*args, **options)

    @override
    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[_T]):
    """A future that takes its number from its loop when it is first hashed, which is rare."""

    __slots__ = ("_number",)

    @override
    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number: int = next(cast("SimulatedLoop", self.get_loop()).future_numbers)
            return self._number


def _started_by_as_completed() -> bool:
    """Return whether the caller's caller works for `asyncio.as_completed`.

    That function puts bare coroutines into a set and starts them in the order of their addresses,
    which cannot be changed from outside.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  (documented)
    while frame is not None and frame.f_globals is vars(asyncio.tasks):
        if frame.f_code.co_qualname.startswith(("as_completed", "_AsCompletedIterator")):
            return True
        frame = frame.f_back
    return False
