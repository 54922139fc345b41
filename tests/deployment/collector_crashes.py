"""A deployed collector that is killed repeatedly while reports arrive.

To run it manually: `python -m tests.deployment.collector_crashes ROUNDS`.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.deployment.collection import Collection
from tests.deployment.commands import SECONDS, Command

SURVEY_CLIENTS = 2
ROWS = 6000  # for a survey client that has handed in all it had; sent in about a second
ALL_EVERY = 4  # rounds: then everything is killed, every other time while reports are made
SURVEY_CLIENT_EVERY = 3  # rounds: then a survey client dies next to the collector
DELAY = 0.25  # seconds at most from the first report of a round to the kill


@dataclass
class Crashes:
    """The observations of a crash test.

    Attributes:
        kills: The number of times the collector was killed.
        flowing: Kills of the collector after some, but not all, reports were stored.
        survey_clients: The number of times a survey client was killed.
        outlived: Kills of the collector that a survey client outlived.
        unheard: Reports stored when every process was killed, whose receipts were not kept.
        rows: The number of rows in the end; the same number of reports is acknowledged and counted.
        known: The number of these reports that were already stored when they were sent again.
    """

    kills: int = 0
    flowing: int = 0
    survey_clients: int = 0
    outlived: int = 0
    unheard: int = 0
    rows: int = 0
    known: int = 0


class Crashing:
    """A collection, its survey clients, and the observations about them."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        rows = SURVEY_CLIENTS * ROWS
        self.collection = Collection(folder, reports=rows, survey_clients=SURVEY_CLIENTS)
        self.rng, self.seen = rng, Crashes(rows=rows)
        self.running: dict[int, Command] = {}

    def round(self, number: int) -> None:
        """Start stopped processes, kill the collector at some point, and perhaps others too."""
        kills_all = number % ALL_EVERY == ALL_EVERY - 1
        self.collection.serve()
        before = self.collection.counted()
        for survey_client in range(SURVEY_CLIENTS):
            self.hand_in(survey_client)
        if not kills_all or self.rng.random() < 0.5:
            self.wait_for_more(before)
        time.sleep(DELAY * self.rng.random())
        self.kill_collector(before)
        if kills_all:
            self.kill_survey_clients(range(SURVEY_CLIENTS))
            self.check()
        elif number % SURVEY_CLIENT_EVERY == 0:
            self.kill_survey_clients([int(self.rng.integers(SURVEY_CLIENTS))])
        self.seen.outlived += any(each.poll() is None for each in self.running.values())

    def hand_in(self, survey_client: int) -> None:
        """Start a survey client that was killed, or add rows to one that has finished."""
        process = self.running.get(survey_client)
        if process is not None:
            if process.poll() is None:
                return
            self.require_well(process)
            self.add_rows(survey_client)
        options = ("--single",) if self.rng.random() < 0.8 else ()
        self.running[survey_client] = self.collection.submit(survey_client, *options)

    def require_well(self, process: Command) -> None:
        """Require that a command has ended successfully."""
        assert process.wait(SECONDS) == 0, process.output
        assert "Traceback" not in process.output

    def add_rows(self, survey_client: int) -> None:
        """Write more rows, of new clients, at the end of a survey client's file."""
        path = self.collection.folder / f"survey-client-{survey_client}.csv"
        rows = [line.split(",", 1)[1] for line in path.read_text().splitlines()[1 : ROWS + 1]]
        with path.open("a") as file:
            file.writelines(f"new-{self.seen.rows + n},{row}\n" for n, row in enumerate(rows))
        self.seen.rows += ROWS

    def wait_for_more(self, before: int) -> None:
        """Wait until more reports are stored, or no survey client is running."""
        deadline = time.monotonic() + SECONDS
        while self.collection.counted() == before:
            if all(each.poll() is not None for each in self.running.values()):
                return
            assert time.monotonic() < deadline, "no report came"
            time.sleep(0.005)

    def kill_collector(self, before: int) -> None:
        """Kill the collector, and record whether reports were arriving."""
        assert self.collection.collector is not None
        self.collection.collector.kill()
        self.seen.kills += 1
        self.seen.flowing += before < self.collection.counted() < self.seen.rows

    def kill_survey_clients(self, numbers: range | list[int]) -> None:
        """Kill some of the survey clients that are still running."""
        for number in numbers:
            process = self.running[number]
            if process.poll() is None:
                process.kill()
                self.seen.survey_clients += 1
                del self.running[number]

    def check(self) -> None:
        """Check the invariants after everything was killed."""
        stored = self.collection.require_sound()
        heard = sum(verdict is not None for *_, verdict in self.collection.outboxes())
        self.seen.unheard += stored - heard

    def finish(self) -> None:
        """Submit the remaining reports, and compare acknowledged with counted reports."""
        self.collection.serve()
        for survey_client in range(SURVEY_CLIENTS):
            process = self.running.get(survey_client) or self.collection.submit(survey_client)
            self.require_well(process)
        self.collection.kill_all()
        made = self.collection.outboxes()
        assert all(verdict in {0, 1} for *_, verdict in made)
        assert len(made) == self.seen.rows == self.collection.require_sound()
        assert self.collection.counted() == self.seen.rows
        self.seen.known = sum(verdict == 1 for *_, verdict in made)


def crash_rounds(folder: Path, rounds: int, rng: np.random.Generator) -> Crashes:
    """Kill the collector the given number of times, and check its invariants throughout."""
    crashing = Crashing(folder, rng)
    try:
        for number in range(rounds):
            crashing.round(number)
        crashing.finish()
    finally:
        crashing.collection.kill_all()
    return crashing.seen


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        started = time.monotonic()
        found = crash_rounds(Path(where) / "survey", int(sys.argv[1]), np.random.default_rng(1))
        print(found)
        print(f"{time.monotonic() - started:.0f} s")
