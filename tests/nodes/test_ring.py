"""Rings: an order that no single party chooses."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.roles import draw

from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Parties
from veilring.nodes.ring import (
    COMMITTEE_SIZE,
    Ring,
    RingCommit,
    RingReveal,
    committee_for,
    deal_ring,
    draw_ring,
    draw_ring_messages,
)
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message


def test_all_parties_draw_the_same_ring(run_protocol: ProtocolRunner) -> None:
    """Every party ends with the same order of all parties, at the predicted cost."""
    run = run_protocol(draw, 5)
    assert len(set(run.results.values())) == 1
    assert sorted(run.result) == [f"party-{n}" for n in range(5)]
    assert run.cost.setup.messages == draw_ring_messages(5) == 40
    assert run.cost.messages == 0


@pytest.mark.slow
async def test_all_orders_are_equally_likely() -> None:
    """The 24 orders of four parties are uniform; false alarm 1e-6 by a chi-square test."""
    runs = 2400
    async with Cluster(4, seed=7) as cluster:
        orders = Counter([(await cluster.run(draw)).result for _ in range(runs)])
    expected = runs / math.factorial(4)
    counts = np.array(list(orders.values()) + [0] * (24 - len(orders)))
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 71.0  # the 1 - 1e-6 quantile of chi-square with 23 degrees of freedom: 71.4


async def test_a_large_ring_is_drawn_by_a_committee() -> None:
    """Above the committee's size the cost grows linearly; each session picks other members."""
    parties = COMMITTEE_SIZE + 6
    async with Cluster(parties, seed=1) as cluster:
        run = await cluster.run(draw)
    assert len(set(run.results.values())) == 1
    assert run.cost.setup.messages == 2 * COMMITTEE_SIZE * (parties - 1)
    many = Parties([f"p{n}" for n in range(200)])
    one, again, other = (committee_for(many, bytes([n]) * 16) for n in (1, 1, 2))
    assert len(one) == len(other) == COMMITTEE_SIZE
    assert one == again != other


@dataclass
class _LieToParty1(Adversary):
    lie: Message

    async def sending(self, to: str, message: Message) -> Lines:
        lies = to == "party-1" and message.kind == self.lie.kind
        return [(to, self.lie if lies else message)]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (RingReveal(nonce=bytes(32), heard=bytes(32)), "different from its commitment"),
        (RingCommit(commitment=bytes(32)), "different from its commitment|was told other"),
    ],
)
async def test_a_party_that_lies_in_the_draw_is_detected(lie: Message, reason: str) -> None:
    """Neither a nonce that differs from the commitment nor two commitments pass."""
    async with Cluster(4, seed=1) as cluster:
        with pytest.raises(RunFailed, match=reason) as caught:
            await cluster.run(draw_ring, adversaries={"party-0": _LieToParty1(lie)})
    found = caught.value.errors["party-1"]
    assert isinstance(found, ProtocolViolation)
    assert found.culprit == "party-0"


@given(st.permutations([f"p{n}" for n in range(7)]))
def test_successor_and_predecessor_are_inverse(order: list[str]) -> None:
    """One hop forward and one back returns to the start, and n hops complete the ring."""
    ring = Ring(order)
    for name in order:
        assert ring.predecessor(ring.successor(name)) == name
    here = ring.starter
    for hop in range(7):
        assert ring.position(here) == hop
        here = ring.successor(here)
    assert here == ring.starter


def test_a_ring_needs_three() -> None:
    """With two parties, each would learn the other's input."""
    with pytest.raises(InputError, match="at least 3"):
        Ring(["a", "b"])


def test_a_dealt_ring_depends_on_its_generator_only() -> None:
    """The same seed deals the same ring."""
    names = [f"p{n}" for n in range(9)]
    rings = [deal_ring(names, np.random.default_rng(5)) for _ in range(2)]
    assert rings[0] == rings[1]
    assert sorted(rings[0].order) == names
