"""Claims about views: that two worlds are indistinguishable, or up to a factor of e^ε.

A lower bound on the privacy loss between two worlds comes from the views of many runs. An event is
chosen on one half of the runs. On the other half, exact binomial bounds (Clopper and Pearson 1934)
on the event's probabilities in both worlds prove a lower bound on the protocol's loss, except with
the probability of a false alarm (Jagielski, Ullman and Oprea, NeurIPS 2020).

Views come from runs over messages, or are drawn by a system in one process with the same
steps. The second kind is faster, so that many more runs prove a larger part of the loss.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.nodes.party import Parties
from veilring.privacy.bounds import proportion_bounds
from veilring.protocols.claims import Comparison
from veilring.protocols.promise import Promise
from veilring.randomness import Streams
from veilring.testing.auditing.findings import AuditedSystem, Claim, Effort, RoleClaims, Verdict
from veilring.testing.hiding import PILOT_RUNS, compare_views, refuse_different
from veilring.testing.hiding import Audit as Views
from veilring.testing.hiding.attackers import POWER, Likelihood, find_varied, learn_best, screen
from veilring.testing.hiding.combining import Arithmetic, Plan
from veilring.testing.hiding.features import Layout, Strip
from veilring.testing.hiding.leaves import Columns, same_leaves
from veilring.testing.hiding.worlds import World, play_world, strip_masks

_BOUNDS: Final = 2
"""A lower bound on one probability and an upper bound on the other share the false alarms."""
_THRESHOLDS: Final = 400
"""Quantiles of a score that may bound an event: more would hardly improve the bound."""
_RIDGE: Final = 1e-6
"""The part of the variance that is added so that collinear numbers have a discriminant."""
_STEPS: Final = 400
_STEP: Final = 0.05

Statistic = Callable[[Columns], Floats]
"""A function from the coordinates of runs to one number each; events are its tails."""


@dataclass(frozen=True, slots=True)
class Event:
    """A set of views: those whose statistic is at least a threshold.

    Attributes:
        likelier: The world in which the event is likelier, 0 or 1.
    """

    name: str
    statistic: Statistic
    threshold: float
    likelier: int

    def count(self, columns: Columns) -> int:
        """Return the number of runs in the event."""
        return int((self.statistic(columns) >= self.threshold).sum())


@dataclass(frozen=True, slots=True)
class Loss:
    """The privacy loss between two worlds that their views prove.

    Attributes:
        epsilon: The proven loss, at least 0.
        likely: The share of held-out runs in the event, in the world where it is likelier.
        alarm: The maximum probability that the bound is above the true loss.
    """

    epsilon: float
    likely: float
    rare: float
    held_out: int
    event: str
    alarm: float
    delta: float
    left_out: int = 0

    def rarest(self, claimed: float) -> float:
        """Return the least probability of an event that contradicts a claim with `POWER`.

        The event is impossible in the other world.
        """
        counts = np.arange(self.held_out + 1)
        bounds = _bound(counts, np.zeros_like(counts), self.held_out, self.delta, self.alarm)
        enough = counts[bounds > claimed]
        if not len(enough):
            return math.inf
        least = proportion_bounds(enough[:1] - 1, self.held_out, 1 - POWER)
        return float(least.high[0])


def measure_loss(
    one: World, other: World, *, runs: int, delta: float, alarm: float, seed: int, strip: Strip
) -> Loss:
    """Play two worlds, and prove a privacy loss between them.

    Args:
        runs: The number of runs of both worlds together, a multiple of 4.
    """
    streams, worlds = Streams(seed), (one, other)
    pilots = [
        [*play_world(world, PILOT_RUNS, streams, f"pilot {number}")]
        for number, world in enumerate(worlds)
    ]
    told = Arithmetic().beside(one.role, one.public)
    layout = Layout([*chain(*pilots)], strip, arithmetic=told, with_draws=True)
    seen = layout.of_views(one.coalition)
    examined = int(seen[: layout.examined].sum())
    named = [str(each) for each, is_seen in zip(layout.coordinates, seen, strict=True) if is_seen]
    each = runs // 2
    views = [
        layout.read(play_world(world, each, streams, f"world {number}"))[:, seen]
        for number, world in enumerate(worlds)
    ]

    def learn(columns: Columns, labels: Ints) -> Iterator[tuple[str, Statistic]]:
        kept = screen(columns, labels, examined)
        seed = int(streams.generator("learning").integers(1 << 31))
        learner = learn_best(columns[:, kept], labels, seed)
        guess = learner.attacker.guess
        yield f"a guess of {learner.name}", lambda given: guess(given[:, kept]).astype(np.float64)
        yield from _likelihoods(columns, labels, named)

    return replace(prove_loss(views, learn, delta=delta, alarm=alarm), left_out=layout.left_out)


def measure_drawn_loss(
    one: NDArray[Any], other: NDArray[Any], *, delta: float, alarm: float
) -> Loss:
    """Prove a privacy loss from views that a system has drawn in one process.

    Args:
        one: The views of the first world, shape (runs, numbers).
    """
    named = [f"number {place}" for place in range(one.shape[1])]

    def learn(columns: Columns, labels: Ints) -> Iterator[tuple[str, Statistic]]:
        yield from _likelihoods(columns, labels, named)
        yield "a linear discriminant", _discriminant(columns, labels)

    return prove_loss([one, other], learn, delta=delta, alarm=alarm)


def prove_loss(
    views: list[NDArray[Any]],
    learn: Callable[[Columns, Ints], Iterator[tuple[str, Statistic]]],
    *,
    delta: float,
    alarm: float,
) -> Loss:
    """Choose an event on one half of the runs, and prove a loss with it on the other half.

    Args:
        views: The coordinates of the runs of each world, both of shape (runs, coordinates).
    """
    half = len(views[0]) // 2
    held_out = len(views[0]) - half
    learned, chosen = ([world[: half // 2], world[half // 2 : half]] for world in views), []
    fitted, tried = zip(*learned, strict=True)
    labels = np.repeat([0, 1], half // 2)
    bound = partial(_bound, runs=held_out, delta=delta, alarm=alarm)
    for name, statistic in learn(np.concatenate(fitted), labels):
        scores = [statistic(world) for world in tried]
        chosen.append(_best_event(name, statistic, scores, bound, held_out))
    _, event = max(chosen, key=lambda found: found[0])
    counts = np.array([event.count(world[half:]) for world in views])
    likely, rare = counts[[event.likelier, 1 - event.likelier]]
    proved = float(bound(np.array([likely]), np.array([rare]))[0])
    return Loss(
        epsilon=max(0.0, proved),
        likely=likely / held_out,
        rare=rare / held_out,
        held_out=held_out,
        event=event.name,
        alarm=alarm,
        delta=delta,
    )


def least_violation(claimed: float, delta: float, held_out: int, alarm: float) -> float:
    """Return the least loss of randomised response that contradicts a claim in 95 % of audits.

    It is infinite if this number of runs cannot contradict any loss.
    """
    from scipy.stats import binom

    for step in range(1, _STEPS):
        loss = claimed + step * _STEP
        likely = 1 / (1 + math.exp(-loss))
        hits = int(binom.ppf((1 - POWER) / 2, held_out, likely))
        if _bound(np.array([hits]), np.array([held_out - hits]), held_out, delta, alarm) > claimed:
            return loss
    return math.inf


def _bound(likely: Ints, rare: Ints, runs: int, delta: float, alarm: float) -> Floats:
    """Return the loss that counts of events in two worlds prove; below 0 if they prove nothing."""
    low = proportion_bounds(likely, runs, alarm / _BOUNDS).low - delta
    high = proportion_bounds(rare, runs, alarm / _BOUNDS).high
    return np.log(np.maximum(low, np.finfo(float).tiny)) - np.log(high)


def _best_event(
    name: str,
    statistic: Statistic,
    scores: list[Floats],
    bound: Callable[[Ints, Ints], Floats],
    held_out: int,
) -> tuple[float, Event]:
    """Return the tail of a statistic that is expected to prove the largest loss, and that loss."""
    best, found = -math.inf, Event(name, statistic, -math.inf, 0)
    for sign in (1.0, -1.0):
        signed = [sign * each for each in scores]
        ordered = np.unique(np.concatenate(signed))
        places = np.linspace(0, len(ordered) - 1, min(len(ordered), _THRESHOLDS)).round()
        thresholds = ordered[places.astype(np.int64)]
        shares = [1 - np.searchsorted(np.sort(each), thresholds) / len(each) for each in signed]
        counts = [np.round(share * held_out).astype(np.int64) for share in shares]
        for likelier in (0, 1):
            bounds = bound(counts[likelier], counts[1 - likelier])
            at = int(bounds.argmax())
            if bounds[at] > best:
                best = float(bounds[at])
                tail = _signed(statistic, sign)
                found = Event(name, tail, float(thresholds[at]), likelier)
    return best, found


def _signed(statistic: Statistic, sign: float) -> Statistic:
    return lambda columns: sign * statistic(columns)


def _likelihoods(
    columns: Columns, labels: Ints, named: list[str]
) -> Iterator[tuple[str, Statistic]]:
    single, several = Likelihood(columns, labels, factors=1), Likelihood(columns, labels)
    place = single.most_informative
    yield "no number varies" if place is None else named[place], _ratio(single)
    yield "the likelihood of several numbers", _ratio(several)


def _ratio(learned: Likelihood) -> Statistic:
    def statistic(columns: Columns) -> Floats:
        log = learned.log_likelihoods(columns)
        return np.asarray(log[:, 1] - log[:, 0])

    return statistic


def _discriminant(columns: Columns, labels: Ints) -> Statistic:
    """Return Fisher's linear discriminant: for two Gaussians of one covariance it is optimal."""
    varied = find_varied(columns)
    filled = np.nan_to_num(columns[:, varied].astype(np.float64), nan=-1.0)
    means = [filled[labels == label].mean(axis=0) for label in (0, 1)]
    centred = filled - np.array(means)[labels]
    spread = centred.T @ centred / len(filled)
    spread[np.diag_indices_from(spread)] *= 1 + _RIDGE
    spread[np.diag_indices_from(spread)] += _RIDGE
    weights = np.linalg.solve(spread, means[1] - means[0])
    return lambda given: np.nan_to_num(given[:, varied].astype(np.float64), nan=-1.0) @ weights


EPSILON_TESTED: Final = 1.0
"""The ε at which a system is tested instead, if the runs cannot contradict its own."""
_LEAKAGE_TRIALS: Final = 2_000
_NOT_COMBINED: Final = (
    "It also adds up what several members received, joins it as Shamir's shares, and looks for"
    " hashes of the honest parties' values. It does not examine products except of a few pairs,"
    " other sums of three or more messages, comparisons, numbers above 64 bits, hashes with further"
    " inputs, or keys with too little randomness. Compute these in `strip`. Other classifiers or"
    " other numbers may have a larger advantage: this is not a proof."
)
_LONG: Final = 4
"""The factor by which comparisons of long views get fewer runs: theirs take that much longer."""
_PROOFS: Final = 2
"""Runs over messages and drawn views share the false alarms of a comparison."""


def check_comparison(
    subject: AuditedSystem, effort: Effort, seed: int, *, number: int
) -> list[Claim]:
    """Try to distinguish the worlds of one comparison by their views."""
    compared = subject.comparisons
    promise = subject.promise
    comparison = _bounded(compared[number], promise)
    require_different(comparison, subject.observers)
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
        permitted=lambda _inputs: None,  # the two worlds must be indistinguishable
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


def check_hidden(
    subject: RoleClaims, effort: Effort, seed: int, *, coalition: tuple[str, ...] = ()
) -> list[Claim]:
    """Try to distinguish the two worlds of a role by the views of a coalition.

    Args:
        coalition: The members; by default the only coalition of the claim.
    """
    if subject.other_inputs is None or subject.permitted is None:
        return [
            Claim(
                "privacy",
                "The view of a coalition reveals no more than `permitted`.",
                Verdict.NOT_CLAIMED,
                "The role has no second world; give `other_inputs`, `coalition` and `permitted`.",
            )
        ]
    every = subject.coalitions
    coalition = coalition or every[0]
    promised = f"The view of {_names(coalition)} reveals no more than `permitted`."
    views = compare_views(
        subject.role,
        subject.inputs,
        subject.other_inputs,
        coalition=coalition,
        permitted=subject.permitted,
        strip=subject.strip,
        arithmetic=subject.arithmetic,
        runs=effort.runs,
        seed=seed,
        alarm=effort.alarm,
        **subject.public,
    )
    difference, name = "which of the two worlds was run", "privacy"
    if len(every) > 1:
        name += f", view of {_names(coalition)}"
    claim = _judge_views(views, name, promised, difference, coalition, subject.strip)
    if len(every) <= 1:
        return [claim]
    examined = min(len(every), effort.coalitions)
    said = f" It is one of {examined} examined coalitions of {len(every)} with equal inputs."
    return [replace(claim, finding=claim.finding + said)]


def refuse_worlds(subject: RoleClaims) -> None:
    """Refuse the worlds of a role, if one of its coalitions may distinguish them.

    Raises:
        InputError: If `permitted` or the inputs of a coalition differ.
    """
    if subject.other_inputs is None or subject.permitted is None:
        return
    names = Parties(subject.inputs)
    for coalition in subject.coalitions:
        worlds = [
            World(subject.role, inputs, names, coalition)
            for inputs in (subject.inputs, subject.other_inputs)
        ]
        refuse_different(worlds, subject.permitted, Streams(0))


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
    loss = max(proofs.values(), key=lambda proved: proved.epsilon)
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


def require_different(comparison: Comparison, observers: tuple[str, ...]) -> None:
    """Refuse worlds that cannot show a loss, or that observers may distinguish by their inputs."""
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
    views = list[Floats]()
    for world, example in enumerate((comparison.one, comparison.other)):
        rng = Streams(seed).generator("drawn views", world)
        drawn = subject.setup(example).observe(example.queries, runs // 2, rng)
        if drawn is None:
            return None
        views.append(drawn)
    return measure_drawn_loss(*views, delta=comparison.delta, alarm=alarm)


def _power_of(loss: Loss, claimed: float) -> str:
    least = least_violation(claimed, loss.delta, loss.held_out, loss.alarm)
    return (
        f"With a probability of {POWER:.0%}, the audit would find a loss of ε ="
        f" {least:.1f} or more that a single event shows, as in randomised"
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
        f" and examines no other view.{_left_out(views.left_out)}{_paired(views.plan)}"
        f" {_NOT_COMBINED}",
        tuple(str(views).splitlines()),
    )


def _left_out(coordinates: int) -> str:
    if not coordinates:
        return ""
    return f" Of {coordinates:,} further numbers of the view, it examines a random projection only."


def _paired(plan: Plan) -> str:
    if not plan.pairs:
        return ""
    pairs = "1 pair" if plan.pairs == 1 else f"{plan.pairs:,} pairs"
    return (
        f" Of {pairs} of arrays of integers of equal shape, it combined {plan.tried:,}"
        " by sums, differences and the exclusive or, with declared and guessed moduli."
    )


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
