"""The constants of each draft of the standard, one row a draft.

A draft fixes the seeds and the domain separation of every expansion, and the code points of the
schemes. The fields, whose parameters have never changed, are in `fields`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Draft:
    """One draft's constants.

    Attributes:
        version: The version of the document in each domain separation tag ("Conventions").
        algorithm_class: The class of a VDAF in a tag ("The Domain Separation Tag").
        seed_bytes: The size of a seed of `XofTurboShake128`, and of the verification key.
        nonce_bytes: The size of a report's nonce.
        xof_domain: The domain byte of TurboSHAKE128.
        measurement_share: The usage (section "Construction") of a helper's measurement share.
        proof_share: The usage of a helper's share of the proofs.
        joint_randomness: The usage of the randomness of prover and verifiers.
        prove_randomness: The usage of the prover's randomness.
        query_randomness: The usage of the verifiers' randomness.
        joint_seed: The usage of the seed of the joint randomness.
        joint_part: The usage of an aggregator's part of that seed.
        count: The code point (section "IANA Considerations") of Prio3Count.
        sum: The code point of Prio3Sum.
        sum_vec: The code point of Prio3SumVec.
        histogram: The code point of Prio3Histogram.
        private: The last code point for private use, of schemes that have only a test vector.
    """

    version: int
    algorithm_class: int
    seed_bytes: int
    nonce_bytes: int
    xof_domain: int
    measurement_share: int
    proof_share: int
    joint_randomness: int
    prove_randomness: int
    query_randomness: int
    joint_seed: int
    joint_part: int
    count: int
    sum: int
    sum_vec: int
    histogram: int
    private: int


DRAFT_08: Final = Draft(
    version=8,
    algorithm_class=0,
    seed_bytes=16,
    nonce_bytes=16,
    xof_domain=1,
    measurement_share=1,
    proof_share=2,
    joint_randomness=3,
    prove_randomness=4,
    query_randomness=5,
    joint_seed=6,
    joint_part=7,
    count=0,
    sum=1,
    sum_vec=2,
    histogram=3,
    private=0xFFFFFFFF,
)
