"""Tests whether fewer than k rows overall are within a threshold, on secret-shared counts.

With T the total of clipped counts, `z = R · Π_{j<k} (T - j)` is 0 where T < k, and uniform on 1 … p
- 1 otherwise, since R is random and never 0. Only z is opened at each threshold. Whether T = k is
opened at one threshold of a query only, the lowest with T >= k, as `R' · (T - k)`: T rises with the
threshold, so if it is not k there, it is k at no threshold. All opened values follow from the
interval found, and from whether T = k ended the search.

The product takes the same number of rounds as a tree of k + 1 factors, but about 2√k products of
shared numbers instead of k - 1. The powers of T up to b give each run of b factors, as a sum with
public weights. Near the next power of 2 this would take another round; b is smaller there, with up
to k/2 products.

The factors R depend on no counts. The factors of the first step are drawn with its counts, and the
factors of each later step in the last two rounds of the step before, in messages that are sent
anyway. They are drawn for all queries that may remain open, and those that are left serve later
steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from veilring.arrays import Bools, Ints
from veilring.protocols.ranksearch.algorithm.search import Asked, Found, IntervalSearch, StepSizes
from veilring.protocols.ranksearch.algorithm.shares import (
    Dealer,
    Elements,
    Nonzero,
    Part,
    Play,
    Scheme,
    Size,
    Sizes,
    alongside,
    kept_nonzero,
    power_levels,
    product_mod,
    reduced,
    shared_powers,
    times_root,
)

_PAIR: Final = 2


class Plan(NamedTuple):
    """The construction of the product of k factors and R, in blocks of factors from powers of T.

    The number of factors of a block is a power of 2; the last block may have fewer.
    """

    block: int
    blocks: int

    @property
    def rounds(self) -> int:
        """The number of rounds from shares of T to the product; R is used from round 2 on."""
        return max(2, self.block.bit_length() - 1 + math.ceil(math.log2(self.blocks + 1)))

    @property
    def products(self) -> int:
        """The number of products that are reshared; one more is opened."""
        return self.block - 1 + self.blocks - 1


@lru_cache
def plan_of(k: int) -> Plan:
    """Return the plan with the fewest rounds, and among those the fewest products."""
    if k == 1:
        return Plan(1, 1)
    sizes = [2**e for e in range(1, k.bit_length() + 1)]
    plans = [Plan(size, -(-k // size)) for size in sizes]
    return min(plans, key=lambda plan: (plan.rounds, plan.products))


def levels_of(k: int) -> tuple[int, ...]:
    """Return the number of reshared products of a test in each round except the last."""
    plan = plan_of(k)
    levels = power_levels(plan.block)
    factors = plan.blocks + 1
    while factors > _PAIR:
        levels.append(factors // _PAIR)
        factors -= factors // _PAIR
    return tuple(levels)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Equalities:
    """The shares of `R' (T - k)`, of degree 2t, at each query's lowest threshold with T >= k."""

    queries: Ints
    products: Elements
    own: Ints


def shared_search(
    dealer: Dealer,
    count: Callable[[Asked], Ints],
    search: IntervalSearch,
    k: int,
    fail: Callable[[], None],
) -> Play[Found]:
    """Play a party of a search.

    Whether T = k is opened together with the next step's counts, which are dealt for all queries
    that may remain open. This saves a round, and counts that are never opened reveal nothing.

    `fail` is called for opened values that contradict the party's own counts, or the order of
    thresholds. The search goes on, so that nothing which is sent depends on the check.
    """
    nothing = np.empty(0, dtype=np.int64)
    ahead: Elements = nothing.astype(dealer.scheme.wide)
    before = _Equalities(nothing, ahead, nothing)
    prime, minus_k = dealer.scheme.p, dealer.scheme.wide.type(dealer.scheme.p - k)
    while True:
        asked = search.ask() or Asked(nothing, nothing, nothing)
        if not asked and not len(before.queries):
            return search.found()
        own, first = count(asked), list[Part]()
        if search.is_first:
            drawn = Nonzero.to_draw(asked.factors_needed, dealer.scheme.p)
            first += Nonzero.dealt(dealer, drawn)
        equalities = dealer.opened_products(before.products)
        total, opened, *dealt = yield [dealer.summed(own), equalities, *first]
        if (before.own[opened == 0] > k).any():
            fail()
        search.end(before.queries[opened == 0])
        is_open = ~np.isin(asked.queries, before.queries[opened == 0])
        tested = is_open[asked.owner]
        asked, own = asked.only(is_open), own[tested]
        if not asked:
            return search.found()
        factors = Nonzero(*dealt) if dealt else ahead
        comparing = _compare(dealer, total[tested], factors, asked, k)
        drawing = _draw_ahead(dealer, search.factors_to_draw(asked), k)
        left = ahead[asked.factors_needed :]
        step, more = yield from alongside(comparing, drawing)
        ahead = np.concatenate([left, more])
        if not _could_be(asked, step.below, own, k):
            fail()
        of, at = search.narrow(asked, step.below).lowest
        above = reduced(total[tested][at] + minus_k, prime)
        products = step.factors[of] * above
        before = _Equalities(asked.queries[of], products, own[at])


def step_rounds(sizes: StepSizes, k: int, scheme: Scheme, *, is_first: bool) -> list[Sizes]:
    """Return the parts of each round of a step."""
    few, many = scheme.drawing, scheme.multiplying
    needed = sizes.dealt + sizes.queries if is_first else 0
    drawn, ahead = (Nonzero.to_draw(n, scheme.p) for n in (needed, sizes.ahead))
    equalities, checked, tested, next_checked = (
        Size(count, many, is_public=True) for count in (sizes.equalities, drawn, sizes.tests, ahead)
    )
    first = [Size(sizes.dealt, scheme.parties), equalities, Size(2 * drawn, few)]
    if not sizes.tests:
        return [first]
    levels = [[Size(sizes.tests * products, many)] for products in levels_of(k)]
    levels[0].append(checked)
    levels[-1].append(Size(2 * ahead, few))
    return [first, *levels, [tested, next_checked]]


class _Compared(NamedTuple):
    """Whether T < k at each threshold, and shares of nonzero elements for testing T = k."""

    below: Bools
    factors: Elements


def _compare(
    dealer: Dealer, total: Elements, drawn: Nonzero | Elements, asked: Asked, k: int
) -> Play[_Compared]:
    """Compare totals, with factors that are to be checked or that were drawn ahead."""
    tests, needed, block = len(asked), asked.factors_needed, plan_of(k).block
    if isinstance(drawn, Nonzero):
        checked = [drawn.checked(dealer)]
        powers, (products,) = yield from shared_powers(dealer, total, block, checked)
        factors = yield from kept_nonzero(dealer, needed, drawn, products)
    else:
        powers, _ = yield from shared_powers(dealer, total, block, [])
        factors = drawn[:needed]
    runs = _runs(powers, k, dealer.scheme.p)
    opened = yield from _product(dealer, runs, factors[:tests])
    return _Compared(np.asarray(opened == 0), factors[tests:])


def _draw_ahead(dealer: Dealer, needed: int, k: int) -> Play[Elements]:
    """Draw factors for the next step in the last two rounds of a comparison with k."""
    for _ in levels_of(k)[1:]:
        yield []
    dealt = Nonzero(*(yield Nonzero.dealt(dealer, Nonzero.to_draw(needed, dealer.scheme.p))))
    (products,) = yield [dealt.checked(dealer)]
    return (yield from kept_nonzero(dealer, needed, dealt, products))


def _could_be(asked: Asked, below: Bools, own: Ints, k: int) -> bool:
    """Return whether honest parties could have this outcome, as far as one party can tell.

    T < k cannot hold at a threshold above one with T >= k, nor where one party alone has k rows.
    """
    falling = below[:-1] | ~below[1:] | (np.diff(asked.owner) > 0)
    return bool(falling.all() and not (below & (own >= k)).any())


def _runs(powers: Elements, k: int, p: int) -> Elements:
    """Return the product of each run of factors T - j, shape (blocks, tests)."""
    plan = plan_of(k)
    weights = np.zeros((plan.blocks, plan.block + 1), dtype=np.int64)
    for run in range(plan.blocks):
        polynomial = [1]
        for j in range(run * plan.block, min((run + 1) * plan.block, k)):
            polynomial = times_root(polynomial, j, p)
        weights[run, : len(polynomial)] = polynomial
    ones = np.ones((1, powers.shape[1]), powers.dtype)
    return product_mod(weights, np.vstack([ones, powers]), p).astype(powers.dtype)


def _product(dealer: Dealer, runs: Elements, last: Elements) -> Play[Elements]:
    """Open the product of all factors."""
    factors = [*runs, last]
    while len(factors) > _PAIR:
        pairs = len(factors) // _PAIR
        products = [factors[2 * i] * factors[2 * i + 1] for i in range(pairs)]
        (dealt,) = yield [dealer.reshared(np.concatenate(products))]
        factors = [*dealt.reshape(pairs, -1), *factors[2 * pairs :]]
    (opened,) = yield [dealer.opened_products(factors[0] * factors[1])]
    return np.asarray(opened)
