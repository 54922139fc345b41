"""Exploration of faults: it finds mistakes, and nothing in correct roles, systems and stores."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from docs.examples.secure_maximum import Number, hasty_maximum, is_greatest
from tests.roles import chat, pass_on
from tests.testing.auditing.planted import Majority
from tests.testing.exploring import broken
from typer.testing import CliRunner
from typing_extensions import override

from veilring import simulation
from veilring.cli.app import app
from veilring.errors import (
    ClusterError,
    InputError,
    PeerLost,
    RunFailed,
    ScenarioError,
    SessionAborted,
    StoreFailed,
)
from veilring.nodes.cluster import Cluster, run_with_retries
from veilring.nodes.party import Party, broadcast
from veilring.nodes.runtimes import Simulated
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.release.system import Release
from veilring.protocols.system import Setup
from veilring.randomness import Streams
from veilring.reached import count_marks, marks_in, sometimes
from veilring.scenarios import load_scenario
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import FAULT_CLASSES, Fault, FaultClass, conditions_of, draw_faults
from veilring.testing.exploring import (
    Campaign,
    Explored,
    RoleSubject,
    SystemSubject,
    World,
    draw_world,
    explore,
    explore_seed,
    explore_subject,
    known_failures,
    play_world,
    remember_failures,
)
from veilring.testing.exploring.stores import (
    STORAGE_FAULTS,
    STORES,
    StorageFault,
    StoreSubject,
    explore_store,
    explore_stores,
)
from veilring.testing.exploring.worlds import Start

_R = TypeVar("_R")

SEEDS = 60
"""The number of seeds within which each mistake has to be found."""


@pytest.fixture(scope="module")
def subject() -> SystemSubject:
    """Prepare the built-in scenario."""
    return SystemSubject(load_scenario("faults"))


@pytest.mark.slow
def test_honest_protocols_survive_and_every_fault_occurs(subject: SystemSubject) -> None:
    """No seed fails, runs both succeed and fail, and no class of fault is idle."""
    campaign = explore_subject(subject, range(SEEDS))
    assert campaign.failures == {}
    assert campaign.missing == ()
    assert campaign.unreached == ()
    assert campaign.seeds == SEEDS
    assert min(campaign.succeeded, campaign.failed) > SEEDS


def test_wrong_labels_of_a_system_without_noise_are_found() -> None:
    """Labels are compared with the system's own; of a system with noise, none is known as right."""
    scenario = load_scenario("faults", ["data.source=iris", "parties.count=4", "data.queries=2"])
    late, right = (
        explore_subject(SystemSubject.of(Majority(mistake=mistake), scenario), range(7, 9))
        for mistake in ("late", "")
    )
    assert late.failures[7] == ["the labels of party-0 differ from those of `Setup.label`"]
    assert right.failures == {}
    known = {
        system.name: SystemSubject.of(system, scenario).knows_results
        for system in (Majority(), RankSearch(), Release(), NoisyVotes())
    }
    assert [name for name, is_known in known.items() if is_known] == ["majority", "rank-search"]


def test_only_wrong_labels_are_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that were right are right in later runs; wrong ones are found in each world."""
    small = ["protocol.name=rank-search", "parties.count=3", "data.queries=1"]
    scenario, judged = load_scenario("faults", small), list[str]()
    calm = World(1, LinkModel(Constant(0.01)), runs=tuple(Start(n, float(n)) for n in range(3)))

    def judge(*_: object) -> list[str]:
        judged.append("wrong")
        return wrong

    monkeypatch.setattr(Setup, "find_wrong", judge)
    subject, wrong = SystemSubject(scenario), list[str]()
    assert [play_world(subject, calm).succeeded for _ in range(2)] == [3, 3]
    assert len(judged) == 1
    subject, wrong = SystemSubject(scenario), ["wrong"]
    assert [play_world(subject, calm).wrong for _ in range(2)] == [["wrong"], ["wrong"]]


@pytest.mark.parametrize(
    "settings",
    [
        [],
        # `.ci/run` explores each way of adding up and of revealing by itself, with repetition.
        pytest.param(["protocol.reveal=label", "protocol.sum=star"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_searches_survive(settings: list[str]) -> None:
    """No world ends with a wrong label or a hang, and runs both succeed and fail."""
    chosen = ["protocol.name=rank-search", "protocol.k=5", *settings]
    campaign = explore_subject(SystemSubject(load_scenario("faults", chosen)), range(1, 6))
    assert campaign.failures == {}
    assert min(campaign.succeeded, campaign.failed) > 5


@pytest.mark.parametrize(
    "mistake", [broken.leaves_the_mask_in, broken.ignores_losses, broken.counts_duplicates]
)
def test_a_broken_sum_is_detected(subject: SystemSubject, mistake: object) -> None:
    """A remaining mask, an ignored loss and a duplicate counted twice are each found."""
    deliberately = SystemSubject(subject.scenario, secure_sum=mistake)  # type: ignore[arg-type]  # wrong on purpose
    for seed in range(SEEDS):
        wrong = explore_seed(deliberately, seed).wrong
        if any("has the sum" in sentence for sentence in wrong):
            return
    pytest.fail(f"not caught within {SEEDS} seeds")


def test_a_seed_always_gives_the_same_world(subject: SystemSubject) -> None:
    """A failing seed can be replayed with the same result."""
    for seed in range(5):
        assert explore_seed(subject, seed) == explore_seed(subject, seed)


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_the_findings(subject: SystemSubject) -> None:
    """One process and two find the same."""
    assert explore_subject(subject, range(22)) == explore_subject(subject, range(22), workers=2)


def test_a_schedule_respects_its_time_and_its_parties() -> None:
    """All faults are within the schedule, and at most one party is lost for good."""
    parties = [f"p{n}" for n in range(5)]
    kinds = set()
    for seed in range(300):
        faults = draw_faults(parties, 20.0, Streams(seed).generator("faults"))
        kinds |= {fault.kind for fault in faults}
        assert sum(fault.kind == "crash" for fault in faults) <= 1
        for fault in faults:
            assert 0.0 <= fault.start <= fault.end <= 20.0
            assert set(fault.parties) <= set(parties)
            assert len(set(fault.parties)) == len(fault.parties)
    assert kinds == set(FAULT_CLASSES)


def test_a_partition_cuts_links_between_halves_only() -> None:
    """Links within a side continue; those between the sides stall until it heals."""
    fault = Fault("halves", 1.0, 5.0, ("a", "b"))
    conditions = conditions_of([fault], "abcd", Streams(0).generator())
    cut = {(s, t) for s in "ab" for t in "cd"} | {(s, t) for s in "cd" for t in "ab"}
    assert set(conditions.links) == cut
    between = conditions.of("a", "c")
    assert between is not None
    assert [between.resume(t) for t in (0.5, 1.0, 4.9, 5.0)] == [0.5, 5.0, 5.0, 5.0]
    assert conditions.met == {0}


def under(body: Callable[[Cluster], Awaitable[_R]], *faults: Fault, parties: int = 4) -> _R:
    """Play on the simulated clock with a cluster whose messages take a tenth of a second."""
    runtime = Simulated(Topology(LinkModel(latency=Constant(0.1))), faults)

    async def main() -> _R:
        own = list("abcd")[:parties]
        async with Cluster(parties, runtime=runtime, own=own, seed=1) as cluster:
            return await body(cluster)

    return simulation.simulate(main())


def test_a_retry_gets_new_options_and_keeps_earlier_views() -> None:
    """Each attempt asks for its options, and the views of a failed one are kept."""
    asked: list[tuple[str, ...]] = []

    def watch(alive: tuple[str, ...]) -> dict[str, object]:
        asked.append(alive)
        return {"watch": alive}

    async def body(cluster: Cluster) -> None:
        await asyncio.sleep(1.0)
        four = tuple(cluster.parties)
        retried = await run_with_retries(cluster, pass_on, seconds=5.0, for_those=watch)
        left = tuple(name for name in four if name != "party-2")
        assert asked == [four, left]
        assert set(retried.run.views) == set(left)
        (failed,) = retried.failed
        assert {outcome.party for outcome in failed} == set(four)
        assert all(outcome.view is not None for outcome in failed)
        again = await run_with_retries(cluster, pass_on, seconds=5.0, among=left)
        assert (again.without, again.wasted, again.failed) == (("party-2",), (), ())

    under(body, Fault("crash", 1.05, 20.0, ("party-2",)))


def test_a_retry_gives_up_with_too_few_parties() -> None:
    """Three parties cannot continue as two."""
    crash = Fault("crash", 0.0, 9.0, ("party-0",))
    with pytest.raises(RunFailed):
        under(lambda cluster: run_with_retries(cluster, pass_on, seconds=5.0), crash, parties=3)


@pytest.mark.parametrize("kind", ["reset", "half-open"])
def test_a_broken_connection_ends_a_run_and_recovers(kind: FaultClass) -> None:
    """Both ends learn of it, at the latest by keepalive, and later runs succeed."""

    async def chat_for_ever(party: Party, _own: str) -> None:
        await chat(party, rounds=10**9)

    async def body(cluster: Cluster) -> None:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(chat_for_ever, seconds=60.0)
        lost = caught.value.errors["party-0"]
        assert isinstance(lost, PeerLost)
        assert lost.peer == "party-1"
        await asyncio.sleep(10.0)
        assert (await cluster.run(pass_on, seconds=5.0)).result == "d"

    under(body, Fault(kind, 1.0, 8.0, ("party-0", "party-1")))


def test_a_restarted_party_takes_part_again_with_its_data() -> None:
    """Without its data, each run that needs them ends in its name."""

    async def body(cluster: Cluster) -> str:
        await asyncio.sleep(5.0)
        return (await cluster.run(pass_on, seconds=5.0)).result

    assert under(body, Fault("restart", 1.0, 3.0, ("party-1",))) == "d"
    with pytest.raises(RunFailed) as caught:
        under(body, Fault("amnesia", 1.0, 3.0, ("party-1",)))
    assert isinstance(caught.value.errors["party-1"], ClusterError)
    assert "without its data" in str(caught.value.root)


def test_a_skewed_clock_changes_how_long_a_party_waits() -> None:
    """Its timeout comes too late or too early."""

    async def wait_for_nobody(_party: object, _own: str) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RunFailed) as caught:
        under(
            lambda cluster: cluster.run(wait_for_nobody, seconds=2.0),
            Fault("skew", 0.0, 9.0, ("party-0",), strength=3.0),
        )
    assert "not finished after 2 s" in str(caught.value.errors["party-1"])
    assert "party-0" in caught.value.errors


def test_failing_seeds_are_stored_and_replayed_first(tmp_path: Path) -> None:
    """A failing seed is stored in the file once, and a line that is not a seed is refused."""
    path = tmp_path / "seeds.txt"
    assert known_failures(path) == []
    remember_failures(path, [7, 3])
    remember_failures(path, [3, 9])
    assert known_failures(path) == [3, 7, 9]
    path.write_text("5  # once a hang\n\nx\n")
    with pytest.raises(ScenarioError, match="line 3 is 'x'"):
        known_failures(path)


def test_the_command_fails_if_a_class_of_fault_is_idle() -> None:
    """Too few seeds do not count as an exploration, but a replay does."""
    few = CliRunner().invoke(app, ["explore", "--seeds", "1"])
    assert few.exit_code == 1
    assert "had an effect" in few.output
    one = CliRunner().invoke(app, ["explore", "--seed", "1"])
    assert one.exit_code == 0, one.output
    assert "seeds: 1, of which 0 went wrong" in one.output


_LINE = 8


@pytest.mark.parametrize("kind", STORAGE_FAULTS)
def test_acknowledged_data_exist_or_the_store_is_refused(kind: StorageFault) -> None:
    """A few worlds per store and fault are played; `veilring explore --stores` plays more."""
    for subject in STORES:
        for seed in range(3):
            assert explore_store(subject, seed, kind=kind).wrong == []


class Lines(StoreSubject[Path]):
    """A file with a line for each operation, with or without a mistake."""

    name = "lines"
    moment: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, mistake: str = "") -> None:
        self._mistake, self._held = mistake, b""

    @override
    def open(self, folder: Path) -> Path:
        path = folder / "lines"
        path.touch()
        whole = path.read_bytes()
        if len(whole) % _LINE and self._mistake == "refuses a partly written line":
            raise StoreFailed("a line is damaged")
        path.write_bytes(whole[: len(whole) // _LINE * _LINE])
        return path

    @override
    def close(self, handle: Path) -> None:
        """Do nothing, since no file is open."""

    @override
    def watch(self, handle: Path, moment: Callable[[], None]) -> None:
        self.moment = moment

    @override
    def use(self, handle: Path, number: int) -> None:
        line = b"%07d\n" % number
        if self._mistake == "acknowledges before it writes":
            line, self._held = self._held, line
        self.moment()
        with handle.open("ab", buffering=0) as file:
            file.write(line)

    @override
    def find_wrong(self, handle: Path, acknowledged: int) -> list[str]:
        lines = handle.read_bytes().splitlines()
        right = lines == [b"%07d" % number for number in range(len(lines))]
        if not right or len(lines) - acknowledged not in range(2):
            return [f"{len(lines)} lines for {acknowledged} operations"]
        return []


REFUSED = Lines("refuses a partly written line")


def found_wrong(subject: StoreSubject[Path], kind: StorageFault) -> set[str]:
    """Return the findings of some worlds of a class."""
    worlds = (explore_store(subject, seed, kind=kind) for seed in range(30))
    return {sentence.rpartition(": ")[2] for world in worlds for sentence in world.wrong}


def test_stores_with_a_mistake_are_detected() -> None:
    """A plain file loses nothing in a crash or by a torn line, and something in any other fault.

    One store acknowledges too early, and one is ended permanently by a full disk.
    """
    for kind in STORAGE_FAULTS:
        assert bool(found_wrong(Lines(), kind)) == (kind not in {"kill", "torn write"})
    assert found_wrong(Lines("acknowledges before it writes"), "kill") != set()
    assert "a line is damaged" in found_wrong(REFUSED, "full disk")


def test_a_campaign_over_stores_reaches_all_classes() -> None:
    """The stores take turns, and the command lists the faults."""
    campaign = explore_stores([REFUSED], range(40))
    assert campaign.missing == ()
    assert campaign.smallest() is None
    shown = CliRunner().invoke(app, ["explore", "--stores", "--seeds", "1"])
    assert shown.exit_code == 1
    assert "these classes of fault never struck" in shown.output


INPUTS = [3, 1, 4, 1]


async def maximum(party: Party, own: int) -> int:
    """Send the party's number to all, and return the greatest."""
    party.round(1)
    await broadcast(party, Number(number=own))
    return max([own, *[(await party.receive(Number, sender=p)).number for p in party.peers]])


async def failing_maximum(party: Party, own: int) -> int:
    """Fail with an error that is not a sentence."""
    found = await maximum(party, own)
    return found // (len(party.parties) - 3)


async def patient_maximum(party: Party, own: int, *, pause: float) -> int:
    """Ask a lost peer again without end."""
    party.tolerate_losses()
    party.round(1)
    told = [own]
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, Number(number=own))
    for peer in party.peers:
        while len(told) < party.peers.index(peer) + 2:
            try:
                told.append((await party.receive(Number, sender=peer)).number)
            except (PeerLost, SessionAborted):
                await asyncio.sleep(pause)
    return max(told)


_ages = count()


async def remembering_maximum(party: Party, own: int) -> int:
    """Remember earlier values in the process, so that no seed is reproducible."""
    await asyncio.sleep(0.001 * next(_ages))
    return await maximum(party, own)


async def racing_maximum(party: Party, own: int) -> int:
    """Rely on two tasks taking turns in their starting order."""
    await maximum(party, own)
    found: list[int] = []

    async def note(number: int) -> None:
        found.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in (own, max(INPUTS)):
            tasks.create_task(note(number))
    return found[-1]


async def marked_maximum(party: Party, own: int) -> int:
    """Mark one situation that is never reached, and one that always is."""
    sometimes("a number is negative", own < 0)
    sometimes("a number is positive", own > 0)
    return await maximum(party, own)


def test_a_correct_role_survives_all_classes_of_fault() -> None:
    """The greatest number of the participants is found, or a named error."""
    campaign = explore(maximum, INPUTS, invariant=is_greatest, seeds=40)
    campaign.check()
    assert campaign.missing == ()
    assert min(campaign.succeeded, campaign.failed) > 40


def found_by(role: Any, inputs: Sequence[int], sentence: str, **options: Any) -> Campaign:
    """Return a campaign in which a sentence is found."""
    campaign = explore(role, inputs, invariant=is_greatest, **options)
    assert any(sentence in each for found in campaign.failures.values() for each in found)
    return campaign


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        (hasty_maximum, "found 1"),
        (failing_maximum, "ZeroDivisionError"),
        (remembering_maximum, "the same seed made another world"),
        (racing_maximum, "found 1"),
    ],
)
def test_a_mistake_is_found(role: Any, sentence: str) -> None:
    """It finds ignored losses, unnamed errors, process memory and dependence on task order."""
    with pytest.raises(AssertionError, match="seeds went wrong"):
        found_by(role, [1, 1, 1, 4], sentence, seeds=20).check()


def test_a_role_that_retries_for_ever_is_found() -> None:
    """A retry without end is a mistake, with a pause or without, though its run has a limit."""
    for pause, sentence in ((1.0, "no fault struck in the last"), (0.0, "a loop that never waits")):
        found_by(patient_maximum, [3, 1], sentence, seeds=[1, 4], pause=pause)


async def noisy_sum(party: Party, own: int) -> float:
    """Add up numbers with noise."""
    noisy = own + round(100 * party.rng.normal())
    party.round(1)
    await broadcast(party, Number(number=noisy))
    return noisy + sum([(await party.receive(Number, sender=p)).number for p in party.peers])


async def first_number(party: Party, own: int) -> int:
    """Return the number that arrives first."""
    party.round(1)
    party.leave_unread()
    await broadcast(party, Number(number=own))
    _, message = await party.receive_any(Number)
    return message.number


def test_without_an_invariant_results_are_those_without_faults() -> None:
    """With the same randomness, no fault changes a result, and no order of tasks decides one.

    A party that goes on without a lost one may have another result.
    """
    for role in (maximum, noisy_sum, broken.believes_any_two):
        campaign = explore(role, INPUTS, seeds=4)
        assert campaign.failures == {}
        assert campaign.succeeded > 4
    for role, seeds, sentence in (
        (hasty_maximum, range(2, 5), "has another result than without any fault"),
        (first_number, range(2), "has a result that depends on the order of tasks"),
    ):
        failures = explore(role, [1, 1, 1, 4], seeds=seeds).failures
        assert any(sentence in each for found in failures.values() for each in found)


def test_a_world_ends_with_its_first_wrong_run() -> None:
    """More runs would find nothing else, and take time."""

    def refuse(_inputs: object, _results: object) -> None:
        raise AssertionError("nothing is right")

    world = draw_world(0, ["party-0", "party-1"])
    explored = play_world(RoleSubject(maximum, {"party-0": 1, "party-1": 2}, refuse), world)
    assert len(explored.runs) == 1
    assert explored.wrong == ["nothing is right"]


def test_arguments_that_cannot_be_explored_are_refused() -> None:
    """A role takes its public arguments; a role for three parties is not run with two."""
    with pytest.raises(InputError, match="unexpected keyword argument 'patience'"):
        explore(patient_maximum, INPUTS, invariant=is_greatest, pause=1.0, patience=1)
    with pytest.raises(InputError, match="inputs"):
        explore(maximum, [1, 2], invariant=is_greatest, least=3)


def test_marks_that_no_world_reaches_are_named() -> None:
    """A campaign that never reached a situation does not count as a test of it.

    A mark of another module counts as soon as a world has passed it, and outside a campaign none.
    """
    campaign = explore(marked_maximum, INPUTS, invariant=is_greatest, seeds=5)
    assert "a number is negative" in campaign.unreached
    assert "a number is positive" not in campaign.unreached
    with pytest.raises(AssertionError, match=r"never occurred .*a number is negative"):
        campaign.check()
    other = Campaign()
    other.add(Explored(0, marks=Counter({"seen": 2, "passed": 0})))
    other.add(Explored(1, marks=Counter({"seen": 0})))
    assert (other.reached["seen"], other.unreached) == (2, ("passed",))
    sometimes("nobody counts this")
    with count_marks() as counted:
        sometimes("somebody counts this")
        sometimes("this is not so", happens=False)
    assert dict(counted) == {"somebody counts this": 1, "this is not so": 0}
    assert marks_in([asyncio]) == frozenset()


@pytest.mark.slow
def test_the_fixture_reports_the_failure(explore: Any) -> None:
    """It explores a role in one line, and reports the failing seed and its error."""
    assert explore(maximum, INPUTS, invariant=is_greatest, seeds=20).seeds == 20
    with pytest.raises(AssertionError, match=r"in the world of seed \d+: party-\d found"):
        explore(hasty_maximum, [1, 1, 1, 4], invariant=is_greatest, seeds=20)
