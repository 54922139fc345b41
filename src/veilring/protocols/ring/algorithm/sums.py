"""Secure sums: methods, fixed point in Z_{2^64}, masks, shares, cycles, and exposed inputs.

`veilring.protocols.ring.roles` runs the methods. Sources:

- Xiong, Chitti and Liu, SAC 2007, Algorithm 3.
- Clifton, Kantarcioglu, Vaidya, Lin and Zhu, "Tools for privacy preserving distributed data
  mining", SIGKDD Explorations 2002, for the split over edge-disjoint cycles.
- Alspach, "The wonderful Walecki construction", Bulletin of the ICA 2008, for Walecki's cycles.

The exact view of a semi-honest coalition
    Party i splits its input `v_i` into uniform shares `x_ij`, one for each of s cycles (s = 1: the
    plain ring), and cycle j adds up the `x_ij` under a uniform mask of the starter. All parties
    learn the total. In cycle j the coalition sees the vector enter and leave every maximal run of
    honest parties, so it knows the sum of the shares of each run; a run that holds an honest
    starter is hidden by the mask, but the total gives the sum of these runs over all cycles. A
    linear combination of what it knows is free of the uniform shares only if each honest party has
    the same coefficient in all cycles, that is, if the coefficients are constant on every connected
    component of the honest parties in the union of the cycles. So the coalition learns the sum of
    the inputs of each such component (`leaked_groups`) and nothing more.

    It follows that a party is exposed exactly if it is alone in its component: its neighbours in
    *all* cycles are corrupt. Partial sums over larger components leak as well.

    The starter gains nothing from being the starter. If it is corrupt it knows the mask, but every
    difference that the mask would reveal is a difference of two messages that the coalition has
    seen. If it is honest and all its neighbours are corrupt, it is exposed as any other party is:
    the total minus the runs of the others is its input.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.extras import require_extra
from veilring.privacy.checks import require
from veilring.protocols.ring.algorithm.topk import SMALLEST_RING


@dataclass(frozen=True, slots=True)
class SumMethod:
    """The way in which a sum is computed.

    `cycles` uses at least 2, and at most `(n - 1) // 2`, edge-disjoint cycles of n parties.
    """

    name: Literal["ring", "cycles", "shares", "masks"] = "ring"
    cycles: int = 1

    def __post_init__(self) -> None:
        if self.name not in {"ring", "cycles", "shares", "masks"}:
            raise InputError("sum", self.name, "ring, cycles, shares or masks")
        if (self.name == "cycles") != (self.cycles > 1) or self.cycles < 1:
            raise InputError("cycles", self.cycles, '2 or more if sum is "cycles", otherwise 1')

    @property
    def goes_round(self) -> bool:
        """Whether parts of the sum pass around a ring; otherwise each party sends to all."""
        return self.name in {"ring", "cycles"}

    def check(self, parties: int) -> None:
        """Reject a number of parties that the method does not support."""
        require(parties >= SMALLEST_RING, "parties", parties, f"at least {SMALLEST_RING}")
        most = (parties - 1) // 2
        require(self.cycles <= most, "cycles", self.cycles, f"at most {most} for {parties} parties")


# Beyond 62 fractional bits not even the number 1 fits a signed 64-bit integer.
MOST_SCALE_BITS: Final = 62

_LARGEST_SIGNED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A public encoding of reals as integers modulo 2^64, under which sums cannot overflow.

    Attributes:
        scale_bits: Number of fractional bits, 0 to 62; the resolution is `2**-scale_bits`.
        parties: The maximum number of encoded values to add up, at least 1.
    """

    scale_bits: int
    parties: int

    def __post_init__(self) -> None:
        allowed = f"an integer from 0 to {MOST_SCALE_BITS}"
        require(0 <= self.scale_bits <= MOST_SCALE_BITS, "scale_bits", self.scale_bits, allowed)
        allowed = "an integer from 1 to 2**63 - 1"
        require(1 <= self.parties <= _LARGEST_SIGNED, "parties", self.parties, allowed)

    @property
    def limit(self) -> float:
        """The largest magnitude that `encode` accepts.

        It is the largest double whose scaled value is at most `(2**63 - 1) // parties`. That
        quotient is an integer, so rounding to the nearest integer cannot exceed it, and the sum
        over all parties stays within a signed 64-bit integer.
        """
        share = _LARGEST_SIGNED // self.parties
        nearest = float(share)
        below = nearest if int(nearest) <= share else math.nextafter(nearest, 0)
        return math.ldexp(below, -self.scale_bits)

    def encode(self, values: Floats, field: str = "values") -> NDArray[np.uint64]:
        """Return values of magnitude up to `limit` in fixed point, rounded half to even."""
        limit = self.limit
        if not (np.abs(values) <= limit).all():  # as for NaN
            allowed = f"finite numbers of magnitude at most {limit!r}"
            raise InputError.because(
                f"{field} is too large for the sum, or not finite; it must be {allowed}",
                field=field,
            )
        scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), self.scale_bits))
        return np.asarray(scaled).astype(np.int64).view(np.uint64)

    def decode(self, encoded: NDArray[np.uint64]) -> Floats:
        """Return the reals encoded by sums, exact up to the 53 bits of a double."""
        signed = np.asarray(encoded, dtype=np.uint64).view(np.int64)
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.scale_bits))


def draw_masks(shape: int | tuple[int, ...], rng: np.random.Generator) -> NDArray[np.uint64]:
    """Return uniform elements of Z_{2^64}; added to a value, each hides it perfectly, once."""
    return rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def split_shares(
    values: NDArray[np.uint64], shares: int, rng: np.random.Generator
) -> NDArray[np.uint64]:
    """Return additive shares that sum to the values modulo 2^64, (shares, *values.shape).

    Any `shares - 1` of them are independent and uniform.
    """
    require(shares >= 1, "shares", shares, "an integer of at least 1")
    if shares == 1:
        return values[None]
    parts = np.empty((shares, *values.shape), dtype=np.uint64)
    parts[1:] = draw_masks((shares - 1, *values.shape), rng)
    parts[:1] = values
    parts[:1] -= parts[1:].sum(axis=0, keepdims=True, dtype=np.uint64)
    return parts


def walecki_cycles(n: int) -> tuple[tuple[int, ...], ...]:
    """Return `(n-1)//2` edge-disjoint Hamiltonian cycles of the complete graph on n vertices.

    Let `M = (n-1)//2`, and let the vertices 1 to 2M be the elements of `Z_{2M}`. Cycle i is vertex
    0 followed by the zigzag `i, i+1, i-1, i+2, …, i+M` in `Z_{2M}`. If n is even, the last vertex
    enters each cycle at the middle of its zigzag: the edges that it splits are disjoint, so its own
    edges are distinct, and a perfect matching is left over. Each cycle is returned in the direction
    in which its second vertex is smaller than its last.
    """
    _require_parties(n)
    half = (n - 1) // 2
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(2 * half)]
    extra = () if n % 2 else (n - 1,)
    cycles = []
    for turn in range(half):
        path = [1 + (turn + offset) % (2 * half) for offset in zigzag]
        cycles.append((0, *path[:half], *extra, *path[half:]))
    return tuple(cycles)


def exposure_probability(n: int, c: int, s: int = 1) -> float:
    """Return the probability that a given honest party is exposed under a split over s cycles.

    In edge-disjoint cycles a party has 2s distinct neighbours. Parties are placed at random, so
    the c corrupt ones are a uniform c-subset of the n - 1 others, and it contains the 2s
    neighbours with probability `C(n-1-2s, c-2s) / C(n-1, c)`. Written out, the factorials cancel
    to falling ones: `c(c-1)…(c-2s+1) / ((n-1)(n-2)…(n-2s))`. The formula also holds for the
    starter, and with a corrupt starter (see the top of this module). A plain ring has s = 1.
    """
    _require_parties(n)
    require(0 <= c < n, "c", c, f"an integer from 0 to n - 1 = {n - 1}")
    require(1 <= s <= (n - 1) // 2, "s", s, f"an integer from 1 to (n - 1)//2 = {(n - 1) // 2}")
    return math.perm(c, 2 * s) / math.perm(n - 1, 2 * s)


def leaked_groups(
    cycles: Sequence[Sequence[int]], coalition: Collection[int]
) -> tuple[frozenset[int], ...]:
    """Return the groups of honest parties whose sums a coalition learns, as a partition.

    They are the connected components of the honest parties in the union of the edge-disjoint
    cycles; the argument is at the top of this module. An exposed party is a group of its own.
    """
    require_extra("networkx")
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    for cycle in cycles:
        nx.add_cycle(graph, cycle)
    graph.remove_nodes_from(coalition)
    components: Iterable[set[int]] = nx.connected_components(graph)
    return tuple(sorted((frozenset(group) for group in components), key=min))


def _require_parties(n: int) -> None:
    require(n >= SMALLEST_RING, "n", n, f"an integer of at least {SMALLEST_RING}")
