"""A ring coalition's view of the parties between its members."""

import numpy as np
import pytest
from tests.protocols.ring.leakage.cases import HONEST, ORDERS, rng

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import (
    estimate_hop_leakage,
    exposure_to_coalition,
    uniform_values,
)


def test_two_corrupt_neighbours_learn_exactly_the_exposure() -> None:
    """Together they see exactly the exposures of the party between them."""
    values = uniform_values(400, 6, 3, 4, rng(7))
    parameters = TopKParameters(k=3, P0=0.9, d=0.5, rounds=3, delta=0.1, upper=1.0)
    leak = estimate_hop_leakage(values, parameters, rng(8))
    for victim in (0, 2, 5):
        pair = {(victim - 1) % 6, (victim + 1) % 6}
        seen = exposure_to_coalition(values, parameters, pair, rng(8))
        assert seen.trials == 400
        assert seen.exactly[victim] == leak.exposure_by_party[victim]
        assert np.isnan(seen.exactly[list(pair)]).all()
        honest = [party for party in range(6) if party not in pair]
        assert (seen.exactly[honest] <= seen.among_run[honest]).all()


def test_public_ends_of_the_protocol_replace_one_neighbour() -> None:
    """The starter's successor alone sees its round 1; the last party's predecessor its last hop.

    Each sees an insertion in 400 runs: the starter inserts with probability 0.4, and the last party
    with 0.6 * 0.7 if it has one of the two smallest of 20 values, so none is seen with probability
    below 1e-28.
    """
    values = uniform_values(400, 5, 2, 4, rng(9))
    parameters = TopKParameters(k=2, P0=0.6, d=0.5, rounds=2, delta=0.1, upper=1.0)
    hops = estimate_hop_leakage(values, parameters, rng(10)).by_hop.exposure
    after_starter = exposure_to_coalition(values, parameters, [1], rng(10)).exactly
    before_last = exposure_to_coalition(values, parameters, [3], rng(10)).exactly
    assert after_starter[0] == hops[0, 0] > 0
    assert before_last[4] == hops[-1, -1] > 0
    assert (after_starter[2:] == 0).all()
    assert (before_last[:3] == 0).all()


def test_a_run_of_honest_parties_hides_the_owner() -> None:
    """Of two honest parties in a row, each is seen to insert exactly if it has the lesser value."""
    seen = exposure_to_coalition(ORDERS, HONEST, {2}, rng())
    assert seen.exactly[:2].tolist() == [0, 0]
    assert seen.among_run[:2] == pytest.approx([1 / 2, 1 / 2])
    nobody = exposure_to_coalition(ORDERS, HONEST, (), rng())
    assert nobody.among_run == pytest.approx([1 / 3] * 3)


def test_a_coalition_outside_the_ring_is_refused() -> None:
    """Positions that are not in the ring are refused."""
    with pytest.raises(InputError, match=r"coalition is \[3\]"):
        exposure_to_coalition(ORDERS, HONEST, {3}, rng())
