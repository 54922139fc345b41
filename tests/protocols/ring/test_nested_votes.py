"""Votes in rings of rings: the knowledge of coalitions, by the real messages."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party, SubParty
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.protocols.ring import KNNParameters, NestedRings, nest
from veilring.protocols.ring.nested import Levels

ELEVEN = [f"party-{n}" for n in range(11)]


class _OneHot:
    """A stand-in for a party's randomness: each uniform array is a separate column.

    Inputs are columns, too, so the words of a sum are written in terms of the parties' inputs.
    """

    def __init__(self, column: int) -> None:
        self._column = column

    def integers(
        self, _low: int, _high: int, *, size: tuple[int, ...], dtype: type[np.uint64]
    ) -> NDArray[np.uint64]:
        """Return the column for each drawn array; no party draws two."""
        drawn = np.zeros(size, dtype=dtype)
        assert len(drawn) <= 1
        drawn[..., self._column] = 1
        return drawn


class _Written(SubParty):
    """A party with symbolic randomness."""

    @property
    @override
    def rng(self) -> Generator:
        return _OneHot(len(self.parties) + self.parties.position(self.me))  # type: ignore[return-value]  # all that is drawn


async def _sum_written_out(party: Party, *, rings: NestedRings) -> NDArray[np.uint64]:
    written = _Written(party, party.parties)
    own = np.zeros((1, 2 * len(party.parties)), dtype=np.uint64)
    own[0, party.parties.position(party.me)] = 1
    return await Levels(written, rings, KNNParameters(features=1, classes=1)).sum(own)


async def test_coalitions_learn_only_the_documented_values() -> None:
    """A single party learns nothing, and pairs only what the family's page lists."""
    rings = nest(Ring(ELEVEN), 3)  # 4, 4 and 3 parties
    async with Cluster(ELEVEN) as cluster:
        run = await cluster.run(_sum_written_out, rings=rings, watch=ELEVEN)
    total = np.concatenate([np.ones(11), np.zeros(11)])
    np.testing.assert_array_equal(run.result[0], total.astype(np.uint64))
    knows = {name: _forms(run, name) for name in ELEVEN}
    sums = {f"group {n}": _columns(ring.order) for n, ring in enumerate(rings.groups)}
    sums |= {name: _columns([name]) for name in ELEVEN}
    # What is learned is what can be written as a sum of inputs, draws, messages and the total.
    learned = {}
    for members in itertools.chain(*(itertools.combinations(ELEVEN, c) for c in (0, 1, 2))):
        known = np.vstack([total, *(knows[name] for name in members)])
        rank = np.linalg.matrix_rank(known)
        found = {
            what
            for what, form in sums.items()
            if what not in members and np.linalg.matrix_rank(np.vstack([known, form])) == rank
        }
        if found:
            learned[members] = found
    assert learned == _as_documented(rings)


def _forms(run: Run[NDArray[np.uint64]], name: str) -> NDArray[np.float64]:
    seen = [np.asarray(seen.message.fields()[-1])[0] for seen in run.views[name].received]
    drawn = np.eye(22)[11 + ELEVEN.index(name)]
    return np.vstack([np.array(seen).view(np.int64), _columns([name]), drawn]).astype(np.float64)


def _columns(names: Sequence[str]) -> NDArray[np.float64]:
    return np.isin([*ELEVEN, *["drawn"] * 11], names).astype(np.float64)


def _as_documented(rings: NestedRings) -> dict[tuple[str, ...], set[str]]:
    learned: dict[tuple[str, ...], set[str]] = {}

    def tell(one: str, other: str, what: str) -> None:
        learned.setdefault(tuple(sorted((one, other), key=ELEVEN.index)), set()).add(what)

    for number, ring in enumerate(rings.groups):
        starter, keeper, *others = ring.order
        following = rings.starters.successor(starter)
        tell(starter, keeper, f"group {number}")
        tell(starter, following, f"group {number}")
        tell(ring.successor(keeper), following, keeper)
        for party in others:
            tell(ring.predecessor(party), ring.successor(party), party)
    return learned
