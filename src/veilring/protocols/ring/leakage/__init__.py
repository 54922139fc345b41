"""What PP-TopK gives away, hop by hop, estimated by running it many times.

Sources: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", SAC
2007, Section 6.6; LoP: the same authors, "Topk queries across multiple private databases", ICDCS
2005. Runs are those of `run_ring`, which calls the very step that a networked party calls.

A *hop* is one message: a round and a position. Vectors are compared as multisets, and only finite
values count as a party's own. A hop's *fresh* entries are those that are new to the successor: not
in the vector that the successor itself passed on last (the public start vector if it has not yet).

`exposure`
    Probability that the vector a party passes on holds a real value of its own that was not in the
    vector it received: that it inserted on this hop. `exposure_by_party` is the probability that
    this happens anywhere in the run. A coalition of predecessor and successor sees both vectors,
    so this is exactly what it learns.
`claim`
    A successor claims each fresh entry as its predecessor's. The fraction of claims that is right:
    all right claims over all claims.
`LoP`
    Loss of privacy, `P(claim | transcript, result) - P(claim | result)` a claim: the fraction of
    claims that is right less the mean of what the result alone gives away, 1/n for a value in the
    final result (any of n parties is as likely) and 0 for any other. A party's LoP is taken over
    all claims that its successor makes in a run. Negative: its successor would do better to guess.

Where no claim is ever made, nothing is given away: `claim` and `LoP` are 0.
"""

from veilring.protocols.ring.leakage.coalitions import CoalitionExposure, exposure_to_coalition
from veilring.protocols.ring.leakage.estimates import MonteCarloEstimate, proportion_interval
from veilring.protocols.ring.leakage.hops import (
    Breakdown,
    HopLeakage,
    estimate_hop_leakage,
    hop_leakage_of,
    sample_hop_leakage,
)
from veilring.protocols.ring.leakage.transcripts import uniform_values

__all__ = (
    "Breakdown",
    "CoalitionExposure",
    "HopLeakage",
    "MonteCarloEstimate",
    "estimate_hop_leakage",
    "exposure_to_coalition",
    "hop_leakage_of",
    "proportion_interval",
    "sample_hop_leakage",
    "uniform_values",
)
