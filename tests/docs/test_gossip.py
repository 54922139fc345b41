"""A test of the first adversary in the documentation, which shows this file."""

import pytest
from typing_extensions import override

from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.ring import draw_ring
from veilring.testing import ProtocolRunner
from veilring.transport import Message


class Gossip(Adversary):
    """An adversary that sends each message to all parties."""

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        """Send the message to all peers."""
        return [(peer, message) for peer in self.party.peers]


def test_gossip_is_detected(run_protocol: ProtocolRunner) -> None:
    """A party that receives a message twice during the ring draw names its sender."""
    with pytest.raises(RunFailed, match="party-2 broke the protocol: sent"):
        run_protocol(draw_ring, 4, adversaries={"party-2": Gossip()})
