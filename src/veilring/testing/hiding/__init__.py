"""A test of whether a coalition's view reveals more than it may, and of which part reveals it.

Two worlds have the same inputs of the coalition, and agree in everything that the protocol may
reveal. The audit compares views of many runs of both, together with the outputs of all parties. One
test is a classifier that learns on one half of the runs and is judged on the other (Lopez-Paz and
Oquab, "Revisiting classifier two-sample tests", ICLR 2017); others compare coordinate by
coordinate. If both worlds have the same distribution, the audit fails with probability `alarm` at
most. Half of that is for the classifier and half for all coordinates together, whose number is
fixed before any run is examined. Run an audit once: if it is repeated until it passes, it
guarantees nothing.

Controls run with each audit. Each of their two samples is half of one world and half of the other,
so that both have the same distribution: they must pass, and with a planted leak they must fail.

The amount of a secret that a coalition learns is the success of the best of several attackers.
Inputs are drawn for each run, so that the distribution of the secret is known. Attackers learn on
one half of the runs, a part of which decides which attacker is best; the success of that attacker
is measured on the other half. It is compared with the best guess from the protocol's permitted
output: the same attackers, given only the inputs and the results of the coalition.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Bools, Ints
from veilring.errors import InputError, InternalError
from veilring.nodes.journal import SETUP_ROUND, Seen
from veilring.nodes.run import refuse_options
from veilring.privacy.bounds import ALARM, proportion_bounds
from veilring.protocols.promise import Estimate
from veilring.randomness import Streams
from veilring.testing.hiding.attackers import (
    KEPT,
    POWER,
    Labels,
    Split,
    choose_bins,
    cut_bins,
    find_varied,
    judge_order,
    judge_set,
    learn_best,
    least_advantage,
    reject_holm,
    screen,
)
from veilring.testing.hiding.combining import Arithmetic, Plan
from veilring.testing.hiding.features import Layout, Strip
from veilring.testing.hiding.leaves import Columns, Coordinate, same_leaves
from veilring.testing.hiding.worlds import (
    Arrival,
    Inputs,
    MemberView,
    Played,
    Role,
    World,
    name_parties,
    play_world,
)
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode

RUNS: Final = 4_000
"""The default number of runs of both worlds, which finds an advantage of 0.15 in a few seconds."""
RUNS_MIN: Final = 800
"""With fewer runs, a planted leak of twice the least advantage would exceed a probability of 1."""
PILOT_RUNS: Final = 32
"""The number of runs of each world that fix the coordinates. They are not tested."""
# The number of coordinates and p-values that an error names, the smallest p-value first.
_NAMED_MAX: Final = 5
_TESTS_A_COORDINATE: Final = 2  # bins, and order

Permitted = Callable[[Mapping[str, object]], object]
"""Returns everything that the protocol may reveal to the coalition, given all inputs by name."""


class Difference(NamedTuple):
    """A coordinate whose distribution differs between the worlds."""

    coordinate: Coordinate
    advantage: float
    """The difference of the probabilities of an event of this coordinate, on the held-out runs."""
    p: float
    """A bound on the p-value of that difference."""

    def __str__(self) -> str:
        return f"{self.coordinate}: advantage {self.advantage:.3f}, p <= {self.p:.1e}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one comparison of two samples."""

    attacker: str
    classifier: Split
    differences: tuple[Difference, ...]
    alarm: float

    @property
    def differs(self) -> bool:
        """Whether any test has distinguished the two samples."""
        return self.differences != () or self.learned

    @property
    def learned(self) -> bool:
        """Whether the classifier has distinguished them."""
        return self.classifier.p <= self.alarm / 2


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        runs: The number of runs of both worlds together; half of them were held out.
        coordinates: The number of coordinates that were tested.
        planted: The verdict on the same two samples with a planted leak of `2 * least_advantage`.
        plan: The combinations of messages that were screened.
        left_out: The number of further coordinates, of which only a random projection was screened.
    """

    runs: int
    coordinates: int
    verdict: Verdict
    same: Verdict
    planted: Verdict
    alarm: float
    plan: Plan
    left_out: int = 0

    @property
    def held_out(self) -> int:
        """The number of runs on which the tests are evaluated."""
        return self.runs // 2

    @property
    def least_advantage(self) -> float:
        """The least advantage of the classifier that is found with probability 95 %.

        This is the power of one test. An adversary with other tests may do better.
        """
        return least_advantage(self.held_out, self.alarm / 2)

    @property
    def least_of_coordinate(self) -> float:
        """The least advantage of an event of one coordinate that is found with probability 95 %."""
        tests = _TESTS_A_COORDINATE * self.coordinates
        return least_advantage(self.held_out, self.alarm / 2 / tests)

    def __str__(self) -> str:
        verdict = self.verdict
        held = f"{self.held_out:,} held-out runs, {self.coordinates} coordinates"
        held += f" ({self.left_out:,} more by random projection)" if self.left_out else ""
        lines = [f"{held}, false-alarm rate {self.alarm:g}"]
        learned = verdict.classifier
        lines.append(
            f"classifier ({verdict.attacker}): advantage {learned.advantage:.3f}, "
            f"p <= {learned.p:.1e}"
        )
        lines += [str(each) for each in verdict.differences[:_NAMED_MAX]]
        if len(verdict.differences) > _NAMED_MAX:
            lines.append(f"and {len(verdict.differences) - _NAMED_MAX} more")
        if not verdict.differs:
            lines.append(
                f"with a probability of {POWER:.0%}, the audit would have found an advantage of "
                f"{self.least_advantage:.3f} of the classifier, or {self.least_of_coordinate:.3f} "
                "of one coordinate; other classifiers or other coordinates may have more"
            )
        return "\n".join(lines)


class SimulatedView(MemberView):
    """A view that a simulator makes up, message by message."""

    def receive(self, sender: str, message: Message) -> None:
        """Add a message that the member receives."""
        self._add(self.received, self.received_at, sender, message)

    def send(self, to: str, message: Message) -> None:
        """Add a message that the member sends."""
        self._add(self.sent, self.sent_at, to, message)

    def _add(self, kept: list[Seen], at: list[Arrival], peer: str, message: Message) -> None:
        size = frame_size(encode(bytes(SESSION_BYTES), message))
        number = len(self.received) + len(self.sent)
        at.append(Arrival(0.0, size, number, number))
        kept.append(Seen(SETUP_ROUND, peer, message))


@dataclass(frozen=True, slots=True)
class Ideal:
    """The inputs of a simulator."""

    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    permitted: object
    rng: Generator
    _world: World = field(repr=False)

    def play(self, others: Mapping[str, object]) -> Mapping[str, MemberView]:
        """Run the role with made-up inputs of the other parties, and return the members' views."""
        made_up = replace(self._world, inputs={**others, **self.inputs})
        streams = Streams(int(self.rng.integers(1 << 62)))
        return next(play_world(made_up, 1, streams)).views


Simulator = Callable[[Ideal], Mapping[str, MemberView]]
"""Makes up the view of each member of the coalition."""


def compare_views(  # noqa: PLR0913  (two worlds, a coalition, the permitted information and a budget)
    role: Role,
    inputs: Inputs,
    other_inputs: Inputs,
    *,
    coalition: Sequence[str],
    permitted: Permitted,
    parties: int | Sequence[str] | None = None,
    strip: Strip | None = None,
    only: Mapping[str, Mapping[str, object]] | None = None,
    arithmetic: Arithmetic | None = None,
    runs: int = RUNS,
    seed: int | None = 0,
    alarm: float = ALARM,
    **public: Any,
) -> Audit:
    """Compare the views of a coalition in two worlds that it must not distinguish.

    Args:
        role: The protocol: the coroutine `role(party, own, **public)` that each party plays.
        inputs: Each party's private input in one world, in order or by name. For inputs that are
            random or that a run uses up, a function of a generator that returns the inputs of one
            run.
        other_inputs: Each party's private input in the other world, in the same form.
        coalition: The members of the coalition. They are semi-honest.
        permitted: Everything that the protocol may reveal to the coalition, as a function of all
            inputs.
        parties: The names of the parties, or their number; by default the number of inputs.
        strip: A function that computes more from the members' views, such as words minus the masks
            that the members know.
        only: Keyword arguments of one party's role, by its name.
        arithmetic: The moduli and points of shares; by default they are guessed.
        runs: The number of runs of both worlds together, a multiple of 4, at least `RUNS_MIN`.
        seed: The seed of all randomness; `None` draws it from the operating system.
        alarm: The probability that the worlds are distinguished although both have the same
            distribution.
        **public: Keyword arguments of every party's role.

    Returns:
        The findings, whether or not the worlds are distinguished.

    Raises:
        InputError: If the worlds may be distinguished: `permitted` or the inputs of the coalition
            differ.
        InternalError: If a control failed, so that the audit shows nothing.
        MissingExtra: If scikit-learn or SimPy is not installed.
    """
    refuse_options(role, compare_views)
    names = name_parties(inputs, parties)
    worlds = [
        World(role, given, names, tuple(coalition), public, only or {})
        for given in (inputs, other_inputs)
    ]
    refuse_different(worlds, permitted, Streams(seed))
    streams = Streams(seed)

    def play(world: int, number: int, name: str) -> Iterator[Played]:
        return play_world(worlds[world], number, streams, f"{name} {world}")

    told = (arithmetic or Arithmetic()).beside(role, public)
    return _compare(play, runs, alarm, strip, seed, told)


def assert_hides(
    role: Role,
    inputs: Inputs,
    other_inputs: Inputs,
    *,
    coalition: Sequence[str],
    permitted: Permitted,
    **options: Any,
) -> Audit:
    """Fail if a coalition's views distinguish two worlds that it must not distinguish.

    The arguments and errors are those of `compare_views`.

    Returns:
        The findings, with the least advantage that would have been found.

    Raises:
        AssertionError: If the worlds are distinguished; it names the message and the field.
    """
    __tracebackhide__ = True  # pytest points at the caller
    audit = compare_views(
        role, inputs, other_inputs, coalition=coalition, permitted=permitted, **options
    )
    _require(audit, coalition, "reveals more than it may")
    return audit


def _require(audit: Audit, coalition: Sequence[str], otherwise: str) -> None:
    __tracebackhide__ = True  # pytest points at the caller
    if audit.verdict.differs:
        raise AssertionError(f"the view of {' and '.join(coalition)} {otherwise}\n{audit}")


def assert_simulatable(  # noqa: PLR0913  (two distributions, a coalition, the permitted information and a budget)
    role: Role,
    simulator: Simulator,
    inputs: Inputs,
    *,
    coalition: Sequence[str],
    permitted: Permitted,
    parties: int | Sequence[str] | None = None,
    strip: Strip | None = None,
    only: Mapping[str, Mapping[str, object]] | None = None,
    runs: int = RUNS,
    seed: int | None = 0,
    alarm: float = ALARM,
    **public: Any,
) -> Audit:
    """Fail if a coalition's views differ from those that a simulator makes of permitted data.

    Real views, with the outputs of all parties, are compared with the outputs of other runs and the
    views that the simulator makes of the members' part of those. Arrival times are not compared,
    and neither are sent messages if the simulator makes none. `strip` must not use the members'
    coins. The other arguments and errors are those of `assert_hides`.

    Args:
        simulator: A function that makes the members' views from their inputs and outputs and
            `permitted`.
        runs: The number of real runs and of simulated ones together.
    """
    __tracebackhide__ = True  # pytest points at the caller
    refuse_options(role, assert_simulatable)
    names = name_parties(inputs, parties)
    world = World(role, inputs, names, tuple(coalition), public, only or {})
    streams = Streams(seed)
    made_up = streams.generator("simulator")

    def imagine(played: Played) -> Played:
        known = {name: played.inputs[name] for name in coalition}
        outputs = {name: played.results[name] for name in coalition}
        views = simulator(Ideal(known, outputs, permitted(played.inputs), made_up, world))
        return played._replace(views=views)

    def play(imagined: int, number: int, name: str) -> Iterator[Played]:
        real = play_world(world, number, streams, f"{name} {imagined}")
        return map(imagine, real) if imagined else real

    told = Arithmetic().beside(role, public)
    audit = _compare(play, runs, alarm, strip, seed, told, simulated=True)
    _require(audit, coalition, "differs from the simulator's")
    return audit


def refuse_different(worlds: Sequence[World], permitted: Permitted, streams: Streams) -> None:
    """Refuse worlds that a coalition may distinguish, before anything is run."""
    one, other = (world.draw_inputs(streams.generator("inputs")) for world in worlds)
    for member in worlds[0].coalition:
        if not same_leaves(one[member], other[member]):
            raise InputError.because(
                f"{member} is in the coalition and has other inputs in the other world; change "
                "those of other parties only",
                field="other_inputs",
            )
    if not same_leaves(permitted(one), permitted(other)):
        raise InputError.because(
            "the protocol may reveal which world it is, as `permitted` differs between them; "
            "choose inputs for which it is equal",
            field="other_inputs",
        )


def _compare(  # noqa: PLR0917  (the worlds, and how they are compared)
    play: Callable[[int, int, str], Iterator[Played]],
    runs: int,
    alarm: float,
    strip: Strip | None,
    seed: int | None,
    arithmetic: Arithmetic,
    *,
    simulated: bool = False,
) -> Audit:
    if runs < RUNS_MIN or runs % 4:
        raise InputError("runs", runs, f"a multiple of 4, at least {RUNS_MIN}")
    rng = Streams(seed).generator("audit")
    pilot = [list(play(world, PILOT_RUNS, "pilot")) for world in (0, 1)]
    with_sent = all(view.sent for played in pilot[1] for view in played.views.values())
    layout = Layout(
        [*chain(*pilot)],
        strip,
        arithmetic=arithmetic,
        with_sent=with_sent,
        with_times=not simulated,
        with_draws=not simulated,  # a simulator makes messages, not random draws
    )
    columns = np.concatenate([layout.read(play(world, runs // 2, "world")) for world in (0, 1)])
    second = np.arange(runs) >= runs // 2
    names, examined = layout.coordinates, layout.examined
    verdict = judge(columns, second, names, alarm, rng, examined)
    # Each sample of the control has every other run of both worlds: their distributions are equal.
    mixed = np.arange(runs) % 2 == 1
    same = judge(columns, mixed, names, alarm, rng, examined)
    strength = 2 * least_advantage(runs // 2, alarm / 2)
    leaking = _plant(columns, mixed, strength, rng)
    planted = judge(leaking, mixed, names, alarm, rng, examined)
    if same.differs or not (planted.differences and planted.learned):
        failed = (
            "were distinguished" if same.differs else "with a planted leak were not distinguished"
        )
        raise InternalError(
            f"a control of the audit failed: two samples of one distribution {failed}. This happens"
            f" by chance with probability {alarm:g}; otherwise the audit has a fault. The result"
            f" for seed {seed} shows nothing"
        )
    tested = min(len(names), examined + KEPT)
    return Audit(runs, tested, verdict, same, planted, alarm, layout.plan, layout.left_out)


def _plant(columns: Columns, second: Bools, strength: float, rng: Generator) -> Columns:
    """Return the columns with a planted leak of this advantage in one coordinate that varies."""
    known = np.flatnonzero(~np.isnan(columns).all(axis=0))
    spread = np.nanmax(columns[:, known], axis=0) - np.nanmin(columns[:, known], axis=0)
    at = int(known[np.argmax(spread > 0)])
    planted = columns.copy()
    marked = second & (rng.random(len(second)) < strength)
    planted[marked, at] = 2 * np.nanmax(np.abs(columns[:, at])) + 1
    return planted


def judge(  # noqa: PLR0917  (two samples, their coordinates, and how they are compared)
    columns: Columns,
    second: Bools,
    names: Sequence[Coordinate],
    alarm: float,
    rng: Generator,
    examined: int | None = None,
) -> Verdict:
    """Compare two samples with equally many runs.

    Args:
        second: Whether each run belongs to the second sample; half of them do.
        examined: The number of first coordinates, which are tested in any case; by default all.
            Of the others, the `attackers.KEPT` that differ most on the learning half are tested.
    """
    learned, judged = _halves(second, rng)
    told, truth = second[learned], second[judged]
    examined = len(names) if examined is None else examined
    kept = screen(columns[learned], told.astype(np.int64), examined)
    seen, held = columns[np.ix_(learned, kept)], columns[np.ix_(judged, kept)]
    p = np.ones((len(kept), _TESTS_A_COORDINATE))
    advantage = np.zeros_like(p)
    for at in map(int, np.flatnonzero(find_varied(columns[:, kept]))):
        for test, split in enumerate(_judge_coordinate(seen[:, at], told, held[:, at], truth)):
            p[at, test], advantage[at, test] = split.p, split.advantage
    rejected = reject_holm(p.ravel(), alarm / 2).reshape(p.shape).any(axis=1)
    best = p.argmin(axis=1)
    found = [
        Difference(names[kept[at]], float(advantage[at, best[at]]), float(p[at, best[at]]))
        for at in map(int, np.flatnonzero(rejected))
    ]
    learner = learn_best(seen, told.astype(np.int64), int(rng.integers(1 << 31)))
    guessed = learner.attacker.guess(held) == 1
    return Verdict(learner.name, judge_set(guessed, truth), _in_turn(found), alarm)


def _in_turn(found: Sequence[Difference]) -> tuple[Difference, ...]:
    """Return the best coordinate of each field, in the order in which it is learned; then others.

    The first message that reveals something explains what later ones reveal.
    """
    turns, numbers = dict[int, int](), Counter[tuple[str, str]]()
    for at in sorted(range(len(found)), key=lambda at: (found[at].p, -found[at].advantage)):
        name = found[at].coordinate
        turns[at] = numbers[name.message, name.field]
        numbers[name.message, name.field] += 1
    return tuple(found[at] for at in sorted(turns, key=lambda at: (turns[at], at)))


def _judge_coordinate(seen: Columns, told: Bools, held: Columns, truth: Bools) -> tuple[Split, ...]:
    """Test one coordinate by the bins that differ most on the learning half, and by order."""
    bins = cut_bins(seen)
    chosen = choose_bins(bins.place(seen), told, bins.number)
    return judge_set(chosen[bins.place(held)], truth), judge_order(held, truth)


def _halves(second: Bools, rng: Generator) -> tuple[Ints, Ints]:
    """Divide runs into halves with equally many runs of both samples, each in random order."""
    parts = [rng.permutation(np.flatnonzero(second == which)) for which in (False, True)]
    cut = len(parts[0]) // 2
    return np.concatenate([p[:cut] for p in parts]), np.concatenate([p[cut:] for p in parts])


INTERVAL: Final = 0.95
"""The probability that an interval contains the true success."""
_RUNS_MIN: Final = 100

Draw = Callable[[Generator], Sequence[object]]
"""Draws the inputs of all parties for one run."""
Secret = Callable[[Played], Hashable]
"""Returns the secret of a run, one of a few; `None` leaves the run out."""
Guess = Callable[[Mapping[str, MemberView]], Hashable]
"""Guesses the secret from the members' views."""


class Success(NamedTuple):
    """The success rate of an attacker."""

    attacker: str
    right: int
    runs: int

    @property
    def rate(self) -> Estimate:
        """The share of runs in which it was right."""
        share = self.right / self.runs
        return Estimate(share, math.sqrt(share * (1 - share) / self.runs))

    @property
    def interval(self) -> tuple[float, float]:
        """Exact bounds on the probability that it is right (Clopper and Pearson 1934)."""
        bounds = proportion_bounds(np.array([self.right]), self.runs, (1 - INTERVAL) / 2)
        return float(bounds.low[0]), float(bounds.high[0])

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate.value:.3f} ({low:.3f} to {high:.3f}), {self.attacker}"


@dataclass(frozen=True, slots=True)
class Leakage:
    """The information about a secret that a coalition learns.

    Attributes:
        learned: The success of the best attacker that learned from runs and does not know the
            protocol.
        left_out: The number of further coordinates of the view, which no attacker that learned
            from runs was given.
    """

    from_view: Success
    from_output: Success
    learned: Success
    given: tuple[Success, ...]
    gain: Estimate
    left_out: int = 0

    def __str__(self) -> str:
        lines = {"from the view": self.from_view, "from the output": self.from_output}
        lines |= {f"given: {success.attacker}": success for success in self.given}
        low, high = (self.gain.value + side * 2 * self.gain.standard_error for side in (-1, 1))
        table = [f"{name:<16} {success}" for name, success in lines.items()]
        table.append(f"{'gain':<16} {self.gain.value:.3f} ({low:.3f} to {high:.3f})")
        if self.left_out:
            table.append(f"{'left out':<16} {self.left_out:,} further numbers of the view")
        return "\n".join(table)


def measure_leakage(  # noqa: PLR0913  (a protocol, a secret, a coalition and a budget)
    role: Role,
    draw: Draw,
    *,
    secret: Secret,
    coalition: Sequence[str],
    parties: int | Sequence[str],
    guess: Mapping[str, Guess] | None = None,
    strip: Strip | None = None,
    only: Mapping[str, Mapping[str, object]] | None = None,
    runs: int = RUNS,
    seed: int | None = 0,
    **public: Any,
) -> Leakage:
    """Measure how often a coalition finds a secret from its view, and from the output alone.

    The other arguments are those of `compare_views`.

    Args:
        draw: A function that draws the inputs of a run, in the order of the parties.
        secret: A function that returns the secret of a run, which has a few possible values; `None`
            leaves the run out. The secret may depend on the view: "is the new entry the victim's
            own?"
        guess: Attackers that know the protocol, by name. They compete with those that learn.
        runs: The number of runs, at least 100.

    Raises:
        InputError: If too few runs have a secret.
        MissingExtra: If scikit-learn or SimPy is not installed.
    """
    refuse_options(role, measure_leakage)
    world = World(role, draw, name_parties(draw, parties), tuple(coalition), public, only or {})
    streams = Streams(seed)
    pilot = [*play_world(world, PILOT_RUNS, streams, "pilot")]
    layout = Layout(pilot, strip, arithmetic=Arithmetic().beside(role, public))
    columns, found, guesses = _play(world, layout, secret, guess or {}, runs, streams)
    if len(found) < _RUNS_MIN:
        raise InputError("runs", runs, f"enough that {_RUNS_MIN} have a secret: {len(found)} have")
    order = streams.generator("order").permutation(len(found))
    learned, judged = order[: len(order) // 2], order[len(order) // 2 :]
    classes, labels = np.unique(found, return_inverse=True)
    choice = int(streams.generator("learning").integers(1 << 31))

    kept = screen(columns[learned], labels[learned], layout.examined)

    def attack(which: Bools) -> tuple[str, float, Labels]:
        used = kept[which[kept]]
        best = learn_best(columns[np.ix_(learned, used)], labels[learned], choice)
        return best.name, best.chosen_at, best.attacker.guess(columns[np.ix_(judged, used)])

    name, rate, guessed = attack(layout.of_views(coalition))
    learner = Success(name, int((guessed == labels[judged]).sum()), len(judged))
    told, _, from_output = attack(layout.of_outputs(coalition))
    given = []
    for called, each in guesses.items():
        hits = each == found
        given.append(Success(called, int(hits[judged].sum()), len(judged)))
        if hits[learned].mean() > rate:
            name, rate = called, float(hits[learned].mean())
            guessed = np.searchsorted(classes, each[judged])
    right, anyway = guessed == labels[judged], from_output == labels[judged]
    gains = right.astype(np.float64) - anyway
    return Leakage(
        Success(name, int(right.sum()), len(right)),
        Success(told, int(anyway.sum()), len(right)),
        learner,
        tuple(given),
        Estimate(float(gains.mean()), float(gains.std()) / math.sqrt(len(gains))),
        layout.left_out,
    )


def _play(  # noqa: PLR0917  (runs, and everything that is examined in them)
    world: World,
    layout: Layout,
    secret: Secret,
    guess: Mapping[str, Guess],
    runs: int,
    streams: Streams,
) -> tuple[Columns, NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the coordinates of the runs that have a secret, their secrets, and all guesses."""
    found: list[Hashable] = []
    guessed: dict[str, list[Hashable]] = {name: [] for name in guess}

    def kept() -> Iterator[Played]:
        for played in play_world(world, runs, streams, "world"):
            if (known := secret(played)) is not None:
                found.append(known)
                for name, attacker in guess.items():
                    guessed[name].append(attacker(played.views))
                yield played

    columns = layout.read(kept())
    return columns, np.array(found), {name: np.array(each) for name, each in guessed.items()}
