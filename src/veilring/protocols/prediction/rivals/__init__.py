"""What Ind-KNN competes with, each with its own account of (epsilon, delta).

- `private_knn`: a noisy vote of the k nearest in a fresh Poisson sample, for every query.
- `noisy_sgd`: a linear classifier, trained once with noisy gradients; answers are free.
- `class_means`: the sum of each class, released once; answers are free.

The ceiling is the vote without noise or budget, `kernel_vote` of the algorithm. It is not private.

Neighbouring tables differ by one row that is there or not. Features are quantised, as for Ind-KNN.
"""

from veilring.protocols.prediction.rivals.class_means import ClassMeans, release_sums
from veilring.protocols.prediction.rivals.noisy_sgd import NoisySGD, train
from veilring.protocols.prediction.rivals.private_knn import PrivateKNN, private_knn
from veilring.protocols.prediction.rivals.scores import best_class

__all__ = (
    "ClassMeans",
    "NoisySGD",
    "PrivateKNN",
    "best_class",
    "private_knn",
    "release_sums",
    "train",
)
