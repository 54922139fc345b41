"""One call that runs a coroutine on a simulated clock."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from simpy import Environment

from veilring.errors import SimulationError
from veilring.simulation.clock import SimulatedLoop
from veilring.simulation.trace import Trace, TracedLoop

_T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    env: Environment | None = None,
    debug: bool = False,
    trace: Trace | None = None,
) -> _T:
    """Run `main` on a simulated clock and return its result.

    Tasks that are left when it ends are cancelled, oldest first. Events of SimPy that lie beyond
    its end stay in `env` and do not happen.

    Args:
        main: What to run.
        env: The SimPy environment to run in; a new one, at 0 s, if none is given.
        debug: Whether to set asyncio's debug mode.
        trace: Where to record what happens, if anywhere.

    Raises:
        SimulationError: If an event loop already runs in this thread.
        Deadlock: If all tasks wait for what will never come.
    """
    if _is_loop_running():
        main.close()
        raise SimulationError("an event loop runs here already; await the coroutine instead")
    loop = SimulatedLoop(env) if trace is None else TracedLoop(env, trace=trace)
    results = list[_T]()

    async def keep_result() -> None:
        # Restoring SIGINT's handler, Python formats the main task with its result (`signal.signal`
        # words an error that it drops): of a large run that would take as long as the run.
        results.append(await main)

    keep_result.__qualname__ = getattr(main, "__qualname__", "main")  # `Deadlock` names it
    with asyncio.Runner(debug=debug, loop_factory=lambda: loop) as runner:
        try:
            runner.run(keep_result())
        finally:
            loop.run_until_complete(loop.shutdown_tasks())
    return results[0]


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
