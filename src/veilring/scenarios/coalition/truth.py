"""What each party really put into a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import pairwise_distances
from veilring.protocols.ring.algorithm.classify import local_votes
from veilring.protocols.ring.algorithm.sums import FixedPoint
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.roles import SCALE_BITS, KNNParameters
from veilring.protocols.ring.system import RingSetup
from veilring.scenarios.labelling import Batch
from veilring.scenarios.prepare import Prepared


@dataclass(frozen=True, slots=True, repr=False)
class Truth:
    """What went into a batch, by party.

    Attributes:
        own: The k smallest distances, shape (Q, k), filled up with `+inf`.
        votes: As the secure sum adds them up, shape (Q, classes).
        fixed: How the sum writes them.
    """

    own: Mapping[str, NDArray[np.float64]]
    votes: Mapping[str, NDArray[np.float64]]
    fixed: FixedPoint


def parameters_of(prepared: Prepared) -> KNNParameters:
    """Return the parameters of the ring that was run."""
    setup = cast("RingSetup", prepared.setup)  # a coalition is refused of other systems
    return setup.parameters


def truth_of(batch: Batch, prepared: Prepared) -> Truth:
    """Return what each party put into a batch, if all follow the protocol."""
    parameters, fixed = parameters_of(prepared), FixedPoint(SCALE_BITS, len(batch.parties))
    own, votes = {}, {}
    for party, rows in prepared.setup.parts.items():
        if party in batch.parties:
            to_rows = pairwise_distances(batch.queries, rows.features)
            own[party] = own_smallest(to_rows, parameters.k)
            cast = local_votes(
                to_rows,
                rows.labels,
                batch.answer.nearest,
                classes=parameters.classes,
                weights=parameters.weights,
            )
            votes[party] = fixed.decode(fixed.encode(cast))
    return Truth(own, votes, fixed)
