"""Runs of scenarios: reports on all runtimes, leakage, malicious parties, and faults."""

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from typing_extensions import override

from veilring.errors import PeerLost, RunFailed, Tampered
from veilring.nodes import RuntimeName
from veilring.nodes.adversary import Adversary
from veilring.nodes.journal import Journal
from veilring.protocols.promise import Estimate, Leakage
from veilring.protocols.registry import find_system
from veilring.protocols.ring.attacks.findings import RingFindings
from veilring.protocols.ring.roles import SCALE_BITS, SumTotal
from veilring.protocols.ring.system import PrivateKNN
from veilring.randomness import Streams
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.network import make_faults
from veilring.scenarios.prepare import prepare
from veilring.scenarios.report import leaks, troubles
from veilring.scenarios.runner import DRAWN_MAX
from veilring.simulation.faults import FAULT_CLASSES, Fault, draw_faults
from veilring.transport.messages import Message


def run(
    *settings: str,
    name: str = "wine",
    runtime: RuntimeName | None = "memory",
    seed: int | None = 1,
    journal: Journal | None = None,
) -> Report:
    """Run a scenario, without an estimate of its leakage unless the settings have one."""
    scenario = load_scenario(name, ["run.leakage_trials=0", *settings])
    return run_scenario(scenario, runtime=runtime, seed=seed, journal=journal)


FIVE = ("parties.count=5", "protocol.batch=20", "run.leakage_trials=200")


@cache
def wine_report(runtime: RuntimeName) -> Report:
    """Return the report of a run of five parties with seed 11."""
    return run(*FIVE, runtime=runtime, seed=11)


def untimed(report: Report) -> dict[str, object]:
    """Return the parts that do not depend on the place and time of the run."""
    depends = {"runtime", "seconds", "start_seconds", "simulated_seconds", "settings"}
    return {name: value for name, value in report.as_json().items() if name not in depends}


class TestReport:
    """The report of a run."""

    @pytest.mark.parametrize("k", [1, 5, 20])
    @pytest.mark.parametrize(
        ("name", "queries"), [("wine", "all"), ("breast-cancer", "all"), ("digits", "100")]
    )
    def test_enough_rounds_give_the_pooled_labels(self, name: str, queries: str, k: int) -> None:
        """With the rounds for error 1e-6, private and pooled classifier agree on every row."""
        report = run(f"data.queries={queries}", f"protocol.k={k}", name=name, seed=2)
        assert report.agreement == 1.0
        assert report.accuracy == report.reference_accuracy
        assert (report.accuracy or 0.0) > (report.majority_accuracy or 0.0)

    def test_noise_disagrees_but_not_parties_without_rows(self) -> None:
        """With P0 = 1 and one round every answer is noise; a party without rows adds nothing."""
        sizes = ("parties.count=4", "partition.kind=sizes", "partition.sizes=[0, 134, 0, 0]")
        assert run(*sizes, "run.leakage_trials=50", seed=4).agreement == 1.0
        assert run("protocol.rounds=1", "protocol.P0=1.0", name="digits", seed=5).agreement < 1.0

    def test_the_references_are_of_the_pooled_rows(self) -> None:
        """The accuracies are scikit-learn's, if no distances tie, and that of the majority."""
        report = wine_report("memory")
        prepared = prepare(report.scenario, Streams(11))
        pooled, held_out = prepared.pooled, prepared.held_out
        theirs = KNeighborsClassifier(5, algorithm="brute").fit(pooled.X, pooled.y)
        assert report.reference_accuracy == theirs.score(held_out.X, held_out.y)
        majority = np.mean(held_out.y == np.bincount(pooled.y).argmax())
        assert report.majority_accuracy == majority

    def test_the_cost_equals_the_forecast(self) -> None:
        """Messages, bytes and rounds of all batches equal the closed forms, for every sum."""
        report = wine_report("memory")
        assert report.cost == report.forecast
        assert report.cost.batches == 3
        assert report.rounds is not None
        assert report.cost.messages == 3 * (5 * (report.rounds + 3) - 2)
        for total, cycles in (("shares", 1), ("masks", 1), ("cycles", 2)):
            settings = (f"protocol.sum={total}", f"protocol.cycles={cycles}")
            report = run("parties.count=5", *settings, seed=3)
            assert (report.cost, report.agreement) == (report.forecast, 1.0)

    def test_a_report_is_json(self) -> None:
        """The whole report survives a round trip, with the keys that programs use."""
        whole = wine_report("memory")
        report = json.loads(json.dumps(whole.as_json(), allow_nan=False))
        assert Report.from_json(report) == whole
        assert report.keys() == {*Report.__dataclass_fields__, "settings"}
        counts = {"messages", "bytes", "rounds", "setup_messages", "setup_bytes"}
        assert counts <= set(report["cost"])
        assert (report["scenario"], report["leakage"]["trials"]) == ("wine", 200)
        assert len(report["labels"]) == report["queries"] == 44

    def test_progress_is_reported(self) -> None:
        """Loading, starting, every batch and the estimate are announced in this order."""
        told: list[tuple[str, int, int]] = []
        settings = ["parties.count=3", "protocol.batch=20", "run.leakage_trials=2"]
        scenario = load_scenario("wine", settings)
        run_scenario(scenario, runtime="memory", seed=1, progress=lambda *step: told.append(step))
        loading, starting, *batches, estimating = told
        assert (loading[0], starting[0]) == ("Loading the data", "Starting the parties")
        assert batches == [("Labelling", done, 44) for done in (0, 20, 40)]
        assert estimating[0] == "Estimating the leakage"


class TestRuntimes:
    """One scenario on four runtimes."""

    @pytest.mark.parametrize("runtime", ["tls", "processes", "simulated"])
    def test_a_seed_gives_the_same_report_everywhere(self, runtime: str) -> None:
        """Labels, cost, leakage and transcript are those in memory; only simulation takes time."""
        report = wine_report(runtime)
        assert report.runtime == runtime
        assert untimed(report) == untimed(wine_report("memory"))
        if runtime == "simulated":
            assert report.simulated_seconds is not None
            assert report.simulated_seconds > report.cost.rounds * 0.02 * 0.8
        else:
            assert report.simulated_seconds is None

    def test_without_a_seed_only_the_experiment_can_be_repeated(self) -> None:
        """The reported seed repeats split and labels, but no message; another repeats nothing."""
        first = run("parties.count=3", seed=None)
        again = run("parties.count=3", seed=first.seed)
        assert (first.secrets, again.secrets) == ("cryptographic", "seeded")
        assert first.labels == again.labels
        assert first.transcript != again.transcript
        other, wine = run("parties.count=5", seed=12), wine_report("memory")
        assert other.transcript != wine.transcript
        assert other.labels != wine.labels

    def test_a_thousand_parties_are_dealt_a_ring(self) -> None:
        """The simulation deals it above a limit at no cost; elsewhere a committee draws it."""
        settings = (f"parties.count={DRAWN_MAX + 1}", "data.queries=2", "protocol.rounds=1")
        trials = "run.leakage_trials=4"
        report = run(*settings, trials, name="breast-cancer", runtime="simulated")
        assert report.ring == "dealt from the seed"
        assert report.cost == report.forecast
        assert report.cost.setup_messages == DRAWN_MAX
        report = run("parties.count=65", "data.queries=1", "protocol.rounds=1")
        assert report.ring == "drawn by a committee"
        assert report.cost == report.forecast

    @pytest.mark.parametrize("graph", ["star", "cycle", "path"])
    def test_a_graph_changes_only_times(self, graph: str) -> None:
        """Forwarded messages are the same messages, later."""
        latency = 'network.latency={distribution="constant", seconds=0.01}'
        report = run(*FIVE, f"network.graph={graph}", latency, runtime="simulated", seed=11)
        assert untimed(report) == untimed(wine_report("memory"))
        assert report.simulated_seconds is not None
        assert report.simulated_seconds > report.cost.rounds * 0.01

    def test_a_graph_can_come_from_a_file(self, tmp_path: Path) -> None:
        """Edges in a GraphML file have their own latency."""
        path = tmp_path / "links.graphml"
        graph: nx.Graph[str] = nx.complete_graph([f"party-{n}" for n in range(5)])
        nx.set_edge_attributes(graph, dict.fromkeys(graph.edges, 2.0), "latency_seconds")
        nx.write_graphml(graph, path)
        report = run("parties.count=5", f"network.graph={path}", runtime="simulated")
        set_up_steps = 3  # queries, then commitments, then nonces
        assert report.simulated_seconds == 2.0 * (set_up_steps + report.cost.rounds)


def _leakage(*settings: str, trials: int = 100) -> Leakage:
    prepared = prepare(load_scenario("wine", settings), Streams(1))
    queries, rng = prepared.held_out.X, Streams(1).generator("leakage")
    leakage = prepared.setup.leakage(queries, trials, rng)
    assert leakage is not None
    return leakage


class TestLeakage:
    """Leakage on the distances of a scenario, of each hop or of a system with simulated views."""

    RANK = ("protocol.name=rank-search", "data.queries=12")

    def test_only_a_party_with_all_rows_leaks(self) -> None:
        """Of three parties, only the one with all rows is exposed, once per run."""
        settings = ["parties.count=3", "partition.kind=sizes", "partition.sizes=[134, 0, 0]"]
        settings.append("protocol.P0=0")
        assert prepare(load_scenario("wine", settings), Streams(1)).setup.rounds == 1
        assert _leakage(*settings).estimates["exposure"].value == pytest.approx(1 / 3)

    @pytest.mark.slow
    def test_large_trials_are_fewer(self) -> None:
        """A thousand parties get as many trials as memory and time allow, and at least two."""
        settings = ("parties.count=1000", "protocol.k=100")
        assert 2 <= _leakage(*settings, trials=20_000).trials < 100
        assert _leakage(*settings, trials=2).trials == 2

    def test_the_measures_of_a_hop_are_0_with_a_reason(self) -> None:
        """All four measures of the ring are 0 by proof; published values are estimated."""
        report = run(*self.RANK, "run.leakage_trials=100")
        assert report.leakage is not None
        ring = find_system("private-knn").measures
        shown = {leaked.label: leaked for leaked in leaks(report.leakage, "rank-search")}
        for name, measure in ring.items():
            assert report.leakage.estimates[name] == Estimate(0.0, 0.0)
            leaked = shown.pop(measure.label)
            assert leaked.value == "0"
            assert leaked.meaning.startswith("by proof: ")
        assert len(shown) == len(report.leakage.published) == 3
        assert all(leaked.is_estimated for leaked in shown.values())
        assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report

    def test_published_values_are_measured_on_the_queries(self) -> None:
        """A query or trial has one search; none ends at 0, and votes open no total above k."""
        leakage = _leakage(*self.RANK, trials=20_000)
        assert (leakage.trials, _leakage(*self.RANK, trials=5).trials) == (12, 5)
        assert 0 < leakage.published["radius"].value < 0.1
        assert 0 < leakage.published["above"].value < 1
        votes = _leakage(*self.RANK, "protocol.reveal=votes")
        assert votes.published["above"] == Estimate(0.0, 0.0)

    def test_ties_are_reported_as_revealed(self) -> None:
        """If all rows occur twice, an odd k ends each search at the distance of a row."""
        prepared = prepare(load_scenario("wine", [*self.RANK, "protocol.k=1"]), Streams(1))
        setup, rows = prepared.setup, list(prepared.setup.parts.values())
        twice = {f"party-{n}": rows[n % 8] for n in range(16)}
        doubled = setup.system.setup(twice, replace(setup.facts, parties=16))
        found = doubled.leakage(prepared.held_out.X, 100, np.random.default_rng(0))
        assert found is not None
        assert found.published["tied"] == Estimate(1.0, 0.0)
        assert found.published["radius"] == Estimate(0.0, 0.0)


@dataclass
class Pretender(Adversary):
    """An adversary that is honest to others, but tells itself that all rows have class one."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        if isinstance(message, SumTotal):
            values = message.values.copy()
            values[:, 0] += np.uint64(100 << SCALE_BITS)
            return SumTotal(values=values)
        return message


class TestAdversaries:
    """Malicious parties of a scenario."""

    def test_an_adversary_that_takes_over_decides_every_label(self) -> None:
        """The report has the scenario with its adversaries and their effect on the labels."""
        report = run("parties.count=5", 'adversaries.party-1={kind="take-over", by=5, entry=2}')
        assert len(set(report.labels)) == 1
        assert report.agreement < 0.5
        settings = report.as_json()["settings"]["adversaries"]
        assert settings == {"party-1": {"kind": "take-over", "by": 5, "entry": 2}}

    @pytest.mark.parametrize("runtime", ["processes", "simulated"])
    def test_a_detected_adversary_ends_the_run_with_its_suspects(
        self, runtime: RuntimeName
    ) -> None:
        """There is no report, and the error names the culprit among its suspects."""
        with pytest.raises(RunFailed) as caught:
            run("parties.count=5", "adversaries.party-1.kind=replayer", runtime=runtime)
        assert isinstance(caught.value.root, Tampered)
        assert "party-1" in caught.value.root.suspects

    def test_labels_are_those_of_an_honest_party(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Labels are an honest party's even if a malicious first party asked the queries."""
        monkeypatch.setattr(PrivateKNN, "adversaries", lambda _system: {"pretender": Pretender})
        honest = run("parties.count=5")
        assert len(set(honest.labels)) > 1
        first, other = (
            run("parties.count=5", f"adversaries.party-{n}.kind=pretender") for n in (0, 1)
        )
        assert (first.labels, first.transcript) == (honest.labels, honest.transcript)
        assert other.labels == honest.labels


SIMULATED = (
    "parties.count=5",
    "network.runtime=simulated",
    'network.latency={distribution="constant", seconds=0.1}',
)
SETTINGS = (
    *SIMULATED,
    "data.queries=6",
    "protocol.batch=3",
    "protocol.rounds=3",
    "network.bandwidth_bytes_per_second=1e6",
)
WHILE = "start_seconds = 0.35, end_seconds = 1.35"  # a batch of 3 rounds takes 2.5 s
ENDS = f'party = "party-1", other = "party-2", {WHILE}'
PARTY = f'party = "party-1", {WHILE}'
# Each link is used within 1 s while the ring is drawn; later only those of the ring are.
DRAWING = "start_seconds = 0.05, end_seconds = 1.35"

DRAWN = f'source = "party-1", target = "party-2", {DRAWING}'
BOTH, ONE = ("party-1", "party-2"), ("party-1",)

KINDS = {
    "stall": (DRAWN, BOTH, 0.0),
    "delay": (f"{DRAWN}, extra_seconds = 0.5", BOTH, 0.5),
    "jitter": (f"{DRAWN}, extra_seconds = 0.5", BOTH, 0.5),
    "squeeze": (f"{DRAWN}, times = 900", BOTH, 900),
    "halves": (f'parties = ["party-1", "party-3"], {WHILE}', ("party-1", "party-3"), 0.0),
    "isolation": (PARTY, ONE, 0.0),
    "one-way": (PARTY, ONE, 0.0),
    "reset": (ENDS, BOTH, 0.0),
    "half-open": (ENDS, BOTH, 0.0),
    "crash": ('party = "party-1", start_seconds = 0.35', ONE, 0.0),
    "restart": (PARTY, ONE, 0.0),
    "amnesia": (PARTY, ONE, 0.0),
    "pause": (PARTY, ONE, 0.0),
    "slow": (f"{PARTY}, extra_seconds = 0.2", ONE, 0.2),
    "jump": ('party = "party-1", start_seconds = 0.35, seconds = 2', ONE, 2),
    "mid-send": ('party = "party-1", start_seconds = 0.35, sends = 1', ONE, 1),
    "skew": ('party = "party-1", start_seconds = 0, end_seconds = 9, times = 2', ONE, 2),
}


def slowly(*settings: str, journal: Journal | None = None) -> Report:
    """Run five parties over slow links by the simulated clock."""
    return run(*SETTINGS, *settings, runtime=None, seed=2, journal=journal)


def _crash(*crashes: tuple[str, float]) -> str:
    tables = (f'{{kind="crash", party="{party}", start_seconds={at}}}' for party, at in crashes)
    return f"faults=[{', '.join(tables)}]"


@pytest.mark.parametrize("kind", FAULT_CLASSES)
def test_each_kind_affects_its_parties(kind: str) -> None:
    """The report has the fault with its parties, and shows that it had an effect."""
    keys, parties, strength = KINDS[kind]
    limits = ("run.retries=2", "run.session_seconds=1000")
    report = slowly(f'faults=[{{kind = "{kind}", {keys}}}]', *limits)
    (fault,) = report.faults
    assert (fault.kind, fault.parties, fault.strength) == (kind, parties, strength)
    assert fault.struck
    assert len(report.labels) == 6
    assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report


def test_a_fault_after_the_run_has_no_effect() -> None:
    """The report shows that it came too late, and otherwise equals that of a run without faults."""
    report = slowly(_crash(("party-1", 900)))
    assert [fault.struck for fault in report.faults] == [False]
    assert report.recovery is None
    own = {"settings", "seconds", "start_seconds", "faults"}
    plain, found = slowly().as_json(), report.as_json()
    assert Report.from_json({**plain, **{name: found[name] for name in own}}) == report
    (line,) = troubles(report)
    assert line.value == "0 of 1 took effect"
    assert line.meaning.startswith("none of them had an effect; the run ended after ")
    assert line.meaning.endswith(", before crash of party-1 at 900.000 s")
    assert "ended" not in troubles(slowly(_crash(("party-1", 0.5)), "run.retries=1"))[0].meaning


def test_faults_can_be_drawn_from_the_seed() -> None:
    """Drawn faults follow the configured ones, and equal those of an exploration."""
    scenario = load_scenario("wine", [*SETTINGS, "run.fault_seconds=4", _crash(("party-1", 1))])
    parties = scenario.parties.all
    made, again, other = (make_faults(scenario, parties, Streams(seed)) for seed in (3, 3, 4))
    assert made[0] == Fault("crash", 1, math.inf, ("party-1",))
    assert made[1:] == draw_faults(parties, 4.0, Streams(3).generator("faults"))
    assert made == again != other


def test_a_crash_ends_the_run_with_a_named_error() -> None:
    """Without retries the report is missing; the journal has the crash and its effects."""
    journal = Journal()
    with pytest.raises(RunFailed) as caught:
        slowly(_crash(("party-3", 1.0)), journal=journal)
    assert isinstance(caught.value.root, PeerLost)
    assert {mark.party for mark in journal.marks if mark.kind == "lost"} == {"party-3"}
    assert sum(mark.kind == "stopped" for mark in journal.marks) == 4


@pytest.mark.parametrize("party", ["party-3", "party-0"])
def test_a_retry_labels_by_the_rows_of_the_others(party: str) -> None:
    """A retry gives the pooled labels of the other parties, even if the client is lost.

    All messages in the trace are part of either the cost or the wasted work, and the simulated
    time is that of both attempts.
    """
    journal = Journal()
    report = slowly(_crash((party, 1.0)), "run.retries=1", "protocol.rounds=auto", journal=journal)
    prepared = prepare(report.scenario, Streams(2))
    left = tuple(name for name in prepared.parties if name != party)
    expected = prepared.setup.reference(prepared.held_out.X, left)
    assert report.labels == tuple(prepared.pooled.features.classes[label] for label in expected)
    assert report.agreement == 1.0
    cost, recovery = report.cost, report.recovery
    assert cost == report.forecast
    assert recovery is not None
    assert recovery.without == (party,)
    assert recovery.attempts == 1  # the second batch does not try with it again
    assert recovery.rows_lost == len(prepared.setup.parts[party])
    assert ("left out", party) in {(mark.kind, mark.party) for mark in journal.marks}
    sent = [message.bytes for message in journal.messages if message.sent_seconds is not None]
    assert len(sent) == cost.messages + cost.setup_messages + recovery.messages
    assert sum(sent) == cost.bytes + cost.setup_bytes + recovery.bytes
    calm = slowly("protocol.rounds=auto")
    assert report.simulated_seconds is not None
    assert calm.simulated_seconds is not None
    assert report.simulated_seconds > 1.0 + calm.simulated_seconds * 4 / 5 * 0.9


def test_retries_are_limited() -> None:
    """The second lost party ends a run with one retry, but not a run with two."""
    faults = _crash(("party-3", 1.0), ("party-2", 2.0))
    with pytest.raises(RunFailed):
        slowly(faults, "run.retries=1")
    report = slowly(faults, "run.retries=2")
    assert report.recovery is not None
    assert (report.recovery.without, report.recovery.attempts) == (("party-2", "party-3"), 2)


def test_the_limit_on_an_attempt_is_enforced() -> None:
    """A party that pauses for longer than the limit ends the attempt of all."""
    pause = 'faults=[{kind = "pause", party = "party-1", start_seconds = 1, end_seconds = 60}]'
    with pytest.raises(RunFailed, match="party"):
        slowly(pause, "run.session_seconds=5")
    assert slowly(pause).simulated_seconds is not None


def _findings(party: str, seconds: float, *members: str) -> RingFindings | None:
    """Return a coalition's findings in a run that is retried without a crashed party."""
    colluding = f"parties.coalition={json.dumps(members)}"
    crash = _crash((party, seconds))
    found = slowly(crash, "run.retries=1", colluding, "run.leakage_trials=50").coalition
    assert found is None or isinstance(found, RingFindings)
    return found


def test_values_that_a_coalition_sees_again_are_real() -> None:
    """A crash late in PP-TopK shows distances twice; a crash before any vector shows none."""
    late, early = (_findings("party-3", at, "party-1", "party-4") for at in (1.6, 0.05))
    assert late is not None
    assert early is not None
    assert late.named.recurred >= late.named.recurred_hidden > 0
    assert early.named.recurred == 0
    assert early.named.with_retries == early.named.named


def test_members_of_a_coalition_or_all_others_may_be_lost() -> None:
    """Other members go on with their views; without members or victims there are no findings."""
    found = _findings("party-4", 1.6, "party-1", "party-4")
    assert found is not None
    assert (found.members, found.exposed) == (("party-1", "party-4"), 0)
    assert _findings("party-3", 1.0, "party-3") is None
    members = 'parties.coalition=["party-0", "party-1", "party-2"]'
    report = slowly("parties.count=4", members, _crash(("party-3", 0)), "run.retries=2")
    assert (len(report.labels), report.coalition) == (6, None)


def test_a_failed_attempt_is_charged_too() -> None:
    """Each attempt draws fresh noise, and a failed attempt may have answered."""
    votes = (*SIMULATED, "protocol.name=noisy-votes", "data.queries=4", "run.retries=1")
    for faults, times in ((), 1), ((_crash(("party-3", 0.25)),), 2):
        report = run(*votes, *faults, runtime=None, seed=3)
        assert (report.spent.times, report.spent.epsilon) == (times, float(times))
        assert (report.recovery is None) == (times == 1)
