"""The simulation: a deterministic clock, and the links between parties."""

from veilring.extras import name_missing_extras

with name_missing_extras():
    from veilring.simulation.links import (
        Constant,
        DelayDistribution,
        Exponential,
        Link,
        LinkModel,
        LogNormal,
        Normal,
        Uniform,
    )
    from veilring.simulation.loop import (
        LoopTrace,
        Order,
        SimulatedLoop,
        TracedLoop,
        running_environment,
        simulate,
        wait_event,
    )
    from veilring.simulation.network import Routes, SimulatedEndpoint, SimulatedNetwork, Topology
    from veilring.simulation.tcp import Tcp

__all__ = (
    "Constant",
    "DelayDistribution",
    "Exponential",
    "Link",
    "LinkModel",
    "LogNormal",
    "LoopTrace",
    "Normal",
    "Order",
    "Routes",
    "SimulatedEndpoint",
    "SimulatedLoop",
    "SimulatedNetwork",
    "Tcp",
    "Topology",
    "TracedLoop",
    "Uniform",
    "running_environment",
    "simulate",
    "wait_event",
)
