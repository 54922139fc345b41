"""The first adversary of the documentation, put into a test; the page shows this file."""

import pytest
from typing_extensions import override

from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.ring import draw_ring
from veilring.testing import ProtocolRunner
from veilring.transport import Message


class Gossip(Adversary):
    """Tells everybody what one should hear: an adversary in three lines."""

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        """Say it to all."""
        return [(peer, message) for peer in self.party.peers]


def test_gossip_is_found(run_protocol: ProtocolRunner) -> None:
    """Whoever is told the same twice while the ring is drawn names the party that did it."""
    with pytest.raises(RunFailed, match="party-2 broke the protocol: sent"):
        run_protocol(draw_ring, 4, adversaries={"party-2": Gossip()})
