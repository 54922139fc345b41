"""The amount of a secret that a coalition learns: the success of the best of several attackers.

Inputs are drawn for each run, so that the distribution of the secret is known. Attackers learn on
one half of the runs, a part of which decides which attacker is best; the success of that attacker
is measured on the other half. It is compared with the best guess from the protocol's permitted
output: the same attackers, given only the inputs and the results of the coalition.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.tails import proportion_bounds
from veilring.protocols.measures import Estimate
from veilring.randomness import Streams
from veilring.testing.hiding.attackers import Labels, learn_best
from veilring.testing.hiding.audit import PILOT_RUNS, RUNS
from veilring.testing.hiding.features import READ_AT_ONCE, Layout, Strip
from veilring.testing.hiding.leaves import Columns
from veilring.testing.hiding.worlds import MemberView, Played, Role, World, name_parties, play_world

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

    Args:
        role: The protocol: the coroutine `role(party, own, **public)` that each party plays.
        draw: A function that draws the inputs of a run, in the order of the parties.
        secret: A function that returns the secret of a run, which has a few possible values; `None`
            leaves the run out. The secret may depend on the view: "is the new entry the victim's
            own?"
        parties: The names of the parties, or their number.
        guess: Attackers that know the protocol, by name. They compete with those that learn.
        strip: A function that computes more from the members' views.
        only: Keyword arguments of one party's role, by its name.
        runs: The number of runs, at least 100.
        seed: The seed of all randomness; `None` draws it from the operating system.
        **public: Keyword arguments of every party's role.

    Raises:
        InputError: If too few runs have a secret.
        MissingExtra: If scikit-learn or SimPy is not installed.
    """
    world = World(role, draw, name_parties(draw, parties), tuple(coalition), public, only or {})
    streams = Streams(seed)
    layout = Layout([*play_world(world, PILOT_RUNS, streams, "pilot")], strip)
    columns, found, guesses = _play(world, layout, secret, guess or {}, runs, streams)
    if len(found) < _RUNS_MIN:
        raise InputError("runs", runs, f"enough that {_RUNS_MIN} have a secret: {len(found)} have")
    order = streams.generator("order").permutation(len(found))
    learned, judged = order[: len(order) // 2], order[len(order) // 2 :]
    classes, labels = np.unique(found, return_inverse=True)
    choice = int(streams.generator("learning").integers(1 << 31))

    def attack(which: NDArray[np.bool_]) -> tuple[str, float, Labels]:
        best = learn_best(columns[learned][:, which], labels[learned], choice)
        return best.name, best.chosen_at, best.attacker.guess(columns[judged][:, which])

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
    return Leakage(
        Success(name, int(right.sum()), len(right)),
        Success(told, int(anyway.sum()), len(right)),
        learner,
        tuple(given),
        _paired(right.astype(np.float64) - anyway),
        layout.left_out,
    )


def _paired(differences: NDArray[np.float64]) -> Estimate:
    spread = float(differences.std()) / math.sqrt(len(differences))
    return Estimate(float(differences.mean()), spread)


def _play(  # noqa: PLR0917  (runs, and everything that is examined in them)
    world: World,
    layout: Layout,
    secret: Secret,
    guess: Mapping[str, Guess],
    runs: int,
    streams: Streams,
) -> tuple[Columns, NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the coordinates of the runs that have a secret, their secrets, and all guesses."""
    parts: list[Columns] = []
    found: list[Hashable] = []
    guessed: dict[str, list[Hashable]] = {name: [] for name in guess}
    played = play_world(world, runs, streams, "world")
    while chunk := list(islice(played, READ_AT_ONCE)):
        secrets = [secret(each) for each in chunk]
        kept = [each for each, known in zip(chunk, secrets, strict=True) if known is not None]
        found += [known for known in secrets if known is not None]
        for name, attacker in guess.items():
            guessed[name] += [attacker(each.views) for each in kept]
        if kept:
            parts.append(layout.read(kept))
    columns = np.concatenate(parts) if parts else np.empty((0, len(layout.coordinates)), np.float32)
    return columns, np.array(found), {name: np.array(each) for name, each in guessed.items()}
