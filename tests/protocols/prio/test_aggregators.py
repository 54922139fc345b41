"""A leader and its helper: each report once, batches that agree, and one noise for one price."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy import stats
from tests.privacy.generators import FALSE_ALARM, seeded
from tests.protocols.prio.reporting import CLOSES, Pair, add, forged, make_task, uploads_of

from veilring.errors import InputError, ProtocolViolation, StoreFailed, Tampered
from veilring.privacy.noise import discrete_laplace_pmf
from veilring.privacy.statefile import open_state_file
from veilring.protocols.prio import aggregator
from veilring.protocols.prio.aggregator import exchange_reports
from veilring.protocols.prio.messages import Verdict
from veilring.protocols.prio.release import (
    half_width,
    noise_of,
    open_total,
    promise_of,
    require_room,
)
from veilring.protocols.prio.scheme import norm_of, scheme_of
from veilring.protocols.prio.store import SHARES, ShareStore, digest_ids
from veilring.protocols.prio.task import Vdaf
from veilring.protocols.requests import RequestRefusal, RequestVerdict

LOSSES = ("request", "answer")


def test_add_tells_known_reports() -> None:
    """An upload is new, the same as before, or another report with a used id, and is refused."""
    pair = Pair.of(make_task())
    (first, second) = uploads_of(pair.task, np.array([1, 2]), seeded("clients"))
    other = second._replace(id=first.id)
    store = pair.leader.store
    assert store.add([first, first, other]) == ["stored", "same", "different"]
    assert store.add([first, second]) == ["same", "stored"]
    assert [each.id for each in store.waiting(9).values()] == [first.id, second.id]


def test_store_belongs_to_one_task(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A state file with reports to one task is refused for another one."""
    path = tmp_path_factory.mktemp("state") / "leader.db"
    file = open_state_file(path, SHARES, new=True)
    key = ShareStore(file, make_task(), lambda: b"k" * 16).verify_key
    file.close()
    file = open_state_file(path, SHARES)
    assert ShareStore(file, make_task(), lambda: b"l" * 16).verify_key == key
    with pytest.raises(InputError, match="another task"):
        ShareStore(file, make_task(minimum=5))
    file.close()


@pytest.mark.parametrize("lost", LOSSES)
def test_lost_messages_count_once(lost: str) -> None:
    """Whatever message is lost, each report is verified, and counted in one batch at both."""
    pair = Pair.of(make_task())
    add(pair, [0, 1, 1, 4], seeded("clients"))
    for _ in range(3):
        assert pair.verify(loses=lost) == 0
    assert pair.verify() == 4
    for _ in range(3):
        pair.close(loses=lost)
    assert pair.close() == 1
    assert pair.total() == [1, 2, 0, 0, 1]
    leader, helper = pair.ids(0)
    assert leader == helper
    assert len(leader) == 4


def test_batches_have_the_minimum() -> None:
    """A batch closes at exactly the minimum; later reports are for the next one."""
    pair = Pair.of(make_task())
    add(pair, [0, 1, 1, 4, 2, 2], seeded("clients"))
    assert pair.verify() == 4
    assert pair.verify() == 0
    assert pair.leader.is_due()
    pair.close()
    assert pair.verify() == 2
    assert not pair.leader.is_due()
    assert pair.total(0) == [1, 2, 0, 0, 1]


def test_last_batch_closes_at_the_end() -> None:
    """At the end of the task, a batch with noise closes with any number of reports."""
    pair = Pair.of(make_task(epsilon=30.0))
    add(pair, [3], seeded("clients"))
    pair.verify()
    assert not pair.leader.is_due()
    pair.time = CLOSES
    assert pair.leader.is_due()
    pair.close()
    assert pair.total() == [0, 0, 0, 1, 0]


def test_exact_totals_are_never_of_few_reports() -> None:
    """Without noise no batch below the minimum closes, also at the end, whatever a leader says."""
    pair = Pair.of(make_task(minimum=2))
    add(pair, [3], seeded("clients"))
    pair.verify()
    pair.time = CLOSES
    assert not pair.leader.is_due()
    with pytest.raises(ProtocolViolation, match="a batch of 1 reports; the minimum is 2"):
        pair.close()
    assert pair.helper.store.batch(0) is None


@pytest.mark.parametrize(("claimed", "time"), [(2, 0), (3, 0), (1, CLOSES)])
def test_claimed_number_of_reports_is_checked(claimed: int, time: int) -> None:
    """A leader that gives a small batch, or an empty one, another number of reports is named."""
    pair = Pair.of(make_task(minimum=2, epsilon=1.0))
    add(pair, [0, 1, 2], seeded("clients"))
    pair.verify()
    pair.time = time
    kept = pair.helper.store.pool()[: claimed - 1]
    later = set(pair.helper.store.pool()) - set(kept)
    message = pair.leader.propose().message.model_copy(
        update={"reports": claimed, "digests": digest_ids(kept), "later": b"".join(later)}
    )
    with pytest.raises(ProtocolViolation, match=f"{claimed - 1} reports as one of {claimed}"):
        pair.helper.consider(message, "leader")
    assert pair.helper.store.batch(0) is None


def test_forged_reports_are_refused_and_counted() -> None:
    """A report whose proof fails is refused at both; a batch waits for another one."""
    pair = Pair.of(make_task(minimum=2))
    uploads = uploads_of(pair.task, np.array([1, 2, 3]), seeded("clients"))
    pair.leader.store.add([forged(uploads[0]), *uploads[1:]])
    assert pair.verify() == 1
    assert pair.verify() == 1
    for each in pair.both:
        assert each.store.counts() == {Verdict.ACCEPTED: 2, Verdict.INVALID: 1}
    pair.close()
    assert pair.total() == [0, 0, 1, 1, 0]


def test_malformed_shares_are_refused() -> None:
    """Shares of a wrong size, and a share that its helper cannot open, are refused."""
    pair = Pair.of(make_task(minimum=9))
    first, second, third, fourth = uploads_of(pair.task, np.arange(4), seeded("clients"))
    wrong = [first._replace(share=first.share[1:]), second._replace(public=b"")]
    pair.leader.store.add([*wrong, third._replace(sealed=b"?"), fourth])
    assert pair.verify() == 1
    refused = {Verdict.INVALID: 2, Verdict.UNREADABLE: 1, Verdict.ACCEPTED: 1}
    assert pair.leader.store.counts() == refused
    assert pair.helper.store.counts() == {Verdict.UNREADABLE: 1, Verdict.ACCEPTED: 1}


def test_times_are_checked_by_the_helper() -> None:
    """A report after the end of the task is refused by the helper, too."""
    pair = Pair.of(make_task(minimum=9))
    (late,) = uploads_of(pair.task, np.array([1]), seeded("clients"))
    pair.leader.store.add([late._replace(time=CLOSES)])
    assert pair.verify() == 0
    assert pair.leader.store.counts() == {Verdict.LATE: 1}
    assert pair.leader.store.progress()["refused"] == 1
    assert pair.helper.store.counts() == {}


def test_no_report_is_lost_to_a_slow_clock() -> None:
    """A report that is too early for the helper waits until the clocks agree; others count."""
    pair = Pair.of(make_task(minimum=9))
    first, early = uploads_of(pair.task, np.array([1, 2]), seeded("clients"))
    pair.leader.store.add([first, early._replace(time=1200)])
    with pytest.raises(ProtocolViolation, match="compare the clocks of both"):
        pair.verify()
    assert pair.leader.store.counts() == {Verdict.ACCEPTED: 1, Verdict.WAITING: 1}
    states = {"not verified": 1, "verified": 1, "in batches": 0, "refused": 0}
    assert pair.leader.store.progress() == states
    pair.time = 1200
    assert pair.verify() == 1


def test_reports_of_a_lost_leader_are_left_out() -> None:
    """Reports that only the helper knows are left out of the batch, in one more exchange."""
    pair = Pair.of(make_task())
    add(pair, [1, 1, 1], seeded("forgotten"))
    pair.verify()
    other = Pair.of(pair.task)
    other.helper = pair.helper
    other.totals["helper"] = pair.totals["helper"]
    add(other, [0, 1, 1, 4], seeded("clients"))
    assert other.verify() == 4
    assert other.close() == 2
    assert other.total() == [1, 2, 0, 0, 1]
    leader, helper = other.ids(0)
    assert leader == helper
    assert pair.helper.store.counts() == {Verdict.ACCEPTED: 4, Verdict.DISOWNED: 3}


def test_reports_that_wait_are_for_a_later_batch() -> None:
    """A report that only the helper has accepted, and still waits at its leader, counts later."""
    pair = Pair.of(make_task(minimum=2, epsilon=1.0))
    early = add(pair, [1, 2], seeded("clients"))
    exchange = pair.leader.prepare()
    assert exchange is not None
    answer = pair.helper.answer(exchange.message, "leader")
    outputs, _ = pair.leader.prio.finish(exchange.state, answer.replies)
    share = pair.leader.prio.field.encode(outputs)[0].tobytes()
    pair.leader.store.settle([(exchange.numbers[0], Verdict.ACCEPTED, share)])
    late = add(pair, [3], seeded("others"))
    pair.time = CLOSES
    assert pair.close() == 2
    assert pair.ids(0) == ({early[0].id}, {early[0].id})
    assert pair.verify() == 2
    pair.close()
    assert pair.ids(1) == ({early[1].id, late[0].id},) * 2


def test_reports_verified_after_a_lost_proposal_are_for_a_later_batch() -> None:
    """A batch keeps its reports if its proposal is lost, and later reports count later."""
    pair = Pair.of(make_task(minimum=2))
    first = add(pair, [1, 2], seeded("clients"))
    pair.verify()
    pair.close(loses="request")
    assert pair.leader.has_proposed()
    later = add(pair, [3, 3], seeded("others"))
    assert pair.verify() == 2
    assert pair.close() == 2
    assert pair.close() == 1
    assert pair.ids(0) == ({each.id for each in first},) * 2
    assert pair.ids(1) == ({each.id for each in later},) * 2


def test_denied_report_is_named() -> None:
    """A helper that lacks a report which it has accepted is named, and the batch stays closed."""
    pair = Pair.of(make_task(minimum=2))
    uploads = add(pair, [1, 2], seeded("clients"))
    pair.verify()
    pair.helper.store.disown([uploads[0].id])
    with pytest.raises(
        ProtocolViolation, match="helper broke the protocol: denies reports of batch 0"
    ):
        pair.close()
    batch = pair.leader.store.batch(0)
    assert batch is not None
    assert not batch.agreed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verify_key": bytes(16)}, "has changed the key"),
        ({"times": np.zeros(1, np.uint64)}, "do not fit each other"),
        ({"sealed": b""}, "other sizes than it announced"),
        ({"public": np.zeros((2, 1), np.uint8)}, "do not fit each other"),
        ({"disowned": b"?"}, "sent 1 bytes of ids"),
        ({"ids": np.zeros((2, 16), np.uint8)}, "a report twice"),
    ],
)
def test_malformed_exchange_is_the_leaders_fault(changes: dict[str, object], said: str) -> None:
    """A message that no honest leader sends names the leader, and changes nothing."""
    pair = Pair.of(make_task(minimum=9))
    add(pair, [0, 1], seeded("clients"))
    pair.verify()
    add(pair, [2, 3], seeded("others"))
    exchange = pair.leader.prepare()
    assert exchange is not None
    with pytest.raises(ProtocolViolation, match=f"leader broke the protocol: .*{said}"):
        pair.helper.answer(exchange.message.model_copy(update=changes), "leader")
    assert pair.helper.store.counts() == {Verdict.ACCEPTED: 2}


def test_improper_proposals_are_the_leaders_fault() -> None:
    """A batch below the minimum, out of order or changed names the leader."""
    pair = Pair.of(make_task(minimum=2))
    add(pair, [0, 1, 2], seeded("clients"))
    pair.verify()
    small = pair.leader.propose().message.model_copy(
        update={"reports": 1, "digests": digest_ids(pair.helper.store.pool()[:1])}
    )
    for message, said in [
        (small, "the minimum is 2"),
        (small.model_copy(update={"number": 3}), "before its turn"),
        (small.model_copy(update={"digests": small.digests[:1]}), "another shape"),
    ]:
        with pytest.raises(ProtocolViolation, match=f"leader broke the protocol: .*{said}"):
            pair.helper.consider(message, "leader")
    pair.close()
    with pytest.raises(ProtocolViolation, match="leader broke the protocol: has changed batch 0"):
        pair.helper.consider(small, "leader")


def test_reused_id_is_refused() -> None:
    """A helper refuses another report with an id that it has verified."""
    pair = Pair.of(make_task(minimum=9))
    uploads = add(pair, [0], seeded("clients"))
    pair.verify()
    other = Pair.of(pair.task)
    other.helper = pair.helper
    (changed,) = uploads_of(pair.task, np.array([3]), seeded("others"))
    other.leader.store.add([changed._replace(id=uploads[0].id)])
    assert other.verify() == 0
    assert other.leader.store.counts() == {Verdict.REUSED_ID: 1}


def test_total_is_charged_once_and_stays_the_same() -> None:
    """A batch is charged once at each aggregator, and a second collection gets the same bytes."""
    pair = Pair.of(make_task(epsilon=0.5))
    add(pair, [0, 1, 1, 4], seeded("clients"))
    pair.verify()
    pair.close()
    first = [pair.share(name) for name in pair.totals]
    assert [each.totals().spent for each in pair.ledgers] == [0.5, 0.5]
    assert [pair.share(name) for name in pair.totals] == first
    assert [each.totals().spent for each in pair.ledgers] == [0.5, 0.5]
    assert all(not list(each.store.output_shares(0, 80)) for each in pair.both)


def test_exhausted_budget_opens_nothing() -> None:
    """Without budget an aggregator releases nothing, and charges nothing."""
    pair = Pair.of(make_task(epsilon=0.5, minimum=1), budget=0.7)
    for number in range(2):
        add(pair, [number], seeded("client", number))
        pair.verify()
        pair.close()
    pair.share("leader")
    releases = pair.totals["leader"]
    batch = releases.store.batch(1)
    assert batch is not None
    refused = releases.release(batch, "collector")
    assert isinstance(refused, RequestRefusal)
    assert refused.verdict == RequestVerdict.TOTAL_EXHAUSTED
    assert releases.ledger.totals().spent == 0.5
    again = releases.store.batch(1)
    assert again is not None
    assert again.total is None


@pytest.mark.parametrize(
    ("damage", "values"),
    [
        ("UPDATE outputs SET share = ? WHERE number = 1", (b"\xff" * 80,)),
        ("DELETE FROM outputs WHERE number = 1", ()),
    ],
)
def test_damaged_shares_are_not_added(damage: str, values: tuple[bytes, ...]) -> None:
    """If a share of a batch is missing or beyond the field, nothing is released or charged."""
    pair = Pair.of(make_task(minimum=2, epsilon=1.0))
    add(pair, [0, 1], seeded("clients"))
    pair.verify()
    pair.close()
    with pair.leader.store.transaction() as db:
        db.execute(damage, values)
    with pytest.raises(StoreFailed, match="1 shares of batch 0 are missing or damaged"):
        pair.share("leader")


def test_shares_of_different_batches_are_not_added() -> None:
    """Shares of totals of different reports name both aggregators."""
    pair = Pair.of(make_task(minimum=1))
    for number in range(2):
        add(pair, [number], seeded("client", number))
        pair.verify()
        pair.close()
    prio = pair.leader.prio
    with pytest.raises(Tampered, match="leader, helper"):
        open_total(
            prio, pair.share("leader", 0), pair.share("helper", 1), names=("leader", "helper")
        )


def test_a_share_beyond_the_field_names_its_sender() -> None:
    """A share of a total with a number above the modulus names the aggregator that sent it."""
    pair = Pair.of(make_task(minimum=1))
    add(pair, [1], seeded("clients"))
    pair.verify()
    pair.close()
    share = pair.share("helper")
    bad = share.model_copy(update={"entries": np.full_like(share.entries, 255)})
    with pytest.raises(ProtocolViolation, match="helper broke the protocol"):
        open_total(pair.leader.prio, pair.share("leader"), bad, names=("leader", "helper"))


@pytest.mark.parametrize(
    ("bits", "minimum", "epsilon", "fits"),
    [
        (39, (1 << 24) - 99, None, True),
        (40, 1 << 23, None, False),
        (39, (1 << 24) - 99, 0.5, False),
    ],
)
def test_a_total_that_may_not_open_is_refused(
    bits: int, minimum: int, epsilon: float | None, fits: bool
) -> None:
    """A task is refused if its reports and their noise may exceed half of the modulus."""
    vdaf = Vdaf(kind="sumvec64", bits=bits, length=1, chunk_length=6, proofs=2)
    task = make_task(vdaf, minimum=minimum, epsilon=epsilon)
    expected = nullcontext() if fits else pytest.raises(InputError, match="smaller minimum")
    with expected:
        require_room(task, scheme_of(vdaf))


def test_wide_reports_are_verified_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange is bounded by the memory for its shares, but takes at least one report."""
    pair = Pair.of(make_task(minimum=9))
    add(pair, [0, 1, 2], seeded("clients"))
    share = pair.leader.prio.input_share_sizes[0]
    for room, reports in [(2 * share, 2), (share // 2, 1)]:
        monkeypatch.setattr(aggregator, "EXCHANGE_BYTES_MAX", room)
        exchange = pair.leader.prepare()
        assert exchange is not None
        assert len(exchange.numbers) == reports
    monkeypatch.undo()
    whole = pair.leader.prepare()
    assert whole is not None
    monkeypatch.setattr(aggregator, "EXCHANGE_BYTES_MAX", 2 * share)
    with pytest.raises(ProtocolViolation, match="sent 3 reports at once"):
        pair.helper.answer(whole.message, "leader")


def test_a_proof_that_no_frame_holds_is_refused() -> None:
    """A task whose proofs are too large between the aggregators is refused."""
    wide = scheme_of(Vdaf(kind="histogram", length=200_000, chunk_length=100_000))
    with pytest.raises(InputError, match="smaller chunk_length"):
        exchange_reports(wide, 100)


@pytest.mark.parametrize(
    ("vdaf", "norm"),
    [
        (Vdaf(kind="count"), 1),
        (Vdaf(kind="sum", bits=4), 15),
        (Vdaf(kind="histogram", length=9, chunk_length=3), 1),
        (Vdaf(kind="sumvec", length=3, bits=2, chunk_length=3), 9),
    ],
)
def test_noise_is_scaled_to_one_report(vdaf: Vdaf, norm: int) -> None:
    """The scale of the noise is the most that one valid report adds, over epsilon."""
    assert norm_of(vdaf) == norm
    noise = noise_of(make_task(vdaf, epsilon=0.25))
    assert noise is not None
    assert noise.spread == 4 * norm
    with pytest.raises(InputError, match="scale of the noise"):
        noise_of(make_task(vdaf, epsilon=1e-13))


def test_noise_is_exactly_that_of_two_aggregators() -> None:
    """Each entry of a total is off by two independent discrete Laplace draws of scale 1/epsilon."""
    epsilon, entries = 1.0, 1000
    vdaf = Vdaf(kind="histogram", length=entries, chunk_length=32)
    pair = Pair.of(make_task(vdaf, minimum=1, epsilon=epsilon))
    add(pair, [0], seeded("client"))
    pair.verify()
    pair.close()
    off = np.array(pair.total()) - np.eye(1, entries)[0]
    reach, near = 60, np.arange(-2, 3)
    one = discrete_laplace_pmf(np.arange(-reach, reach + 1), 1 / epsilon)
    chances = np.convolve(one, one)[2 * reach + near]
    found = [int((off == k).sum()) for k in near]
    counts = [*found, entries - sum(found)]
    each = FALSE_ALARM / len(counts)
    for number, chance in zip(counts, [*chances, 1 - chances.sum()], strict=True):
        assert stats.binomtest(number, entries, float(chance)).pvalue > each


@pytest.mark.parametrize("scale", [0.5, 3, 40])
def test_interval_is_the_shortest_that_suffices(scale: float) -> None:
    """The noise of a total exceeds the half-width with at most the stated probability."""
    noise = noise_of(make_task(Vdaf(kind="count"), epsilon=1 / scale))
    one = discrete_laplace_pmf(np.arange(-2000, 2001), scale)
    both = np.convolve(one, one)
    for confidence in (0.5, 0.95, 0.999):
        width = half_width(noise, confidence)
        inside = [both[4000 - k : 4001 + k].sum() for k in (width - 1, width)]
        assert inside[1] >= confidence - 1e-12
        assert inside[0] < confidence
    assert half_width(None, 0.95) == 0


def test_promise_is_one_aggregators() -> None:
    """The promise is the epsilon of a batch against all but one aggregator, or none."""
    promise = promise_of(make_task(Vdaf(kind="sum", bits=4), epsilon=0.5))
    assert promise.guarantee == "ε = 0.5 for each batch (pure ε-DP)"
    assert "changes a total by at most 15" in promise.note
    assert "a person" in promise.paragraph("prio")


def test_promise_of_exact_totals_is_weaker() -> None:
    """Without noise nothing is promised against a collector in league with others."""
    promise = promise_of(make_task(minimum=50))
    assert promise.guarantee == "no ε: totals are exact"
    assert promise.adjacency == ""
    assert "together" not in promise.against
    assert "no batch has fewer reports than 50" in promise.note
    assert "learns a report exactly" in promise.note
