"""An audit: all claims of a system or a role, each with a verdict."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from veilring.errors import InputError, InternalError, MissingExtra, VeilringError
from veilring.privacy.audits import ALARM
from veilring.protocols.claims import EXAMPLE_PARTIES
from veilring.protocols.system import System
from veilring.testing.auditing.efforts import FULL, QUICK, Effort
from veilring.testing.auditing.faults import check_faults, check_liars
from veilring.testing.auditing.findings import Audit, Claim, Verdict
from veilring.testing.auditing.running import (
    check_accounts,
    check_answers,
    check_role,
    check_runs,
)
from veilring.testing.auditing.subjects import AuditedSystem, RoleClaims
from veilring.testing.auditing.views import check_comparison, check_hidden

Check = Callable[[], list[Claim]]
Subject = System | type[System] | RoleClaims

_LABEL_TESTS: Final = 1


def audit(
    subject: Subject,
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
        InputError: If the system refuses its example, a role's worlds may be distinguished, or the
            promise says nothing of a coalition.
        InternalError: If a control of an audit failed, so that the audit shows nothing.
        MissingExtra: If a package that experiments need is missing.
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


def _checks_of_system(
    subject: AuditedSystem, effort: Effort, seed: int, coalitions: Sequence[Sequence[str]]
) -> list[Check]:
    compared = subject.comparisons
    nothing = [] if compared else [partial(_without_comparisons, subject)]
    examined = coalitions or subject.turned[: None if effort.other_views else 1]
    seen = [subject.seen_by(each) for each in examined]
    views = [
        (each, number)
        for number, comparison in enumerate(compared)
        for each in (seen[:1] if comparison.long else seen)
    ]
    shared = effort.shared_by(len(views) + _LABEL_TESTS)
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


def _checks_of_role(subject: RoleClaims, effort: Effort, seed: int) -> list[Check]:
    given = (subject, effort, seed)
    return [partial(each, *given) for each in (check_role, check_hidden, check_faults, check_liars)]


def _run(
    checks: Sequence[Check],
    workers: int | None,
    progress: Callable[[str, int, int], object] | None,
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
    """Run a check; if a run that it needs fails, contradict the claim that the system works."""
    try:
        return check()
    except (InputError, InternalError, MissingExtra):
        raise
    except (VeilringError, AssertionError) as error:
        name = check.func.__name__.removeprefix("check_") if isinstance(check, partial) else ""
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
