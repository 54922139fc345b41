"""The mathematics of the ring family: pure vectorised functions, no I/O, no asyncio.

`topk` is one party's step of PP-TopK, `exactness` how many rounds it needs, `trials` the whole
ring many times over; `sums` is the secure sum, `exposure` which rings it takes and whom they
expose, `votes` the classifier on top of both, and `classify` is all of it for many queries at once.
`nested` is PP-TopK in rings of rings. `consistency` is what honest parties cannot have sent.
"""

from veilring.protocols.ring.algorithm.checks import SMALLEST_RING
from veilring.protocols.ring.algorithm.classify import Classified, ring_knn
from veilring.protocols.ring.algorithm.consistency import could_be_totals, could_become
from veilring.protocols.ring.algorithm.exactness import exactness_bound, rounds_for
from veilring.protocols.ring.algorithm.exposure import (
    exposed,
    exposure_probability,
    exposure_probability_split,
    leaked_groups,
    walecki_cycles,
)
from veilring.protocols.ring.algorithm.methods import SumMethod
from veilring.protocols.ring.algorithm.nested import (
    brought_by,
    nested_exactness_bound,
    nested_rounds_for,
    run_nested_rings,
)
from veilring.protocols.ring.algorithm.sums import FixedPoint, draw_masks, split_shares
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    final_result,
    highest_entry,
    own_smallest,
    require_bounded,
    start_vector,
    topk_step,
)
from veilring.protocols.ring.algorithm.trials import HopObserver, run_ring, true_topk
from veilring.protocols.ring.algorithm.votes import (
    MOST_WEIGHT,
    Weights,
    decide_labels,
    local_votes,
    pairwise_distances,
    pooled_knn,
    smallest_distances,
)

__all__ = (
    "MOST_WEIGHT",
    "SMALLEST_RING",
    "Classified",
    "FixedPoint",
    "HopObserver",
    "SumMethod",
    "TopKParameters",
    "Weights",
    "brought_by",
    "could_be_totals",
    "could_become",
    "decide_labels",
    "draw_masks",
    "exactness_bound",
    "exposed",
    "exposure_probability",
    "exposure_probability_split",
    "final_result",
    "highest_entry",
    "leaked_groups",
    "local_votes",
    "nested_exactness_bound",
    "nested_rounds_for",
    "own_smallest",
    "pairwise_distances",
    "pooled_knn",
    "require_bounded",
    "ring_knn",
    "rounds_for",
    "run_nested_rings",
    "run_ring",
    "smallest_distances",
    "split_shares",
    "start_vector",
    "topk_step",
    "true_topk",
    "walecki_cycles",
)
