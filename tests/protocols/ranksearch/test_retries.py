"""Repeated queries after a loss: refusals, their timing and their wording."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.ranksearch.worlds import NAMES, QUERIES, label, options, pooled, set_up
from typing_extensions import override

from veilring import simulation
from veilring.data.table import Rows
from veilring.errors import AskedBefore, PeerLost, RunFailed, SessionAborted, StoreFailed
from veilring.nodes.adversary import Adversary, Delay, Drop, Lines
from veilring.nodes.cluster import Cluster, Retried, lost_parties, run_with_retries
from veilring.nodes.party import Parties
from veilring.nodes.run import blamed_party
from veilring.nodes.runtimes import Processes, Simulated
from veilring.privacy.statefile import open_state_file
from veilring.protocols.masks import MaskedWords, MaskKey
from veilring.protocols.ranksearch import memory as memories
from veilring.protocols.ranksearch.memory import QUERIES as MEMORY
from veilring.protocols.ranksearch.memory import SearchedRows, keys_of
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.transport.messages import Message

FOUR, THREE = Parties(NAMES), Parties(NAMES[:3])
KILLS = [("star", at) for at in range(0, 16, 3)] + [("all-to-all", at) for at in range(0, 36, 6)]
"""After how many of its messages a party is killed, and how totals are added up."""


NO_ROWS = Rows(np.zeros((0, 3)), np.zeros(0, np.int64))


def test_only_the_same_parties_may_repeat() -> None:
    """A retry with other parties is refused, and the error names the parties that differ.

    Any order of the same parties and slightly moved queries are allowed. Zeros of both signs have
    equal distances, and are one query.
    """
    memory = SearchedRows(NO_ROWS)
    memory.remember(keys_of(QUERIES), FOUR)
    memory.refuse(keys_of(QUERIES), Parties(NAMES[::-1]))
    memory.refuse(keys_of(np.nextafter(QUERIES, 0.5)), THREE)
    for others in (NAMES[:3], (*NAMES, "party-9"), (*NAMES[:3], "party-9")):
        with pytest.raises(AskedBefore, match="12 queries were already asked") as caught:
            memory.refuse(keys_of(QUERIES), Parties(others))
        assert caught.value.differing == tuple(sorted(set(NAMES) ^ set(others)))
        assert all(name in str(caught.value) for name in caught.value.differing)
    memory.remember(keys_of(np.zeros((1, 3))), FOUR)
    with pytest.raises(AskedBefore, match="one query was already asked"):
        memory.refuse(keys_of(-np.zeros((1, 3))), THREE)


@contextmanager
def remembering(path: Path, *, new: bool = False) -> Iterator[SearchedRows]:
    """Yield rows with a memory in a file."""
    with closing(open_state_file(path, MEMORY, new=new)) as file:
        yield SearchedRows(NO_ROWS, file)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_oldest_queries_are_forgotten_first(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory has a limit, and a forgotten query counts as new; a file keeps it at restarts."""
    monkeypatch.setattr(memories, "REMEMBERED_MAX", 4)
    queries, memory = np.arange(6.0)[:, None], SearchedRows(NO_ROWS)

    def opened(*, new: bool = False) -> AbstractContextManager[SearchedRows]:
        return remembering(tmp_path / "asked.db", new=new) if restarts else nullcontext(memory)

    with opened(new=True) as party:
        party.remember(keys_of(queries[:4]), FOUR)
        party.remember(keys_of(queries[:1].repeat(2, axis=0)), FOUR)
        party.remember(keys_of(queries[4:5]), THREE)
    with opened() as party:
        party.distrust(keys_of(queries[5:]))
    with opened() as party:
        for forgotten in (1, 2):
            party.refuse(keys_of(queries[forgotten : forgotten + 1]), THREE)
        for kept, others in ((0, THREE), (3, THREE), (4, FOUR), (5, THREE), (5, FOUR)):
            with pytest.raises(AskedBefore):
                party.refuse(keys_of(queries[kept : kept + 1]), others)
        party.refuse(keys_of(queries[[0, 3]]), FOUR)
        party.refuse(keys_of(queries[4:5]), THREE)


def test_a_failed_disk_ends_a_batch_before_its_values_are_sent(tmp_path: Path) -> None:
    """A party that cannot remember the queries does not take part."""
    with remembering(tmp_path / "asked.db", new=True) as memory:
        assert memory.file is not None
        memory.file.connection.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreFailed, match="memory of queries failed: attempt to write"):
            memory.remember(keys_of(QUERIES), FOUR)


def test_concurrent_sessions_cannot_bypass_each_other() -> None:
    """The later of two concurrent attempts among other parties sends no values."""

    async def main() -> None:
        setup = set_up()
        slow = {"party-0": Delay(1.0, only=(MaskKey,))}
        resident = setup.resident
        async with (
            Cluster(NAMES, runtime="simulated", own=resident, seed=1) as four,
            Cluster(THREE, runtime="simulated", own=resident[:3], seed=2) as three,
        ):
            later = four.run(setup.role, adversaries=slow, **options(setup, NAMES))
            waiting = asyncio.create_task(later)
            await three.run(setup.role, **options(setup, THREE))
            with pytest.raises(RunFailed) as caught:
                await waiting
        assert any(isinstance(error, AskedBefore) for error in caught.value.errors.values())

    simulation.simulate(main())


@pytest.mark.parametrize("adding", ["all-to-all", "star"])
@pytest.mark.parametrize("silenced", [MaskKey, MaskedWords])
def test_a_party_remembers_queries_from_its_first_words_on(
    adding: str, silenced: type[Message]
) -> None:
    """Without all keys nothing is stored; from its first masked words on, a party refuses."""
    setup = set_up(sum=adding)
    resident, liars = setup.resident, {"party-3": Drop((silenced,))}
    with pytest.raises(RunFailed):
        simulation.simulate(label(setup, liars, own=resident, runtime="simulated", seconds=5.0))
    for memory in resident[:3]:
        assert isinstance(memory, SearchedRows)
        if silenced is MaskKey:
            memory.refuse(keys_of(QUERIES), THREE)
        else:
            with pytest.raises(AskedBefore, match=f"{len(QUERIES)} queries"):
                memory.refuse(keys_of(QUERIES), THREE)


def _retried(crash: float, *, again: bool) -> tuple[tuple[str, ...], bool]:
    """Return the lost party and whether the labels are right; links take 0.1 s."""
    setup, links = set_up(again=again), Topology(LinkModel(latency=Constant(0.1)))
    runtime = Simulated(links, [Fault("crash", crash, 1e3, ("party-3",))])

    def of(alive: tuple[str, ...]) -> dict[str, Any]:
        return {name: each for name, each in options(setup, alive).items() if name != "among"}

    async def main() -> Retried[Any]:
        async with Cluster(NAMES, runtime=runtime, own=setup.resident, seed=1) as cluster:
            return await run_with_retries(cluster, setup.role, for_those=of, seconds=50.0)

    retried = simulation.simulate(main())
    right = retried.run.result.labels == pooled(setup, tuple(retried.run.results))
    return retried.without, bool(right.all())


def test_a_lost_party_is_omitted_before_it_has_sent_values_or_if_allowed() -> None:
    """At 0.05 s its queries are in flight, and no message depends on rows; at 0.35 s one does.

    The error names the lost party and the remedy, and its note the end of the first run.
    """
    for crash, again in ((0.05, False), (0.35, True)):
        assert _retried(crash, again=again) == (("party-3",), True)
    with pytest.raises(RunFailed) as caught:
        _retried(0.35, again=False)
    assert str(caught.value) == (
        "party-0: 12 queries were already asked of a different set of parties, and comparing the"
        " totals would reveal the rows of party-3; ask the same parties, ask different queries, or"
        " set protocol.again = true to accept this leak (2 more parties failed with it)"
    )
    assert caught.value.__notes__ == [
        "Attempt 1 failed: party-0: party-3 was lost: its connection broke without a goodbye."
    ]


async def test_a_restarted_client_is_not_accused() -> None:
    """The others refuse by their own memory, and the error reveals nothing else."""
    setup = set_up()
    resident = setup.resident
    await label(setup, {}, own=resident)
    fresh = [SearchedRows(setup.parts["party-0"]), *resident[1:]]
    with pytest.raises(RunFailed) as caught:
        await label(setup, {}, own=fresh, among=NAMES[:3])
    assert isinstance(caught.value.root, AskedBefore)
    told = caught.value.errors["party-0"]
    assert isinstance(told, SessionAborted)
    assert (told.reason, told.culprit) == ("AskedBefore", "")
    assert "party-3" not in str(told)


@dataclass
class KillItself(Adversary):
    """Kills its process instead of sending a message, counted from its first one."""

    at: int

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        self.at -= 1
        if self.at < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return [(to, message)]


@pytest.mark.parametrize(("adding", "at"), KILLS)
async def test_a_killed_party_is_named_by_all_and_not_omitted(adding: str, at: int) -> None:
    """A kill -9 after any message ends the run everywhere, and no label is wrong.

    Each other party has the pooled labels, if it needed no further message, or an error that names
    the dead party. A retry without it is refused if a party has sent a value, unless repetition is
    allowed.
    """
    victim = NAMES[at // 2 % 4]
    left = tuple(name for name in NAMES if name != victim)
    strict, lenient = set_up(sum=adding), set_up(sum=adding, again=True)
    kill = {victim: KillItself(at)}
    async with Cluster(NAMES, runtime=Processes(), own=strict.resident, seed=at) as cluster:
        play = partial(cluster.play, seconds=30.0)
        first = await play(strict.role, adversaries=kill, **options(strict, NAMES))
        for outcome in first:
            if outcome.error is None:
                assert outcome.party != victim
                np.testing.assert_array_equal(outcome.result.labels, pooled(strict, NAMES))
            else:
                assert isinstance(outcome.error, PeerLost | SessionAborted)
                assert blamed_party(outcome.error) == victim
        assert lost_parties(first) == {victim}
        again = await play(strict.role, among=left, **options(strict, left))
        refused = any(isinstance(outcome.error, AskedBefore) for outcome in again)
        assert refused == any(outcome.error is not None for outcome in again)
        allowed = await cluster.run(
            lenient.role, seconds=30.0, among=left, **options(lenient, left)
        )
    for answer in allowed.results.values():
        np.testing.assert_array_equal(answer.labels, pooled(lenient, left))
