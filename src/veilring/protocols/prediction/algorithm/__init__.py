"""The mathematics of private prediction: kernels, the filter's steps and their votes.

`features` and `kernels` say exactly how alike two vectors are, `filter` answers one query, and a
`Predictor` a stream of them; `hashing`, `reuse` and `device` are its options.
"""

from veilring.protocols.prediction.algorithm.centring import Origin, private_mean
from veilring.protocols.prediction.algorithm.device import Device
from veilring.protocols.prediction.algorithm.features import BLOCK, lengths, quantise
from veilring.protocols.prediction.algorithm.filter import Answer, IndKNN, Neighbours, answer_query
from veilring.protocols.prediction.algorithm.hashing import Hashing
from veilring.protocols.prediction.algorithm.kernels import PAPER_WIDTH, Kernel, KernelName
from veilring.protocols.prediction.algorithm.predictor import Predictor

__all__ = (
    "BLOCK",
    "PAPER_WIDTH",
    "Answer",
    "Device",
    "Hashing",
    "IndKNN",
    "Kernel",
    "KernelName",
    "Neighbours",
    "Origin",
    "Predictor",
    "answer_query",
    "lengths",
    "private_mean",
    "quantise",
)
