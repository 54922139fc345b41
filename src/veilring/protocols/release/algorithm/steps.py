"""The steps of a release: its sums, their noise, and the resulting model.

Networked parties, an owner alone and a simulation in one process all drive the same generator,
which yields the next summand and receives the noisy total. The model is a function of the totals
and of public values, so everyone with the totals has the same model.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from veilring.arrays import Ints
from veilring.data.table import Features, Rows
from veilring.privacy.checks import require_that
from veilring.protocols.digests import DIGEST_BYTES, digest_of, written
from veilring.protocols.release.algorithm.classifiers import Predictor
from veilring.protocols.release.algorithm.noise import Account, SumNoise, account_of, plan_noise
from veilring.protocols.release.algorithm.rule import Plan, first_statistic, main_statistic
from veilring.protocols.release.algorithm.statistic import Statistic
from veilring.randomness import Streams

_SEED_BYTES: Final = 8
_WORD: Final = np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class ReleaseParameters:
    """The public parameters of a release, equal for all parties."""

    features: Features
    plan: Plan
    own: Statistic[Predictor] | None = None

    def __post_init__(self) -> None:
        require_that(
            self.own is None or is_dataclass(self.own),
            "statistic",
            f"{type(self.own).__name__} must be a dataclass: parties compare the fields of the"
            " statistic, to make sure that they add up the same one",
        )
        for noise in self.noises:
            noise.require_room(self.plan.rows)

    @cached_property
    def digest(self) -> bytes:
        """The hash of the parameters and of the noise, which may depend on the version."""
        return digest_of(self._given, *(written(noise).encode() for noise in self.noises))

    @cached_property
    def _given(self) -> bytes:
        """The hash of the inputs to the noise."""
        own = "" if self.own is None else written(self.own)
        return digest_of(written(self.features).encode(), written(self.plan).encode(), own.encode())

    @cached_property
    def first(self) -> Statistic[Any] | None:
        """The statistic of the first of two sums; None if there is only one sum."""
        return None if self.own else first_statistic(self.plan, self.features)

    def main(self, frame: Any = None) -> Statistic[Predictor]:  # noqa: ANN401  (what the first sum is decoded to)
        """Return the statistic of the model, in the frame decoded from a first sum, if any."""
        if self.own:
            return self.own
        # The seed of the trees need not be secret, only equal at all parties.
        public = Streams(int.from_bytes(self._given[:_SEED_BYTES])).generator("release")
        return main_statistic(self.plan, self.features, public, frame)

    @cached_property
    def noises(self) -> tuple[SumNoise, ...]:
        """The noise of each sum, fixed before the first sum."""
        plan, sums = self.plan, [each for each in (self.first, self.main()) if each is not None]
        rows = [each.sensitivity for each in sums]
        return plan_noise(
            plan.distribution, plan.epsilon, plan.delta, plan.trust, rows, weights=plan.weights
        )

    @property
    def account(self) -> Account:
        """The guarantee of all sums together."""
        return account_of(self.noises)


class Total(NamedTuple):
    """A noisy total, which is public, shape (length,), with its number of shares."""

    sums: Ints
    shares: int


class Step(NamedTuple):
    """The next summand."""

    statistic: Statistic[Any]
    noise: SumNoise

    def draw(self, rows: Rows, rng: np.random.Generator) -> Ints:
        """Return a party's summand, shape (length,): its rows' sum and its noise share. Secret."""
        return self.statistic.sum(rows.features, rows.labels) + self.noise.share(rng)


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """A release, equal for everyone with its totals.

    Attributes:
        totals: The noisy total of each sum, in order.
    """

    model: Predictor
    totals: tuple[Total, ...]


Steps = Generator[Step, Total, Released]


def release_steps(parameters: ReleaseParameters) -> Steps:
    """Yield each step of a release, receive its noisy total, and return the release."""
    totals, noises, frame = [], parameters.noises, None
    if parameters.first is not None:
        step = Step(parameters.first, noises[0])
        totals.append((yield step))
        frame = _decoded(step, totals[-1])
    step = Step(parameters.main(frame), noises[-1])
    totals.append((yield step))
    return Released(_decoded(step, totals[-1]), tuple(totals))


def simulate_release(
    parts: Sequence[Rows], parameters: ReleaseParameters, rngs: Sequence[np.random.Generator]
) -> Released:
    """Release the rows of all parties in one process, with the parties' own steps."""
    steps = release_steps(parameters)
    *_, last = simulate_draws(steps, parts, parameters, rngs)
    return finish_release(steps, Total(last.sum(axis=0), len(parts)))


def simulate_draws(
    steps: Steps,
    parts: Sequence[Rows],
    parameters: ReleaseParameters,
    rngs: Sequence[np.random.Generator],
) -> Iterator[Ints]:
    """Yield the noisy vectors of all parties for each sum, shape (parties, entries).

    The caller finishes the last one of the given steps.
    """
    total = None
    for _ in parameters.noises:
        step = next(steps) if total is None else steps.send(total)
        drawn = np.array([step.draw(rows, rng) for rows, rng in zip(parts, rngs, strict=True)])
        total = Total(drawn.sum(axis=0), len(parts))
        yield drawn


def released_by(parameters: ReleaseParameters, totals: Sequence[Total]) -> Released:
    """Return the release that results from the noisy total of each sum, in order."""
    require_that(
        len(totals) == len(parameters.noises),
        "totals",
        f"there are {len(totals)} totals; the release has {len(parameters.noises)} sums",
    )
    steps = release_steps(parameters)
    next(steps)
    for total in totals[:-1]:
        steps.send(total)
    return finish_release(steps, totals[-1])


def released_size(parameters: ReleaseParameters) -> int:
    """Return the number of bytes that `write_release` returns."""
    words = sum(1 + noise.sensitivity.dimensions for noise in parameters.noises)
    return DIGEST_BYTES + words * _WORD.itemsize


def write_release(parameters: ReleaseParameters, released: Released) -> bytes:
    """Return a release as bytes: the hash of its parameters, then each total's shares and sums."""
    words = [part for total in released.totals for part in ([total.shares], total.sums)]
    return parameters.digest + np.concatenate(words).astype(_WORD).tobytes()


def read_release(parameters: ReleaseParameters, kept: bytes) -> Released:
    """Return the release that `write_release` wrote."""
    whole = len(kept) == released_size(parameters) and kept.startswith(parameters.digest)
    require_that(whole, "release", "this release was made with other parameters")
    totals, words = [], np.frombuffer(kept, _WORD, offset=DIGEST_BYTES).astype(np.int64)
    for noise in parameters.noises:
        end = 1 + noise.sensitivity.dimensions
        totals.append(Total(words[1:end], int(words[0])))
        words = words[end:]
    trust = parameters.plan.trust
    require_that(
        all(trust.present <= total.shares <= trust.parties for total in totals),
        "release",
        "a total of this release has the wrong number of parties",
    )
    return released_by(parameters, totals)


def finish_release(steps: Steps, total: Total) -> Released:
    """Return the release completed by its last total."""
    try:
        steps.send(total)
    except StopIteration as done:
        released: Released = done.value
        return released
    raise AssertionError("a release has more sums than its parameters")


def _decoded(step: Step, total: Total) -> Any:  # noqa: ANN401  (a frame or a classifier)
    return step.statistic.decode(total.sums, step.noise.deviation(total.shares))
