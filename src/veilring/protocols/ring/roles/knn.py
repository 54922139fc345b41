"""The ring member of PP-kNN (Xiong, Chitti and Liu 2007, Section 4.3).

What all parties learn: the queries, the k smallest distances to each, the vote totals and the
labels. What hides the rest is the semi-honest model; see the chapter on leakage.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import Ring, draw_ring
from veilring.protocols.ring.algorithm import (
    FixedPoint,
    SumMethod,
    TopKParameters,
    Weights,
    decide_labels,
    local_votes,
    pairwise_distances,
    smallest_distances,
)
from veilring.protocols.ring.messages import Queries
from veilring.protocols.ring.roles.checks import check_totals
from veilring.protocols.ring.roles.sums import secure_sum
from veilring.protocols.ring.roles.topk import pp_topk
from veilring.protocols.rows import Rows, in_unit_cube
from veilring.transport.frames import FRAME_BYTES_MAX

# Votes weighted by distance keep 24 binary digits behind the point; with 1,000 parties that leaves
# room for totals of 500 million a class and party.
SCALE_BITS: Final = 24
_FLOAT_BYTES: Final = 8
_ENVELOPE_BYTES: Final = 128  # session, kind, round, array header: under 100 bytes


@dataclass(frozen=True, slots=True)
class KNNParameters:
    """The public parameters of PP-kNN; all parties must hold the same.

    Attributes:
        features: How many features a row has, each in [0, 1].
        classes: How many classes there are.
        k: How many nearest neighbours vote.
        P0: PP-TopK's probability of noise in round 1, in [0, 1].
        d: The factor by which it falls each round, in (0, 1].
        rounds: How often PP-TopK's vector goes round.
        delta: The least range of its noise, as a distance; at most sqrt(features) makes sense.
        weights: `uniform`, or `distance` for votes of 1/distance.
        sum: How votes are added up.

    Raises:
        InputError: If a value is not allowed.
    """

    features: int
    classes: int
    k: int = 5
    P0: float = 1.0
    d: float = 0.5
    rounds: int = 6
    delta: float = 0.1
    weights: Weights = "uniform"
    sum: SumMethod = field(default_factory=SumMethod)

    def __post_init__(self) -> None:
        if self.features < 1:
            raise InputError("features", self.features, "at least 1")
        if self.classes < 1:
            raise InputError("classes", self.classes, "at least 1")
        if self.weights not in {"uniform", "distance"}:
            raise InputError("weights", self.weights, "uniform or distance")
        _ = self.topk  # refuses what PP-TopK refuses

    @property
    def topk(self) -> TopKParameters:
        """PP-TopK's part; no distance in the unit cube exceeds the root of its dimension."""
        upper = math.sqrt(self.features)
        return TopKParameters(self.k, self.P0, self.d, self.rounds, self.delta, upper)

    @property
    def queries_max(self) -> int:
        """How many queries a batch may hold so that every message fits a frame."""
        widest = max(self.features, self.k, self.classes)
        return (FRAME_BYTES_MAX - _ENVELOPE_BYTES) // (_FLOAT_BYTES * widest)

    def check_queries(self, queries: NDArray[np.float64]) -> None:
        """Refuse queries that the ring cannot answer.

        Raises:
            InputError: If the shape is wrong, a feature is outside [0, 1] or there are too many.
        """
        if queries.ndim != 2 or queries.shape[1] != self.features:  # noqa: PLR2004 (a table)
            raise InputError("queries", f"of shape {queries.shape}", f"(any, {self.features})")
        if not 1 <= len(queries) <= self.queries_max:
            raise InputError("queries", len(queries), f"1 to {self.queries_max} in a batch")
        if not in_unit_cube(queries):
            raise InputError("queries", "a table with others", "numbers from 0 to 1")

    def check_rows(self, rows: Rows) -> None:
        """Refuse rows of another schema.

        Raises:
            InputError: If they have other features or an unknown class.
        """
        if rows.features.shape[1] != self.features:
            raise InputError("rows", rows.features.shape[1], f"{self.features} features")
        if len(rows) and rows.labels.max() >= self.classes:
            raise InputError("rows.labels", rows.labels.max(), f"classes below {self.classes}")


@dataclass(frozen=True, slots=True)
class KNNAnswer:
    """What every party of the ring learns about a batch of Q queries.

    Attributes:
        labels: Shape (Q,), the class with most votes, the lowest of them if several have.
        votes: Shape (Q, classes), the total of all parties' votes.
        nearest: Shape (Q, k), the k smallest distances, ascending.
        starter: Who began.
    """

    labels: NDArray[np.int64]
    votes: NDArray[np.float64]
    nearest: NDArray[np.float64]
    starter: str


async def private_knn(
    party: Party,
    rows: Rows,
    *,
    asker: str,
    parameters: KNNParameters,
    queries: NDArray[np.float64] | None = None,
    ring: Ring | None = None,
) -> KNNAnswer:
    """Label a batch of queries by the nearest rows of all parties.

    One batch takes `n * (parameters.rounds + 3) - 2` messages when the votes go round the ring,
    whatever its size; drawing the ring and handing out the queries are set-up.

    Args:
        party: This participant.
        rows: Its private rows.
        asker: The participant that hands out the queries.
        parameters: Public.
        queries: Shape (Q, features) at the asker; the others leave it out.
        ring: An order that was dealt beforehand; drawn together if left out.

    Returns:
        The same answer at every party.

    Raises:
        InputError: If own rows or queries do not fit; nothing was sent then.
        ProtocolViolation: If a peer sent what no honest party sends.
        Tampered: If no honest parties, whatever their rows, could have this outcome together.
    """
    parameters.check_rows(rows)
    parameters.sum.check(len(party.parties))
    batch = await hand_out(party, asker, queries, parameters)
    ring = await draw_ring(party) if ring is None else ring
    to_rows = pairwise_distances(batch, rows.features)
    own = smallest_distances(to_rows, parameters.k)
    nearest = await pp_topk(party, own, ring=ring, parameters=parameters.topk)
    votes = local_votes(
        to_rows, rows.labels, nearest, classes=parameters.classes, weights=parameters.weights
    )
    fixed = FixedPoint(SCALE_BITS, len(ring))
    totals = await secure_sum(
        party,
        votes,
        ring=ring,
        fixed=fixed,
        method=parameters.sum,
        first_round=_first_sum_round(len(ring), parameters),
    )
    check_totals(
        party,
        totals,
        fixed.decode(fixed.encode(votes)),
        nearest,
        weights=parameters.weights,
        upper=parameters.topk.upper,
    )
    return KNNAnswer(decide_labels(totals), totals, nearest, ring.starter)


def _first_sum_round(parties: int, parameters: KNNParameters) -> int:
    """Return when the votes start: the starter knows the result one round before the others."""
    known_to_starter = parties * parameters.rounds + 1
    return known_to_starter + (parameters.sum.name == "shares")


async def hand_out(
    party: Party, asker: str, queries: NDArray[np.float64] | None, parameters: KNNParameters
) -> NDArray[np.float64]:
    """Return the queries of a batch, shape (queries, features): the asker sends them to all.

    Raises:
        InputError: If they do not fit, at the asker; nothing was sent then.
        ProtocolViolation: The same, at the others.
    """
    if party.me == asker:
        if queries is None:
            raise InputError("queries", "nothing", f"a batch at {asker}, which asks")
        parameters.check_queries(queries)
        await broadcast(party, Queries(features=queries))
        return queries
    handed = (await party.receive(Queries, sender=asker, due=-2)).features
    try:
        parameters.check_queries(handed)
    except InputError as error:
        raise ProtocolViolation(asker, f"asked what cannot be answered: {error}") from error
    return handed
