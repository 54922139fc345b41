"""Claims about views: that two worlds cannot be told apart, or by no more than e^ε."""

import math
from collections.abc import Mapping
from typing import Any, Final

from veilring.protocols.claims import Comparison
from veilring.protocols.system import Promise
from veilring.randomness import Streams
from veilring.testing.auditing.efforts import Effort
from veilring.testing.auditing.findings import Claim, Verdict
from veilring.testing.auditing.losses import Loss, least_violation, measure_loss
from veilring.testing.auditing.subjects import AuditedSystem, RoleClaims
from veilring.testing.hiding.audit import Audit as Views
from veilring.testing.hiding.audit import compare_views
from veilring.testing.hiding.stripping import strip_masks

EPSILON_TESTED: Final = 1.0
"""The ε at which a system is tested instead, if so few runs cannot contradict its own."""
_LEAKAGE_TRIALS: Final = 2_000


def check_comparison(
    subject: AuditedSystem, effort: Effort, seed: int, *, number: int
) -> list[Claim]:
    """Tell the worlds of one comparison apart, as far as views allow.

    Args:
        subject: The system.
        effort: The number of runs and the rate of false alarms.
        seed: The seed of all runs.
        number: The place of the comparison among those of the system.
    """
    compared = subject.system.comparisons(subject.example)
    comparison, promise = compared[number], subject.promise
    name = "privacy" if len(compared) == 1 else f"privacy {number + 1}"
    if 0 < comparison.epsilon < math.inf:
        return [_check_epsilon(subject, comparison, effort, seed, number, name)]
    one, other = (subject.world(each) for each in (comparison.one, comparison.other))
    public: Mapping[str, Any] = one.public
    views = compare_views(
        one.role,
        one.inputs,
        other.inputs,
        coalition=one.coalition,
        tells=_nothing_more,
        parties=one.parties,
        strip=strip_masks,
        runs=effort.runs,
        seed=seed,
        alarm=effort.alarm,
        **public,
    )
    stated = promise.measure if comparison.is_bounded else f"{promise.measure}: nothing bounds it"
    promised = f"{_protected(promise)} Stated: {stated}."
    claim = _judge_views(views, name, promised, comparison.difference, one.coalition)
    if comparison.is_bounded or claim.verdict is Verdict.HOLDS:
        return [claim]
    told = views.verdict.classifier.advantage
    return [
        Claim(
            name,
            promised,
            Verdict.LEAKS,
            f"The view of {_names(one.coalition)} reveals {comparison.difference}: an attacker that"
            f" learned from other runs is right with an advantage of {told:.2f}, where 0 is a"
            " guess and 1 is certainty. The promise states that it leaks and bounds nothing.",
            claim.power,
            (*claim.evidence, *_measured(subject, seed)),
        )
    ]


def check_hidden(subject: RoleClaims, effort: Effort, seed: int) -> list[Claim]:
    """Tell the two worlds of a role apart."""
    promised = f"The view of {_names(subject.coalition)} reveals no more than `tells`."
    if subject.other_inputs is None or subject.tells is None:
        return [
            Claim(
                "privacy",
                "The view of a coalition reveals no more than it may.",
                Verdict.NOT_CLAIMED,
                "The role has no second world: give `other_inputs`, `coalition` and `tells`.",
            )
        ]
    views = compare_views(
        subject.role,
        subject.inputs,
        subject.other_inputs,
        coalition=subject.coalition,
        tells=subject.tells,
        strip=subject.strip,
        runs=effort.runs,
        seed=seed,
        alarm=effort.alarm,
        **subject.public,
    )
    difference = "which of the two worlds it is in"
    return [_judge_views(views, "privacy", promised, difference, subject.coalition)]


def _check_epsilon(  # noqa: PLR0917  (what is tested, and how it is called)
    subject: AuditedSystem,
    comparison: Comparison,
    effort: Effort,
    seed: int,
    number: int,
    name: str,
) -> Claim:
    promise = subject.promise
    promised = f"{_protected(promise)} For {promise.adjacency}: {promise.guarantee}."
    claimed, tested, at = comparison.epsilon, subject, ""
    held_out = effort.runs // 4
    if math.isinf(least_violation(claimed, comparison.delta, held_out, effort.alarm)):
        system = subject.system.replaced(epsilon=EPSILON_TESTED)
        tested = AuditedSystem(system, subject.example)
        comparison = system.comparisons(subject.example)[number]
        at = f" It was tested at ε = {EPSILON_TESTED:g}: so few runs cannot contradict {claimed:g}."
    one, other = (tested.world(each) for each in (comparison.one, comparison.other))
    loss = measure_loss(
        one,
        other,
        runs=effort.runs,
        delta=comparison.delta,
        alarm=effort.alarm,
        seed=seed,
        strip=strip_masks,
    )
    over = loss.epsilon > comparison.epsilon
    least = loss.least_violation(comparison.epsilon)
    return Claim(
        name,
        promised,
        Verdict.CONTRADICTED if over else Verdict.HOLDS,
        f"The views of {_names(one.coalition)} prove a loss of at least ε = {loss.epsilon:.2f}, "
        + ("more than" if over else "no more than")
        + f" the {comparison.epsilon:g} that is promised, for {comparison.difference}.{at}",
        f"A loss of ε = {least:.1f} or more, if an event in the views attains it.",
        _evidence_of(loss),
    )


def _evidence_of(loss: Loss) -> tuple[str, ...]:
    coordinate = "none varies" if loss.coordinate is None else str(loss.coordinate)
    return (
        f"{loss.held_out:,} held-out runs of each world; false alarms {loss.alarm:.1e}",
        f"shares of the event in the two worlds: {loss.share_one:.3f}, {loss.share_other:.3f}",
        f"classifier: {loss.attacker}; coordinate that tells most: {coordinate}",
    )


def _judge_views(
    views: Views, name: str, promised: str, difference: str, coalition: tuple[str, ...]
) -> Claim:
    differs = views.verdict.differs
    found = views.verdict.told[0].coordinate if views.verdict.told else "a classifier's guess"
    return Claim(
        name,
        promised,
        Verdict.CONTRADICTED if differs else Verdict.HOLDS,
        f"The view of {_names(coalition)} reveals {difference}: {found}."
        if differs
        else f"No test of the view of {_names(coalition)} reveals {difference}.",
        f"An advantage of {views.least_advantage:.2f} of a classifier, or of"
        f" {views.least_of_coordinate:.2f} of a single coordinate.",
        tuple(str(views).splitlines()),
    )


def _measured(subject: AuditedSystem, seed: int) -> tuple[str, ...]:
    """Return the measures of leakage that the system has of its own."""
    rng = Streams(seed).generator("leakage")
    leakage = subject.setup().leakage(subject.example.queries, _LEAKAGE_TRIALS, rng)
    if leakage is None:
        return ()
    return tuple(
        f"{subject.system.measures[name].label}: {estimate.value:.3f}"
        f" (standard error {estimate.standard_error:.3f})"
        for name, estimate in leakage.estimates.items()
    )


def _protected(promise: Promise) -> str:
    learned = f" Learned by {promise.learned}." if promise.learned else ""
    return f"Protects {promise.protects} from {promise.against}.{learned}"


def _names(coalition: tuple[str, ...]) -> str:
    return " and ".join(coalition)


def _nothing_more(_inputs: object) -> None:
    """Equal in both worlds of a comparison, which says that they may not be told apart."""
