"""One verified sum of three parties: equal on all runtimes, at the forecast cost, without liars."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.privacy.generators import seeded
from tests.protocols.prio.reporting import HISTOGRAM, forged, make_task, uploads_of
from typing_extensions import override

from veilring.errors import ProtocolViolation, RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.run import Run
from veilring.protocols.prio import aggregator
from veilring.protocols.prio.exchange import Roles, sum_verified, summing_cost
from veilring.protocols.prio.messages import BatchAnswer, PreparedReports, ProposeBatch, Verdict
from veilring.protocols.prio.store import Upload
from veilring.protocols.prio.task import Task, Vdaf
from veilring.testing import ProtocolRunner, assert_cost
from veilring.testing.lies import Verdict as Outcome
from veilring.testing.lies import audit_lies
from veilring.transport.messages import Message

ROLES = Roles("leader", "helper", "collector")
NAMES = ("leader", "helper", "collector")
ANSWERS = np.array([0, 1, 1, 4, 2, 4, 4])
TRANSCRIPTS = list[str]()
MEMORY = ProtocolRunner("memory")
REFUSING = ("verify_key", "ids", "public", "prepared", "sealed", "replies")
"""The fields by which an aggregator can have a valid report refused."""
KINDS = {
    "count": (Vdaf(kind="count"), np.array([0, 1, 1, 0, 1]), [3]),
    "sum": (Vdaf(kind="sum", bits=4), np.array([0, 15, 7]), [22]),
    "histogram": (HISTOGRAM, ANSWERS, [1, 2, 1, 0, 3]),
    "sumvec": (
        Vdaf(kind="sumvec", length=2, bits=3, chunk_length=2),
        np.array([[7, 0], [1, 2]]),
        [8, 2],
    ),
    "sumvec64": (
        Vdaf(kind="sumvec64", length=2, bits=3, chunk_length=2, proofs=2),
        np.array([[7, 0], [1, 2]]),
        [8, 2],
    ),
}
"""A task of each kind, measurements, and their total."""


def summed(
    task: Task, uploads: list[Upload], liar: Adversary | None = None, run: ProtocolRunner = MEMORY
) -> Run[list[int] | None]:
    """Play a verified sum."""
    only = {"leader": {"uploads": uploads}}
    who = {} if liar is None else {liar.called: liar}
    return run(sum_verified, NAMES, only=only, adversaries=who, task=task, roles=ROLES)


def require_sum(runner: ProtocolRunner, kind: str) -> str:
    """Require the exact total of a kind of reports at the forecast cost; return the transcript."""
    vdaf, measurements, total = KINDS[kind]
    task = make_task(vdaf)
    run = summed(task, uploads_of(task, measurements, seeded("clients")), run=runner)
    assert run.results == {"leader": None, "helper": None, "collector": total}
    cost = summing_cost(task, len(measurements))
    messages, size = cost.traffic
    assert_cost(run, messages=messages, bytes=size, rounds=cost.rounds)
    return run.transcript


def test_runtimes_agree(run_protocol: ProtocolRunner) -> None:
    """A sum has the same total, transcript and forecast cost on each runtime."""
    TRANSCRIPTS.append(require_sum(run_protocol, "histogram"))
    assert len(set(TRANSCRIPTS)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_total_and_cost(kind: str) -> None:
    """The collector gets the exact total of each kind of reports, at the forecast cost."""
    require_sum(MEMORY, kind)


def test_cost_of_several_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports beyond the size of an exchange take further exchanges, as forecast."""
    monkeypatch.setattr(aggregator, "EXCHANGE_REPORTS_MAX", 3)
    task = make_task()
    run = summed(task, uploads_of(task, ANSWERS, seeded("clients")))
    cost = summing_cost(task, len(ANSWERS))
    assert cost.rounds == 2 * 3 + 3
    assert_cost(run, messages=cost.traffic.messages, bytes=cost.traffic.bytes, rounds=cost.rounds)


def test_forged_reports_are_left_out() -> None:
    """A report whose proof fails is not counted, and all others are."""
    task = make_task()
    uploads = uploads_of(task, ANSWERS, seeded("clients"))
    run = summed(task, [forged(uploads[0]), *uploads[1:]])
    assert run.results["collector"] == [0, 2, 1, 0, 3]


def test_one_noise_of_each_aggregator() -> None:
    """With an epsilon the total is off by two draws of noise, and costs the same messages."""
    task = make_task(epsilon=0.1)
    run = summed(task, uploads_of(task, ANSWERS, seeded("clients")))
    found = run.results["collector"]
    assert found is not None
    off = np.array(found) - [1, 2, 1, 0, 3]
    assert off.any()
    assert np.abs(off).max() < 1000
    assert run.cost.bytes == summing_cost(task, len(ANSWERS)).traffic.bytes


@dataclass
class Denier(Adversary):
    """A helper that claims not to have accepted a report that it has accepted."""

    called: str = "helper"

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, BatchAnswer):
            message = BatchAnswer(agreed=False, ids=b"")
        return ((to, message),)


@dataclass
class Garbler(Adversary):
    """A helper whose preparation messages do not fit."""

    called: str = "helper"

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, PreparedReports):
            message = message.model_copy(update={"replies": message.replies ^ np.uint8(1)})
        return ((to, message),)


@dataclass
class Approver(Adversary):
    """A helper that accepts everything."""

    called: str = "helper"

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, PreparedReports):
            count = len(message.verdicts)
            verdicts = np.full(count, Verdict.ACCEPTED, dtype=np.uint8)
            replies = np.zeros((count, message.replies.shape[1]), dtype=np.uint8)
            replies[message.verdicts == Verdict.ACCEPTED] = message.replies
            message = PreparedReports(verdicts=verdicts, replies=replies)
        return ((to, message),)


@dataclass
class Picker(Adversary):
    """A leader that proposes other reports than were accepted."""

    called: str = "leader"

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, ProposeBatch):
            message = message.model_copy(update={"digests": message.digests ^ np.uint8(1)})
        return ((to, message),)


def test_denial_is_named() -> None:
    """A helper that denies reports which it has accepted is named, and nothing is opened."""
    task = make_task()
    uploads = uploads_of(task, ANSWERS, seeded("clients"))
    with pytest.raises(RunFailed, match="helper broke the protocol: denies") as failed:
        summed(task, uploads, Denier())
    assert isinstance(failed.value.root, ProtocolViolation)
    assert failed.value.root.culprit == "helper"


@pytest.mark.parametrize("liar", [Garbler(), Approver()])
def test_other_verdicts_change_no_set(liar: Adversary) -> None:
    """Reports that the leader cannot finish are in no total, whatever a helper answers."""
    task = make_task()
    uploads = uploads_of(task, ANSWERS, seeded("clients"))
    uploads[0] = forged(uploads[0])
    run = summed(task, uploads, liar)
    garbled = isinstance(liar, Garbler)
    assert run.results["collector"] == ([0] * 5 if garbled else [0, 2, 1, 0, 3])


def test_unknown_proposal_opens_nothing() -> None:
    """A leader that proposes reports which its helper has not accepted gets no batch."""
    task = make_task()
    uploads = uploads_of(task, ANSWERS, seeded("clients"))
    with pytest.raises(RunFailed):
        summed(task, uploads, Picker())


@pytest.mark.slow
def test_lies_are_named_or_change_only_the_liars_share() -> None:
    """Every manipulated message names its sender, or changes a total as a lying share does."""
    task = make_task(Vdaf(kind="count"))
    own = {"leader": uploads_of(task, np.array([0, 1]), seeded("clients"))}
    inputs = own | {"helper": (), "collector": ()}
    lies = audit_lies(sum_verified, inputs, task=task, roles=ROLES)
    lies.assert_none(Outcome.HANG, Outcome.UNNAMED, Outcome.MISNAMED)
    unnoticed = {lie.adversary for lie in lies.of(Outcome.UNNOTICED).rows}
    assert unnoticed <= {f"alter {name}" for name in REFUSING} | {"alter entries"}
