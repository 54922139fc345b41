"""The four runtimes of a cluster."""

from veilring.nodes.runtimes.processes import Processes
from veilring.nodes.runtimes.tasks import Memory, Runtime, Simulated, Tls

__all__ = ("Memory", "Processes", "Runtime", "Simulated", "Tls")
