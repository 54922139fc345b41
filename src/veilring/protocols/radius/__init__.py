"""Private r-N and k-N classification of an analyst's batch by a data owner.

Source: Gursoy, Inan, Nergiz and Saygin, "Differentially private nearest neighbor classification",
Data Mining and Knowledge Discovery 31 (2017). `algorithm` is the mathematics, and `leakage` what
answers give away.
"""

from veilring.protocols.radius.algorithm import (
    Allocation,
    AllocationRule,
    ByCandidates,
    ByGrid,
    Conversion,
    KNNParameters,
    LabelledNearest,
    Mechanism,
    RNParameters,
    label_batch,
    label_nearest,
    label_openly,
    plan_batch,
)

__all__ = (
    "Allocation",
    "AllocationRule",
    "ByCandidates",
    "ByGrid",
    "Conversion",
    "KNNParameters",
    "LabelledNearest",
    "Mechanism",
    "RNParameters",
    "label_batch",
    "label_nearest",
    "label_openly",
    "plan_batch",
)
