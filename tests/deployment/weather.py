"""Bad networks between deployed processes: a faulty proxy, and the invariants that must hold.

    python -m tests.deployment.weather 60

runs it for an hour. Every connection of three members, of a survey and of their clients goes
through a proxy that cuts, freezes, delays and throttles it, one weather after another. After each
one, the deployment has to recover.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.ports import reserve_ports
from tests.deployment.collection import Collection, kept
from tests.deployment.commands import PARTIES, SECONDS, Deployment

from veilring.deployment import load_config_of
from veilring.deployment.peers import ClientConfig, ask_member
from veilring.deployment.status import StatusReport, read_status
from veilring.errors import VeilringError
from veilring.transport.roster import Roster

HOST: Final = "127.0.0.1"
# Between two weathers, and the time that one lasts. Long enough for a cut to be noticed and
# repaired, short enough that two minutes show all of them.
WEATHER_SECONDS: Final = 3.0
SESSION_SECONDS: Final = 8.0
CHUNK: Final = 1 << 14
POLL_SECONDS: Final = 0.05
# A client that asks without a pause shows no more of a weather, and keeps all cores busy.
PAUSE_SECONDS: Final = 0.2
# A party may keep buffers that a storm has grown, and grows no further.
GROWTH_BYTES_MAX: Final = 48 << 20
LOG_BYTES_PER_SECOND_MAX: Final = 4096
REPORTS: Final = 2000
PRICE: Final = 0.5
BUDGET: Final = 100_000.0


@dataclass
class Weather:
    """The state of one link.

    Attributes:
        delay: The time that each chunk takes, in seconds.
        rate: The bytes per second; 0 for no limit.
        frozen: Whether nothing passes, while both ends stay connected.
        closed: Whether new connections are ended at once.
        cuts: The probability that a chunk is lost, with its connection.
    """

    delay: float = 0.0
    rate: float = 0.0
    frozen: bool = False
    closed: bool = False
    cuts: float = 0.0


BAD: Final = {
    "cut": Weather(cuts=1.0),
    "sometimes cut": Weather(cuts=0.05),
    "closed": Weather(cuts=1.0, closed=True),
    "frozen": Weather(frozen=True),
    "slow": Weather(delay=0.1),
    "narrow": Weather(rate=20_000.0),
}


@dataclass
class Link:
    """A proxy before one port, with its weather."""

    port: int
    to: int
    seed: int
    weather: Weather = field(default_factory=Weather)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def become(self, weather: Weather) -> None:
        """Change the weather; a link that closes ends its connections."""
        self.weather = weather
        for writer in self._writers if weather.closed else ():
            writer.transport.abort()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Pass connections on until the context is left."""
        self._rng = random.Random(self.seed)
        async with asyncio.TaskGroup() as tasks:

            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connected.append(tasks.create_task(self._connected(reader, writer)))

            connected = list[asyncio.Task[None]]()
            server = await asyncio.start_server(begin, HOST, self.port)
            try:
                yield
            finally:
                server.close()
                for task in connected:
                    task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.weather.closed:
                return
            there, away = await asyncio.open_connection(HOST, self.to)
            try:
                async with asyncio.TaskGroup() as both:
                    for way in (self._pass(reader, away), self._pass(there, writer)):
                        both.create_task(way)
            finally:
                away.transport.abort()
        except (OSError, ExceptionGroup):  # either side has left, or the weather is bad
            pass
        finally:
            self._writers.remove(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            weather = self.weather
            lasts = weather.delay + (len(chunk) / weather.rate if weather.rate else 0.0)
            await asyncio.sleep(lasts)
            while self.weather.frozen:  # noqa: ASYNC110  (the weather changes from outside)
                await asyncio.sleep(POLL_SECONDS)
            if self._rng.random() < self.weather.cuts:
                writer.write(chunk[: self._rng.randrange(len(chunk))])  # a part of a TLS record
                break
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError


@dataclass
class Findings:
    """The findings of a storm.

    Attributes:
        answers: The first labels of each batch.
        errors: The errors of clients, by their class.
    """

    answers: dict[int, list[str]] = field(default_factory=dict)
    asked: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    weathers: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.asked} requests for {len(self.answers)} batches in weathers"
            f" {dict(self.weathers)}; errors {dict(self.errors)}; the slowest request took"
            f" {self.slowest:.1f} s; ε spent {self.spent}"
        )


class Storm:
    """A deployment of noisy votes and a survey behind proxies.

    Args:
        folder: A new folder for all files.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.votes = Deployment(
            folder / "votes", "votes", *("--budget", BUDGET, "--set", f"protocol.epsilon={PRICE}")
        )
        self.survey = Collection(folder / "survey", reports=REPORTS)
        self.votes.let_all(*PARTIES)
        self.links = dict[tuple[str, str], Link]()
        for name in (*PARTIES, "client"):
            self._put_behind(self.votes, name)
        self._put_behind(self.survey, "survey-client-0")
        self.found = Findings()

    def _put_behind(self, deployment: Deployment, name: str) -> None:
        """Give a party or client a roster in which the others are behind proxies."""
        roster = Roster.load(deployment.folder / "roster.toml")
        places = dict[str, tuple[str, int]]()
        for other in roster.parties:
            if other != name:
                port = reserve_ports()
                seed = self._rng.getrandbits(32)
                self.links[name, other] = Link(port, roster.member(other).port, seed)
                places[other] = (HOST, port)
        own = f"roster-{name}.toml"
        roster.at(places).save(deployment.folder / own)
        deployment.edit(f"{name}.toml", '"roster.toml"', f'"{own}"')
        if deployment is self.votes:
            limits = (f"session_seconds = {SESSION_SECONDS}", "answer_seconds = 2")
            deployment.configure(name, *limits)

    async def run(self, seconds: float) -> Findings:
        """Ask and submit for some time, check the invariants, and return the findings."""
        async with AsyncExitStack() as stack:
            for link in self.links.values():
                await stack.enter_async_context(link.open())
            try:
                await asyncio.to_thread(self._start)
                await self._weathers(seconds)
                await asyncio.to_thread(self._check_reports)
            finally:
                for deployment in (self.votes, self.survey):
                    deployment.kill()
        return self.found

    def _start(self) -> None:
        self.votes.serve(*PARTIES)
        self.survey.collect()
        self.survey.submit(0, "--at-once", "20")

    async def _weathers(self, seconds: float) -> None:
        await self._ask_until_answered()
        before, begun = {name: self._used(name) for name in PARTIES}, time.monotonic()
        while time.monotonic() < begun + seconds:
            for kind in self._rng.sample(list(BAD), len(BAD)):
                await self._bear(kind)
        for name in PARTIES:
            memory, descriptors, log = self._used(name)
            assert memory - before[name][0] < GROWTH_BYTES_MAX
            assert descriptors <= before[name][1] + 1  # a redial may be under way
            lasted = time.monotonic() - begun
            assert log - before[name][2] < LOG_BYTES_PER_SECOND_MAX * lasted

    async def _bear(self, kind: str) -> None:
        """Let one weather pass over some links, and require that all recovers after it."""
        chosen = self._rng.sample(list(self.links), self._rng.choice((1, 2, len(self.links))))
        for each in chosen:
            self.links[each].become(BAD[kind])
        end = time.monotonic() + WEATHER_SECONDS
        while time.monotonic() < end:
            await self._ask(self._rng.randrange(200))
            self._look()
            await asyncio.sleep(PAUSE_SECONDS)
        if kind == "closed" and (dead := self._dead(chosen)):
            await self._until(lambda: dead <= self._absent())
        for each in chosen:
            self.links[each].become(Weather())
        await self._ask_until_answered()
        await self._until(lambda: not self._absent())
        self.found.weathers[kind] += 1
        self._look()

    def _dead(self, chosen: list[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the pairs of members that cannot reach each other by either of their links."""
        closed = {each for each in chosen if each[::-1] in chosen and set(each) <= {*PARTIES}}
        return {each for each in closed if each[0] < each[1]}

    def _absent(self) -> set[tuple[str, str]]:
        """Return the pairs of members of which both say that they are not connected."""
        reports = {name: self._status(name) for name in PARTIES}
        for name, report in reports.items():
            assert report["ready"] == (not report["waiting_for"]), (name, report)
        said = {
            (name, other) for name, report in reports.items() for other in report["waiting_for"]
        }
        return {pair for pair in said if pair[::-1] in said and pair[0] < pair[1]}

    def _status(self, name: str) -> StatusReport:
        report = read_status(self.votes.folder / f"{name}.sock", SECONDS)
        assert report is not None, self.votes.log(name)
        return report

    def _look(self) -> None:
        """Require that no charge was taken back, and that no server ended."""
        for name in PARTIES:
            spent = self.votes.totals(name).spent
            assert spent >= self.found.spent.get(name, 0.0)
            self.found.spent[name] = spent
            assert self.votes.running[name].poll() is None, self.votes.log(name)
            assert "Traceback" not in self.votes.log(name)

    async def _ask(self, number: int) -> bool:
        """Ask for one batch; return whether it was answered, with the same labels as before."""
        header, *rows = (self.votes.folder / "queries.csv").read_text().splitlines()
        path = self.votes.folder / "batch.csv"
        batch = random.Random(number).sample(rows, 3)
        path.write_text("\n".join([header, *batch]))
        config = load_config_of(self.votes.folder / "client.toml", ClientConfig, "this")
        begun = time.monotonic()
        self.found.asked += 1
        try:
            async with asyncio.timeout(SECONDS):
                labels = (await ask_member(config, path))["label"]
        except VeilringError as error:
            self.found.errors[type(error).__name__] += 1
            return False
        finally:
            self.found.slowest = max(self.found.slowest, time.monotonic() - begun)
        assert self.found.answers.setdefault(number, labels) == labels
        return True

    async def _ask_until_answered(self) -> None:
        end = time.monotonic() + SECONDS
        while not await self._ask(self._rng.randrange(200)):
            assert time.monotonic() < end, self.found

    async def _until(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < end, self.found
            await asyncio.sleep(POLL_SECONDS)

    def _used(self, name: str) -> tuple[int, int, int]:
        """Return the memory, the descriptors and the size of the log of a party."""
        place = Path("/proc") / str(self.votes.running[name].pid)
        pages = int((place / "statm").read_text().split()[1])
        descriptors = len(list((place / "fd").iterdir()))
        return pages * 4096, descriptors, len(self.votes.log(name))

    def _check_reports(self) -> None:
        """Require that each report was counted once, and that each answer was paid for."""
        client = self.survey.running["survey-client-0"]
        if client.wait(SECONDS) != 0:  # it gave up in a long weather
            assert kept(self.survey.submitted("survey-client-0.csv")) == REPORTS
        self.survey.kill()
        assert self.survey.require_sound() == REPORTS
        for name in PARTIES:
            spent = self.votes.totals(name).spent
            assert spent >= PRICE * len(self.found.answers) - 1e-9
            assert spent <= PRICE * self.found.asked + 1e-9


if __name__ == "__main__":
    minutes = float(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        print(asyncio.run(Storm(Path(place), 1).run(60 * minutes)))  # noqa: T201  (the result of a run by hand)
