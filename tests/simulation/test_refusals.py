"""Operations that a simulated loop refuses."""

import asyncio
import inspect
import socket
import sys
import threading
from collections.abc import Callable

import pytest

from veilring.errors import SimulationError
from veilring.simulation import simulate
from veilring.simulation.loop import REFUSED


@pytest.mark.parametrize("name", REFUSED)
def test_method_is_refused_by_name(name: str) -> None:
    """Each method that would access the real world names itself and an alternative."""

    async def main() -> None:
        getattr(asyncio.get_running_loop(), name)()

    with pytest.raises(SimulationError, match=rf"loop\.{name} would leave .*; \w+"):
        simulate(main())


@pytest.mark.parametrize(
    "call",
    [
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.start_server(lambda _reader, _writer: None, "localhost", 0),
        lambda: asyncio.to_thread(print),
        lambda: asyncio.create_subprocess_exec(sys.executable),
        lambda: asyncio.create_subprocess_shell("true"),
    ],
)
def test_convenience_of_asyncio_is_refused(call: Callable[[], "asyncio.Future[object]"]) -> None:
    """Convenience functions of asyncio are refused in the same way, without a warning."""

    async def main() -> None:
        await call()

    with pytest.raises(SimulationError, match="would leave the simulated clock"):
        simulate(main())


def test_every_method_of_the_loop_is_listed() -> None:
    """Every public I/O coroutine of an event loop is in the table."""
    harmless = {"shutdown_asyncgens", "shutdown_default_executor"}
    loop_methods = vars(asyncio.AbstractEventLoop)
    coroutines = {name for name in loop_methods if inspect.iscoroutinefunction(loop_methods[name])}
    assert coroutines - harmless <= set(REFUSED)


def test_another_thread_is_refused() -> None:
    """Another thread cannot wake the loop, because its timing cannot be replayed."""
    errors: list[BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def poke() -> None:
            try:
                loop.call_soon_threadsafe(lambda: None)
            except SimulationError as error:
                errors.append(error)

        thread = threading.Thread(target=poke)
        thread.start()
        thread.join()

    simulate(main())
    assert "another thread" in str(errors[0])


def test_transport_over_a_socket_is_refused() -> None:
    """The selector accepts only asyncio's own file, however it is called."""
    first, second = socket.socketpair()
    with first, second:

        async def main() -> None:
            loop = asyncio.get_running_loop()
            asyncio.SelectorEventLoop.add_reader(loop, first, print)  # type: ignore[arg-type]  # past the refusal, on purpose

        with pytest.raises(SimulationError, match="watching a file or socket"):
            simulate(main())


def test_as_completed_over_bare_coroutines_is_refused() -> None:
    """`as_completed` starts coroutines in the order of their addresses, so it requires tasks."""
    coroutines = [asyncio.sleep(1), asyncio.sleep(2)]

    async def main() -> None:
        for _ in asyncio.as_completed(coroutines):
            pass

    with pytest.raises(SimulationError, match="give it tasks"):
        simulate(main())
    for coroutine in coroutines:
        coroutine.close()
