"""Worlds with faults a second and core, beside another checkout in the same run.

Each side plays the worlds of the same seeds in a process of its own, which uses only what all
versions have. They take turns world by world, and the least processor time of some plays counts: a
busy machine slows a play, and never speeds it up.

A world of another version may have other faults or more runs, so runs a second are compared, too.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final, NamedTuple, TextIO, cast

from benchmarks.measurement import Measurement, one_thread, ratios
from veilring.errors import InputError, ProtocolViolation, WorldWentWrong
from veilring.nodes.party import Party, broadcast
from veilring.scenarios import load_scenario
from veilring.testing.exploring.subjects import RoleSubject, SystemSubject
from veilring.testing.exploring.worlds import Subject, draw_world, play_world
from veilring.transport.messages import Message

_HERE: Final = Path(__file__).parents[1]
_WARMING: Final = 10_000
"""The seed of a world that is played once before, unmeasured."""


class Vote(Message, kind="exploring.vote"):
    """A number."""

    n: int


async def count_votes(party: Party, own: int) -> int:
    """Send the own vote to all, then the total, which has to be the same everywhere."""
    party.round(1)
    await broadcast(party, Vote(n=own))
    total = own + sum([(await party.receive(Vote, sender=peer)).n for peer in party.peers])
    party.round(2)
    await broadcast(party, Vote(n=total))
    for peer in party.peers:
        if (await party.receive(Vote, sender=peer)).n != total:
            raise ProtocolViolation(peer, "sent another total")
    return total


def _is_sum(inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    if set(results.values()) - {sum(inputs.values())}:
        raise AssertionError("a wrong total")


def _subject(name: str) -> Subject:
    if name == "a role":
        votes = {"ada": 3, "ben": 1, "cy": 4, "dee": 1, "eve": 5}
        return RoleSubject(count_votes, votes, _is_sum)
    return SystemSubject(load_scenario("faults", (f"protocol.name={name}",)))


SUBJECTS: Final = ("a role", "private-knn", "rank-search", "release")


class World(NamedTuple):
    """A world that was played: its number of runs, and the seconds that it took of a core."""

    runs: int
    seconds: float


def _play(subject: Subject, seed: int) -> World:
    world = draw_world(seed, subject.parties)
    start = time.process_time()
    explored = play_world(subject, world)
    seconds = time.process_time() - start
    if explored.wrong:
        raise WorldWentWrong(tuple(explored.wrong))
    return World(len(explored.runs), seconds)


def play_asked(name: str) -> None:
    """Play the worlds of the seeds that come on the standard input, one a line."""
    subject = _subject(name)
    _play(subject, _WARMING)
    for line in sys.stdin:
        print(json.dumps(_play(subject, int(line))), flush=True)


Player = Callable[[int], World]
"""Plays the world of a seed."""


@contextmanager
def _player(checkout: Path, name: str) -> Iterator[Player]:
    """Start a process that plays the worlds of a subject with the code of a checkout."""
    path = os.pathsep.join(map(str, (checkout / "src", _HERE)))
    command = [sys.executable, "-m", "benchmarks.exploring", name]
    with one_thread():
        environment = {**os.environ, "PYTHONPATH": path}
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environment) as process:
        asked, played = cast("TextIO", process.stdin), cast("TextIO", process.stdout)

        def play(seed: int) -> World:
            print(seed, file=asked, flush=True)
            return World(*json.loads(played.readline()))

        yield play


def compare(checkout: Path, *, worlds: int, plays: int) -> list[Measurement]:
    """Measure how many worlds, and runs, a core plays in a second here, beside another checkout."""
    if not (checkout / "src" / "veilring").is_dir():
        raise InputError("checkout", str(checkout), "the folder of a clone of veilring")
    found = []
    for name in SUBJECTS:
        with _player(_HERE, name) as ours, _player(checkout, name) as theirs:
            played = [_least(ours, theirs, seed, plays) for seed in range(1, worlds + 1)]
        each = [(mine.seconds, other.seconds) for mine, other in played]
        found.append(ratios(f"worlds with faults, {name}", each, faster=True))
        each = [(mine.seconds / mine.runs, other.seconds / other.runs) for mine, other in played]
        found.append(ratios(f"runs in these worlds, {name}", each, faster=True))
    return found


def _least(ours: Player, theirs: Player, seed: int, plays: int) -> tuple[World, World]:
    """Play a world on each side in turns, and return the fastest play of each."""
    both = [(ours(seed), theirs(seed)) for _ in range(plays)]
    mine, other = (min(side, key=lambda world: world.seconds) for side in zip(*both, strict=True))
    return mine, other


if __name__ == "__main__":
    play_asked(sys.argv[1])
