"""Exhaustive worlds: each message of one run is struck by each class of fault.

These worlds cover with certainty every single fault that a drawn world hits only by chance: a party
that crashes between any two of its messages, a connection that breaks while any message is under
way.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from veilring.errors import InputError
from veilring.nodes.trace import Journal, TracedMessage
from veilring.simulation import LinkModel, Uniform
from veilring.simulation.faults import FAULT_CLASSES, Fault, FaultClass
from veilring.testing.exploring.campaign import Campaign
from veilring.testing.exploring.worlds import Start, Subject, World, play_world

_LINKS: Final = LinkModel(Uniform(0.01, 0.02))
"""Jitter, so that no two messages arrive at one instant and each can be struck alone."""
_BEFORE_SECONDS: Final = 1e-6
"""The time by which a fault strikes a party before it sends, and a link after it sends."""
_FAULT_SECONDS: Final = 3.0
_START_SECONDS: Final = 1.0
"""The start of the run, when all parties are connected, and of a second one after the fault."""
_STRENGTHS: Final = {"delay": 1.0, "jitter": 1.0, "slow": 1.0, "squeeze": 1000.0, "skew": 4.0}
_IN_FLIGHT: Final = frozenset({"reset", "half-open"})
_OF_LINKS: Final = _IN_FLIGHT | {"stall", "delay", "jitter", "squeeze"}


def every_world(
    subject: Subject, *, seed: int = 0, kinds: Iterable[FaultClass] = FAULT_CLASSES
) -> Iterator[World]:
    """Yield a world for each message of a run and each class of fault that strikes it.

    Args:
        seed: The seed of all randomness.
        kinds: The classes of fault.

    Raises:
        InputError: If the run goes wrong without any fault, so that there is nothing to strike.
    """
    calm = World(seed, _LINKS, runs=(Start(0, _START_SECONDS),))
    journal = Journal()
    explored = play_world(subject, calm, journal=journal)
    if explored.wrong or explored.failed:
        raise InputError.because(
            f"a run without any fault goes wrong: {'; '.join(explored.wrong) or 'it fails'}",
            field="subject",
        )
    struck = (_strike(kind, message, journal) for kind in kinds for message in journal.messages)
    for fault in dict.fromkeys(struck):
        yield World(
            seed, _LINKS, (fault,), runs=(Start(0, _START_SECONDS), Start(1, fault.end + 1.0))
        )


def explore_every_world(subject: Subject, *, seed: int = 0) -> Campaign:
    """Play all worlds of `every_world`; the seed of a failure is the index of its world.

    Raises:
        InputError: If `every_world` raises it.
    """
    worlds = list(every_world(subject, seed=seed))
    campaign = Campaign(subject, worlds.__getitem__)
    for place, world in enumerate(worlds):
        explored = play_world(subject, world)
        explored.seed = place
        campaign.add(explored)
    return campaign


def _strike(kind: FaultClass, message: TracedMessage, journal: Journal) -> Fault:
    """Return the fault for a message: on its link as it leaves, or at a party just before."""
    origin, sender, receiver = journal.origin or 0.0, message.sender, message.receiver
    sent = origin + message.seconds
    parties = (sender, receiver) if kind in _OF_LINKS else (sender,)
    if kind == "skew":  # a clock has one constant speed in a run
        start = _START_SECONDS - _BEFORE_SECONDS
    else:
        start = sent + (_BEFORE_SECONDS if kind in _IN_FLIGHT else -_BEFORE_SECONDS)
    return Fault(kind, start, start + _FAULT_SECONDS, parties, _STRENGTHS.get(kind, 0.0))
