"""New keys, rosters and versions of all members in turn, while clients ask without a pause."""

import asyncio
import datetime as dt
import logging
import os
import signal
from asyncio import to_thread
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.deployment.commands import PARTIES, SECONDS, Deploy, Deployment, wait_until
from tests.deployment.members import labels_of

from veilring.deployment import load_config, load_config_of
from veilring.deployment.asking import Client
from veilring.deployment.peers import ClientConfig, MemberConfig, PeerTerms, serve_member
from veilring.deployment.reloading import Reloads
from veilring.protocols.peers import peer_client
from veilring.transport.links import Links
from veilring.transport.roster import Roster, load_identity

UNTIL = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=30)
QUERIES = 5
# A client connects at most twice a second to a member for long.
ASK_SECONDS = 0.6
PAUSE_SECONDS = 0.1  # between requests over one connection, which have no such limit
Change = Callable[[str], Awaitable[None]]
"""Makes a party notice that its files have changed."""


class Asking:
    """Clients that ask all the time, each over one connection or with a new one each time.

    Attributes:
        answers: The number of correct answers so far, by client.
        is_over: Whether the clients end after their next answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._expected: list[str] = []
        self.answers, self.is_over = Counter[str](), False

    async def over_one_connection(self, party: str) -> None:
        """Ask a party over one connection."""
        config = load_config_of(self._folder / "client.toml", ClientConfig, "this")
        roster = str(self._folder / "client.roster.toml")
        client = Client(config.model_copy(update={"ask": party, "roster": roster}))
        terms = PeerTerms.load(Path(config.terms), len(PARTIES))
        queries, _ = terms.asked(self._folder / "queries.csv", config, logging.getLogger("test"))
        role = peer_client(terms.digest, terms.encoded.label_count)
        async with client.connect(terms.keys, repeat="unbegun") as connection:
            while not self.is_over:
                found = await connection.run(role, queries[:QUERIES])
                self._count(party, [str(each) for each in terms.encoded.named(found)])
                await asyncio.sleep(PAUSE_SECONDS)

    async def with_new_connections(self, party: str) -> None:
        """Ask a party as `veilring ask` does."""
        asker = self._folder / f"asks-{party}"
        asker.mkdir(exist_ok=True)
        (asker / "queries.csv").write_bytes((self._folder / "queries.csv").read_bytes())
        text = (self._folder / "client.toml").read_text()
        for old, new in (
            ('ask = "party-0"', f'ask = "{party}"'),
            ('"client.key"', '"../clerk.key"'),
            ('"terms.toml"', '"../terms.toml"'),
            ('"roster.toml"', '"../client.roster.toml"'),
        ):
            assert old in text
            text = text.replace(old, new)
        (asker / "client.toml").write_text(text)
        while not self.is_over:
            self._count(asker.name, await labels_of(asker, 0, QUERIES))
            await asyncio.sleep(ASK_SECONDS)

    def _count(self, client: str, labels: list[str]) -> None:
        self._expected = self._expected or labels
        assert labels == self._expected
        self.answers[client] += 1

    async def more(self, answers: int = 1) -> None:
        """Wait until each client has further answers."""
        before = dict(self.answers)
        await until(lambda: all(self.answers[each] >= before[each] + answers for each in before))


Asker = Callable[[Asking, str], Coroutine[None, None, None]]


@asynccontextmanager
async def asking(
    folder: Path, *askers: Asker, asked: Sequence[str] = PARTIES
) -> AsyncIterator[Asking]:
    """Ask members all the time; a request that fails, fails the test."""
    clients = Asking(folder)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        for ask in askers:
            for name in asked:
                group.create_task(ask(clients, name))
        await until(lambda: len(clients.answers) == len(askers) * len(asked))
        await clients.more()
        yield clients
        await clients.more()
        clients.is_over = True


async def until(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds, turn by turn of the loop."""
    while not happened():  # noqa: ASYNC110  (a log is no event)
        await asyncio.sleep(0.001)


def renew_all(deployment: Deployment) -> None:
    """Add a client, make the next keys of all members, and give each its own roster."""
    folder = deployment.folder
    deployment.call("keys", "new", "clerk", "--client")
    deployment.call("keys", "roster", "roster.toml", "clerk.member.toml", "--out", "all.toml")
    (folder / "all.toml").replace(folder / "roster.toml")
    for name in (*PARTIES, "client"):
        (folder / f"{name}.roster.toml").write_bytes((folder / "roster.toml").read_bytes())
    for name in PARTIES:
        deployment.edit(f"{name}.policy.toml", '"client"', '"client", "clerk"')
        deployment.edit(f"{name}.toml", '"roster.toml"', f'"{name}.roster.toml"')
        deployment.call("keys", "renew", f"{name}.toml")
    parts = [f"{name}.member.toml.new" for name in PARTIES]
    deployment.call(
        "keys",
        "roster",
        *parts,
        "--previous",
        "roster.toml",
        "--until",
        UNTIL,
        "--out",
        "both.toml",
    )


async def rotate(deployment: Deployment, clients: Asking, change: Change) -> None:
    """Change to the new roster, and then to the new keys."""
    folder = deployment.folder
    both = Roster.load(folder / "both.toml")
    both.save(folder / "client.roster.toml")
    await clients.more(2)  # the first of them may have read the roster before
    for is_roster in (True, False):
        for name in PARTIES:
            if is_roster:
                both.save(folder / f"{name}.roster.toml")
            else:
                deployment.call("keys", "renew", f"{name}.toml", "--use")
            await change(name)
            await clients.more()
    for name in PARTIES:
        assert load_identity(folder / f"{name}.key").fingerprint == both.member(name).fingerprint


def end_previous(folder: Path, name: str) -> None:
    """Give a member or the client the roster without the previous keys."""
    both = Roster.load(folder / "both.toml")
    alone = Roster(tuple(replace(m, previous="", previous_until=None) for m in both.members))
    alone.save(folder / f"{name}.roster.toml")


def times_read(log: str) -> int:
    """Return how often a party has read its files again."""
    assert "changes nothing" not in log
    return log.count("has read its files again")


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[dict[str, Reloads]]:
    """Serve all members in this process, and yield their requests to read files again."""
    ready, reloads, tasks = asyncio.Semaphore(0), dict[str, Reloads](), []

    async def serve(name: str) -> None:
        path = folder / f"{name}.toml"
        reloads[name] = Reloads(partial(load_config, path))
        Reloads.current.set(reloads[name])
        config = load_config_of(path, MemberConfig, "this")
        await serve_member(config, on_ready=lambda _: ready.release())

    try:
        tasks += [asyncio.create_task(serve(name)) for name in PARTIES]
        for _ in PARTIES:
            await ready.acquire()
        yield reloads
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_members_change_their_keys_and_every_request_is_answered(
    deploy: Deploy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection is replaced by one with the new keys while sessions use it.

    The previous keys leave the roster after their last day.
    """
    caplog.set_level(logging.INFO, "veilring")
    deployment = deploy("ring")
    deployment.let_all(*PARTIES)
    renew_all(deployment)
    async with served(deployment.folder) as reloads:

        async def change(name: str) -> None:
            before = times_read(caplog.text)
            reloads[name].requested.set()
            await until(lambda: times_read(caplog.text) > before)

        one = Asking.over_one_connection
        async with asking(deployment.folder, one, asked=PARTIES[1:2]) as clients:
            await rotate(deployment, clients, change)
            monkeypatch.setattr(Links, "today", UNTIL + dt.timedelta(days=1))
            for name in PARTIES:
                end_previous(deployment.folder, name)
                await change(name)
                await clients.more()
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def hang_up(deployment: Deployment, name: str) -> None:
    """Send SIGHUP to a party, and wait until it has read its files."""
    before = times_read(deployment.log(name))
    os.kill(deployment.running[name].pid, signal.SIGHUP)
    wait_until(lambda: times_read(deployment.log(name)) > before)


def upgrade(deployment: Deployment, name: str) -> None:
    """Stop a party in order, convert its state, and start it again."""
    deployment.end_in_order(name)
    deployment.call("state", "upgrade", f"{name}.toml")
    deployment.serve(name)


@pytest.mark.slow
async def test_members_change_their_keys_and_are_upgraded_and_every_request_is_answered(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Members read their files on SIGHUP, and then are upgraded in turn, under steady load.

    The previous keys end with the upgrades.
    """
    monkeypatch.setattr("veilring.deployment.asking.REPEAT_PAUSES", (0.5,) * int(SECONDS))
    monkeypatch.setitem(vars(Client.connect)["__wrapped__"].__kwdefaults__, "seconds", SECONDS)
    deployment = deploy("rank-search")
    deployment.let_all(*PARTIES)
    renew_all(deployment)
    deployment.serve(*PARTIES)
    both = (Asking.over_one_connection, Asking.with_new_connections)
    async with asking(deployment.folder, *both) as clients:
        await rotate(deployment, clients, lambda name: to_thread(hang_up, deployment, name))
    assert "asking again" not in caplog.text
    end_previous(deployment.folder, "client")
    async with asking(deployment.folder, *both) as clients:
        for name in PARTIES:
            end_previous(deployment.folder, name)
            await to_thread(upgrade, deployment, name)
            await clients.more()
    for name in PARTIES:
        assert "Traceback" not in deployment.log(name)
        assert "complete and unchanged" in deployment.call("trail", "verify", f"{name}.toml").output
