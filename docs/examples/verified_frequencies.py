"""10,000 people choose one of 100 answers: verified sums beside local differential privacy.

Each person splits a report into a share for each of two aggregators, and proves to both together
that it has exactly one answer. Either aggregator's noise alone gives every person ε = 1.
"""

from math import sqrt

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.oracles import recommend_oracle
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.release.algorithm.noise import Sensitivity, SumNoise, Trust, plan_noise

PEOPLE, ANSWERS, EPSILON = 10_000, 100, 1.0


def draw_bytes(rng: Generator, rows: int, width: int) -> NDArray[np.uint8]:
    """Return random bytes, shape (rows, width)."""
    return np.frombuffer(rng.bytes(rows * width), np.uint8).reshape(rows, width)


def count_answers(
    prio: Prio3, answers: NDArray[np.int64], forged: int, noise: SumNoise, rng: Generator
) -> tuple[list[int], NDArray[np.bool_]]:
    """Return the noisy number of each answer, and which reports are in it."""
    nonces, key = draw_bytes(rng, len(answers), 16), rng.bytes(16)
    public, parts = prio.shard(answers, nonces, draw_bytes(rng, len(answers), prio.rand_size))
    parts[0][:forged, 0] ^= 1  # which no longer fits the other share
    both = [prio.prepare(key, place, nonces, public, part) for place, part in enumerate(parts)]
    messages, counted = prio.combine(*(each.prep_shares for each in both))
    for each in both:
        counted &= prio.finish(each, messages)[1]
    shares = []
    for each in both:  # on machines of two organisations
        drawn = prio.field.elements(noise.share(rng).tolist())
        shares.append(prio.field.add(prio.aggregate(each.out_shares, counted), drawn))
    return prio.unshard(shares, int(counted.sum())), counted


def main() -> None:
    """Print the error of the share of an answer, and that of the best frequency oracle."""
    rng = np.random.default_rng(1)
    popularity = np.arange(1, ANSWERS + 1)
    answers = rng.choice(ANSWERS, PEOPLE, p=popularity / popularity.sum())
    aggregators, person = Trust(parties=2, tolerated=1), Sensitivity("l1", 1, ANSWERS)
    (noise,) = plan_noise("laplace", EPSILON, 0.0, aggregators, [person])
    prio = Prio3.histogram(ANSWERS, chunk_length=10)
    counts, counted = count_answers(prio, answers, 3, noise, rng)
    truth = np.bincount(answers[counted], minlength=ANSWERS)
    error = sqrt(np.mean(np.square(np.array(counts) - truth))) / PEOPLE
    expected = noise.deviation() / PEOPLE
    local = sqrt(recommend_oracle(ANSWERS, EPSILON).mean_variance / PEOPLE)
    print(f"reports: {counted.sum():,} of {PEOPLE:,} count, and {(~counted).sum()} are refused")
    print(f"verified sums: root mean square error {error:.5f}, expected {expected:.5f}")
    print(f"best oracle under LDP: expected {local:.5f}, {local / expected:.0f} times as much")


if __name__ == "__main__":
    main()
