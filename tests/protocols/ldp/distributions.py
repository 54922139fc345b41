"""The exact distribution of each oracle's reports, enumerated from its published numbers.

It is written from the definitions, independently of the code that is compared with it.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any, TypeAlias

from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle

Distribution: TypeAlias = dict[bytes, Fraction]
"""How probable each report is."""
Public: TypeAlias = Mapping[str, Any]


def distribution_of(oracle: FrequencyOracle, value: int) -> Distribution:
    """Return the probability of every report of a client with the given value."""
    return ENUMERABLE[oracle.name](oracle.public, value, oracle.report_bytes)


def _direct(public: Public, value: int, size: int) -> Distribution:
    own, other, domain = public["own"], public["other"], public["domain"]
    total = own + (domain - 1) * other
    return {
        said.to_bytes(size, "little"): Fraction(own if said == value else other, total)
        for said in range(domain)
    }


def _unary(public: Public, value: int, size: int) -> Distribution:
    p, q = (Fraction(public[name], 2 ** public["bits"]) for name in ("p", "q"))
    distribution = {}
    for bits in product((0, 1), repeat=public["domain"]):
        probability = Fraction(1)
        for place, bit in enumerate(bits):
            of_set = p if place == value else q
            probability *= of_set if bit else 1 - of_set
        distribution[_bitmap([place for place, bit in enumerate(bits) if bit], size)] = probability
    return distribution


def _hadamard(public: Public, value: int, size: int) -> Distribution:
    p, order = Fraction(public["p"], 2 ** public["bits"]), public["order"]
    distribution = {}
    for row, plus in product(range(order), (0, 1)):
        true_plus = (row & (value + 1)).bit_count() % 2 == 0
        probability = (p if bool(plus) == true_plus else 1 - p) / order
        distribution[(2 * row + plus).to_bytes(size, "little")] = probability
    return distribution


def _subset(public: Public, value: int, size: int) -> Distribution:
    p, domain = Fraction(public["p"], 2 ** public["bits"]), public["domain"]
    members = public["size"]
    listed = members < -(-domain // 8)  # one byte a member: domains here are below 256
    distribution = {}
    for chosen in combinations(range(domain), members):
        if value in chosen:
            probability = p / comb(domain - 1, members - 1)
        else:
            probability = (1 - p) / comb(domain - 1, members)
        distribution[bytes(chosen) if listed else _bitmap(chosen, size)] = probability
    return distribution


def _bitmap(members: Iterable[int], size: int) -> bytes:
    bits: int = sum(1 << (8 * size - 1 - member) for member in members)
    return bits.to_bytes(size, "big")


ENUMERABLE: Mapping[str, Callable[[Public, int, int], Distribution]] = {
    "de": _direct,
    "sue": _unary,
    "oue": _unary,
    "the": _unary,
    "hr": _hadamard,
    "ss": _subset,
}
"""By the oracle's name; the two with too many reports to list are compared by their parts."""
