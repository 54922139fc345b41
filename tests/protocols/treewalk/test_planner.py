"""The choice of the best mechanism for a query."""

from itertools import pairwise, product

import pytest
from scipy.stats import binomtest

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    bucket_distribution,
    buckets_of,
    respond,
    walk,
)
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.protocols.treewalk.plan import own_probability, recommend_lookup
from veilring.randomness import Streams


def test_options_find_the_own_bucket_at_the_stated_rate() -> None:
    """Over 20,000 queries each option's frequency matches its probability.

    The joint false-alarm rate over all options is 1e-6; the seed is fixed.
    """
    rng = Streams(2).generator("options")
    tree, queries = build_tree(rng.random((64, 2))), rng.random((20_000, 2))
    options = recommend_lookup(64, 2, 6.0)
    for option in options:
        levels = tree.depth - option.splits
        own = buckets_of(tree.splits, queries, levels)
        if option.mechanism == "response":
            distribution = bucket_distribution(tree.depth, option.splits, 6.0)
            hit = respond(tree.splits, queries, distribution, rng) + distribution.domain == own
        else:
            steps = Comparison(2 * 6.0 / max(1, levels))
            found = walk(tree, queries, steps, option.splits, rng).found
            hit = (found == tree.starts[own << option.splits][:, None]).any(axis=1)
        test = binomtest(int(hit.sum()), len(queries), min(1.0, option.probability))
        assert test.pvalue > 1e-6 / len(options)


def test_a_response_is_recommended_over_a_walk_of_the_same_bucket() -> None:
    """For each bucket size except two, responses find the own bucket more often."""
    options = recommend_lookup(100_000, 2, 9.2)
    for one, other in product(options, options):
        same = one.splits == other.splits
        if one.mechanism == "response" and other.mechanism == "walk" and same:
            assert one.probability >= other.probability * (1 - 1e-9)
            assert options.index(one) < options.index(other) or one.found == 1 << 16


def test_limits_are_respected_and_the_best_is_first() -> None:
    """Options stay within the limits, by decreasing probability; lower limits leave fewer."""
    limited = recommend_lookup(100_000, 2, 9.2, rounds=2, bytes=20_000)
    assert limited
    assert all(each.rounds <= 2 and each.bytes <= 20_000 for each in limited)
    assert all(one.probability >= other.probability for one, other in pairwise(limited))
    assert limited[0].mechanism == "response"
    assert set(limited) <= set(recommend_lookup(100_000, 2, 9.2))
    assert not recommend_lookup(100_000, 2, 9.2, rounds=1, bytes=20_000)


def test_all_points_are_best_without_a_limit() -> None:
    """Without a limit on bytes, sending all points is best, and the report shows it."""
    best, *others = recommend_lookup(1000, 2, 1.0)
    assert (best.probability, best.rounds, best.found) == (1.0, 1, 1024)
    assert (best.mechanism, best.splits) == ("walk", 10)
    assert all(each.probability < 1.0 for each in others)  # there is one such way, and not two


@pytest.mark.parametrize(
    ("points", "dimensions", "epsilon", "field"),
    [
        (1, 2, 1.0, "points"),
        (10, 0, 1.0, "dimensions"),
        (10, 2, 0.0, "epsilon"),
        (10, 2, 41.0, "epsilon"),
    ],
)
def test_bad_numbers_are_named(points: int, dimensions: int, epsilon: float, field: str) -> None:
    """A number out of range is refused by name."""
    with pytest.raises(InputError, match=f"{field} is"):
        recommend_lookup(points, dimensions, epsilon)


def test_ninety_five_in_a_hundred_cost_a_response_a_fifth_of_a_walk() -> None:
    """Of 100,000 points in buckets of 256, a response of 9.2 equals a walk of 46.5."""
    response = float(bucket_distribution(17, 8, 9.2).p)
    assert response == pytest.approx(0.95, abs=0.005)
    assert own_probability(9, 46.5) == pytest.approx(0.95, abs=0.005)
