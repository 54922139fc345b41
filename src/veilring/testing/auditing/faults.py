"""Claims about faults and malicious parties."""

from collections.abc import Iterator
from typing import Final

from veilring.errors import InputError, VeilringError
from veilring.protocols.registry import find_system
from veilring.scenarios.schema import load_scenario
from veilring.testing.auditing.efforts import Effort
from veilring.testing.auditing.findings import Claim, Verdict
from veilring.testing.auditing.subjects import AuditedSystem, RoleClaims
from veilring.testing.exploring import (
    Campaign,
    Subject,
    SystemSubject,
    explore_every_world,
    explore_subject,
    to_toml,
)
from veilring.testing.exploring.campaign import explore_seed
from veilring.testing.hiding.twosample import POWER
from veilring.testing.lies import Lies, audit_subject, audit_system
from veilring.testing.lies import Verdict as Outcome

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
    " A crash never falls between two sends of one step, and all runs have the same inputs, so that"
    " the audit may miss state that a party keeps from one run to the next."
)
_UNNOTICED: Final = (Outcome.UNNOTICED, Outcome.HANG, Outcome.MISNAMED)
_SMALL: Final = ("data.source=iris", "parties.count=4", "data.queries=2")
_SMALLEST: Final = ("data.source=iris", "parties.count=3", "data.queries=1")


def check_faults(subject: AuditedSystem | RoleClaims, effort: Effort, seed: int) -> list[Claim]:
    """Explore worlds with faults until each class of fault has had an effect."""
    explored = _subject(subject, _SMALL)
    campaign = explore_subject(explored, range(seed, seed + effort.worlds))
    for more in range(seed + effort.worlds, seed + effort.worlds_max):
        if not campaign.missing:
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


def _claimed_of_liars(subject: AuditedSystem | RoleClaims) -> tuple[bool, str]:
    if isinstance(subject, RoleClaims):
        return subject.notices_liars, ""
    return subject.system.notices_liars, f"Threat model: {subject.promise.threat_model}."


def _judge_liars(subject: AuditedSystem | RoleClaims, lies: Lies) -> Claim:
    claimed, assumed = _claimed_of_liars(subject)
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
