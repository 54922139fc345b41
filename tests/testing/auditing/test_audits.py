"""Audits: true claims hold, planted mistakes are contradicted, and no loss is overstated."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from itertools import count, islice
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs.examples.secure_maximum import hasty_maximum
from numpy.typing import NDArray
from tests.roles import Number
from tests.testing.auditing.planted import (
    AUDIT,
    FEW,
    MASKED,
    OPEN,
    Majority,
    is_total,
    let_audits_be_short,
    total,
    with_less_noise,
)

from veilring.arrays import Floats, Ints
from veilring.errors import InputError, InternalError
from veilring.nodes.party import Party, broadcast
from veilring.protocols import masks
from veilring.protocols.claims import Comparison
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.ranksearch import roles
from veilring.protocols.registry import BUILT_IN, find_system
from veilring.protocols.release.algorithm.noise import SumNoise
from veilring.protocols.system import System
from veilring.testing import audit
from veilring.testing.auditing import (
    Audit,
    Auditable,
    Claim,
    RoleClaims,
    Verdict,
    check_answers,
    check_faults,
    check_liars,
    check_role,
)
from veilring.testing.auditing.findings import (
    FULL,
    QUICK,
    AuditedSystem,
    Effort,
    outcome,
    render_page,
    require_fresh,
    sample,
    write_audit,
)
from veilring.testing.auditing.views import (
    Loss,
    Statistic,
    check_comparison,
    check_hidden,
    least_violation,
    measure_drawn_loss,
    prove_loss,
)
from veilring.testing.hiding import RUNS_MIN
from veilring.testing.hiding.features import COORDINATES_MAX
from veilring.testing.lies import _lies

ALARM = 1e-6
# Of the views of the default effort: all of them prove more, and a quarter of them 0.55 or more.
SHARE = 3
LONG = replace(QUICK, runs=4 * FEW.runs, long_views=True)
# On 240 judged runs, a test with a false-alarm rate of 2.5e-7 finds an advantage of 0.48 with a
# probability of 99 %. The planted mistakes have over 0.5.
SHORT = replace(QUICK, runs=480, drawn=4_000)
ATTAINING = ("tree-walk", "ldp-bayes", "data-owner", "noisy-votes", "release", "prio")
QuietOwner = with_less_noise(DataOwner)
OF_ALL = {"cost", "labels", "reproducible", "privacy", "faults", "malicious parties"}


def subject_of(name: str, **settings: Any) -> AuditedSystem:
    """Return a system to audit, by default with its own parameters."""
    system = find_system(name)(**settings)
    return AuditedSystem(system, system.example())


def loud(name: str, times: float = 1.0) -> AuditedSystem:
    """Return a system that promises ε = 1 and adds the noise of a multiple of it."""
    system = with_less_noise(find_system(name), times)(epsilon=1.0)
    return AuditedSystem(system, system.example())


def judge(subject: AuditedSystem, effort: Effort = QUICK, number: int = 0) -> Claim:
    """Return the claim about one comparison of a system."""
    (claim,) = check_comparison(subject, effort, 0, number=number)
    return claim


def proved(worlds: Sequence[Floats], delta: float = 0.0) -> float:
    """Return the ε that is proved by the views of two worlds."""
    return measure_drawn_loss(*worlds, delta=delta, alarm=ALARM).epsilon


def events(rng: np.random.Generator, runs: int, *shares: float) -> list[Floats]:
    """Return whether an event of a given probability occurs in each run of each world."""
    return [(rng.random((runs, 1)) < share).astype(np.float64) for share in shares]


def contradicted(found: Audit) -> set[str]:
    """Return the names of the contradicted claims."""
    return {claim.claim for claim in found.contradicted}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let audits compare as many runs as find an advantage of 0.5."""
    let_audits_be_short(monkeypatch, SHORT)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let audits compare few runs, which show a planted mistake."""
    let_audits_be_short(monkeypatch)


@pytest.fixture
def fault_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out faults and lies, which an audit explores on rows of its own, not on its example."""
    for check in ("faults", "liars"):
        monkeypatch.setattr(f"veilring.testing.auditing.check_{check}", lambda *_: [])


@pytest.fixture
def one_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each party of an audit tell one lie only."""
    lies = f"{_lies.__module__}.{_lies.__name__}"
    monkeypatch.setattr(lies, lambda *of: islice(_lies(*of), 1))


@pytest.mark.slow
@pytest.mark.usefixtures("short", "one_lie")
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_claim_of_a_built_in_system_is_contradicted(name: str) -> None:
    """An audit of each system has a verdict for each claim, and contradicts none.

    The privacy of PP-kNN leaks as stated, with an advantage. No system claims that it notices
    liars, so that no lie could contradict a claim.
    """
    assert not find_system(name).notices_liars
    found = audit(find_system(name), quick=True)
    assert found.contradicted == ()
    names = [claim.claim for claim in found.claims]
    bounded = {"unit", "budget"} if find_system(name)().promise().epsilon else set()
    assert OF_ALL | bounded <= set(names)
    assert ("wrong results" in names) == bool(bounded)  # noise decides which labels are right
    assert len(set(names)) == len(names)
    assert all(claim.finding and claim.promised for claim in found.claims)
    tested = [claim for claim in found.claims if claim.verdict is Verdict.HOLDS]
    assert all(claim.power for claim in tested)
    if name == "private-knn":
        privacy = found["privacy"]
        assert privacy.verdict is Verdict.LEAKS
        assert "has an advantage of 0." in privacy.finding
        assert any(line.startswith("loss of privacy") for line in privacy.evidence)


@pytest.mark.slow
@pytest.mark.usefixtures("few", "one_lie")
@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        (Majority(mistake="leak"), {"cost", "privacy"}),
        (Majority(mistake="label"), {"labels", "faults", "malicious parties"}),
        (Majority(mistake="late"), {"faults"}),
        (QuietOwner, {"privacy"}),
    ],
    ids=["a leak", "a wrong label", "a wrong label if it is late", "noise for four times ε"],
)
def test_a_planted_mistake_is_contradicted(subject: Auditable, wrong: set[str]) -> None:
    """The claims that a planted mistake breaks are contradicted, and no others."""
    assert contradicted(audit(subject, quick=True)) == wrong


def test_a_role_is_audited_with_its_claims() -> None:
    """In a sum without masks, the view of a party reveals the inputs of others."""
    found = audit(OPEN, quick=True)
    assert contradicted(found) == {"privacy"}
    assert found["malicious parties"].verdict is Verdict.NOT_CLAIMED


@pytest.mark.slow
def test_a_role_without_an_invariant_is_compared_with_itself() -> None:
    """Its result is not tested, and a result that a fault changes is still found."""
    claims = RoleClaims(hasty_maximum, {"ada": 1, "ben": 1, "cy": 4})
    (result, *_) = check_role(claims, QUICK, 0)
    assert result.verdict is Verdict.NOT_TESTED
    (faults,) = check_faults(claims, replace(QUICK, worlds=8, worlds_max=8), 0)
    assert faults.verdict is Verdict.CONTRADICTED
    assert "has another result than without any fault" in faults.finding


_kept = dict[str, int]()


async def keep_input(party: Party, own: int) -> int:
    """Add up the numbers of all parties, as the first run in this process knew them."""
    return await total(party, _kept.setdefault(party.me, own), masked=False)


async def send_concurrently(party: Party, own: int) -> int:
    """Declare one round, and take two, each in a task of its own."""
    numbers = [own, 0]
    for _ in range(2):
        numbers = await asyncio.create_task(exchange(party, sum(numbers)))
    return sum(numbers)


async def exchange(party: Party, number: int) -> list[int]:
    """Return the numbers of all peers."""
    party.round(1)
    await broadcast(party, Number(number=number))
    return [(await party.receive(Number, sender=peer)).number for peer in party.peers]


@pytest.mark.parametrize("total_differs", [False, True])
def test_a_role_that_keeps_state_is_found_by_its_other_inputs(total_differs: bool) -> None:
    """Their result violates the invariant, or their messages are suspiciously equal."""
    _kept.clear()
    other = {"ada": 1, "ben": 3 + total_differs, "cy": 2}
    subject = RoleClaims(keep_input, MASKED.inputs, is_total, other_inputs=other)
    claims = {each.claim: each for each in check_role(subject, QUICK, 0)}
    assert claims["inputs"].verdict is Verdict.NOT_TESTED
    assert "keeps those of an earlier run" in claims["inputs"].finding
    expected = Verdict.CONTRADICTED if total_differs else Verdict.HOLDS
    assert claims["result"].verdict is expected
    assert "inputs" not in {each.claim for each in check_role(OPEN, QUICK, 0)}


def test_rounds_of_concurrent_tasks_are_not_tested() -> None:
    """The order of their messages proves no dependency, so the claim is neither held nor broken."""
    subject = RoleClaims(send_concurrently, {"ada": 1, "ben": 1})
    claims = {each.claim: each for each in check_role(subject, QUICK, 0)}
    assert claims["rounds"].verdict is Verdict.NOT_TESTED
    assert "declares 1 round. Several of its tasks" in claims["rounds"].finding


def test_the_rounds_of_a_set_up_are_said_apart() -> None:
    """A masked sum takes one round after its keys are exchanged."""
    claims = {each.claim: each for each in check_role(MASKED, QUICK, 0)}
    finding = claims["rounds"].finding
    assert finding == "A run takes 1 round, as declared. The set-up takes 1 round more."


def test_a_check_that_cannot_be_made_leaves_its_claim_untested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed control of one check is the reason of its verdict, and the other claims have one."""

    def check_hidden(*_given: object, **_named: object) -> list[Claim]:
        raise InternalError("a control of the audit failed")

    monkeypatch.setattr("veilring.testing.auditing.check_hidden", check_hidden)
    found = audit(MASKED, quick=True)
    assert found["privacy"].verdict is Verdict.NOT_TESTED
    assert "a control of the audit failed" in found["privacy"].finding
    held = {claim.claim for claim in found.of(Verdict.HOLDS)}
    assert {"result", "rounds", "reproducible", "faults"} <= held


def test_worlds_that_a_coalition_may_distinguish_are_refused() -> None:
    """An audit of a role whose worlds differ openly raises before anything is run."""
    with pytest.raises(InputError, match="`permitted` differs between them"):
        audit(MASKED.replaced(other_inputs={"ada": 1, "ben": 3, "cy": 3}), quick=True)


FIVE = OPEN.replaced(
    inputs={"ada": 1, "ben": 2, "cy": 3, "dee": 4, "eve": 5},
    other_inputs={"ada": 1, "ben": 3, "cy": 2, "dee": 4, "eve": 5},
    coalition=2,
)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_number_of_colluders_means_every_coalition_of_that_size() -> None:
    """The finding names one coalition, and the number of coalitions."""
    assert FIVE.coalitions == (("ada", "dee"), ("ada", "eve"), ("dee", "eve"))
    effort = replace(FEW, coalitions=2)
    (claim,) = check_hidden(FIVE, effort, 0, coalition=("ada", "eve"))
    assert (claim.claim, claim.verdict) == ("privacy, view of ada and eve", Verdict.CONTRADICTED)
    assert "one of 2 examined coalitions of 3" in claim.finding
    drawn = sample(FIVE.coalitions, 2)
    assert len(drawn) == 2
    assert drawn == sample(FIVE.coalitions, 2)
    with pytest.raises(InputError, match="only 3 parties have equal inputs in both worlds"):
        audit(FIVE.replaced(coalition=4), quick=True)
    with pytest.raises(InputError, match="coalition is 5; allowed: 1 to 4"):
        FIVE.replaced(coalition=5)


def uneven(name: str) -> System:
    """Return a system whose example has ties, a party with one row and a party without any."""
    kind: Any = find_system(name)
    made = {"example": lambda self, *, parties=3: kind.example(self, parties=parties).uneven()}
    system: System = type(f"Uneven{kind.__name__}", (kind,), made)()
    return system


def test_an_uneven_example_has_as_many_rows() -> None:
    """The first party has one row, the second none, and the last one ties."""
    example = subject_of("private-knn").example
    changed = example.uneven()
    assert [len(rows) for rows in changed.parts.values()] == [1, 0, 8]
    assert changed.rows == example.rows
    assert len(np.unique(changed.parts["party-2"].features, axis=0)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("short", "fault_free")
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_claim_is_contradicted_with_ties_and_empty_parties(name: str) -> None:
    """An audit of each system on an uneven example contradicts no claim."""
    assert [str(claim) for claim in audit(uneven(name), quick=True).contradicted] == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("rank-search", "any mistake that"),
        ("data-owner", "any invalid label, disagreement of parties"),
    ],
)
def test_the_power_of_explored_faults_is_that_of_what_is_checked(name: str, found: str) -> None:
    """Where noise decides the labels, an audit does not say that it would find every mistake."""
    effort = replace(QUICK, worlds=1, worlds_max=1)
    faults, *_ = check_faults(subject_of(name), effort, 0)
    assert f"With a probability of 95%, the audit would find {found}" in faults.power
    assert "All runs have the same inputs" in faults.power


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_plug_in_without_a_mistake_is_not_contradicted() -> None:
    """A system is audited with the defaults."""
    found = audit(Majority, quick=True)
    assert found.contradicted == ()
    assert found["privacy"].verdict is Verdict.HOLDS


@pytest.mark.slow
def test_one_process_and_two_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claims of an audit do not depend on the number of processes."""
    monkeypatch.setattr("veilring.testing.auditing.QUICK", replace(QUICK, runs=RUNS_MIN))
    one, two = (audit(OPEN, quick=True, workers=workers) for workers in (1, 2))
    assert one.claims == two.claims


@pytest.mark.slow
@pytest.mark.usefixtures("few", "fault_free")
def test_a_leak_to_a_party_in_the_middle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit with other views, or of a named party, contradicts the claim about its view only.

    A named party is examined instead of the first one, also by a quick audit.
    """
    system = Majority(mistake="leak to the second")
    named = audit(system, quick=True, coalitions=[["party-1"]])
    monkeypatch.setattr("veilring.testing.auditing.QUICK", replace(FEW, other_views=True))
    every = audit(system, quick=True)
    for found in (named, every):
        assert contradicted(found) == {"cost", "privacy, view of party-1"}
    assert "privacy" not in {claim.claim for claim in named.claims}
    assert every["privacy"].verdict is Verdict.HOLDS
    assert every["privacy, view of party-2"].verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"least": 4}, "least is 4; allowed: 2 to 3"),
        ({"least": 1}, "least is 1; allowed: 2 to 3"),
        ({"hidden": True}, "total cannot be called .* unexpected keyword .*'hidden'"),
    ],
)
def test_claims_that_no_run_could_satisfy_are_refused(wrong: dict[str, Any], expected: str) -> None:
    """The error names the argument of the claims, before anything is run."""
    with pytest.raises(InputError, match=expected):
        OPEN.replaced(**wrong)
    with pytest.raises(InputError, match=r"total cannot be called .* missing .*'masked'"):
        RoleClaims(OPEN.role, OPEN.inputs, OPEN.invariant)


@pytest.mark.parametrize(
    ("subject", "coalition", "expected"),
    [
        (Majority, ["party-1", "party-2"], "allowed: up to 1 of party-0, party-1, party-2"),
        (Majority, ["party-9"], "'party-9'; allowed: up to 1 of party-0"),
        (Majority, [""], "allowed: up to 1 of party-0"),
        (QuietOwner, ["party-1"], "coalition is 'party-1'; allowed: party-0"),
        (OPEN, ["ada"], "a role has one coalition; name it in `RoleClaims`"),
    ],
)
def test_a_coalition_beyond_the_promise_is_refused(
    subject: Auditable, coalition: list[str], expected: str
) -> None:
    """The error names the coalitions that the promise covers, before anything is run."""
    with pytest.raises(InputError, match=expected):
        audit(subject, quick=True, coalitions=[coalition])


def test_the_page_has_every_claim_with_its_verdict() -> None:
    """Each claim is a section with its promise and its finding, escaped."""
    page = render_page(AUDIT)
    assert page.count('<section class="claim"') == len(AUDIT.claims)
    for claim in AUDIT.claims:
        assert f"Promise &lt;{claim.verdict}&gt;." in page
    assert 'mistake = "leak"' in unescape(page)
    assert outcome(AUDIT) == "1 of 6 claims is contradicted: CONTRADICTED."


def test_a_folder_has_the_page_the_numbers_and_the_worlds(tmp_path: Path) -> None:
    """The page links files that reproduce a finding, and nothing is overwritten."""
    claim = Claim("faults", "", Verdict.CONTRADICTED, "wrong", files={"faults.toml": "a = 1\n"})
    found = Audit("majority", "Majority", {}, 7, True, 1e-6, (claim,), 12.0)
    write_audit(found, tmp_path / "out")
    texts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert 'href="faults.toml"' in texts["audit.html"]
    assert texts["faults.toml"] == "a = 1\n"
    numbers = json.loads(texts["audit.json"])
    (each,) = numbers["claims"]
    assert (numbers["system"], each["claim"]) == ("majority", "faults")
    assert each["verdict"] == "contradicted"
    with pytest.raises(InputError, match="nothing is overwritten"):
        require_fresh(tmp_path / "out")


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
def test_a_proved_loss_is_at_most_the_true_one_and_near_it(epsilon: float) -> None:
    """Of 50 audits of randomised response none proves more (1e-6 each), and all come near."""
    found, honest = list[float](), 1 / (1 + exp(-epsilon))
    for seed in range(50):
        rng = np.random.default_rng(seed)
        bits = events(rng, 8_000, honest, 1 - honest)
        found.append(proved([np.hstack([each, rng.normal(size=each.shape)]) for each in bits]))
    assert max(found) <= epsilon
    assert min(found) >= 0.6 * epsilon - 0.6


def test_delta_is_subtracted_from_the_likelier_probability() -> None:
    """An event of probability δ that is impossible in the other world proves nothing beyond δ."""
    worlds = events(np.random.default_rng(0), 40_000, 0.05, 0.0)
    assert proved(worlds, delta=0.06) == 0.0
    assert proved(worlds) > 3.0


def test_an_event_is_chosen_and_evaluated_on_different_runs() -> None:
    """A statistic that remembers the runs that it learned from proves no loss."""
    rng = np.random.default_rng(1)
    worlds: list[NDArray[Any]] = [rng.random((4_000, 1)) for _ in range(2)]

    def learn(columns: NDArray[Any], labels: Ints) -> Iterator[tuple[str, Statistic]]:
        known = dict(zip(columns[:, 0].tolist(), labels.tolist(), strict=True))
        yield "memory", lambda given: np.array([known.get(x, 0.5) for x in given[:, 0].tolist()])

    assert prove_loss(worlds, learn, delta=0.0, alarm=ALARM).epsilon == 0.0


def test_the_stated_power_is_attained() -> None:
    """An event at the stated least probability contradicts the claim in about 95 of 100 audits."""
    loss = Loss(0.0, 0.0, 0.0, 2_000, "", ALARM, 0.0)
    rare = loss.rarest(1.0)
    assert 0.03 < rare < 0.06
    assert 1.0 < least_violation(1.0, loss.delta, loss.held_out, loss.alarm) < 1.6
    rng = np.random.default_rng(2)
    found = sum(proved(events(rng, 4_000, rare, 0.0)) > 1.0 for _ in range(40))
    assert found >= 30  # of 40 at 95 %: fewer with a probability below 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTAINING)
def test_noise_for_four_times_the_promised_epsilon_is_contradicted(name: str) -> None:
    """An eighth of a quick audit's runs contradict a system with the noise of ε = 4, not 1."""
    assert judge(loud(name, 4.0), FEW).verdict is Verdict.CONTRADICTED


def test_only_parties_with_rows_take_turns_to_observe() -> None:
    """A full audit examines each party's view where all parties hold rows."""
    turned = {name: subject_of(name).turned for name in BUILT_IN}
    each = (("party-0",), ("party-1",), ("party-2",))
    for name in ("private-knn", "rank-search", "release", "noisy-votes"):
        assert turned.pop(name) == each
    assert all(len(observers) == 1 for observers in turned.values())
    search = find_system("rank-search")()
    pairs = AuditedSystem(search, search.example(parties=4)).turned
    assert pairs[1:4] == (("party-1", "party-2"), ("party-2", "party-3"), ("party-3", "party-0"))
    assert pairs[4:] == (("party-0", "party-2"), ("party-1", "party-3"))


def test_rank_search_is_audited_with_tied_rows() -> None:
    """In a second comparison rows tie; a quick audit says that it does not compare its views."""
    subject = subject_of("rank-search")
    for number, ties in enumerate([[False], [True]]):
        compared = subject.comparisons[number]
        for world in (compared.one, compared.other):
            setup: Any = subject.setup(world)
            assert setup.search(world.queries, [*world.parts.values()]).found.tied.tolist() == ties
    claim = judge(subject, number=1)
    assert (claim.claim, claim.verdict) == ("privacy, tied rows", Verdict.NOT_TESTED)
    assert "leave out --quick" in claim.finding


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_leaks_that_only_tied_rows_show_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes that come later the more rows tie are named, and so is an array without a mask.

    Long views are examined in part.
    """
    add, mask = roles._add_votes, masks.put_mask  # noqa: SLF001  (the step that only ties make differ)

    async def slow(sums: Any, votes: Any, found: Any, *others: Any) -> Any:
        await asyncio.sleep(float(votes.counts[found.tied].sum()))
        return await add(sums, votes, found, *others)

    monkeypatch.setattr(roles, "_add_votes", slow)
    monkeypatch.setattr(masks, "put_mask", lambda arrays, *given: mask(arrays[:1], *given))
    monkeypatch.setattr("veilring.testing.hiding._NAMED_MAX", COORDINATES_MAX)
    claim = judge(subject_of("rank-search"), LONG, number=1)
    assert claim.verdict is Verdict.CONTRADICTED
    assert claim.finding.endswith(": instant.")
    assert any("what the coalition can strip, words[1]" in line for line in claim.evidence)
    assert "further numbers of the view, it examines a random projection only" in claim.power


@pytest.mark.slow
def test_noise_below_the_plan_is_contradicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that adds no share of a release's noise contradicts the claim about its variance."""
    subject, effort = subject_of("release", epsilon=1.0), replace(QUICK, runs=300)
    _, noise = check_answers(subject, effort, 0)
    assert (noise.claim, noise.verdict) == ("noise", Verdict.HOLDS)
    right, calls = SumNoise.share, count(1)
    monkeypatch.setattr(
        SumNoise, "share", lambda self, rng: right(self, rng) * bool(next(calls) % 3)
    )
    _, noise = check_answers(subject, effort, 0)
    assert noise.verdict is Verdict.CONTRADICTED
    assert "has 0.6" in noise.finding


@pytest.mark.parametrize("name", ["release", "noisy-votes"])
def test_the_planned_noise_is_that_of_the_simulation(name: str) -> None:
    """Its mean square over 800 answers is 1, within 6 standard errors of it (2e-9)."""
    subject = subject_of(name)
    setup: Any = subject.setup()
    rng, queries = np.random.default_rng(1), subject.example.queries
    answer = setup.release if name == "release" else partial(setup.answer, queries)
    noises = [setup.noise(queries, answer(rng)) for _ in range(800)]
    squares = np.square([each.values for each in noises])
    error = np.sqrt(noises[0].kurtosis / squares.size)
    assert squares.mean() == pytest.approx(1, abs=6 * error)


@pytest.mark.slow
def test_a_full_audit_contradicts_private_prediction_with_less_noise() -> None:
    """The noisy votes that records pay for show the noise of ε = 4, which the labels hide.

    The views that the system draws show it: few runs over messages are enough.
    """
    effort = replace(FULL, runs=FEW.runs, drawn=FULL.drawn // SHARE)
    claim = judge(loud("ind-knn", 4.0), effort)
    assert claim.verdict is Verdict.CONTRADICTED
    assert claim.finding.startswith("In the noisy counts and votes behind the labels, the audit")


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTAINING)
def test_an_audit_proves_half_of_the_promised_epsilon(name: str) -> None:
    """A third of the default effort's views prove at least 0.5 of ε = 1, and at most 1."""
    subject, rng = loud(name), np.random.default_rng(3)
    comparison, *_ = subject.system.comparisons(subject.example)
    views = list[Any]()
    for world in (comparison.one, comparison.other):
        setup: Any = subject.setup(world)
        views.append(setup.observe(world.queries, FULL.drawn // SHARE // 2, rng))
    assert 0.5 <= proved(views, comparison.delta) <= 1.0


def comparing(kind: type[System], *compared: Comparison) -> System:
    """Return a system that makes only the given comparisons."""
    made = {"comparisons": lambda _system, _example: compared}
    system: System = type(f"Comparing{kind.__name__}", (kind,), made)()
    return system


@pytest.mark.slow
def test_a_comparison_cannot_allow_more_than_the_promise() -> None:
    """A system that promises ε = 1 is tested at 1, even if its comparison allows any loss."""
    owner = DataOwner()
    (exact,) = owner.comparisons(owner.example())
    system = comparing(QuietOwner, replace(exact, epsilon=inf))
    assert judge(AuditedSystem(system, system.example()), FEW).verdict is Verdict.CONTRADICTED


def test_equal_worlds_are_refused() -> None:
    """A comparison of a world with itself shows nothing, and is refused."""
    example = Majority().example()
    system = comparing(Majority, Comparison("nothing", example, example, 0.0))
    with pytest.raises(InputError, match="two worlds of a comparison are equal"):
        judge(AuditedSystem(system, example))


@pytest.mark.slow
def test_a_system_without_comparisons_is_not_tested() -> None:
    """Its privacy claim is reported as not tested."""
    assert audit(comparing(Majority), quick=True)["privacy"].verdict is Verdict.NOT_TESTED


def test_a_liar_that_accuses_another_party_is_a_suspect() -> None:
    """If a malicious client of a tree walk accuses the server, the error names both."""
    (claim,) = check_liars(subject_of("tree-walk"), QUICK, 0)
    assert "named suspects: 1" in claim.finding
    assert "honest party named" not in claim.finding
