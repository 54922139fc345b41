"""The exact distribution of a mechanism's reports, enumerated from its published numbers.

It is written from the definitions, independently of the code that is compared with it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, log, prod, sqrt
from typing import Any, TypeAlias

import numpy as np
from papers.means import SignVector
from papers.oracles import ALL_ORACLES
from tests.privacy.generators import follows

from veilring.protocols.ldp.algorithm.codes import CodeDistribution, OneBit
from veilring.protocols.ldp.algorithm.means import EachFeature, Means, SampledFeature
from veilring.protocols.ldp.algorithm.numbers import Hybrid, Laplace, Piecewise
from veilring.protocols.ldp.algorithm.oracles import SubsetSelection
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle, LocalRandomiser

Distribution: TypeAlias = dict[Any, Fraction]
"""How probable each outcome is: of reports, as bytes."""
Public: TypeAlias = Mapping[str, Any]
Value: TypeAlias = int | tuple[int, ...]
"""The value of an oracle; or the numbers of a row, -1, 0 or 1, followed by its class if any."""


def distribution_of(randomiser: LocalRandomiser, value: Value) -> Distribution:
    """Return the probability of every report of a client with the given value."""
    law = ENUMERABLE[randomiser.name]
    return law(randomiser.public, value, randomiser.report_bytes)


def values_of(randomiser: LocalRandomiser) -> list[Value]:
    """Return some values of clients, among them a pair that is easiest to distinguish."""
    match randomiser:
        case FrequencyOracle():
            return list(range(min(randomiser.domain, 6)))
        case SignVector():
            return list(product((-1, 1), repeat=randomiser.features))
        case EachFeature() | SampledFeature():
            own = [range(randomiser.classes)] * (randomiser.classes > 1)
            return list(product(*[(-1, 0, 1)] * randomiser.features, *own))
    raise TypeError(randomiser.name)


def loss(distributions: Iterable[Distribution]) -> float:
    """Return the greatest log-ratio of an outcome's probabilities, over all pairs."""
    pairs = permutations(distributions, 2)
    return log(max(a[outcome] / b[outcome] for a, b in pairs for outcome in a))


def agrees(drawn: Iterable[Any], distribution: Mapping[Any, Fraction], tests: int) -> bool:
    """Return whether draws pass a G-test; an impossible outcome raises `KeyError`."""
    place = {outcome: number for number, outcome in enumerate(distribution)}
    counts = np.bincount([place[each] for each in drawn], minlength=len(place))
    return follows(counts, np.array([*distribution.values()], dtype=np.float64), tests)


def words(randomiser: LocalRandomiser | CodeDistribution) -> str:
    """Return the name of a mechanism or a distribution for test ids."""
    within = [randomiser.distribution.name] if isinstance(randomiser, Means) else []
    shape = ("domain", "features", "classes", "epsilon")
    numbers = (getattr(randomiser, name) for name in shape if hasattr(randomiser, name))
    return "-".join((randomiser.name, *within, *(f"{float(each):g}" for each in numbers)))


def _direct(public: Public, value: int, size: int) -> Distribution:
    own, other, domain = public["own"], public["other"], public["domain"]
    total = own + (domain - 1) * other
    return {
        said.to_bytes(size, "little"): Fraction(own if said == value else other, total)
        for said in range(domain)
    }


def _bits(ones: Sequence[Fraction]) -> Distribution:
    """Return the distribution of independent bits, given the probability of 1 for each."""
    return {
        np.packbits(bits).tobytes(): prod(
            (one if bit else 1 - one for bit, one in zip(bits, ones, strict=True)),
            start=Fraction(1),
        )
        for bits in product((0, 1), repeat=len(ones))
    }


def _unary(public: Public, value: int, _: int) -> Distribution:
    p, q = (Fraction(public[name], 2 ** public["bits"]) for name in ("p", "q"))
    return _bits([p if place == value else q for place in range(public["domain"])])


def _hadamard(public: Public, value: int, size: int) -> Distribution:
    p, order = Fraction(public["p"], 2 ** public["bits"]), public["order"]
    distribution = {}
    for row, plus in product(range(order), (0, 1)):
        true_plus = (row & (value + 1)).bit_count() % 2 == 0
        probability = (p if bool(plus) == true_plus else 1 - p) / order
        distribution[(2 * row + plus).to_bytes(size, "little")] = probability
    return distribution


def _subset(public: Public, value: int, _: int) -> Distribution:
    p, domain = Fraction(public["p"], 2 ** public["bits"]), public["domain"]
    size = public["size"]
    listed = size < -(-domain // 8)  # one byte a member: domains here are below 256
    own, other = p / comb(domain - 1, size - 1), (1 - p) / comb(domain - 1, size)
    distribution = {}
    for chosen in combinations(range(domain), size):
        bitmap = np.packbits(np.isin(range(domain), chosen))
        report = bytes(chosen) if listed else bitmap.tobytes()
        distribution[report] = own if value in chosen else other
    return distribution


def _ones(public: Public, row: Sequence[int]) -> list[list[Fraction]]:
    """Return the probability of 1 for the number of each feature and class."""
    classes, lean = public["classes"], Fraction(public["lean"], 2 ** public["coin_bits"])
    own = row[public["features"]] if classes > 1 else 0
    return [
        [Fraction(1, 2) + lean * number * (each == own) for each in range(classes)]
        for number in row[: public["features"]]
    ]


def _each(public: Public, row: Sequence[int], _: int) -> Distribution:
    return _bits([one for ones in _ones(public, row) for one in ones])


def _sampled(public: Public, row: Sequence[int], _: int) -> Distribution:
    return {
        bytes([feature]) + bits: share / public["features"]
        for feature, ones in enumerate(_ones(public, row))
        for bits, share in _bits(ones).items()
    }


def _signs(public: Public, row: Sequence[int], _: int) -> Distribution:
    weights = {
        np.packbits(np.array(t) > 0).tobytes(): public["high" if np.dot(t, row) > 0 else "low"]
        for t in product((-1, 1), repeat=len(row))
    }
    total = sum(weights.values())
    return {report: Fraction(weight, total) for report, weight in weights.items()}


ENUMERABLE: Mapping[str, Callable[[Public, Any, int], Distribution]] = {
    "de": _direct,
    **dict.fromkeys(("sue", "oue", "the"), _unary),
    "hr": _hadamard,
    "ss": _subset,
    "each-feature": _each,
    "sampled-feature": _sampled,
    "sign-vector": _signs,
}
"""By the mechanism's name, with codes of one bit for means.

The two oracles with too many reports to list are compared by their parts, and so are the codes of
other distributions.
"""
FINITE = tuple(name for name in ENUMERABLE if name in ALL_ORACLES)
LISTED = SubsetSelection(60, 3.0)  # its sets of two are sent as lists
DISTRIBUTIONS = (Laplace, OneBit, Piecewise, Hybrid)
MECHANISMS: list[Means] = [
    *(EachFeature(kind(0.5), 3) for kind in DISTRIBUTIONS),
    *(SampledFeature(kind(1.0), 3) for kind in DISTRIBUTIONS),
    *(EachFeature(kind(0.5), 2, 3) for kind in (Laplace, OneBit)),
    *(SampledFeature(kind(1.0), 2, 3) for kind in (Laplace, OneBit)),
    SampledFeature(Hybrid(Fraction(3, 2)), 3, told=2),
    SampledFeature(Laplace(Fraction(5, 2)), 3, 2, told=2),
]
MEANS = tuple(each for each in MECHANISMS if isinstance(each.distribution, OneBit))


def bernstein(variance: float, largest: float, alarm: float) -> float:
    """Return a bound on a sum of centred numbers, exceeded on either side once in 1 / alarm tests.

    The sum has this variance, and each number is at most the largest.
    """
    needed = log(2 / alarm)
    return sqrt(2 * variance * needed) + 2 * largest * needed / 3
