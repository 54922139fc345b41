"""Leakage of PP-TopK by the three estimators and to coalitions, as tables."""

import numpy as np

from veilring.protocols.ring.algorithm.topk import TopKParameters, exactness_bound
from veilring.protocols.ring.leakage import (
    estimate_hop_leakage,
    exposure_to_coalition,
    uniform_values,
)

TRIALS, K = 5_000, 5


def parameters(rounds: int, P0: float = 1.0) -> TopKParameters:
    """Return the defaults of a scenario except for the rounds and P0."""
    return TopKParameters(k=K, P0=P0, d=0.5, rounds=rounds, delta=0.1, upper=1.0)


def by_rounds(parties: int = 8) -> None:
    """Print the leakage of a message to a successor, and of a run to two neighbours."""
    print("rounds  exact >=  exposure  claim   LoP     peak    between two colluders")
    for rounds in (1, 2, 3, 4, 8):
        rng = np.random.default_rng(rounds)
        values = uniform_values(TRIALS, parties, K, 100, rng)
        found = estimate_hop_leakage(values, parameters(rounds), rng)
        estimates = (found.exposure, found.claim, found.lop, found.lop_peak)
        shares = "".join(f"{estimate.value:8.3f}" for estimate in estimates)
        exact = exactness_bound(K, 1.0, 0.5, rounds)
        print(f"{rounds:6}  {exact:8.6f}{shares}{found.exposure_by_party.mean():9.3f}")


def to_coalitions(parties: int = 8) -> None:
    """Print how often one real value of each party is exposed, by the party's position."""
    print("coalition  P0   position 0 to 7")
    for coalition, P0 in (((1,), 1.0), ((1,), 0.5), ((6,), 0.5), ((2, 4), 1.0)):
        rng = np.random.default_rng(len(coalition))
        values = uniform_values(TRIALS, parties, K, 100, rng)
        found = exposure_to_coalition(values, parameters(2, P0), coalition, rng)
        shares = "".join("     -" if np.isnan(p) else f"{p:6.3f}" for p in found.exactly)
        print(f"{coalition!s:9}  {P0:.1f}{shares}")


def main() -> None:
    """Print both tables."""
    by_rounds()
    print()
    to_coalitions()


if __name__ == "__main__":
    main()
