"""An audit: all claims of a system or a role, each with a verdict.

Single runs can contradict claims about cost, labels, reproducibility and accounting; explored
worlds and lies contradict those about faults and malicious parties. `views` judges the others.
"""

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.errors import InputError, InternalError, MissingExtra, RunFailed, VeilringError
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Cost
from veilring.nodes.party import Party
from veilring.nodes.run import Run, describe_failure
from veilring.privacy.bounds import ALARM
from veilring.protocols.claims import EXAMPLE_PARTIES, Argument
from veilring.protocols.promise import Forecast, describe_cost
from veilring.protocols.registry import find_system
from veilring.protocols.system import PlannedNoise, Play, Setup, System
from veilring.randomness import Streams
from veilring.scenarios.schema import load_scenario
from veilring.testing.auditing.findings import (
    FULL,
    QUICK,
    Audit,
    AuditedSystem,
    Claim,
    Effort,
    Given,
    RoleClaims,
    Verdict,
    sample,
)
from veilring.testing.auditing.views import (
    check_comparison,
    check_hidden,
    refuse_worlds,
    require_different,
)
from veilring.testing.exploring import (
    Campaign,
    Subject,
    SystemSubject,
    explore_every_world,
    explore_seed,
    explore_subject,
)
from veilring.testing.exploring.subjects import to_toml
from veilring.testing.exploring.worlds import simulate_explored
from veilring.testing.hiding import judge
from veilring.testing.hiding.attackers import POWER, least_advantage
from veilring.testing.hiding.leaves import Coordinate
from veilring.testing.hiding.worlds import Role, play_world
from veilring.testing.lies import Lies, audit_subject, audit_system
from veilring.testing.lies import Verdict as Outcome

__all__ = ("Audit", "Claim", "RoleClaims", "Verdict", "audit")

_QUERIES: Final = (1, 3)
_MORE_PARTIES: Final = 2
_ROUNDING: Final = 1e-9
"""The relative error of floating-point accounts."""
_SURE: Final = 1.65
"""The standard errors that 95 % of deviations of one sign stay below."""
_REFUSED: Final = "the budget is exhausted"


@dataclass(frozen=True, slots=True)
class _Played:
    """A batch that was played without faults."""

    parties: int
    queries: Floats
    setup: Setup
    play: Play
    run: Run[Any]
    rows: str = ""
    """How the rows are spread, if not evenly."""

    @property
    def labels(self) -> dict[str, Ints]:
        """The labels of each party that learns them."""
        results = self.run.results
        return {name: self.play.labels(results[name]) for name in self.play.learners}

    @property
    def shape(self) -> str:
        """The size of the run in words."""
        queries = len(self.queries)
        asked = f"{queries} {'query' if queries == 1 else 'queries'}"
        return f"{self.parties} parties, {asked}{self.rows}"


def check_runs(subject: AuditedSystem, _effort: Effort, seed: int) -> list[Claim]:
    """Play batches of several sizes: the cost, the labels, and the transcript of each."""
    runs = [*_play_sizes(subject, seed)]
    again = [each.run for each in _play_sizes(subject, seed)]
    claims = [_judge_cost(subject, runs)]
    if runs[0].setup.is_exact:
        claims.append(_judge_exact_labels(runs))
    return [*claims, _judge_reproducible([each.run for each in runs], again)]


def check_answers(subject: AuditedSystem, effort: Effort, seed: int) -> list[Claim]:
    """Compare the labels and the noise of runs over messages with the simulation and the plan."""
    if subject.setup().is_exact:
        return []
    streams, runs = Streams(seed), effort.runs // 2
    setup, queries = subject.setup(), subject.example.queries
    play = setup.play(queries)
    world = replace(subject.world(subject.example), role=_with_given(setup.role))
    client = play.learners[0]
    answers = [each.results[client] for each in play_world(world, runs, streams, "law")]
    rng = streams.generator("simulated labels")
    simulated = [subject.setup().label(queries, rng) for _ in range(runs)]  # one answers once
    columns = np.array([*map(play.labels, answers), *simulated], np.float32)
    names = [Coordinate(f"query {n + 1}", "", "label") for n in range(columns.shape[1])]
    second = np.arange(2 * runs) >= runs
    found = judge(columns, second, names, effort.alarm, streams.generator("judge"))
    means = [columns[second == side].mean(axis=0).round(3).tolist() for side in (False, True)]
    labels = Claim(
        "labels",
        "Labels have the same distribution as in the simulation, which runs the parties' steps"
        " in one process.",
        Verdict.CONTRADICTED if found.differs else Verdict.HOLDS,
        f"The labels of {runs:,} runs over messages "
        + ("have another distribution than" if found.differs else "are consistent with")
        + f" those of {runs:,} simulated runs.",
        "With a probability of 95%, the audit would find a label whose probability differs by"
        f" {least_advantage(runs, effort.alarm / 2):.2f} or more.",
        (
            f"mean class number of each query, over messages: {means[0]}",
            f"mean class number of each query, simulated: {means[1]}",
            *map(str, found.differences),
        ),
    )
    noises = [setup.noise(queries, answer) for answer in answers]
    drawn = [each for each in noises if each is not None]
    return [labels, _judge_noise(drawn, effort.alarm)] if drawn else [labels]


def _judge_noise(drawn: Sequence[PlannedNoise], alarm: float) -> Claim:
    """Test that the mean square of noise is not below the plan.

    With the kurtosis K, the mean of n independent squares is below 1 - t with a probability of at
    most `exp(-n t**2 / (2 K))`. Source: Maurer, "A bound on the deviation probability for sums of
    non-negative random variables", 2003.
    """
    squares = np.square(np.concatenate([each.values for each in drawn]))
    least = 1 - math.sqrt(2 * drawn[0].kurtosis * math.log(1 / alarm) / squares.size)
    mean, error = float(squares.mean()), float(squares.std()) / math.sqrt(squares.size)
    return Claim(
        "noise",
        "The noise of all parties together has at least the variance that the account assumes.",
        Verdict.CONTRADICTED if mean < least else Verdict.HOLDS,
        f"The noise in {squares.size:,} numbers of answers over messages has {mean:.3f} times the"
        " planned variance.",
        f"With a probability of 95%, the audit would find a variance of {least - _SURE * error:.2f}"
        " times the planned one or less. It may miss noise with other tails, for example noise that"
        " is cut off far from its centre.",
        (f"contradicted below {least:.3f}, false-alarm rate {alarm:.1e}",),
    )


def _with_given(role: Callable[..., Awaitable[Any]]) -> Role:
    async def play(party: Party, own: Given, **public: Any) -> object:
        return await role(party, own.own, **public, **own.only)

    return play


def check_accounts(subject: AuditedSystem, _effort: Effort, seed: int) -> list[Claim]:
    """Compare the privacy loss of batches with the promise, and exhaust a budget."""
    promise = subject.promise
    if promise.epsilon is None:
        return []
    setup = subject.setup()
    once, twice = setup.spent(1), setup.spent(2)
    beyond = once.epsilon is None or once.epsilon > promise.epsilon * (1 + _ROUNDING)
    beyond |= once.delta > promise.delta * (1 + _ROUNDING)
    shrinks = not beyond and (twice.epsilon or 0.0) < (once.epsilon or 0.0)
    wrong = {
        f"One unit spends {once}": beyond,
        "Two batches spend less than one batch": shrinks,
        f"The unit of the account is the {once.unit}": once.unit != promise.unit.split()[-1],
    }
    said = [f"{sentence}." for sentence, is_wrong in wrong.items() if is_wrong]
    unit = Claim(
        "unit",
        f"The guarantee is {promise.guarantee}.",
        Verdict.CONTRADICTED if said else Verdict.HOLDS,
        " ".join(said) or f"One batch spends {once}; two batches spend {twice}.",
        "The audit would find any excess in the account of one or two batches. The privacy"
        " claim tests the noise.",
        (f"one batch: {once}", f"two batches: {twice}"),
    )
    return [unit, *_check_budget(subject, seed)]


def check_role(subject: RoleClaims, _effort: Effort, seed: int) -> list[Claim]:
    """Run a role without faults, twice with one seed, and once with its other inputs."""
    one, again = (_simulate(subject.inputs, subject.role, seed, **subject.public) for _ in range(2))
    runs = [(subject.inputs, one)]
    if subject.other_inputs is not None:
        other = _simulate(subject.other_inputs, subject.role, seed, **subject.public)
        runs.append((subject.other_inputs, other))
    same = len(runs) > 1 and one.transcript == runs[1][1].transcript
    return [
        _judge_result(subject, runs),
        _judge_rounds(one.cost),
        _judge_reproducible([one], [again]),
        *([_SAME_BYTES] if same else []),
    ]


def _judge_result(
    subject: RoleClaims, runs: Sequence[tuple[Mapping[str, object], Run[Any]]]
) -> Claim:
    verdict, finding = Verdict.HOLDS, "The results satisfy the invariant."
    if subject.invariant is None:
        verdict = Verdict.NOT_TESTED
        finding = "There is no invariant: the audit only compares results with those of this run."
    else:
        try:
            for inputs, run in runs:
                subject.invariant(inputs, run.results)
        except AssertionError as error:
            verdict = Verdict.CONTRADICTED
            finding = str(error) or "The result violates the invariant."
    cost = runs[0][1].cost
    return Claim(
        "result",
        "A run without faults has a correct result.",
        verdict,
        finding,
        "The audit would find any result that violates the invariant, for these inputs only.",
        (f"cost: {describe_cost((cost.rounds, cost.messages, cost.bytes))}",),
    )


def _judge_rounds(cost: Cost) -> Claim:
    promised = "A run takes the rounds that its role declares."
    if cost.is_concurrent:
        why = (
            f"The role declares {_rounds(cost.rounds)}. Several of its tasks send messages, and"
            " their order does not show which message depends on which. To see the rounds, let it"
            " send from one task, or time it on simulated links of equal latency."
        )
        return Claim("rounds", promised, Verdict.NOT_TESTED, why)
    differ = cost.rounds_differ
    setup = f" The set-up takes {_rounds(cost.setup_depth)} more." if cost.setup_depth else ""
    return Claim(
        "rounds",
        promised,
        Verdict.CONTRADICTED if differ else Verdict.HOLDS,
        f"{differ}." if differ else f"A run takes {_rounds(cost.depth)}, as declared.{setup}",
        "The audit would find a single round, for these inputs.",
    )


def _rounds(number: int) -> str:
    return f"{number:,} round{'s' * (number != 1)}"


_SAME_BYTES: Final = Claim(
    "inputs",
    "Messages depend on the inputs that differ between the two worlds.",
    Verdict.NOT_TESTED,
    "With the same seed, runs with either inputs sent exactly the same bytes, so that no view can"
    " show a difference. If that is not intended, the role ignores its inputs, or keeps those of an"
    " earlier run.",
)


def _play_sizes(subject: AuditedSystem, seed: int) -> Iterator[_Played]:
    uneven = _play(AuditedSystem(subject.system, subject.example.uneven()), seed)
    yield replace(uneven, rows=", with ties, an empty party and one with a single row")
    least = len(subject.example.parts)
    for parties in range(least, least + _MORE_PARTIES):
        for queries in _QUERIES:
            example = subject.system.example(parties=parties)
            more = np.resize(example.queries, (queries, example.queries.shape[1]))
            more += np.linspace(0.0, -0.5, queries)[:, None]
            yield _play(AuditedSystem(subject.system, example.asking(more)), seed)


def _play(subject: AuditedSystem, seed: int) -> _Played:
    setup, example = subject.setup(), subject.example
    play = setup.play(example.queries)
    run = _simulate(
        dict(zip(setup.parties, setup.resident, strict=True)),
        setup.role,
        seed,
        only=play.only,
        watch=play.watch,
        **play.public,
    )
    return _Played(len(example.parts), example.queries, setup, play, run)


def _simulate(own: Mapping[str, object], role: Role, seed: int, **options: Any) -> Run[Any]:
    """Run a role once, on the simulated clock, among parties with their inputs."""

    async def main() -> Run[Any]:
        parties, inputs = tuple(own), tuple(own.values())
        async with Cluster(parties, runtime="simulated", own=inputs, seed=seed) as cluster:
            return await cluster.run(role, **options)

    return simulate_explored(main())


def _judge_cost(subject: AuditedSystem, runs: Sequence[_Played]) -> Claim:
    wrong, lines = list[str](), list[str]()
    for played in runs:
        cost, due = played.run.cost, played.play.forecast(played.run)
        measured = Forecast.measured(cost)
        if differ := cost.rounds_differ:
            wrong.append(f"{played.shape}: {differ}.")
        lines.append(f"{played.shape}: {_said(measured)}")
        if _numbers(measured) != _numbers(due):
            wrong.append(
                f"{played.shape}: the closed form predicts {_said(due)}; the run took"
                f" {_said(measured)}."
            )
        before = subject.system.forecast_for(played.setup.facts, len(played.queries))
        range_ = (_numbers(before), _numbers(measured), _numbers(before.most or before))
        if not all(low <= number <= high for low, number, high in zip(*range_, strict=True)):
            wrong.append(
                f"{played.shape}: the forecast is {_said(before)}; the run took {_said(measured)}."
            )
    return Claim(
        "cost",
        "A run takes exactly the forecast number of rounds, messages and bytes.",
        Verdict.CONTRADICTED if wrong else Verdict.HOLDS,
        " ".join(wrong[:1]) or f"The cost of all {len(runs)} runs equals the forecast.",
        "The audit would find a difference of a single round, message or byte.",
        tuple(lines),
    )


def _said(cost: Forecast) -> str:
    setup = cost.setup
    return f"{cost}, of which the set-up took {setup.messages:,} messages and {setup.bytes:,} bytes"


def _numbers(cost: Forecast) -> tuple[int, ...]:
    return cost.rounds, *cost.traffic, *cost.setup


def _judge_exact_labels(runs: Sequence[_Played]) -> Claim:
    wrong = [
        f"{played.shape}: {sentence}."
        for played in runs
        for sentence in played.setup.find_wrong(played.queries, played.labels, played.setup.parties)
    ]
    labels = sum(len(played.queries) for played in runs)
    return Claim(
        "labels",
        "All labels equal those of the pooled classifier, which has all rows in one place.",
        Verdict.CONTRADICTED if wrong else Verdict.HOLDS,
        " ".join(wrong[:2])
        or f"All {labels} labels of {len(runs)} runs equal those of the pooled classifier.",
        "The audit would find a single wrong label in these runs.",
    )


def _judge_reproducible(runs: Sequence[Run[Any]], again: Sequence[Run[Any]]) -> Claim:
    equal = all(
        one.transcript == two.transcript and one.cost == two.cost
        for one, two in zip(runs, again, strict=True)
    )
    return Claim(
        "reproducible",
        "Runs with the same seed have the same transcript.",
        Verdict.HOLDS if equal else Verdict.CONTRADICTED,
        "Each run was repeated with the same seed, and "
        + ("sent exactly the same bytes." if equal else "sent different bytes."),
        "The audit would find a difference of a single byte on any channel.",
        tuple(f"transcript {each.transcript}" for each in runs),
    )


def _check_budget(subject: AuditedSystem, seed: int) -> list[Claim]:
    """Have each party count its charges, and then one party refuse."""
    promised = (
        f"Each party is charged once for each {subject.promise.unit}, and a run is refused if a"
        " budget is exhausted."
    )
    try:
        member = subject.system.membership(subject.facts)
    except InputError as error:
        why = f"These parameters cannot be deployed, so no ledger is charged: {error}."
        return [Claim("budget", promised, Verdict.NOT_TESTED, why)]
    if member is None or "charge" not in inspect.signature(member.role).parameters:
        unknown = Argument(promised, "The role takes no charge that an audit could count.")
        argued = subject.system.arguments.get("budget", unknown)
        return [Claim("budget", argued.promised, Verdict.BY_ARGUMENT, argued.reason)]
    own = {name: member.keep(rows) for name, rows in subject.example.parts.items()}
    client, *_, last = own

    def run(charges: Mapping[str, Callable[[object], None]]) -> Run[Any]:
        only: dict[str, dict[str, object]] = {name: {"charge": charges[name]} for name in own}
        if member.once is None:
            only[client]["queries"] = subject.example.queries
        return _simulate(own, member.role, seed, only=only, client=client, **member.public)

    paid: dict[str, list[object]] = {name: [] for name in own}
    run({name: charges.append for name, charges in paid.items()})
    often = {name: len(times) for name, times in paid.items()}
    refused = ""
    try:
        run({name: _refuse if name == last else _accept for name in own})
    except RunFailed as error:
        refused = describe_failure(error)
    holds = set(often.values()) == {1} and bool(refused)
    times = ", ".join(
        f"{name} {'once' if count == 1 else f'{count} times'}" for name, count in often.items()
    )
    return [
        Claim(
            "budget",
            promised,
            Verdict.HOLDS if holds else Verdict.CONTRADICTED,
            "Each party was charged once, and the run failed when one party refused to pay."
            if holds
            else f"Charges: {times}. The run "
            + ("failed" if refused else "had a result")
            + " although one party refused to pay." * (not refused)
            + " when one party refused to pay." * bool(refused),
            "The audit would find a missing or repeated charge, and a result without a charge.",
            (f"charges: {times}", f"if one party refuses: {refused or 'the run has a result'}"),
        )
    ]


def _accept(_price: object) -> None:
    """Pay any price."""


def _refuse(_price: object) -> None:
    raise InputError.because(_REFUSED, field="epsilon")


_PROMISED: Final = (
    "No fault leads to a wrong result or an endless run: each failure is a named error."
)
_AGREED: Final = (
    "No fault leads to labels that are invalid or on which parties disagree, or to an endless run:"
    " each failure is a named error."
)
_UNKNOWN: Final = (
    "Noise or other draws decide the labels, so the audit knows none that is right: it checked that"
    " they are valid and that parties agree. To test more, override `Setup.find_wrong`."
)
_SEEN: Final = "invalid label, disagreement of parties, endless run or error without a name"
"""Everything that a run shows if the audit knows no right label."""
_NOT_REACHED: Final = (
    " All runs have the same inputs, so that the audit may miss state that a party keeps from one"
    " run to the next."
)
_UNNOTICED: Final = (Outcome.UNNOTICED, Outcome.HANG, Outcome.MISNAMED)
_SMALL: Final = ("data.source=iris", "parties.count=4", "data.queries=2")
_SMALLEST: Final = ("data.source=iris", "parties.count=3", "data.queries=1")


def check_faults(subject: AuditedSystem | RoleClaims, effort: Effort, seed: int) -> list[Claim]:
    """Explore worlds with faults until each class of fault has had an effect."""
    explored = _subject(subject, _SMALL)
    campaign = explore_subject(explored, range(seed, seed + effort.worlds))
    for more in range(seed + effort.worlds, seed + effort.worlds_max):
        if campaign.is_endless or not campaign.missing:
            break
        campaign.add(explore_seed(explored, more))
    promised = _PROMISED if explored.knows_results else _AGREED
    claims = [_judge_faults("faults", promised, campaign)]
    if effort.every_message:
        every = explore_every_world(_subject(subject, _SMALLEST), seed=seed)
        of_each = f"{promised} This holds for each message of a run."
        claims.append(_judge_faults("every message", of_each, every, single=True))
    if not explored.knows_results:
        claims.append(Claim("wrong results", _PROMISED, Verdict.NOT_TESTED, _UNKNOWN))
    return claims


def check_liars(subject: AuditedSystem | RoleClaims, _effort: Effort, seed: int) -> list[Claim]:
    """Have each party manipulate each of its messages in each generic way."""
    played = _subject(subject, _SMALLEST)
    try:
        if isinstance(played, SystemSubject):
            lies = audit_system(played, seed=seed)
        else:
            lies = audit_subject(played, adversaries={}, seed=seed)
    except InputError as error:
        return [Claim("malicious parties", "", Verdict.CONTRADICTED, str(error))]
    return [_judge_liars(subject, lies)]


def _subject(subject: AuditedSystem | RoleClaims, settings: tuple[str, ...]) -> Subject:
    if isinstance(subject, RoleClaims):
        return subject.explored
    return SystemSubject.of(subject.system, load_scenario("faults", settings))


def _judge_faults(name: str, promised: str, campaign: Campaign, *, single: bool = False) -> Claim:
    runs = campaign.succeeded + campaign.failed
    wrong = ""
    if campaign.failures:
        seed, said = next(iter(campaign.failures.items()))
        wrong = (
            f"{len(campaign.failures)} of {campaign.seeds} worlds failed. In the world of seed"
            f" {seed}: {'; '.join(said)}."
        )
    elif not campaign.succeeded:
        wrong = f"None of {runs} runs has a result."
    if not wrong and not campaign.struck.total():
        none = f"No fault had an effect on any of {runs} runs in {campaign.seeds:,} worlds."
        return Claim(name, promised, Verdict.NOT_TESTED, none)
    absent = ", ".join(campaign.missing)
    known = campaign.subject is None or campaign.subject.knows_results
    result = "a correct result" if known else "labels that are valid and agree"
    missing = f" No fault of these classes had an effect: {absent}." if absent else ""
    return Claim(
        name,
        promised,
        Verdict.CONTRADICTED if wrong else Verdict.HOLDS,
        wrong
        or f"In {campaign.seeds:,} worlds, {campaign.succeeded:,} runs had {result} and"
        f" {campaign.failed:,} failed with a named error.{missing}",
        _power_of(campaign.seeds, "mistake" if known else _SEEN, single=single),
        (
            f"faults that had an effect: {dict(campaign.struck)}",
            f"situations reached: {dict(campaign.reached)}",
        ),
        dict(_smallest(name, campaign)) if campaign.failures else {},
    )


def _power_of(worlds: int, what: str, *, single: bool) -> str:
    """State which mistakes an audit finds: in how many worlds, or with a fault at one message."""
    if single:
        return f"The audit would find any {what} that a single fault at one message causes."
    return (
        f"With a probability of {POWER:.0%}, the audit would find any {what} that occurs in"
        f" {1 - (1 - POWER) ** (1 / worlds):.1%} or more of all such worlds.{_NOT_REACHED}"
    )


def _smallest(name: str, campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield the scenario of the smallest world that fails, if `veilring run` can play it."""
    smallest = campaign.smallest()
    if smallest is None or not isinstance(smallest.subject, SystemSubject):
        return
    system = smallest.subject.scenario.protocol
    try:
        is_known = find_system(system.name) is type(system)
    except VeilringError:
        return
    if is_known:
        yield f"{name.replace(' ', '-')}.toml", to_toml(smallest.subject, smallest.world)


def _judge_liars(subject: AuditedSystem | RoleClaims, lies: Lies) -> Claim:
    if isinstance(subject, RoleClaims):
        claimed, assumed = subject.notices_liars, ""
    else:
        claimed = subject.system.notices_liars
        assumed = f"Threat model: {subject.promise.threat_model}."
    counts = {verdict: lies.count(verdict) for verdict in Outcome if lies.count(verdict)}
    table = "; ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    bad = lies.of(*_UNNOTICED)
    if claimed:
        verdict = Verdict.CONTRADICTED if len(bad) else Verdict.HOLDS
        promised = f"{assumed} A malicious party cannot change a result unnoticed.".strip()
        finding = (
            f"{len(bad)} of {len(lies)} manipulations changed a result unnoticed, ended in an"
            " unexplained timeout, or led to blame of an honest party."
        )
        if not len(lies):
            return Claim("malicious parties", promised, Verdict.NOT_TESTED, "No message was sent.")
    else:
        verdict = Verdict.NOT_CLAIMED
        promised = f"{assumed} It does not cover results of runs with a malicious party.".strip()
        finding = f"Outcomes of {len(lies)} generic manipulations by one party: {table}."
    return Claim(
        "malicious parties",
        promised,
        verdict,
        finding,
        "The audit tries each generic manipulation of each message, by one party at a time."
        if claimed
        else "",
        (*str(lies).splitlines(), *map(str, bad.rows[:5])),
    )


Check = Callable[[], list[Claim]]
Auditable = System | type[System] | RoleClaims

_LABEL_TESTS: Final = 1
_CHECKED: Final = {"hidden": "privacy", "comparison": "privacy"}
"""The claims of checks that have another name."""


def audit(
    subject: Auditable,
    *,
    quick: bool = False,
    parties: int = EXAMPLE_PARTIES,
    coalitions: Sequence[Sequence[str]] = (),
    seed: int = 0,
    workers: int | None = 1,
    progress: Callable[[str, int, int], object] | None = None,
) -> Audit:
    """Run all audits of a system or of a role, and return a verdict for each of its claims.

    A true claim is contradicted with a probability of at most 1e-6 for the whole audit. Run it
    once: do not repeat an audit with other seeds until it passes.

    Args:
        subject: A system, a class of systems with its defaults, or a role with its claims.
        quick: Whether to run a shorter audit: about 20 s on two idle cores.
        parties: The number of parties that hold rows, for a system.
        coalitions: The parties whose pooled views are examined, for a system. By default these are
            its observers; a full audit also examines parties in all other places.
        seed: The seed of all runs.
        workers: The number of processes that share the checks; 1 is this process, and None is one
            per core.
        progress: Called with the task, the number of finished checks and the number of checks.

    Returns:
        The verdicts.

    Raises:
        InputError: If the system refuses its example, a coalition may distinguish the worlds, or
            the promise says nothing of a coalition. Later errors leave one claim untested.
    """
    began = time.perf_counter()
    effort = QUICK if quick else FULL
    if isinstance(subject, RoleClaims):
        if coalitions:
            raise InputError.because(
                "a role has one coalition; name it in `RoleClaims`", field="coalition"
            )
        named: Any = subject
        name, title = subject.name, subject.title or subject.name
        parameters: dict[str, Any] = {}
        checks: list[Check]
        checks = _checks_of_role(subject, effort, seed)
    else:
        system = subject() if isinstance(subject, type) else subject
        named = AuditedSystem(system, system.example(parties=parties))
        name, title = system.name, system.title
        parameters = system.model_dump(mode="json")
        checks = _checks_of_system(named, effort, seed, coalitions)
    claims = _run(checks, workers, progress)
    if isinstance(named, AuditedSystem):
        claims += _stated(named)
    seconds = time.perf_counter() - began
    return Audit(name, title, parameters, seed, quick, ALARM, tuple(claims), seconds)


def _checks_of_role(subject: RoleClaims, effort: Effort, seed: int) -> list[Check]:
    refuse_worlds(subject)
    examined = sample(subject.coalitions, effort.coalitions) or [()]
    # The coalitions share the false alarms.
    shared = replace(effort, alarm=effort.alarm / len(examined))
    return [
        partial(check_role, subject, effort, seed),
        *(partial(check_hidden, subject, shared, seed, coalition=each) for each in examined),
        partial(check_faults, subject, effort, seed),
        partial(check_liars, subject, effort, seed),
    ]


def _checks_of_system(
    subject: AuditedSystem, effort: Effort, seed: int, coalitions: Sequence[Sequence[str]]
) -> list[Check]:
    compared = subject.comparisons
    nothing = [] if compared else [partial(_without_comparisons, subject)]
    examined = coalitions or subject.turned[: None if effort.other_views else 1]
    seen = [subject.seen_by(each) for each in examined]
    for each in seen:
        for comparison in each.comparisons:
            require_different(comparison, each.observers)
    views = [
        (each, number)
        for number, comparison in enumerate(compared)
        for each in (seen[:1] if comparison.long else seen)
    ]
    # The statistical tests share the false alarms.
    shared = replace(effort, alarm=effort.alarm / (len(views) + _LABEL_TESTS))
    given = (subject, shared, seed)
    return [
        partial(check_runs, *given),
        partial(check_answers, *given),
        *(partial(check_comparison, each, shared, seed, number=number) for each, number in views),
        *nothing,
        partial(check_accounts, *given),
        partial(check_faults, *given),
        partial(check_liars, *given),
    ]


def _without_comparisons(subject: AuditedSystem) -> list[Claim]:
    promise = subject.promise
    return [
        Claim(
            "privacy",
            f"Protects {promise.protects} from {promise.against}.",
            Verdict.NOT_TESTED,
            f"`{type(subject.system).__name__}.comparisons` returns no pair of worlds to compare.",
        )
    ]


def _run(
    checks: Sequence[Check], workers: int | None, progress: Callable[[str, int, int], object] | None
) -> list[Claim]:
    found: Iterable[list[Claim]] = map(_checked, checks)
    if workers != 1:
        from veilring.scenarios.sweep import engine  # noqa: PLC0415  (for many workers only)

        found = engine.in_order(_checked, checks, workers)
    claims = list[Claim]()
    tell = progress or (lambda *_: None)
    tell("Auditing", 0, len(checks))
    for done, each in enumerate(found, 1):
        claims += each
        tell("Auditing", done, len(checks))
    return claims


def _checked(check: Check) -> list[Claim]:
    """Run a check; if a run that it needs fails, contradict the claim that the system works.

    A check that cannot be made leaves its claim untested, and the others are still made.
    """
    name = check.func.__name__.removeprefix("check_") if isinstance(check, partial) else ""
    name = _CHECKED.get(name, name)
    try:
        return check()
    except (InputError, InternalError, MissingExtra) as error:
        promised = "The audit can test this claim."
        why = f"The audit could not make this check: {error}"
        return [Claim(name, promised, Verdict.NOT_TESTED, why)]
    except (VeilringError, AssertionError) as error:
        return [
            Claim(
                name,
                "A run without faults succeeds.",
                Verdict.CONTRADICTED,
                f"A run failed: {type(error).__name__}: {error}",
            )
        ]


def _stated(subject: AuditedSystem) -> list[Claim]:
    """Return the claims that no run tests: by argument, and the limits that the promise states."""
    claims = [
        Claim(name, argued.promised, Verdict.BY_ARGUMENT, argued.reason)
        for name, argued in subject.system.arguments.items()
        if name != "budget"
    ]
    if subject.promise.note:
        claims.append(
            Claim(
                "limits",
                subject.promise.note,
                Verdict.NOT_CLAIMED,
                "The promise states what it does not cover, so no run can contradict this.",
            )
        )
    return claims
