"""The simulated clock, deterministic to the bit, and the simulated links between parties.

Names: `run`, `SimulatedLoop`, `running_environment`, `wait_event` (the clock); `Trace`,
`TracedLoop` (comparing replays); `Link`, `LinkModel` and the laws of durations (links); `Topology`,
`Routes` (which links there are); `SimulatedNetwork`, `SimulatedEndpoint` (parties on them).
"""

from veilring.simulation.clock import SimulatedLoop, running_environment, wait_event
from veilring.simulation.endpoint import SimulatedEndpoint, SimulatedNetwork
from veilring.simulation.laws import Constant, Exponential, Law, LogNormal, Normal, Uniform
from veilring.simulation.links import Link, LinkModel
from veilring.simulation.runner import run
from veilring.simulation.topology import Routes, Topology
from veilring.simulation.trace import Trace, TracedLoop

__all__ = (
    "Constant",
    "Exponential",
    "Law",
    "Link",
    "LinkModel",
    "LogNormal",
    "Normal",
    "Routes",
    "SimulatedEndpoint",
    "SimulatedLoop",
    "SimulatedNetwork",
    "Topology",
    "Trace",
    "TracedLoop",
    "Uniform",
    "run",
    "running_environment",
    "wait_event",
)
