"""What a simulated loop refuses: everything that would let the real world's timing in."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar

from veilring.errors import SimulationError

_LINKS: Final = "send over simulated links (veilring.simulation.SimulatedNetwork)"
_EVENTS: Final = "wait for an event of SimPy (veilring.simulation.wait_event)"
_DIRECT: Final = "call the function directly: it takes no simulated time"
_PROCESS: Final = "model it as a process of SimPy, or run it before the simulation"
_SIGNAL: Final = "schedule a simulated event, or handle the signal outside the simulation"

REFUSED: Mapping[str, str] = {
    "add_reader": _EVENTS,
    "add_writer": _EVENTS,
    "remove_reader": _EVENTS,
    "remove_writer": _EVENTS,
    "sock_recv": _LINKS,
    "sock_recv_into": _LINKS,
    "sock_recvfrom": _LINKS,
    "sock_recvfrom_into": _LINKS,
    "sock_sendall": _LINKS,
    "sock_sendto": _LINKS,
    "sock_connect": _LINKS,
    "sock_accept": _LINKS,
    "sock_sendfile": _LINKS,
    "sendfile": _LINKS,
    "create_connection": _LINKS,
    "create_server": _LINKS,
    "create_datagram_endpoint": _LINKS,
    "create_unix_connection": _LINKS,
    "create_unix_server": _LINKS,
    "connect_accepted_socket": _LINKS,
    "start_tls": _LINKS,
    "getaddrinfo": _LINKS,
    "getnameinfo": _LINKS,
    "connect_read_pipe": _PROCESS,
    "connect_write_pipe": _PROCESS,
    "subprocess_exec": _PROCESS,
    "subprocess_shell": _PROCESS,
    "add_signal_handler": _SIGNAL,
    "remove_signal_handler": _SIGNAL,
    "run_in_executor": _DIRECT,
    "set_default_executor": _DIRECT,
}
"""What to do instead, by the name of each method of an event loop that is refused."""

_Class = TypeVar("_Class", bound=type)


def refused(tried: str, instead: str) -> SimulationError:
    """Return the error for something real that was tried on a simulated clock."""
    return SimulationError(f"{tried} would leave the simulated clock; {instead}")


def refuse_real_world(cls: _Class) -> _Class:
    """Make every method in `REFUSED` raise `SimulationError` at the call, before any await."""
    for name, instead in REFUSED.items():
        setattr(cls, name, _refusal(name, instead))
    return cls


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(_loop: object, *_args: object, **_options: object) -> NoReturn:
        raise refused(f"loop.{name}", instead)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuse with `SimulationError`; {instead}."
    return refuse
