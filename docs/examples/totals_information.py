"""Information in the totals of rank search about distances, and about one party.

A total is of all parties outside a coalition. The more such parties there are, the less it reveals
about one; two totals that differ by one party reveal that party's counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import poisson

import veilring as vr
from veilring.arrays import Floats
from veilring.data.table import scale_to_unit
from veilring.protocols.ranksearch.algorithm.search import Spacing
from veilring.protocols.ranksearch.algorithm.votes import count_rows, nearest_rows
from veilring.protocols.ranksearch.leakage import Opened, open_totals

K, ARITY = 5, 16
UPPER = 13**0.5  # of distances between rows of 13 features


@dataclass(frozen=True, slots=True)
class LeakageOfOne:
    """The leakage of one threshold about one honest party, in bits."""

    whole: float
    by_total: float
    by_reaching: float


def leakage_of_one(honest: int, k: int, rows: float) -> LeakageOfOne:
    """Return the exact leakage of a threshold about one party, for Poisson counts.

    A coalition subtracts its own counts, so the total is that of the parties outside it. Counts
    are clipped at k + 1.
    """
    one = poisson.pmf(np.arange(k + 2), rows)
    one[-1] = poisson.sf(k, rows)
    others = np.ones(1)
    for _ in range(honest - 1):
        others = np.convolve(others, one)
    joint = np.zeros((k + 2, honest * (k + 1) + 1))  # of the party's count and the total
    for count, share in enumerate(one):
        joint[count, count : count + len(others)] = share * others
    reached = np.stack([joint[:, :k].sum(axis=1), joint[:, k:].sum(axis=1)], axis=1)
    return LeakageOfOne(_entropy(one), _information(joint), _information(reached))


def _entropy(pmf: Floats) -> float:
    likely = pmf[pmf > 0]
    return float(-(likely * np.log2(likely)).sum())


def _information(joint: Floats) -> float:
    marginals = _entropy(joint.sum(axis=0)) + _entropy(joint.sum(axis=1))
    return max(0.0, marginals - _entropy(joint.ravel()))


def counts_of_missing(everyone: Opened, fewer: Opened) -> dict[tuple[int, int], int]:
    """Return the counts of a party that is absent from a second search for the same queries.

    The keys are the queries and the bit patterns of thresholds that both searches asked.
    """
    left = fewer.thresholds
    return {
        place: total - left[place] for place, total in everyone.thresholds.items() if place in left
    }


def print_one_party() -> None:
    """Print how much a total reveals about a party's count, by the number of honest parties."""
    print(
        "rows per party  honest parties  entropy (bits)  in the total (bits)  in total >= k (bits)"
    )
    for rows in (0.5, 2.0, 5.0):
        for honest in (1, 2, 3, 7):
            leaked = leakage_of_one(honest, K, rows)
            bits = f"{leaked.whole:>14.2f}  {leaked.by_total:>19.2f}  {leaked.by_reaching:>20.2f}"
            print(f"{rows:>14g}  {honest:>14}  {bits}")


def width(counts: Mapping[tuple[int, int], int], queries: int) -> float:
    """Return the mean width of the intervals for the nearest row, as a share of the range."""
    low, high = np.zeros(queries), np.full(queries, UPPER)
    for (query, pattern), count in counts.items():
        threshold = float(np.int64(pattern).view(np.float64))
        if count:
            high[query] = min(high[query], threshold)
        else:
            low[query] = max(low[query], threshold)
    return float(np.mean(high - low) / UPPER)


def print_distances() -> None:
    """Print the published precision of the k-th smallest distances, table by table."""
    print("table             k   radius known to    ties   totals above k")
    for name in ("iris", "wine", "breast-cancer", "digits"):
        for k in (1, 5):
            changed = [f"data.source={name}", "protocol.name=rank-search", f"protocol.k={k}"]
            report = vr.run_scenario(vr.load_scenario("wine", changed), runtime="memory", seed=1)
            told = report.leakage.published if report.leakage else {}
            radius, ties, above = (
                f"{told[each].value:.1%}" for each in ("radius", "tied", "above")
            )
            print(f"{name:<15}{k:>4}   {radius:>15}   {ties:>5}   {above:>14}")


def print_last_total() -> None:
    """Print the other parties' knowledge of one party, together or if it misses a search."""
    train, test = scale_to_unit(vr.load("wine")).split(test_share=0.25, seed=1)
    parts = [vr.Rows(part.X, part.y) for part in train.partition(8, seed=1)]
    near = [nearest_rows(test.X, rows, K) for rows in parts]

    def search(parties: int) -> Opened:
        return open_totals(test.X, parts[:parties], Spacing(UPPER, ARITY), k=K)

    everyone, others = search(8), search(7)
    left = [
        totals - count_rows(near[:-1], asked)
        for asked, totals in zip(everyone.asked, everyone.totals, strict=True)
    ]
    colluders = Opened(everyone.found, everyone.asked, tuple(left)).thresholds
    missing = counts_of_missing(everyone, others)
    known_of = "wine, what is known of one of 8 parties"
    print(f"{known_of:<40} {'counts per query':>16} {'interval of its nearest distance':>33}")
    for known, how in (
        (colluders, "if all other parties collude"),
        (missing, "if the queries are repeated without it"),
    ):
        each = len(known) / len(test)
        print(f"{how:<40} {each:>16.1f} {width(known, len(test)):>33.1%}")


def main() -> None:
    """Print all three tables."""
    print_distances()
    print()
    print_one_party()
    print()
    print_last_total()


if __name__ == "__main__":
    main()
