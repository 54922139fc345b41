"""Arguments out of range are refused by name: by the ring's mathematics, attacks and system."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from docs.examples.ring_attacks import tracing_success
from tests.protocols.ring.worlds import NAMES, RING, rng

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.nodes.journal import View
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch import adversaries as searches
from veilring.protocols.ring import adversaries, attacks
from veilring.protocols.ring import leakage as leaks
from veilring.protocols.ring.algorithm import classify, consistency, sums, topk
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.attacks import posterior, views
from veilring.protocols.ring.system import PrivateKNN

Case = tuple[str, Callable[[], object]]
"""Words of the error, and a call with a wrong argument."""

HONEST = TopKParameters(k=3, P0=0.0, d=0.5, rounds=2, delta=0.5, upper=9.0)
INVALID: dict[str, list[Any]] = {
    "k": [0],
    "P0": [-0.1, 1.1, math.nan],
    "d": [0.0, 1.5],
    "rounds": [0],
    "delta": [0.0, math.inf, math.nan],
    "lower": [-math.inf, math.nan],
    "upper": [0.0, math.inf, math.nan],
}
UNSORTED, LOW = np.tile([2.0, 1.0, 3.0], (5, 3, 1)), np.full((5, 3, 3), -0.5)


def ring_of(values: Floats) -> Floats:
    """Run a ring of parties with these values."""
    return topk.run_ring(values, HONEST, rng())


def _of_topk() -> Iterator[Case]:
    """Yield parameters out of range, noise that would overflow, and impossible values."""
    for field, values in INVALID.items():
        for value in values:
            yield f"{field} is {value}", partial(replace, HONEST, **{field: value})
    yield "upper is 1e", partial(TopKParameters, 2, 1, 1, 1, delta=1e308, upper=1e308)
    yield "d is 1.0; allowed: below 1 if P0 is 1", partial(topk.rounds_for, 0.1, 3, 1.0, 1.0)
    for error in (0.0, 1.0, math.nan):
        yield f"error is {error}", partial(topk.rounds_for, error, 3, 1.0, 0.5)
    yield "k is 0", partial(topk.rounds_for, 0.1, 0, 1.0, 0.5)
    yield "P0 is 2.0", partial(topk.rounds_for, 0.1, 3, 2.0, 0.5)
    yield "d is 0.0", partial(topk.rounds_for, 0.1, 3, 1.0, 0.0)
    yield "rounds is 0", partial(topk.exactness_bound, 1, 1.0, 0.5, 0)
    yield "hops is -1", partial(topk.highest_entry, HONEST, -1)
    yield "hops is -1", partial(consistency.could_become, LOW[0], LOW[0], -1, HONEST)
    for value in (math.nan, -math.inf):
        yield "values must be numbers", partial(topk.own_smallest, np.array([[1.0, value]]), 1)
    yield r"values has the shape \(3,\)", partial(topk.own_smallest, np.zeros(3), 1)
    yield "k is 0", partial(topk.own_smallest, np.zeros((1, 3)), 0)
    for shape in ((5, 2, 3), (5, 3, 2), (5, 3)):
        yield rf"values has the shape \({str(shape)[1:-1]}\)", partial(ring_of, np.zeros(shape))
    yield "values must be sorted ascending", partial(ring_of, UNSORTED)
    for outside in (LOW, LOW + 10):
        yield "values must be within the public bounds", partial(ring_of, outside)
    yield "values must be", partial(ring_of, LOW * math.nan)


SUMS: tuple[Case, ...] = (
    ("scale_bits is -1", lambda: FixedPoint(-1, 3)),
    ("scale_bits is 63", lambda: FixedPoint(63, 3)),
    ("parties is 0", lambda: FixedPoint(32, 0)),
    (f"parties is {2**63}", lambda: FixedPoint(32, 2**63)),
    ("shares is 0", lambda: sums.split_shares(np.zeros(1, np.uint64), 0, rng())),
    ("n is 2", lambda: sums.walecki_cycles(2)),
    ("n is 2", lambda: sums.exposure_probability(2, 0, 1)),
    ("c is -1", lambda: sums.exposure_probability(5, -1, 1)),
    ("c is 5", lambda: sums.exposure_probability(5, 5, 1)),
    ("s is 0", lambda: sums.exposure_probability(5, 2, 0)),
    ("s is 3", lambda: sums.exposure_probability(6, 2, 3)),
    ("sum is 'square'", lambda: SumMethod("square")),  # type: ignore[arg-type]  # a mistake
    ("cycles is 1; allowed: 2 or more", lambda: SumMethod("cycles", 1)),
    ("otherwise 1", lambda: SumMethod("ring", 2)),
    ("at most 2 for 5 parties", lambda: SumMethod("cycles", 3).check(5)),
)
ONE = replace(HONEST, k=1, rounds=1)
ORDERS = leaks.uniform_values(6, 3, 1, 1, rng())
LEAKAGE: tuple[Case, ...] = (
    ("at least 2 trials", lambda: leaks.estimate_hop_leakage(ORDERS[:1], ONE, rng())),
    (r"coalition is \[3\]", lambda: leaks.exposure_to_coalition(ORDERS, ONE, {3}, rng())),
    ("trials is 0", lambda: leaks.uniform_values(0, 1, 1, 1, rng())),
    ("parties is 0", lambda: leaks.uniform_values(1, 0, 1, 1, rng())),
    ("k is 0", lambda: leaks.uniform_values(1, 1, 0, 1, rng())),
    ("rows_per_party is -1", lambda: leaks.uniform_values(1, 1, 1, -1, rng())),
    ("upper is 0", lambda: leaks.uniform_values(1, 1, 1, 1, rng(), upper=0.0)),
)
AWAY = pairwise_distances(np.zeros((1, 1)), np.arange(5.0)[:, None])


def votes_of(
    labels: Sequence[int], results: int = 1, classes: int = 4, weights: Any = "uniform"
) -> Floats:
    """Count the votes of five rows."""
    return classify.local_votes(AWAY, np.array(labels), np.ones((results, 1)), classes, weights)


VOTES: tuple[Case, ...] = (
    (r"labels has the shape \(2,\)", lambda: votes_of([0, 1])),
    ("labels must be integers from 0 to 3", lambda: votes_of([0, 1, 4, 0, 0])),
    ("labels must be integers from 0 to 3", lambda: votes_of([0, 1, -1, 0, 0])),
    ("classes is 0", lambda: votes_of([0] * 5, classes=0)),
    (r"result has the shape \(2, 1\)", lambda: votes_of([0] * 5, results=2)),
    ("weights is 'gaussian'", lambda: votes_of([0] * 5, weights="gaussian")),
    (r"rows has the shape \(5, 1\)", lambda: pairwise_distances(np.zeros((2, 3)), AWAY.T)),
    ("has the shape", lambda: Rows(np.zeros(3), np.zeros(3, int))),
    ("features must be in", lambda: Rows(np.full((1, 1), 1.5), np.zeros(1, int))),
    ("features must be in", lambda: Rows(np.full((1, 1), math.nan), np.zeros(1, int))),
    ("class numbers from 0", lambda: Rows(np.zeros((1, 1)), np.array([-1]))),
)
ADVERSARIES: tuple[Case, ...] = (
    ("label is -1", partial(adversaries.InputSubstitution, -1)),
    ("entries is 0", partial(adversaries.InflateTopK, 0)),
    ("first_round is 0", partial(adversaries.InflateTopK, 1, 0)),
    ("factor is 1.5", partial(adversaries.DeflateTopK, 1.5)),
    ("by is inf", partial(adversaries.WrongSum, float("inf"))),
    ("entry is -1", partial(adversaries.WrongSum, 1, -1)),
    ("by is -1", partial(searches.WrongCounts, by=-1)),
    ("by is -1", partial(searches.TakeOver, by=-1)),
    ("by is 0", partial(searches.WrongVotes, by=0)),
    ("entry is -1", partial(searches.WrongVotes, entry=-1)),
    ("factor is 1.5", partial(searches.MadeUpTotals, 1.5)),
)
NOBODY, LONG, PRIOR = View("party-1"), np.zeros((16, 1, 3)), views.UniformPrior(20)
LATE = replace(HONEST, rounds=3, upper=1.0)
view_of = partial(views.simulated_view, LONG, LATE, NAMES)
one_view = attacks.CoalitionView(RING, {"party-1": NOBODY})
owned_view = attacks.CoalitionView(RING, {"party-1": NOBODY}, {"party-1": np.ones((2, 3))})
SHARES: dict[str, Any] = {"method": SumMethod("shares"), "fixed": FixedPoint(20, 5)}
ALONG: dict[str, Any] = {"method": SumMethod(), "fixed": FixedPoint(20, 5)}


def traced(coalition: int) -> Floats:
    """Trace owners among six parties by a coalition of the given size."""
    return tracing_success(6, ONE, PRIOR, coalition=coalition, sessions=1, batches=1, rng=rng(1))


def fitted_to(member: int) -> Floats:
    """Judge a view that ends after three hops by cells of one colluder."""
    cells = posterior.fit_cells(LATE, 5, 1, [member], PRIOR, 5, rng(1))
    return cells.posterior(view_of(["party-2"], failed_after=3), "party-1")


ATTACKS: tuple[Case, ...] = (
    ("there are no views", lambda: attacks.CoalitionView(RING, {})),
    ("views is 'eve'", lambda: attacks.CoalitionView(RING, {"eve": View("eve")})),
    ("own is 'party-2'", lambda: attacks.CoalitionView(RING, one_view.views, {"party-2": LONG[0]})),
    ("views lack the vectors", lambda: attacks.topk_view(one_view, LATE)),
    ("there are 3 vectors", lambda: views.simulated_view(LONG[:3], LATE, NAMES, NAMES)),
    ("members is 'eve'", lambda: view_of(["eve"])),
    ("party is 'eve'", lambda: view_of(NAMES).hops_of("eve")),
    ("party is 'eve'", lambda: views.claim_new(view_of(["party-2"]), "eve")),
    ("victim is 'party-2'", lambda: views.claim_new(view_of(["party-2"]), "party-2")),
    ("there are no sessions", lambda: views.recurring([])),
    (
        "the same parties, members and queries",
        lambda: views.find_owners([view_of([name]) for name in NAMES[1:3]], LONG[0, :, :1]),
    ),
    ("coalition is 0", lambda: traced(0)),
    ("coalition is 6", lambda: traced(6)),
    (
        "views lack vector 2",
        lambda: posterior.sandwich_posterior(view_of(["party-3"]), "party-2", PRIOR),
    ),
    ("rows_per_party is 0", lambda: views.UniformPrior(0)),
    ("upper is inf", lambda: views.UniformPrior(1, np.inf)),
    (r"coalition is \[5\]", lambda: fitted_to(5)),
    ("views lack the result", lambda: fitted_to(2)),
    ("input of party-1 is missing", lambda: attacks.recover_groups(one_view, **SHARES)),
    ("views lack the total", lambda: attacks.recover_groups(one_view, **ALONG)),
    ("views lack some of the values that", lambda: attacks.recover_groups(owned_view, **SHARES)),
    ("victim is 'party-1'", lambda: attacks.recover_input(one_view, "party-1", **ALONG)),
)


def bind(features: int = 2, classes: int = 2, **options: Any) -> object:
    """Return PP-kNN for five parties."""
    return PrivateKNN(**options).bind(Facts(5, features, classes))


SYSTEM: tuple[Case, ...] = (
    ("k is 0", partial(bind, k=0)),
    ("P0 is 1.5", partial(bind, P0=1.5)),
    ("d is 0", partial(bind, d=0.0)),
    ("d is 1.0; allowed: below 1 if P0 is 1", partial(bind, d=1.0)),
    ("rounds is .*0", partial(bind, rounds=0)),
    ("delta is 0", partial(bind, delta=0.0)),
    ("cycles is 2; allowed: 2 or more if sum is", partial(bind, cycles=2)),
    ("features is 0", partial(bind, 0)),
    ("classes is 0", partial(bind, 2, 0)),
    ("weights is .*loud.*; allowed: uniform or distance", partial(bind, weights="loud")),
)


@pytest.mark.parametrize(
    ("said", "call"), [*_of_topk(), *SUMS, *LEAKAGE, *VOTES, *ADVERSARIES, *ATTACKS, *SYSTEM]
)
def test_an_impossible_argument_is_refused(said: str, call: Callable[[], object]) -> None:
    """The error names it, and for a parameter of the system gives the allowed values."""
    with pytest.raises(InputError, match=said):
        call()


CODE = FixedPoint(scale_bits=44, parties=3)


@pytest.mark.parametrize(
    ("check", "limit", "bad"),
    [
        *((partial(topk.require_bounded, parameters=HONEST), 9, x) for x in (-0.125, 9.125)),
        *((partial(topk.require_bounded, parameters=HONEST), 9, x) for x in (math.nan, -math.inf)),
        *((CODE.encode, CODE.limit, x) for x in (math.nan, math.inf, -math.inf, 1234567.0)),
    ],
)
def test_no_error_shows_a_secret(check: Callable[..., object], limit: float, bad: float) -> None:
    """A distance or vote beyond its limits is refused by field and limit; no value is shown."""
    with pytest.raises(InputError) as caught:
        check(np.array([0.5, bad]), field="secret")
    said = str(caught.value)
    assert caught.value.field == "secret"
    assert repr(limit) in said
    assert not any(secret in said for secret in ("0.125", "9.125", "1234567"))
    topk.require_bounded(np.array([0.0, 9.0, math.inf]), HONEST)  # padding passes
    assert "0.123456" not in repr(Rows(np.array([[0.123456]]), np.array([0])))
