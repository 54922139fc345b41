"""Tests of steps that never end: they are ended at their line, on every runtime."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import pytest
from tests.roles import add_up, compute_on, pass_on

from veilring import watchdog
from veilring.errors import EndlessStep, PeerLost, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.runtimes import Memory, Processes, Runtime, Simulated, Tls
from veilring.simulation import loop, simulate
from veilring.testing import RoleClaims, audit
from veilring.testing.auditing import Verdict
from veilring.testing.exploring import explore, worlds

# Processor time, so that a busy machine does not end an innocent step.
STEP_SECONDS = 0.3


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.2)


simulate_briefly = partial(simulate, step_seconds=STEP_SECONDS)


def spin(number: int) -> NoReturn:
    """Compute without end."""
    while True:
        number += 1


async def spin_in_a_task(party: Party) -> None:
    """Compute without end in a task of the role."""
    async with asyncio.TaskGroup() as group:
        if party.me == "party-1":
            group.create_task(spin_soon(), name="spinner")
    await pass_on(party)


async def spin_soon() -> NoReturn:
    """Compute without end in a coroutine."""
    spin(0)


async def retry(party: Party) -> str:
    """Catch every error of a step that has no end, and the first that is none."""
    if party.me == "party-1":
        try:
            spin(0)
        except BaseException:  # noqa: BLE001  (the point of the test)
            while True:
                try:
                    spin(0)
                except Exception:  # noqa: BLE001, S112  (likewise)
                    continue
    return await pass_on(party)


async def compute_in_steps(party: Party) -> str:
    """Compute for longer than one step may, in several."""
    for _ in range(12):
        until = time.thread_time() + STEP_SECONDS / 10
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0.001)
    return await pass_on(party)


async def fail_and_go_on(role: Callable[..., Any], runtime: Runtime, **public: Any) -> RunFailed:
    """Run a role that fails, and then one that does not, on the same cluster."""
    async with Cluster(2, runtime=runtime, seed=1) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(role, seconds=0.2, **public)
        assert (await cluster.run(pass_on)).result == "party-1"
    return caught.value


@pytest.mark.parametrize(
    ("start", "runtime"),
    [
        (asyncio.run, Memory),
        (asyncio.run, Tls),
        pytest.param(asyncio.run, Processes, marks=pytest.mark.slow),
        (simulate_briefly, Simulated),
    ],
)
def test_a_step_without_end_is_ended(
    start: Callable[..., RunFailed], runtime: Callable[[], Runtime]
) -> None:
    """The error names the party, the task, the file and the line; the cluster goes on."""
    failed = start(fail_and_go_on(compute_on, runtime(), who="party-1"))
    assert isinstance(failed.root, EndlessStep)
    assert failed.errors["party-1"] is failed.root
    line = compute_on.__code__.co_firstlineno + 2
    place = rf"the task party-1, at .*roles\.py:({line}|{line + 1}), in compute_on; "
    with pytest.raises(EndlessStep, match=rf"one step of party-1 took longer than .*{place}"):
        raise failed.root


@pytest.mark.parametrize("role", [spin_in_a_task, retry])
def test_a_step_is_ended_wherever_it_is(role: Callable[..., Any]) -> None:
    """A task of a role, and a role that catches every error, are ended as well."""
    for start, runtime in ((asyncio.run, Memory), (simulate_briefly, Simulated)):
        failed = start(fail_and_go_on(role, runtime()))
        assert isinstance(failed.root, EndlessStep)
        assert failed.root.place.startswith("the task ")
        assert ", in spin" in failed.root.place


def test_a_long_computation_in_steps_is_not_ended() -> None:
    """Steps count one by one, by the processor time that they take."""

    async def main() -> str:
        async with Cluster(2, runtime="simulated", seed=1) as cluster:
            return (await cluster.run(compute_in_steps)).result

    assert simulate_briefly(main()) == "party-1"


def test_a_task_without_a_role_is_ended() -> None:
    """The simulation itself ends with the error."""
    with pytest.raises(EndlessStep, match=r"one step of a task took longer .*, in spin; "):
        simulate_briefly(spin_soon())


async def spin_after_a_loss(party: Party, own: int) -> int:
    """Return a number, or compute without end if a peer is lost."""
    try:
        return await add_up(party, own)
    except PeerLost:
        spin(0)


def test_an_exploration_ends_with_the_first_endless_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a finding, and no further world is played, since each would take as long."""
    monkeypatch.setattr(worlds, "EXPLORED_STEP_SECONDS", STEP_SECONDS)
    campaign = explore(spin_after_a_loss, [1, 2], invariant=lambda *_: None, seeds=range(1, 60))
    ((seed, (sentence,)),) = campaign.failures.items()
    assert campaign.seeds == seed < 59
    assert "EndlessStep: one step of party-" in sentence


async def yield_after_a_loss(party: Party, own: int) -> int:
    """Add up the numbers of all parties, and ask again without a pause if one is lost."""
    party.tolerate_losses()
    while True:
        try:
            return await add_up(party, own)
        except PeerLost:
            await asyncio.sleep(0)


def test_an_exploration_ends_with_the_first_loop_that_never_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found like an endless step, and its world is shrunk in a few more plays."""
    monkeypatch.setattr(loop, "STEPS_MAX", 2_000)
    inputs = {"ada": 1, "ben": 2, "cy": 3, "dee": 4}
    campaign = explore(yield_after_a_loss, inputs, invariant=lambda *_: None)
    ((seed, (sentence,)),) = campaign.failures.items()
    assert campaign.seeds == seed + 1 < 20
    assert "no event: a loop that never waits" in sentence
    smallest = campaign.smallest()
    assert smallest is not None
    assert len(smallest.subject.parties) == 2
    assert len(smallest.world.faults) == 1


async def spin_always(party: Party, _own: int) -> None:
    """Compute without end at one party."""
    await compute_on(party, who=party.parties[0])


@pytest.mark.slow
def test_an_audit_of_an_endless_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim that needs a run is contradicted, and says why."""
    monkeypatch.setattr(worlds, "EXPLORED_STEP_SECONDS", STEP_SECONDS)
    inputs = {"ada": 1, "ben": 2, "cy": 3}
    subject = RoleClaims(
        spin_always,
        inputs,
        lambda *_: None,
        other_inputs=inputs,
        coalition=("ben",),
        permitted=lambda _: 0,
    )
    found = audit(subject, quick=True)
    contradicted = [claim for claim in found.claims if claim.verdict is Verdict.CONTRADICTED]
    assert {claim.claim for claim in contradicted} >= {"role", "privacy", "faults"}
    assert all("one step of" in claim.finding for claim in contradicted)
