"""Refusals of a batch without its results never depend on the presence of a row."""

import asyncio
from functools import partial

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, Repeating, neighbours, world

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import ProtocolViolation
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer
from veilring.protocols import peers as member
from veilring.protocols.peers import PeerMember, check_labels, peer_client
from veilring.protocols.promise import Facts
from veilring.protocols.ring.system import PrivateKNN

TERMS = bytes(32)
FEATURES, CLASSES = 2, 3
PARTIES, CLIENT = Parties(["ada", "bob", "cyd"]), "ann"

Asked = tuple[tuple[str, Floats], ...]


async def outcomes_of(parts: tuple[Rows, ...], system: PrivateKNN, asked: Asked) -> list[Outcome]:
    """Ask real members with the given rows, batch after batch."""
    facts = Facts(parties=len(PARTIES), features=FEATURES, classes=CLASSES)
    membership = system.membership(facts)

    def offers(rows: Rows, node: Node) -> dict[str, Offer]:
        return PeerMember(node, rows, PARTIES, membership, facts, TERMS).offers()

    role = peer_client(TERMS, CLASSES)
    servers = {name: partial(offers, rows) for name, rows in zip(PARTIES, parts, strict=True)}
    async with world(servers, CLIENT) as served:
        return [
            await served.ask(role, CLIENT, name, queries, charged=lambda: None)
            for name, queries in asked
        ]


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    """Draw some batches, legal and illegal, and the members to ask."""
    cells = st.lists(st.floats(0, 1), min_size=FEATURES, max_size=FEATURES)
    legal = st.lists(cells, min_size=1, max_size=3).map(np.array)
    illegal = st.sampled_from([np.full((1, FEATURES), 2.0), np.zeros((1, FEATURES + 1))])
    batches = st.tuples(st.sampled_from(list(PARTIES)), legal | illegal)
    return tuple(draw(st.lists(batches, min_size=1, max_size=3)))


@settings(max_examples=60)
@given(
    tables=neighbours(FEATURES, CLASSES),
    place=st.integers(0, len(PARTIES) - 1),
    held_by_others=st.integers(0, 2),
    system=st.builds(
        PrivateKNN,
        k=st.sampled_from([1, 3, 20]),
        weights=st.sampled_from(["uniform", "distance"]),
        sum=st.sampled_from(["ring", "shares", "masks"]),
        rounds=st.just(6),
    ),
    asked=requests(),
)
def test_no_outcome_depends_on_a_row(
    tables: tuple[Rows, Rows], place: int, held_by_others: int, system: PrivateKNN, asked: Asked
) -> None:
    """Even with fewer rows than k, endings, messages and all sizes are equal."""
    others = Rows(np.full((held_by_others, FEATURES), 0.5), np.arange(held_by_others) % CLASSES)

    def play(rows: Rows) -> list[Outcome]:
        parts = tuple(rows if at == place else others for at in range(len(PARTIES)))
        streams = Repeating()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(member, "Streams", lambda: streams)
            return asyncio.run(outcomes_of(parts, system, asked))

    one, other = map(play, tables)
    event(", ".join(sorted({outcome.ending for outcome in one})))
    assert one == other


@pytest.mark.parametrize(
    ("labels", "said"),
    [([0], "1 labels for 2"), ([0, 1, 1], "3 labels"), ([0, 2], "outside"), ([-1, 0], "outside")],
)
def test_a_member_with_invalid_labels_is_named(labels: list[int], said: str) -> None:
    """There is one label per query, each a class of the terms, never a negative index."""
    with pytest.raises(ProtocolViolation, match=f"ada.*{said}"):
        check_labels(np.array(labels), "ada", 2, 2)
    check_labels(np.array([0, 1]), "ada", 2, 2)
