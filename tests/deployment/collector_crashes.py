"""A deployed collector that is killed repeatedly while reports arrive.

To run it manually: `python -m tests.deployment.collector_crashes ROUNDS`.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.deployment.collection import COLLECTOR, Collection
from tests.deployment.commands import SECONDS
from tests.deployment.crashing import report_crashes

CLIENTS = {number: f"survey-client-{number}" for number in range(2)}
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
        rows = len(CLIENTS) * ROWS
        self.collection = Collection(folder, reports=rows, survey_clients=len(CLIENTS))
        self.rng, self.seen = rng, Crashes(rows=rows)

    def round(self, number: int) -> None:
        """Start stopped processes, kill the collector at some point, and perhaps others too."""
        kills_all = number % ALL_EVERY == ALL_EVERY - 1
        self.collection.collect()
        before = self.collection.counted()
        for survey_client in CLIENTS:
            self.hand_in(survey_client)
        if not kills_all or self.rng.random() < 0.5:
            self.wait_for_more(before)
        time.sleep(DELAY * self.rng.random())
        self.collection.kill(COLLECTOR)
        self.seen.kills += 1
        self.seen.flowing += before < self.collection.counted() < self.seen.rows
        if kills_all:
            self.kill_survey_clients(CLIENTS)
            heard = sum(verdict is not None for *_, verdict in self.collection.outboxes())
            self.seen.unheard += self.collection.require_sound() - heard
        elif number % SURVEY_CLIENT_EVERY == 0:
            self.kill_survey_clients([int(self.rng.integers(len(CLIENTS)))])
        self.seen.outlived += any(map(self.is_running, CLIENTS))

    def is_running(self, survey_client: int) -> bool:
        """Return whether a survey client was started and has not ended."""
        process = self.collection.running.get(CLIENTS[survey_client])
        return process is not None and process.poll() is None

    def has_ended_well(self, survey_client: int) -> bool:
        """Return whether a survey client has submitted all its rows, once it ends.

        It fails, and has made no report yet, if the collector dies before it was told the task.
        """
        process = self.collection.running.get(CLIENTS[survey_client])
        if process is None:
            return False
        if process.wait(SECONDS) == 1 and process.output.startswith("veilring: collector was lost"):
            return False
        self.collection.well_ended(process)
        return True

    def hand_in(self, survey_client: int) -> None:
        """Start a survey client that was killed, or add rows to one that has finished."""
        if self.is_running(survey_client):
            return
        if self.has_ended_well(survey_client):
            self.add_rows(survey_client)
        options = ("--single",) if self.rng.random() < 0.8 else ()
        self.collection.submit(survey_client, *options)

    def add_rows(self, survey_client: int) -> None:
        """Write more rows, of new clients, at the end of a survey client's file."""
        path = self.collection.folder / f"{CLIENTS[survey_client]}.csv"
        rows = [line.split(",", 1)[1] for line in path.read_text().splitlines()[1 : ROWS + 1]]
        with path.open("a") as file:
            file.writelines(f"new-{self.seen.rows + n},{row}\n" for n, row in enumerate(rows))
        self.seen.rows += ROWS

    def wait_for_more(self, before: int) -> None:
        """Wait until more reports are stored, or no survey client is running."""
        deadline = time.monotonic() + SECONDS
        while self.collection.counted() == before and any(map(self.is_running, CLIENTS)):
            assert time.monotonic() < deadline, "no report came"
            time.sleep(0.005)

    def kill_survey_clients(self, numbers: Iterable[int]) -> None:
        """Kill some of the survey clients that are still running."""
        for number in filter(self.is_running, numbers):
            self.collection.kill(CLIENTS[number])
            self.seen.survey_clients += 1

    def finish(self) -> None:
        """Submit the remaining reports, and compare acknowledged with counted reports."""
        self.collection.collect()
        for number in CLIENTS:
            if not self.has_ended_well(number):
                self.collection.submitted(number=number)
        self.collection.kill()
        made = self.collection.outboxes()
        assert all(verdict in {0, 1} for *_, verdict in made)
        assert len(made) == self.seen.rows == self.collection.require_sound()
        assert self.collection.counted() == self.seen.rows
        self.seen.known = sum(verdict == 1 for *_, verdict in made)


async def crash_rounds(folder: Path, rounds: int, seed: int | None) -> Crashes:
    """Kill the collector the given number of times, and check its invariants throughout."""
    crashing = Crashing(folder, np.random.default_rng(seed))
    try:
        for number in range(rounds):
            await asyncio.to_thread(crashing.round, number)
        crashing.finish()
    finally:
        crashing.collection.kill()
    return crashing.seen


if __name__ == "__main__":
    report_crashes(crash_rounds)
