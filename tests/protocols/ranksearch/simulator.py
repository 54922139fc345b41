"""The simulator of `reveal = "totals"`, and the ideal functionality behind it.

The ideal functionality follows the definition, on all rows: the total of clipped counts at each
threshold asked, and the total votes within the radius. The simulator gets these, and the rows and
keys of a coalition. It returns the coalition's view except for the words of honest parties, and the
sum of those words: all but one are uniform, and the last completes the sum.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.protocols.digests import digest_of, digest_of_names
from veilring.protocols.masks import PairwiseKeys
from veilring.protocols.ranksearch.algorithm.search import Asked, clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import (
    Votes,
    fixed_weights,
    nearest_rows,
    own_votes,
)
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.shared import CHECK_BYTES

Words = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class World:
    """The inputs of all parties.

    Attributes:
        parts: The rows of each party, by its name, in the order of the roster.
        parameters: The public parameters.
        queries: The batch, shape (Q, features).
    """

    parts: Mapping[str, Rows]
    parameters: SearchParameters
    queries: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """The parties; the first asks, and adds up if one party does."""
        return tuple(self.parts)

    @property
    def adder(self) -> str | None:
        """The party that adds up, if any."""
        return self.names[0] if self.parameters.system.sum == "star" else None


def ideal_counts(world: World, asked: Asked) -> Ints:
    """Return the totals of clipped counts: the sum of min(k + 1, rows within the threshold)."""
    query = asked.queries[asked.owner]
    totals = np.zeros(len(asked), np.int64)
    for rows in world.parts.values():
        within = pairwise_distances(world.queries, rows.features)[query] <= asked.values[:, None]
        totals += np.minimum(world.parameters.system.k + 1, within.sum(axis=1))
    return totals


def ideal_votes(world: World, radii: Floats) -> Votes:
    """Return the total votes of all rows within the radii."""
    weights = world.parameters.system.weights
    counts = np.zeros((len(radii), world.parameters.facts.classes), np.uint64)
    weighted = np.zeros_like(counts)
    for rows in world.parts.values():
        distances = pairwise_distances(world.queries, rows.features)
        for query, row in zip(*np.nonzero(distances <= radii[:, None]), strict=True):
            distance, label = distances[query, row], rows.labels[row]
            if weights == "uniform" or distance == 0:
                counts[query, label] += np.uint64(1)
            else:
                weight = fixed_weights(radii[[query]], np.array([distance]))
                weighted[query, label] += weight[0]
    return Votes(counts, weighted if weights == "distance" else None)


@dataclass(frozen=True)
class SimulatedSum:
    """One sum as seen by a simulator.

    Attributes:
        digest: The hash in all its messages.
        totals: The total of each array, as words.
        honest: The sum of the words of all honest parties, of each array.
    """

    digest: bytes
    totals: tuple[Words, ...]
    honest: tuple[Words, ...]


def simulate(world: World, coalition: Mapping[str, PairwiseKeys]) -> Iterator[SimulatedSum]:
    """Yield the sums of a batch in order, from the totals and a coalition's rows and keys.

    The last is that of the outcome of checks, all of which pass.

    Args:
        world: The world, of which only public values, the members' rows and the totals are used.
        coalition: The members' unused keys.
    """
    public, parties = world.parameters, len(world.parts)
    k, classes, weights = public.system.k, public.facts.classes, public.system.weights
    near = {name: nearest_rows(world.queries, world.parts[name], k) for name in coalition}
    digest = digest_of(
        public.written.encode(), digest_of_names(world.names), world.queries.tobytes()
    )

    def add(
        totals: Sequence[NDArray[Any]], own: Mapping[str, Sequence[NDArray[Any]]]
    ) -> SimulatedSum:
        nonlocal digest
        words = tuple(_wire(total) for total in totals)
        sent = [
            keys.mask([_wire(a) for a in own[name]], digest) for name, keys in coalition.items()
        ]
        honest = tuple(
            total - sum((arrays[n] for arrays in sent), np.zeros_like(total))
            for n, total in enumerate(words)
        )
        found = SimulatedSum(digest, words, honest)
        digest = digest_of(digest, *(word.tobytes() for word in words))
        return found

    search, word = public.search(len(world.queries), parties), public.count_word(parties)
    while (asked := search.ask()) is not None:
        totals = ideal_counts(world, asked)
        own = {
            name: [clipped_counts(near[name].distances, asked).astype(word)] for name in coalition
        }
        yield add([totals.astype(word)], own)
        search.take(asked, totals)
    found = search.found()
    votes = {
        name: own_votes(
            world.queries, world.parts[name], near[name], found, classes=classes, weights=weights
        ).arrays(found.tied, k)
        for name in coalition
    }
    yield add(ideal_votes(world, found.radii).arrays(found.tied, k), votes)
    passed = np.zeros(CHECK_BYTES // 8, np.uint64)
    yield add([passed], {name: [passed] for name in coalition})


def _wire(array: NDArray[Any]) -> Words:
    return array.astype(f"<u{array.dtype.itemsize}").ravel()
