"""The one tree of errors: each says whose fault it was and what to do about it.

Every error is built from plain fields and makes its own message, so that it can be pickled from one
process to another, matched by its fields, and shown to a person as one paragraph.

==========================  ==============================================================
whose fault                 errors
==========================  ==============================================================
the caller's                `InputError`, `ScenarioError`, `ClusterError`, `BudgetExhausted`,
                            `SimulationError`
a peer's                    `ProtocolViolation`, `FrameError`, `HandshakeError`
one of several peers'       `Tampered`
the network's, or a crash   `PeerLost`, `PeerSilent`, `SessionTimeout`, `NotReady`,
                            `EndpointClosed`, `AddressTaken`
the disk's or a database's  `StoreFailed`
somebody else's abort       `SessionAborted`, `RunFailed`, `SweepFailed`
the protocol's own          `Deadlock`, `UnforeseenCost`
a mistake in the program    `InternalError`
==========================  ==============================================================
"""

from veilring.errors.caller import (
    BudgetExhausted,
    ClusterError,
    InputError,
    ScenarioError,
    SimulationError,
)
from veilring.errors.peers import FrameError, HandshakeError, ProtocolViolation, Tampered
from veilring.errors.root import TransportError, VeilringError
from veilring.errors.surroundings import (
    AddressTaken,
    EndpointClosed,
    InternalError,
    NotReady,
    PeerLost,
    PeerSilent,
    SessionTimeout,
    StoreFailed,
)
from veilring.errors.whole import (
    Deadlock,
    RunFailed,
    SessionAborted,
    SweepFailed,
    UnforeseenCost,
)

__all__ = (
    "AddressTaken",
    "BudgetExhausted",
    "ClusterError",
    "Deadlock",
    "EndpointClosed",
    "FrameError",
    "HandshakeError",
    "InputError",
    "InternalError",
    "NotReady",
    "PeerLost",
    "PeerSilent",
    "ProtocolViolation",
    "RunFailed",
    "ScenarioError",
    "SessionAborted",
    "SessionTimeout",
    "SimulationError",
    "StoreFailed",
    "SweepFailed",
    "Tampered",
    "TransportError",
    "UnforeseenCost",
    "VeilringError",
)
