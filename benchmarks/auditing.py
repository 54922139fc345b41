"""Audits that measure which planted mistakes are found, without knowing any of them.

Each returns the number of worlds, runs, lies or checks it took and the first violation, or nothing
if all of them passed.
"""

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from benchmarks.hiding import PARTIES, SUBJECTS, VOTES, Subject
from veilring import System, simulation
from veilring.errors import BudgetExhausted, InputError, UnforeseenCost, VeilringError
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Parties, Party
from veilring.nodes.ring import draw_ring
from veilring.nodes.runtimes import Simulated
from veilring.privacy.bounds import ALARM
from veilring.privacy.budgets import Budgets, Charge, RecordCharge
from veilring.privacy.divisible import polya_difference_pmf
from veilring.privacy.ledger import open_ledger
from veilring.protocols.masks import MaskedSums, agree_keys, masked_sum
from veilring.protocols.promise import Forecast
from veilring.randomness import Streams
from veilring.reached import marks_in
from veilring.scenarios import load_scenario
from veilring.scenarios.runner import Conditions, play_queries
from veilring.testing.auditing import Claim
from veilring.testing.auditing import Verdict as Judged
from veilring.testing.auditing.findings import QUICK, AuditedSystem
from veilring.testing.exploring import Campaign, SystemSubject, explore_seed, subjects
from veilring.testing.exploring import Subject as ExploredSubject
from veilring.testing.exploring.stores import STORAGE_FAULTS, STORES, StorageFault, explore_store
from veilring.testing.hiding.worlds import World, play_world
from veilring.testing.lies import Lies, Verdict, audit_lies

SEEDS: Final = 100
"""Worlds after which a mistake counts as not found."""
_BARREN: Final = 3
"""The number of worlds within which a correct protocol has to finish in some run."""
_HIDING_RUNS: Final = 2_000
_NOISE_RUNS: Final = 2_000
_EFFORT: Final = replace(QUICK, runs=3_200, long_views=True)
"""Long views get a quarter of the runs, and a test of views needs 800."""
_NOISE_REACH: Final = 40
"""More noise than this is drawn in one run of 10^17."""

Audit = Callable[[], tuple[int, str] | None]
"""Returns how many worlds it took and what was wrong, or nothing."""


def explored(*settings: str) -> Audit:
    """Return the audit that explores the worlds of a system."""
    return explored_subject(lambda: subject_of(*settings))


def explored_subject(make: Callable[[], ExploredSubject]) -> Audit:
    """Return the audit that explores the worlds of a subject."""

    def audit() -> tuple[int, str] | None:
        subject = make()
        campaign = Campaign(marks=subject.marks & marks_in([subjects]))
        for seed in range(SEEDS):
            campaign.add(explore_seed(subject, seed))
            if campaign.failures:
                return seed + 1, campaign.failures[seed][0]
            if not campaign.succeeded and seed >= _BARREN:
                return seed + 1, "no run has a result"
        if campaign.unreached:
            return SEEDS, f"no world reached: {'; '.join(campaign.unreached)}"
        return None

    return audit


@cache
def subject_of(*settings: str) -> SystemSubject:
    """Return a system as it is explored: five parties on wine."""
    return SystemSubject(load_scenario("faults", settings))


def stored(name: str, kinds: tuple[StorageFault, ...] = STORAGE_FAULTS) -> Audit:
    """Return the audit that explores a store, one class of fault after the other."""

    def audit() -> tuple[int, str] | None:
        (subject,) = (each for each in STORES if each.name == name)
        for seed in range(SEEDS):
            kind = kinds[seed % len(kinds)]
            try:
                wrong = explore_store(subject, seed, kind=kind).wrong
            except VeilringError as error:
                wrong = [f"{kind}: {error}"]
            if wrong:
                return seed + 1, wrong[0]
        return None

    return audit


def lied(make: Callable[[], Lies]) -> Audit:
    """Return the audit of lies: none may go unnoticed or lead to blame of an honest party."""

    def audit() -> tuple[int, str] | None:
        try:
            lies = make()
        except VeilringError as error:
            return 1, str(error)
        found = lies.of(Verdict.UNNOTICED, Verdict.MISNAMED, Verdict.UNNAMED).rows
        return (lies.rows.index(found[0]) + 1, str(found[0])) if found else None

    return audit


def ring_lies() -> Lies:
    """Audit the draw of a ring."""
    return audit_lies(_ring, [None] * 3)


async def _ring(party: Party, _own: None) -> tuple[str, ...]:
    return tuple((await draw_ring(party)).order)


def digests_are_compared() -> tuple[int, str] | None:
    """Audit a masked sum: a party with a different digest must be named or suspected."""
    lies = audit_lies(_sum, [np.array([own], np.uint32) for own in (3, 1, 4)])
    named = {Verdict.CULPRIT, Verdict.SUSPECTS}
    for place, lie in enumerate(lies.rows, start=1):
        if lie.adversary == "alter digest" and lie.verdict not in named:
            return place, str(lie)
    return None


async def _sum(party: Party, own: Any) -> list[int]:
    total: list[int] = (await masked_sum(party, own)).tolist()
    return total


def hidden(subject: Subject) -> Audit:
    """Return the audit of a view: it must not reveal which of two parties has which input."""

    def audit() -> tuple[int, str] | None:
        try:
            subject.audit(_HIDING_RUNS)
        except AssertionError as error:
            return _HIDING_RUNS, str(error).splitlines()[3]
        except VeilringError as error:
            return 1, str(error)
        return None

    return audit


async def _two_sums(party: Party, own: Any) -> list[int]:
    sums = MaskedSums(party, await agree_keys(party))
    totals = [(await sums.add((words,)))[0].tolist() for words in np.split(own, 2)]
    return [entry for total in totals for entry in total]


def _total(inputs: Mapping[str, Any]) -> object:
    return sum(inputs.values())


TWO_SUMS: Final = Subject(
    _two_sums,
    [np.array(own, np.uint64) for own in ([5, 9, 1, 1], [1, 4, 7, 0], [3, 2, 2, 5])],
    _total,
)
"""Two masked sums in one session."""


def noise_is_planned() -> tuple[int, str] | None:
    """Audit the noise in totals of votes: it must have the distribution that the promise assumes.

    The distance of distribution functions is bounded by Dvoretzky, Kiefer and Wolfowitz.
    """
    votes = SUBJECTS["noisy votes"]
    world = World(votes.role, votes.own, Parties(PARTIES), PARTIES[:1], votes.public, votes.only)
    told: Any = votes.permitted(dict(zip(PARTIES, votes.own, strict=True)))
    runs = play_world(world, _NOISE_RUNS, Streams(0))
    answers: Iterator[Any] = (played.results[PARTIES[1]] for played in runs)
    noise = np.concatenate([answer.totals[0] - told for answer in answers])
    exponent = len(PARTIES) * VOTES.exponent(len(PARTIES))
    reach = np.arange(-_NOISE_REACH, _NOISE_REACH + 1)
    cdf = polya_difference_pmf(reach, exponent, 1 / VOTES.epsilon_vote).cumsum()
    found = np.searchsorted(np.sort(noise), reach, side="right") / len(noise)
    distance = float(np.abs(found - cdf).max())
    if distance <= math.sqrt(math.log(2 / ALARM) / (2 * len(noise))):
        return None
    return _NOISE_RUNS, f"the distribution of the noise differs from the plan by {distance:.2f}"


def audited(make: Callable[[], System], check: Callable[..., list[Claim]], **named: Any) -> Audit:
    """Return one check of the audit of a system among three parties, with as many runs."""

    def audit() -> tuple[int, str] | None:
        system = make()
        try:
            claims = check(AuditedSystem(system, system.example()), _EFFORT, 0, **named)
        except InputError:
            raise
        except VeilringError as error:
            return 1, str(error)
        wrong = [each for each in claims if each.verdict is Judged.CONTRADICTED]
        return (_EFFORT.runs, wrong[0].finding) if wrong else None

    return audit


def forecast(*settings: str) -> Audit:
    """Return the audit of costs: rounds, messages and bytes must equal the closed form."""

    def audit() -> tuple[int, str] | None:
        subject = subject_of(*settings)
        setup, queries = subject.prepared.setup, subject.prepared.held_out.X
        try:
            played = simulation.simulate(
                play_queries(setup, queries, Simulated(), seed=0, conditions=Conditions())
            )
        except VeilringError as error:
            return 1, str(error)
        for batch in played.batches:
            cost = batch.run.cost
            found = Forecast(cost.rounds, Traffic(cost.messages, cost.bytes), cost.setup)
            if found != batch.forecast:
                return 1, str(UnforeseenCost(batch.forecast, found))
        return None

    return audit


def accounted() -> tuple[int, str] | None:
    """Audit the charges and refusals of a ledger in memory."""
    ledger = open_ledger(None, Budgets(total=1.0, analyst=0.75, record=1.0))
    slots = ledger.records.add(["one", "two"])
    paid = RecordCharge.of(slots[:1], np.array([0.4]))
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("a request is answered", lambda: ledger.charge(_charge("a", 1, paid)) == b"1"),
        ("the answer's price is spent", lambda: ledger.totals().spent == 0.25),
        (
            "the charged record pays",
            lambda: ledger.records.remaining().tolist() == [6 * 10**11, 10**12],
        ),
        (
            "a repeated request gets the same answer",
            lambda: ledger.charge(_charge("a", 1, paid)) == b"1",
        ),
        ("a repeated request is charged once", lambda: ledger.totals().answers == 1),
        ("a record pays for a second answer", lambda: ledger.charge(_charge("a", 2, paid)) == b"2"),
        ("a record without budget refuses", lambda: _refused(ledger, _charge("a", 3, paid))),
        ("a request without records is answered", lambda: ledger.charge(_charge("a", 4)) == b"4"),
        ("an analyst without budget is refused", lambda: _refused(ledger, _charge("a", 5))),
        ("another analyst is answered", lambda: ledger.charge(_charge("b", 6)) == b"6"),
        ("an exhausted total refuses all analysts", lambda: _refused(ledger, _charge("c", 7))),
        ("all charges are counted", lambda: ledger.totals().spent == 1.0),
        ("amounts are rounded up", lambda: _refused(ledger, _charge("c", 8, amount=1e-13))),
    ]
    for place, (name, holds) in enumerate(checks, start=1):
        try:
            held = holds()
        except (VeilringError, sqlite3.Error) as error:
            return place, f"failed check: {name}: {error}"
        if not held:
            return place, f"failed check: {name}"
    return None


def _charge(
    who: str, number: int, records: RecordCharge | None = None, *, amount: float = 0.25
) -> Charge:
    answer = str(number).encode()
    return Charge(who, str(number), b"request " + answer, answer, amount, records)


def _refused(ledger: Any, charge: Charge) -> bool:
    try:
        ledger.charge(charge)
    except BudgetExhausted:
        return True
    return False
