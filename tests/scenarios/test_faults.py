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
    "run.leakage_trials=0",
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
    "skew": ('party = "party-1", start_seconds = 0, end_seconds = 9, times = 2', ONE, 2),
}


def _run(*more: str, journal: Journal | None = None) -> Report:
    return run_scenario(load_scenario("wine", [*SETTINGS, *more]), seed=2, journal=journal)


def _crash(*crashes: tuple[str, float]) -> str:
    tables = (f'{{kind="crash", party="{party}", start_seconds={at}}}' for party, at in crashes)
    return f"faults=[{', '.join(tables)}]"


@pytest.mark.parametrize("kind", FAULT_CLASSES)
def test_each_kind_affects_its_parties(kind: str) -> None:
    """The report has the fault with its parties, and shows that it had an effect."""
    keys, parties, strength = KINDS[kind]
    report = _run(f'faults=[{{kind = "{kind}", {keys}}}]', "run.retries=2")
    (fault,) = report.faults
    assert (fault.kind, fault.parties, fault.strength) == (kind, parties, strength)
    assert fault.struck
    assert len(report.labels) == 6
    assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report


def test_a_fault_after_the_run_has_no_effect() -> None:
    """The report still contains it, and otherwise equals that of a run without faults."""
    report = _run(_crash(("party-1", 900)))
    assert [fault.struck for fault in report.faults] == [False]
    assert report.recovery is None
    own = {"settings", "seconds", "start_seconds", "faults"}
    plain, found = _run().as_json(), report.as_json()
    assert Report.from_json({**plain, **{name: found[name] for name in own}}) == report


def test_a_fault_after_the_run_is_reported_as_too_late() -> None:
    """A fault after the end of a run without latency is reported as too late."""
    settings = ("network.latency.seconds=0", "network.bandwidth_bytes_per_second=1e15")
    (line,) = troubles(_run(*settings, _crash(("party-1", 0.5))))
    assert line.value == "0 of 1 took effect"
    assert line.meaning.startswith("none of them had an effect; the run ended after ")
    assert line.meaning.endswith(", before crash of party-1 at 500.000 ms")
    assert "over" not in troubles(_run(_crash(("party-1", 0.5)), "run.retries=1"))[0].meaning


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
        _run(_crash(("party-3", 1.0)), journal=journal)
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
    report = _run(_crash((party, 1.0)), "run.retries=1", "protocol.rounds=auto", journal=journal)
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
    calm = _run("protocol.rounds=auto")
    assert report.simulated_seconds is not None
    assert calm.simulated_seconds is not None
    assert report.simulated_seconds > 1.0 + calm.simulated_seconds * 4 / 5 * 0.9


def test_retries_are_limited() -> None:
    """The second lost party ends a run with one retry, but not a run with two."""
    faults = _crash(("party-3", 1.0), ("party-2", 2.0))
    with pytest.raises(RunFailed):
        _run(faults, "run.retries=1")
    report = _run(faults, "run.retries=2")
    assert report.recovery is not None
    assert (report.recovery.without, report.recovery.attempts) == (("party-2", "party-3"), 2)


def test_the_limit_on_an_attempt_is_enforced() -> None:
    """A party that pauses for longer than the limit ends the attempt of all."""
    pause = 'faults=[{kind = "pause", party = "party-1", start_seconds = 1, end_seconds = 60}]'
    with pytest.raises(RunFailed, match="party"):
        _run(pause, "run.session_seconds=5")
    assert _run(pause).simulated_seconds is not None


def _findings(party: str, seconds: float, *members: str) -> RingFindings | None:
    """Return a coalition's findings in a run that is retried without a crashed party."""
    colluding = f"parties.coalition={json.dumps(members)}"
    crash = _crash((party, seconds))
    found = _run(crash, "run.retries=1", colluding, "run.leakage_trials=50").coalition
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
    report = _run("parties.count=4", members, _crash(("party-3", 0)), "run.retries=2")
    assert (len(report.labels), report.coalition) == (6, None)


def test_a_failed_attempt_is_charged_too() -> None:
    """Each attempt draws fresh noise, and a failed attempt may have answered."""
    votes = (*SIMULATED, "protocol.name=noisy-votes", "data.queries=4", "run.retries=1")
    for faults, times in ((), 1), ((_crash(("party-3", 0.25)),), 2):
        scenario = load_scenario("wine", [*votes, *faults])
        report = run_scenario(scenario, seed=3)
        assert (report.spent.times, report.spent.epsilon) == (times, float(times))
        assert (report.recovery is None) == (times == 1)
