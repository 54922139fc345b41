"""Small rings with known leakage, for tests."""

from dataclasses import replace
from itertools import permutations

import numpy as np

from veilring.protocols.ring.algorithm.topk import TopKParameters

FALSE_ALARM = 1e-6
HONEST = TopKParameters(k=1, P0=0.0, d=0.5, rounds=1, delta=0.5, upper=9.0)
NOISY = replace(HONEST, P0=1.0, d=1.0)

# All six orders of three parties with one value each.
ORDERS = np.array(list(permutations([1.0, 2.0, 3.0])))[:, :, None]


def rng(seed: int = 0) -> np.random.Generator:
    """Return a seeded generator."""
    return np.random.default_rng(seed)
