"""Faults of a scenario: the effect of each kind, and its report."""

import json
import math

import pytest

from veilring.errors import PeerLost, RunFailed
from veilring.nodes.journal import Journal
from veilring.protocols.ring.attacks.findings import RingFindings
from veilring.randomness import Streams
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.network import make_faults
from veilring.scenarios.prepare import prepare
from veilring.scenarios.report import troubles
from veilring.simulation.faults import FAULT_CLASSES, Fault, draw_faults

SETTINGS = (
    "parties.count=5",
    "data.queries=6",
    "protocol.batch=3",
    "protocol.rounds=3",
    "run.leakage_trials=0",
    "network.runtime=simulated",
    'network.latency={distribution="constant", seconds=0.1}',
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


def _run(*more: str, journal: Journal | None = None) -> Report:
    return run_scenario(load_scenario("wine", [*SETTINGS, *more]), seed=2, journal=journal)


def _crash(party: str, seconds: float) -> str:
    return f'faults=[{{kind = "crash", party = "{party}", start_seconds = {seconds}}}]'


class TestKinds:
    """Parsing a table of faults."""

    def test_every_class_of_fault_has_a_table(self) -> None:
        """Every fault class of the simulation has a table in scenarios."""
        assert set(KINDS) == set(FAULT_CLASSES)

    @pytest.mark.parametrize("kind", KINDS)
    def test_each_kind_affects_its_parties(self, kind: str) -> None:
        """The report has the fault with its parties, and shows that it had an effect."""
        keys, parties, strength = KINDS[kind]
        limits = ("run.retries=2", "run.session_seconds=1000")
        report = _run(f'faults=[{{kind = "{kind}", {keys}}}]', *limits)
        (fault,) = report.faults
        assert (fault.kind, fault.parties, fault.strength) == (kind, parties, strength)
        assert fault.struck
        assert len(report.labels) == 6
        assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report

    def test_a_fault_after_the_run_has_no_effect(self) -> None:
        """The report still contains it."""
        report = _run(_crash("party-1", 900))
        assert [fault.struck for fault in report.faults] == [False]
        assert report.recovery is None
        assert report == _as_if_without_faults(report)

    def test_a_fault_after_the_run_is_reported_as_too_late(self) -> None:
        """A fault after the end of a run without latency is reported as too late."""
        settings = ("network.latency.seconds=0", "network.bandwidth_bytes_per_second=1e15")
        (line,) = troubles(_run(*settings, _crash("party-1", 0.5)))
        assert line.value == "0 of 1 took effect"
        assert line.meaning.startswith("none of them had an effect; the run ended after ")
        assert line.meaning.endswith(", before crash of party-1 at 500.000 ms")
        assert "over" not in troubles(_run(_crash("party-1", 0.5), "run.retries=1"))[0].meaning

    def test_a_coalition_left_alone_has_no_victims(self) -> None:
        """If all others are lost, members label the run, and there are no findings."""
        members = 'parties.coalition=["party-0", "party-1", "party-2"]'
        report = _run("parties.count=4", members, _crash("party-3", 0), "run.retries=2")
        assert len(report.labels) == 6
        assert report.coalition is None

    def test_faults_can_be_drawn_from_the_seed(self) -> None:
        """Drawn faults follow the configured ones, and equal those of an exploration."""
        settings = [*SETTINGS, "run.fault_seconds=4", _crash("party-1", 1)]
        scenario = load_scenario("wine", settings)
        parties = scenario.parties.all
        made = make_faults(scenario, parties, Streams(3))
        assert made[0] == Fault("crash", 1, math.inf, ("party-1",))
        assert made[1:] == draw_faults(parties, 4.0, Streams(3).generator("faults"))
        again = make_faults(scenario, parties, Streams(3))
        assert made == again != make_faults(scenario, parties, Streams(4))


def _as_if_without_faults(report: Report) -> Report:
    plain = _run().as_json()
    settings = report.as_json()["settings"]
    same = ("seconds", "start_seconds", "faults")
    return Report.from_json(
        {**plain, "settings": settings, **{name: report.as_json()[name] for name in same}}
    )


class TestLostParties:
    """The effect of a crash on a run, and of a retry after it."""

    def test_a_crash_ends_the_run_with_a_named_error(self) -> None:
        """Without retries the report is missing; the journal has the crash and its effects."""
        journal = Journal()
        with pytest.raises(RunFailed) as caught:
            _run(_crash("party-3", 1.0), journal=journal)
        assert isinstance(caught.value.root, PeerLost)
        assert {mark.party for mark in journal.marks if mark.kind == "lost"} == {"party-3"}
        assert sum(mark.kind == "stopped" for mark in journal.marks) == 4

    @pytest.mark.parametrize("party", ["party-3", "party-0"])
    def test_a_retry_labels_by_the_rows_of_the_others(self, party: str) -> None:
        """A retry gives the pooled labels of the other parties, even if the client is lost."""
        journal = Journal()
        report = _run(_crash(party, 1.0), "run.retries=1", "protocol.rounds=auto", journal=journal)
        prepared = prepare(report.scenario, Streams(2))
        left = tuple(name for name in prepared.parties if name != party)
        expected = prepared.setup.reference(prepared.held_out.X, left)
        assert report.labels == tuple(prepared.pooled.features.classes[label] for label in expected)
        assert report.agreement == 1.0
        assert report.cost == report.forecast
        assert report.recovery is not None
        assert report.recovery.without == (party,)
        assert report.recovery.attempts == 1  # the second batch does not try with it again
        lost = prepared.setup.parts[party]
        assert report.recovery.rows_lost == len(lost)
        assert ("left out", party) in {(mark.kind, mark.party) for mark in journal.marks}

    def test_messages_of_failed_attempts_are_counted_separately(self) -> None:
        """All messages in the trace are part of either the cost or the wasted work."""
        journal = Journal()
        report = _run(_crash("party-3", 1.0), "run.retries=1", journal=journal)
        sent = [message for message in journal.messages if message.sent_seconds is not None]
        assert report.recovery is not None
        messages = report.cost.messages + report.cost.setup_messages + report.recovery.messages
        size = report.cost.bytes + report.cost.setup_bytes + report.recovery.bytes
        assert (len(sent), sum(message.bytes for message in sent)) == (messages, size)

    def test_retries_are_limited(self) -> None:
        """The second lost party ends a run with one retry, but not a run with two."""
        faults = (
            'faults=[{kind = "crash", party = "party-3", start_seconds = 1.0},'
            ' {kind = "crash", party = "party-2", start_seconds = 2.0}]'
        )
        with pytest.raises(RunFailed):
            _run(faults, "run.retries=1")
        report = _run(faults, "run.retries=2")
        assert report.recovery is not None
        assert (report.recovery.without, report.recovery.attempts) == (("party-2", "party-3"), 2)

    def test_the_simulated_time_is_that_of_all_attempts(self) -> None:
        """The simulated time of a retried run covers both attempts."""
        report, calm = _run(_crash("party-3", 1.0), "run.retries=1"), _run()
        assert report.simulated_seconds is not None
        assert calm.simulated_seconds is not None
        assert report.simulated_seconds > 1.0 + calm.simulated_seconds * 4 / 5 * 0.9

    def test_the_limit_on_an_attempt_is_enforced(self) -> None:
        """A party that pauses for longer than the limit ends the attempt of all."""
        pause = 'faults=[{kind = "pause", party = "party-1", start_seconds = 1, end_seconds = 60}]'
        with pytest.raises(RunFailed, match="party"):
            _run(pause, "run.session_seconds=5")
        assert _run(pause).simulated_seconds is not None


class TestRepeatedQueries:
    """The additional leakage of a retry to a coalition."""

    COALITION = ('parties.coalition=["party-1", "party-4"]', "run.leakage_trials=50")

    def test_values_seen_again_are_real(self) -> None:
        """A crash late in PP-TopK shows distances twice; a crash before any vector shows none."""
        late = _run(_crash("party-3", 1.6), "run.retries=1", *self.COALITION).coalition
        early = _run(_crash("party-3", 0.05), "run.retries=1", *self.COALITION).coalition
        assert isinstance(late, RingFindings)
        assert isinstance(early, RingFindings)
        assert late.named.recurred >= late.named.recurred_hidden > 0
        assert early.named.recurred == 0
        assert early.named.with_retries == early.named.named

    def test_a_member_may_be_lost(self) -> None:
        """The other members continue with their views; a lone lost member leaves none."""
        report = _run(_crash("party-4", 1.6), "run.retries=1", *self.COALITION)
        assert isinstance(report.coalition, RingFindings)
        assert report.coalition.members == ("party-1", "party-4")
        assert report.coalition.exposed == 0
        alone = 'parties.coalition=["party-3"]'
        assert _run(_crash("party-3", 1.0), "run.retries=1", alone).coalition is None


def test_a_failed_attempt_is_charged_too() -> None:
    """Each attempt draws fresh noise, and a failed attempt may have answered."""
    settings = (
        "protocol.name=noisy-votes",
        "parties.count=5",
        "data.queries=4",
        "network.runtime=simulated",
        'network.latency={distribution="constant", seconds=0.1}',
        "run.retries=1",
    )
    calm = run_scenario(load_scenario("wine", [*settings]), seed=3)
    struck = run_scenario(load_scenario("wine", [*settings, _crash("party-3", 0.25)]), seed=3)
    assert (calm.spent.times, calm.spent.epsilon) == (1, 1.0)
    assert struck.recovery is not None
    assert (struck.spent.times, struck.spent.epsilon) == (2, 2.0)
