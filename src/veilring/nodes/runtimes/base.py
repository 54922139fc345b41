"""What a cluster asks of the place where its parties live."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from veilring.measure import Mark
from veilring.nodes.limit import SESSION_SECONDS
from veilring.nodes.party import Parties
from veilring.nodes.play import Job, Outcome
from veilring.randomness import Streams


class Runtime(ABC):
    """Where the parties of a cluster live, from `start` to `stop`."""

    session_seconds: ClassVar[float | None] = SESSION_SECONDS
    """The limit on a run unless it says otherwise."""

    @property
    def marks(self) -> Sequence[Mark]:
        """The faults that have struck so far, in seconds on the clock of the event loop."""
        return ()

    @abstractmethod
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        """Bring all parties up and connect them; each is given its own resident data only."""

    @abstractmethod
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        """Play one job at each party, at the same time, and return all outcomes.

        A job that brings no private input is given the party's resident data, if it has any.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End all parties, so that nothing of them is left. May be called twice."""
