"""Malicious parties of PP-TopK: those that are named, by which check, and those that pass."""

from dataclasses import replace

import numpy as np
import pytest
from tests.protocols.ring.adversaries.hands import (
    LAST,
    NAMES,
    RING,
    SMALLEST,
    STARTER,
    TOPK,
    VALUES,
    accusations,
    is_among,
    topk,
)

from veilring import simulation
from veilring.errors import Deadlock, RunFailed
from veilring.nodes.adversary import Adversary, Delay, Forger, Repeat, Replay, Silent
from veilring.nodes.cluster import Cluster
from veilring.protocols.ring import pp_topk
from veilring.protocols.ring.adversaries import DeflateTopK, Equivocate, InflateTopK, Replayer
from veilring.testing import ProtocolRunner

FOUND_IN_TOPK = [InflateTopK(), InflateTopK(4), InflateTopK(2, first_round=8), Replayer()]


@pytest.mark.parametrize("adversary", FOUND_IN_TOPK, ids=repr)
@pytest.mark.parametrize("liar", NAMES)
async def test_a_party_that_removes_entries_is_among_those_named(
    liar: str, adversary: Adversary
) -> None:
    """At any position, an honest party misses entries and suspects it among others."""
    with pytest.raises(RunFailed, match="removed entries from the") as caught:
        await topk({liar: adversary})
    found = accusations(caught.value, liar)
    assert found
    assert all(is_among(liar, error) for error in found)


def test_a_lie_is_detected_on_every_runtime(run_protocol: ProtocolRunner) -> None:
    """The adversary is sent to its process, and the accusation returns."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(
            pp_topk,
            NAMES,
            own=VALUES,
            ring=RING,
            parameters=TOPK,
            adversaries={"party-4": InflateTopK()},
        )
    found = accusations(caught.value, "party-4")
    assert found
    assert all(is_among("party-4", error) for error in found)
    assert "one of 4 (party-" in str(found[0])


async def test_a_removal_within_the_noise_is_not_detected() -> None:
    """With a delta so large that honest noise could explain it, a wrong result passes.

    The result is wrong in all 200 runs: the least value returns only if its owner has answered with
    noise in each of the seven previous rounds, with probability 2^-28 (false alarm 8e-7).
    """
    wide = replace(TOPK, delta=1.0)
    np.testing.assert_array_equal((await topk({}, wide)).result, SMALLEST)
    run = await topk({"party-4": InflateTopK(2, first_round=8)}, wide)
    assert (run.result >= SMALLEST).all()
    assert (run.result != SMALLEST).any(axis=1).all()


async def test_without_noise_nothing_can_be_removed() -> None:
    """With P0 = 0 there is no noise to hide in, for any delta."""
    silent = replace(TOPK, P0=0.0, delta=1.0)
    for liar in NAMES:
        with pytest.raises(RunFailed, match="removed entries from the"):
            await topk({liar: InflateTopK()}, silent)


async def test_inserted_values_are_not_detected() -> None:
    """PP-TopK cannot know the existing values: too small a result passes at every party."""
    for liar in NAMES:
        run = await topk({liar: DeflateTopK(0.0)})
        assert not run.result.any()


async def test_a_starter_that_sends_another_result_is_detected_by_the_last_party() -> None:
    """Only the party that had the vector last knows that the result differs."""
    with pytest.raises(RunFailed) as caught:
        await topk({STARTER: Equivocate(LAST)})
    assert caught.value.errors[LAST] == caught.value.root
    assert is_among(STARTER, accusations(caught.value, STARTER)[0])


async def test_a_starter_that_sends_another_result_to_one_party_is_not_detected() -> None:
    """No party compares: any victim except the last uses another radius."""
    victim = RING.order[2]
    run = await topk({STARTER: Equivocate(victim)})
    assert not run.results[victim].any()
    np.testing.assert_array_equal(run.results[LAST], SMALLEST)


def test_a_silent_party_is_waited_for_and_named() -> None:
    """Its successor names it at the deadlock; the others name the party that they wait for."""

    async def main() -> None:
        async with Cluster(NAMES, runtime="simulated", own=VALUES, seed=5) as cluster:
            await cluster.run(
                pp_topk,
                ring=RING,
                parameters=TOPK,
                seconds=60.0,
                adversaries={"party-4": Silent(first_round=8)},
            )

    with pytest.raises(RunFailed) as caught:
        simulation.simulate(main())
    errors = caught.value.errors
    successor = RING.successor("party-4")
    assert any(isinstance(error, Deadlock) for error in errors.values())
    assert "ring.topk.vector from party-4" in str(errors[successor])


@pytest.mark.parametrize("adversary", [Repeat(), Forger(RING.order[1])], ids=repr)
async def test_vectors_out_of_turn_name_their_sender(adversary: Adversary) -> None:
    """A repeated vector, or one in place of the expected party's, accuses its sender."""
    with pytest.raises(RunFailed) as caught:
        await topk({"party-4": adversary})
    assert all(is_among("party-4", error) for error in accusations(caught.value, "party-4"))
    assert accusations(caught.value, "party-4")


async def test_vectors_of_an_earlier_session_are_detected() -> None:
    """They lack the others' entries in this session, and their sender is among those named."""
    async with Cluster(NAMES, own=VALUES, seed=5) as cluster:
        old = await cluster.run(pp_topk, ring=RING, parameters=TOPK, watch=["party-4"])
        replay = {"party-4": Replay(old.views["party-4"].sent)}
        own = [values / 2 for values in VALUES]
        with pytest.raises(RunFailed, match="removed entries from the") as caught:
            await cluster.run(pp_topk, ring=RING, parameters=TOPK, own=own, adversaries=replay)
    assert all(is_among("party-4", error) for error in accusations(caught.value, "party-4"))


async def test_a_delay_changes_only_time() -> None:
    """A late party that sends the expected messages changes only the time."""
    run = await topk({"party-1": Delay(0.001)})
    np.testing.assert_array_equal(run.result, SMALLEST)
