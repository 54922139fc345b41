"""Ten planted mistakes, and the smallest world that still shows each."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from typer.testing import CliRunner

from benchmarks.auditing import subject_of
from benchmarks.measurement import Bound, Measurement
from benchmarks.mistakes import MISTAKES, Mistake, planted
from veilring.cli.app import app
from veilring.errors import InternalError
from veilring.testing.exploring import SystemSubject, World, draw_world, play_world, shrink, to_toml

SHRUNK: Final[Mapping[str, tuple[str, ...]]] = {
    "class numbers are reversed": (),
    "ties go to the last class": (),
    "votes count for the next class": (),
    "decoded sums are off by one": (),
    "a step of PP-TopK returns the old vector": (),
    "the last party's votes count twice": (),
    "labels of the nearest rows are reversed": ("protocol.name=rank-search", "protocol.k=5"),
    "one party reverses the total": ("protocol.name=release",),
    "a sum omits late parties": (),
    "shares that are sent again count twice": (),
}
"""Mistakes that a world shows by a wrong result, with the settings of its scenario."""
QUICK: Final = 2
PARTIES_MOST: Final = 3
FAULTS_MOST: Final = 2
SECONDS_MOST: Final = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a world.

    Attributes:
        parties: The number of parties.
        faults: The number of faults.
        queries: The number of queries of a batch.
    """

    parties: int
    faults: int
    queries: int

    @classmethod
    def of(cls, subject: SystemSubject, world: World) -> "Size":
        """Return the size of a system's world."""
        queries = len(subject.prepared.held_out)
        return cls(len(subject.parties), len(world.faults), queries)

    def __str__(self) -> str:
        return f"{self.parties}, {self.faults}, {self.queries}"


@dataclass(frozen=True, slots=True)
class Made:
    """A world that was made smaller.

    Attributes:
        seed: The first seed whose world shows the mistake.
        before: The size of that world.
        after: The size of the smallest world.
        worlds: The number of worlds played to find it.
        seconds: The seconds that took.
        fails_again: Whether `veilring run` fails on its file with the mistake, and not without.
    """

    seed: int
    before: Size
    after: Size
    worlds: int
    seconds: float
    fails_again: bool


def make_smaller(mistake: Mistake) -> Made:
    """Plant a mistake, and make the first world that shows it smaller.

    Raises:
        InternalError: If a world that went wrong does not go wrong again.
    """
    subject = subject_of(*SHRUNK[mistake.name])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.toml"
        with planted(mistake):
            worlds = ((seed, draw_world(seed, subject.parties)) for seed in count())
            seed, world = next(pair for pair in worlds if play_world(subject, pair[1]).wrong)
            began = time.perf_counter()
            shrunk = shrink(subject, world)
            seconds = time.perf_counter() - began
            if shrunk is None or not isinstance(shrunk.subject, SystemSubject):
                raise InternalError(f"the world of seed {seed} goes wrong only sometimes")
            path.write_text(to_toml(shrunk.subject, shrunk.world), encoding="utf-8")
            fails = _run(path) == 1
        fails_again = fails and _run(path) == 0
    before, after = Size.of(subject, world), Size.of(shrunk.subject, shrunk.world)
    return Made(seed, before, after, shrunk.plays, seconds, fails_again)


def _run(path: Path) -> int:
    """Return the exit code of `veilring run`, in this process: what is planted is there."""
    return CliRunner().invoke(app, ["run", str(path)]).exit_code


def measure(*, quick: bool) -> list[Measurement]:
    """Make a failing world of each mistake smaller, and play its file again."""
    print("| bug | seed | size before | size after | worlds played | seconds | replay fails |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    made = []
    for name in list(SHRUNK)[: QUICK if quick else None]:
        (mistake,) = (each for each in MISTAKES if each.name == name)
        one = make_smaller(mistake)
        made.append(one)
        again = "yes" if one.fails_again else "NO"
        print(
            f"| {name} | {one.seed} | {one.before} | {one.after} | {one.worlds:,} "
            f"| {one.seconds:.1f} | {again} |",
            flush=True,
        )
    worst: tuple[tuple[str, str, float, float], ...] = (
        ("parties of a smallest world", "", max(one.after.parties for one in made), PARTIES_MOST),
        ("faults of a smallest world", "", max(one.after.faults for one in made), FAULTS_MOST),
        ("seconds to make one", "s", max(one.seconds for one in made), SECONDS_MOST),
        ("files that do not fail again", "", sum(not one.fails_again for one in made), 0),
    )
    return [
        Measurement(f"{name}, most", unit, (value,), Bound("at most", most))
        for name, unit, value, most in worst
    ]
