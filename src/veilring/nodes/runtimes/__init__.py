"""The four runtimes of a cluster."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from veilring.nodes.runtimes.simulated import Simulated
from veilring.nodes.runtimes.tasks import Memory, Runtime

if TYPE_CHECKING:
    from veilring.nodes.runtimes.processes import Processes
    from veilring.nodes.runtimes.tls import Tls

__all__ = ("Memory", "Processes", "Runtime", "Simulated", "Tls")


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    """Import a runtime with real sockets on first use: a simulation needs none."""
    if name in {"Processes", "Tls"}:
        return getattr(import_module(f"{__name__}.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
