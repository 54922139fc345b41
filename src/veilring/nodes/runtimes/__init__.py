"""The four runtimes of a cluster."""

from veilring.nodes.runtimes.processes import Processes
from veilring.nodes.runtimes.simulated import Simulated
from veilring.nodes.runtimes.tasks import Memory, Runtime, Tls

__all__ = ("Memory", "Processes", "Runtime", "Simulated", "Tls")
