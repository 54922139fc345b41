"""The epsilon that remains if noise shares are missing, or known to a coalition.

Loss of one count
    `g(epsilon)`: epsilon if the total exponent A of the noise is at least 1, and for A < 1 what
    `privacy.shares` derives, with its p, c and `x = e**(-2 epsilon)`.

Loss of a batch
    A row's queries are a clique S, and `omega(i) >= |S|` for i in S. g rises with epsilon: a
    ratio of two power series rises with x where the ratios of their coefficients, here
    `c[j + 1] / c[j]`, rise with j (Biernacki and Krzyz 1955), and q rises with x too, so that
    `p(1) / p(0)` falls as epsilon rises. Let i be the query of S with the least omega, and so with
    the greatest share: all of S together lose at most `|S| g(epsilon_i) <= omega(i) g(epsilon_i)`.

Loss of a batch for any outcome
    Where radii are found for k, omega is part of the answer. For A < 1 no plan loses more than that
    of a clique of the whole batch, `worst_plans`: `m g(epsilon / m)` rises with m, that is,
    h = g / t falls as t = epsilon rises. p(d) is in proportion to the integral over a period of
    `(cosh t - cos x)**-A cos(d x)`, and integration by parts gives

        sinh(t) g' = A e**g + (1 - A) e**-g - cosh t.

    So h' has the sign of E(t, h), where E(t, s) is

        A e**(s t) - (s + 1) / 2 e**t + (s - 1) / 2 e**-t + (1 - A) e**(-s t).

    For s > 1 its coefficients, by falling exponents, change signs twice: E has two zeros at most
    (Descartes). One is at t = 0, after which E falls, and for large t it is positive: so from its
    other zero on it stays so. If h' were not negative somewhere, h would rise from there on, since
    h > 1 always; but h comes down to 1, as `g <= t + ln(1 / A)`.

Shares that protect a row
    A coalition knows its own shares, and learns the sum of the others' shares in each group that
    `ring.algorithm.sums.leaked_groups` finds. A row is protected only by the shares of its own
    group. With `shares`, all honest parties form one group. On a single ring, a party between two
    colluders is protected only by its own share.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from veilring.extras import require_extra
from veilring.privacy.checks import require, require_that
from veilring.privacy.exact import float_ceil
from veilring.privacy.shares import count_loss
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.ring.algorithm.sums import SumMethod, leaked_groups, walecki_cycles

_PAIR: Final = 2  # colluders that enclose a party of a ring


def remaining_epsilon(
    spent: Sequence[Allocation], parties: int, *, tolerated: int, missing: int
) -> float:
    """Return the epsilon of a batch in which some noise shares are missing, rounded up.

    A share is missing if its party did not add it, lied about it, or revealed it; for a party as
    observer its own share is missing, too, and `guarantee` of a coalition of one includes it.
    Observers that learn only totals learn no more than this. If radii were found for k, it is the
    loss for the actual answer: if more shares are missing than tolerated, only the loss of a clique
    of the whole batch bounds all answers.

    Args:
        tolerated: The number of shares that may be missing without loss.
        missing: The number of shares that are missing for the observer, from 0 to n - 1.
    """
    require(0 <= tolerated < parties, "tolerated", tolerated, f"0 to {parties - 1}")
    require(0 <= missing < parties, "missing", missing, f"0 to {parties - 1}")
    exponent = Fraction(parties - missing, parties - tolerated)
    return float_ceil(sum((_release_loss(plan, exponent) for plan in spent), Fraction()))


def guarantee(
    spent: Sequence[Allocation],
    parties: int,
    coalition: int,
    method: SumMethod,
    *,
    tolerated: int,
    missing: int = 0,
) -> float:
    """Return the epsilon that protects each honest party, wherever colluders are in a ring.

    Args:
        coalition: The number of colluding parties, from 0 to n - 1.
        missing: The number of parties outside of the coalition that add no noise, not including the
            victim.
    """
    shares = protecting_shares(parties, coalition, method)
    return _by_shares(spent, parties, shares - missing, tolerated)


def guarantee_in_ring(
    spent: Sequence[Allocation],
    parties: int,
    coalition: Collection[int],
    method: SumMethod,
    *,
    tolerated: int,
    missing: int = 0,
) -> float:
    """Return the epsilon that protects each honest party of a ring with known positions.

    Args:
        coalition: The positions of the colluders in the ring, from 0; at most n - 1 of them.
        missing: The number of parties outside of the coalition that add no noise, not including the
            victim.
    """
    members = set(coalition)
    _require_coalition(parties, len(members), method)
    inside = members <= set(range(parties))
    require_that(inside, "coalition", f"coalition must hold places from 0 to {parties - 1}")
    if not method.goes_round:
        smallest = parties - len(members)
    else:
        smallest = min(map(len, leaked_groups(_cycles(parties, method), members)))
    return _by_shares(spent, parties, smallest - missing, tolerated)


def protecting_shares(parties: int, coalition: int, method: SumMethod) -> int:
    """Return the number of honest shares of noise that protect each honest row, in the worst case.

    With `shares` and `masks`, these are the shares of all honest parties. The same holds on cycles
    if the coalition is too small to separate the honest parties; otherwise only the victim's own
    share counts, because its neighbours may be the coalition. For every number of parties that was
    tried, 2s colluders, the neighbours of one party, are needed to separate s edge-disjoint cycles
    of `walecki_cycles`; this function computes the number.

    Args:
        coalition: The number of colluding parties, from 0 to n - 1.
    """
    _require_coalition(parties, coalition, method)
    if not method.goes_round or coalition < _PAIR:
        return parties - coalition
    if coalition >= 2 * method.cycles or coalition >= _connectivity(parties, method):
        return 1
    return parties - coalition


def _release_loss(plan: Allocation, exponent: Fraction) -> Fraction:
    pairs = {*zip(map(int, plan.crowds), map(float, plan.epsilons), strict=True)}
    return max(crowd * Fraction(count_loss(epsilon, exponent)) for crowd, epsilon in pairs)


def _by_shares(spent: Sequence[Allocation], parties: int, shares: int, tolerated: int) -> float:
    there = max(1, shares)  # the victim's own share is
    return remaining_epsilon(spent, parties, tolerated=tolerated, missing=parties - there)


def _cycles(parties: int, method: SumMethod) -> Sequence[Sequence[int]]:
    """Return the cycles over positions in the ring, in the form of `ring.roles.sums.sum_cycles`."""
    if method.cycles == 1:
        return (range(parties),)
    return walecki_cycles(parties)[: method.cycles]


@lru_cache
def _connectivity(parties: int, method: SumMethod) -> int:
    """Return the number of parties whose removal disconnects the union of the cycles."""
    require_extra("networkx")
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    for cycle in _cycles(parties, method):
        nx.add_cycle(graph, cycle)
    return int(nx.node_connectivity(graph))


def _require_coalition(parties: int, coalition: int, method: SumMethod) -> None:
    method.check(parties)
    require(0 <= coalition < parties, "coalition", coalition, f"0 to {parties - 1} of {parties}")
