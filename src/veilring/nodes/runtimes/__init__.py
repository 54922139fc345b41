"""The four places where a cluster's parties can live."""

from collections.abc import Callable

from veilring.nodes.runtimes.processes import Processes
from veilring.nodes.runtimes.simulated import Simulated
from veilring.nodes.runtimes.tasks import Memory, Runtime, Tls

__all__ = ("RUNTIMES", "Memory", "Processes", "Runtime", "Simulated", "Tls")

RUNTIMES: dict[str, Callable[[], Runtime]] = {
    "memory": Memory,
    "tls": Tls,
    "processes": Processes,
    "simulated": Simulated,
}
"""By name, each with its default options."""
