"""Cost laws and results of the four protocols in the tutorials."""

import math
from itertools import chain, combinations

import numpy as np
import pytest
from docs.examples import gossip, masked_median, private_intersection, threshold_sum
from docs.examples.private_intersection_audit import hashed_intersection

from veilring import Fault, RunFailed, simulate
from veilring.testing import ProtocolRunner, assert_cost

SIMULATED = ProtocolRunner("simulated")


def test_a_threshold_sum_costs_what_it_should(run_protocol: ProtocolRunner) -> None:
    """Four parties need 2 (n + 1) (n - 1) messages in four rounds on every runtime."""
    names, own = tuple(threshold_sum.INPUTS), list(threshold_sum.INPUTS.values())
    law = threshold_sum.forecast(names, entries=1)
    run = run_protocol(threshold_sum.threshold_sum, names, own=own, threshold=1)
    assert_cost(run, rounds=4, messages=2 * 5 * 3, bytes=law.traffic.bytes, setup_messages=0)
    assert run.result == ((9,), names)


@pytest.mark.parametrize(("parties", "threshold"), [(3, 1), (6, 4), (9, 1)])
def test_more_parties_and_entries_cost_what_was_forecast(parties: int, threshold: int) -> None:
    """The closed form holds for any number of parties and entries, and for any threshold."""
    names, own = tuple(f"party-{n}" for n in range(parties)), [np.arange(7, dtype=np.uint64)]
    law = threshold_sum.forecast(names, entries=7)
    run = SIMULATED(threshold_sum.threshold_sum, names, own=own * parties, threshold=threshold)
    messages = 2 * (parties + 1) * (parties - 1)
    assert_cost(run, rounds=law.rounds, messages=messages, bytes=law.traffic.bytes)
    assert run.result.numbers == tuple(range(0, 7 * parties, parties))


def test_any_shares_that_are_enough_determine_the_numbers() -> None:
    """Each three of five shares with threshold 2 determine numbers at both ends of the field."""
    numbers = np.array([0, 1, threshold_sum.PRIME - 1], np.uint64)
    shares = threshold_sum.split(numbers, 2, 5, np.random.default_rng(1))
    for points in combinations(range(5), 3):
        found = threshold_sum.interpolate_at_zero({n + 1: shares[n] for n in points})
        assert found.tolist() == numbers.tolist()


def test_a_party_that_crashes_between_shares_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Shares of a party that arrived at some parties only are in nobody's sum; no log warns."""
    crash = Fault("mid-send", 0.5, 9.0, ("cy",), strength=2)
    run = simulate(threshold_sum.over_the_world(crash))
    assert set(run.results.values()) == {((5,), ("ada", "ben", "dee"))}
    assert not caplog.records


def test_an_intersection_costs_what_it_should(run_protocol: ProtocolRunner) -> None:
    """Two parties need four messages in two rounds on every runtime."""
    own = [["ann", "bob", "cat", "ann"], ["bob", "dan"]]
    law = private_intersection.forecast(3, 2)
    run = run_protocol(private_intersection.private_intersection, 2, own=own)
    assert_cost(run, rounds=2, messages=4, bytes=law.traffic.bytes, setup_messages=0)
    assert set(run.results.values()) == {1}


def test_an_item_costs_68_bytes() -> None:
    """An item travels twice, as 32 bytes with two in front."""
    sizes = [private_intersection.forecast(items, 5).traffic.bytes for items in (20, 21, 120)]
    assert sizes[1] - sizes[0] == 68
    assert sizes[2] - sizes[0] == 6_800


@pytest.mark.parametrize("items", [0, 1, 40])
def test_both_ways_to_compare_find_the_common_items(items: int) -> None:
    """Points and hashes give the number of common items, also if a party has none."""
    own = [[f"item {n}" for n in range(items)], [f"item {n}" for n in range(items // 2, 60)]]
    for role in (private_intersection.private_intersection, hashed_intersection):
        run = SIMULATED(role, 2, own=own)
        assert set(run.results.values()) == {items - items // 2}


def test_a_number_that_is_not_on_the_curve_is_refused() -> None:
    """Half of all numbers are no first coordinate; the library refuses them."""
    refused = 0
    for n in range(100):
        try:
            private_intersection.point_at(n.to_bytes(32))
        except ValueError:
            refused += 1
    assert 30 < refused < 70


def test_a_median_costs_what_it_should(run_protocol: ProtocolRunner) -> None:
    """A median of six bits, two at once, needs three masked sums of four counts."""
    law = masked_median.forecast(3, bits=6, at_once=2)
    own = [[40, 3, 3], [], [63]]
    run = run_protocol(masked_median.masked_median, 3, own=own, bits=6, at_once=2)
    assert_cost(run, rounds=3, messages=3 * 3 * 2, bytes=law.traffic.bytes)
    assert_cost(run, setup_messages=law.setup.messages, setup_bytes=law.setup.bytes)
    assert set(run.results.values()) == {3}


def test_the_search_finds_the_median_of_any_numbers() -> None:
    """The search equals the middle of the sorted numbers, with ties and empty parties."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        inputs = {name: rng.integers(0, 256, rng.integers(1, 6)).tolist() for name in "abc"}
        numbers = [*chain(*inputs.values())]
        for at_once in (1, 2, 4, 8):
            found = masked_median.find_by_counts(numbers, 8, at_once).median
            assert found == sorted(numbers)[(len(numbers) - 1) // 2]


def test_there_is_no_median_without_numbers() -> None:
    """Parties without numbers learn so in the first round."""
    run = SIMULATED(masked_median.masked_median, 3, own=[[], [], []], bits=4)
    assert set(run.results.values()) == {None}
    assert_cost(run, rounds=1)


def test_numbers_out_of_range_are_refused() -> None:
    """A number with too many bits is refused before anything is sent."""
    with pytest.raises(RunFailed, match="a number is not from 0 to 15"):
        SIMULATED(masked_median.masked_median, 3, own=[[3], [16], [1]], bits=4)


def test_gossip_costs_what_it_should(run_protocol: ProtocolRunner) -> None:
    """Each party that is reached passes the rumour on to three others, on every runtime."""
    run = run_protocol(gossip.gossip, 5, own=["it rains", None, None, None, None])
    assert set(run.results.values()) == {"it rains"}
    law = gossip.forecast(5, run.cost.rounds, "it rains")
    assert_cost(run, rounds=run.cost.depth, messages=15, bytes=law.traffic.bytes)


def test_gossip_reaches_the_expected_share() -> None:
    """Among 400 parties, the share is within 0.085 of the law of large numbers.

    Its standard deviation is 0.0145 (that of the giant component of a random graph), so that a
    right program fails with a probability below 1e-6.
    """
    run = SIMULATED(gossip.gossip, 400, own=["it rains"] + [None] * 399)
    reached = sum(heard is not None for heard in run.results.values())
    assert math.isclose(reached / 400, gossip.share_reached(gossip.FANOUT), abs_tol=0.085)
    law = gossip.forecast(reached, run.cost.rounds, "it rains")
    assert_cost(run, messages=3 * reached, bytes=law.traffic.bytes, rounds=run.cost.depth)
