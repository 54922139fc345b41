"""Claims about views: that two worlds are indistinguishable, or up to a factor of e^ε."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.claims import Comparison
from veilring.protocols.promise import Promise
from veilring.randomness import Streams
from veilring.testing.auditing.efforts import Effort
from veilring.testing.auditing.findings import Claim, Verdict
from veilring.testing.auditing.losses import (
    Loss,
    least_violation,
    measure_drawn_loss,
    measure_loss,
)
from veilring.testing.auditing.subjects import AuditedSystem, RoleClaims
from veilring.testing.hiding.audit import Audit as Views
from veilring.testing.hiding.audit import compare_views
from veilring.testing.hiding.features import Strip
from veilring.testing.hiding.leaves import same_leaves
from veilring.testing.hiding.stripping import strip_masks
from veilring.testing.hiding.twosample import POWER

EPSILON_TESTED: Final = 1.0
"""The ε at which a system is tested instead, if the runs cannot contradict its own."""
_LEAKAGE_TRIALS: Final = 2_000
_NOT_COMBINED: Final = (
    "It combines at most two messages of one party, by sums and differences: it does not see shares"
    " that need more of them or a modulus, products, hashes of values that can be guessed, or keys"
    " with too little randomness. Compute these in `strip`."
)
_LONG: Final = 4
"""The factor by which comparisons of long views get fewer runs: theirs take that much longer."""
_PROOFS: Final = 2
"""Runs over messages and drawn views share the false alarms of a comparison."""


def check_comparison(
    subject: AuditedSystem, effort: Effort, seed: int, *, number: int
) -> list[Claim]:
    """Try to distinguish the worlds of one comparison by their views.

    Args:
        subject: The system.
        effort: The number of runs and the rate of false alarms.
        seed: The seed of all runs.
        number: The index of the comparison among those of the system.
    """
    compared = subject.comparisons
    promise = subject.promise
    comparison = _bounded(compared[number], promise)
    _require_different(comparison, subject.observers)
    name = "privacy"
    if comparison.long:
        name += f", {comparison.long}"
    elif sum(not each.long for each in compared) > 1:
        name += f" {number + 1}"
    name += f", view of {_names(subject.coalition)}" if subject.coalition else ""
    unbounded = "" if comparison.is_bounded else ", without a bound"
    promised = f"{_protected(promise)} Guarantee: {promise.measure}{unbounded}."
    if comparison.long and not effort.long_views:
        why = "Its views are so long that only a full audit compares them: leave out --quick."
        return [Claim(name, promised, Verdict.NOT_TESTED, why)]
    if comparison.long:
        effort = replace(effort, runs=effort.runs // _LONG)
    if 0 < comparison.epsilon < math.inf:
        return [_check_epsilon(subject, comparison, effort, seed, number, name)]
    one, other = (subject.world(each) for each in (comparison.one, comparison.other))
    public: Mapping[str, Any] = one.public
    views = compare_views(
        one.role,
        one.inputs,
        other.inputs,
        coalition=one.coalition,
        permitted=_nothing_more,
        parties=one.parties,
        strip=strip_masks,
        runs=effort.runs,
        seed=seed,
        alarm=effort.alarm,
        **public,
    )
    claim = _judge_views(views, name, promised, comparison.difference, one.coalition, strip_masks)
    if comparison.is_bounded or claim.verdict is Verdict.HOLDS:
        return [claim]
    told = views.verdict.classifier.advantage
    return [
        Claim(
            name,
            promised,
            Verdict.LEAKS,
            f"The view of {_names(one.coalition)} reveals {comparison.difference}: an attacker has"
            f" an advantage of {told:.2f}, where 0 is guessing and 1 is certainty. The promise"
            " states this leak without a bound.",
            claim.power,
            (*claim.evidence, *_measured(subject, seed)),
        )
    ]


def check_hidden(subject: RoleClaims, effort: Effort, seed: int) -> list[Claim]:
    """Try to distinguish the two worlds of a role by their views."""
    promised = f"The view of {_names(subject.coalition)} reveals no more than `permitted`."
    if subject.other_inputs is None or subject.permitted is None:
        return [
            Claim(
                "privacy",
                "The view of a coalition reveals no more than `permitted`.",
                Verdict.NOT_CLAIMED,
                "The role has no second world; give `other_inputs`, `coalition` and `permitted`.",
            )
        ]
    views = compare_views(
        subject.role,
        subject.inputs,
        subject.other_inputs,
        coalition=subject.coalition,
        permitted=subject.permitted,
        strip=subject.strip,
        runs=effort.runs,
        seed=seed,
        alarm=effort.alarm,
        **subject.public,
    )
    difference = "which of the two worlds was run"
    return [_judge_views(views, "privacy", promised, difference, subject.coalition, subject.strip)]


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
    tested, at, alarm = subject, "", effort.alarm / _PROOFS
    held_out = effort.drawn // 4
    if math.isinf(least_violation(comparison.epsilon, comparison.delta, held_out, alarm)):
        system = subject.system.replaced(epsilon=EPSILON_TESTED)
        tested = replace(subject, system=system)
        at = (
            f" The system was tested at ε = {EPSILON_TESTED:g}, because this number of runs cannot"
            f" contradict ε = {comparison.epsilon:g}."
        )
        comparison = _bounded(tested.comparisons[number], tested.promise)
    one, other = (tested.world(each) for each in (comparison.one, comparison.other))
    played = measure_loss(
        one,
        other,
        runs=effort.runs,
        delta=comparison.delta,
        alarm=alarm,
        seed=seed,
        strip=strip_masks,
    )
    proofs = {"played": played}
    drawn = _drawn_loss(tested, comparison, effort.drawn, alarm, seed)
    if drawn is not None:
        proofs["simulated"] = drawn
    loss = max(proofs.values(), key=_epsilon_of)
    over = loss.epsilon > comparison.epsilon
    where = f"the view of {_names(one.coalition)}"
    if loss is drawn:
        where = tested.setup().observed or where
    return Claim(
        name,
        promised,
        Verdict.CONTRADICTED if over else Verdict.HOLDS,
        f"In {where}, the audit proves a privacy loss of at least ε = {loss.epsilon:.2f} about"
        f" {comparison.difference}; the promise allows{' only' if over else ''} ε ="
        f" {comparison.epsilon:g}.{at}",
        f"{_power_of(drawn or played, comparison.epsilon)}{_left_out(played.left_out)}",
        tuple(line for kind, each in proofs.items() for line in _evidence_of(kind, each)),
    )


def _bounded(comparison: Comparison, promise: Promise) -> Comparison:
    """Return a comparison that allows no more than the promise states."""
    if promise.epsilon is None:
        return comparison
    return replace(
        comparison,
        epsilon=min(comparison.epsilon, promise.epsilon),
        delta=min(comparison.delta, promise.delta),
    )


def _require_different(comparison: Comparison, observers: tuple[str, ...]) -> None:
    """Refuse worlds that cannot show a loss, or that observers may distinguish by their inputs.

    Raises:
        InputError: If the worlds are equal, or differ in the rows of an observer.
    """
    one, other = comparison.one, comparison.other
    if same_leaves(one.parts, other.parts) and same_leaves(one.queries, other.queries):
        raise InputError.because(
            "the two worlds of a comparison are equal, so that they show no loss; let them differ"
            " in rows or in queries",
            field="comparisons",
        )
    for party in observers:
        if party in one.parts and not same_leaves(one.parts[party], other.parts[party]):
            raise InputError.because(
                f"{party} is an observer and holds other rows in the other world; change the rows"
                " of other parties only",
                field="comparisons",
            )


def _drawn_loss(
    subject: AuditedSystem, comparison: Comparison, runs: int, alarm: float, seed: int
) -> Loss | None:
    """Prove a loss from the observers' views that the system draws in one process, if it can."""
    if subject.coalition:
        return None
    views = list[NDArray[np.float64]]()
    for world, example in enumerate((comparison.one, comparison.other)):
        rng = Streams(seed).generator("drawn views", world)
        drawn = subject.setup(example).observe(example.queries, runs // 2, rng)
        if drawn is None:
            return None
        views.append(drawn)
    return measure_drawn_loss(*views, delta=comparison.delta, alarm=alarm)


def _epsilon_of(loss: Loss) -> float:
    return loss.epsilon


def _power_of(loss: Loss, claimed: float) -> str:
    return (
        f"With a probability of {POWER:.0%}, the audit would find a loss of ε ="
        f" {loss.least_violation(claimed):.1f} or more that a single event shows, as in randomised"
        " response. It would also find any event that cannot occur in the other world, if its"
        f" probability is at least {loss.rarest(claimed):.1%}. It examines no other view, and may"
        " miss a loss that is spread over many numbers or shown only by rarer events, for example"
        " where noise is cut off far from its centre."
    )


def _evidence_of(kind: str, loss: Loss) -> tuple[str, ...]:
    return (
        f"{kind}: ε ≥ {loss.epsilon:.2f}, false-alarm rate {loss.alarm:.1e}",
        f"{kind}: {loss.held_out:,} held-out runs of each world",
        f"{kind}: probability of the event in the two worlds {loss.likely:.3f}, {loss.rare:.3f}",
        f"{kind}: event chosen by {loss.event}",
    )


def _judge_views(  # noqa: PLR0917  (the promise, and what was compared)
    views: Views,
    name: str,
    promised: str,
    difference: str,
    coalition: tuple[str, ...],
    strip: Strip,
) -> Claim:
    differs, named = views.verdict.differs, views.verdict.differences
    used = "removes pairwise masks" if strip is strip_masks else "uses them as `strip` does"
    found = named[0].coordinate if named else "a classifier's guess"
    return Claim(
        name,
        promised,
        Verdict.CONTRADICTED if differs else Verdict.HOLDS,
        f"The view of {_names(coalition)} reveals {difference}: {found}."
        if differs
        else f"In the view of {_names(coalition)}, no test reveals {difference}.",
        f"With a probability of {POWER:.0%}, the audit would find an advantage of"
        f" {views.least_advantage:.2f} that its classifier attains, or of"
        f" {views.least_of_coordinate:.2f} that a single number of the view shows. It subtracts"
        f" the random draws of {_names(coalition)} from messages, totals and results, {used},"
        f" and examines no other view.{_left_out(views.left_out)} {_NOT_COMBINED}",
        tuple(str(views).splitlines()),
    )


def _left_out(coordinates: int) -> str:
    return f" {coordinates:,} further numbers of the view were left out." if coordinates else ""


def _measured(subject: AuditedSystem, seed: int) -> tuple[str, ...]:
    """Return the system's own measures of leakage."""
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
    """Return None in both worlds of a comparison: they must be indistinguishable."""
