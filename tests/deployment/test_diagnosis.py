"""Diagnoses of failures in a deployment: each names the party at fault, or none.

Each party is a process over TLS. A silent party is found after a timeout, so timeouts are short
here. On a machine too busy for them a run fails without anyone at fault, and the client asks
again: no test depends on the speed of the machine.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import tomli_w
from benchmarks.ports import reserve_ports
from tests.deployment import commands
from tests.deployment.commands import PARTIES, SECONDS, Body, Command, Deployment, wait_until

from veilring.config import load_toml
from veilring.deployment import asking, connecting
from veilring.deployment.peers import PeerTerms
from veilring.nodes import node
from veilring.nodes.adversary import Silent, corrupt
from veilring.nodes.inquiry import StandingReport, encode_standing
from veilring.nodes.node import Node
from veilring.nodes.party import Party, Standing
from veilring.nodes.service import Offer, Service
from veilring.protocols.ldp import messages
from veilring.protocols.noisyvotes import roles as votes_roles
from veilring.protocols.registry import BUILT_IN, find_system
from veilring.protocols.ring import system as ring_system
from veilring.transport import connection, handshake
from veilring.transport.handshake import PROTOCOL_VERSION
from veilring.transport.roster import Roster, make_identity, write_identity

RING_LIMITS: Final = "session_seconds = 2\nanswer_seconds = 2"
SERVER_LIMITS: Final = "session_seconds = 0.5\nanswer_seconds = 1"
ATTEMPTS: Final = 8
_RING: Final = ("party-0", "ask client.toml queries.csv")
RINGS: Final = {"ring": _RING, "votes": _RING}
SERVERS: Final = {
    "owner": ("owner", "ask analyst-0.toml analyst-0.csv"),
    "prediction": ("server", "ask client-0.toml client-0.csv"),
    "places": ("server", "ask client.toml --near 37.75,-122.35 --epsilon 6"),
    "survey": ("collector", "submit survey-client-0.toml survey-client-0.csv"),
}
"""The party that is asked in each deployment, and a client's command."""
OWNER_FIRST: Final = [
    pytest.param(each, marks=() if each == "owner" else pytest.mark.slow) for each in SERVERS
]
LATER_VERSION: Final = PROTOCOL_VERSION + 1
_log = logging.getLogger("veilring.saboteur")


async def _say_nothing(_party: Party, opener: str) -> None:
    """Join a session and never send a message."""
    _log.warning("a session with %s", opener)
    await asyncio.Event().wait()


class _SilentService(Service):
    """A service of a server that joins each session and sends nothing; a member's is as usual."""

    def __init__(self, node: Node, offers: Mapping[str, Offer], *, patience: float = 0.0) -> None:
        if not any(offer.parties for offer in offers.values()):
            offers = {name: replace(offer, play=_say_nothing) for name, offer in offers.items()}
        super().__init__(node, offers, patience=patience)


def run_silently(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, and fall silent: members from round 1 on."""
    for module, role in ((ring_system, "private_knn"), (votes_roles, "private_votes")):
        setattr(module, role, corrupt(getattr(module, role), Silent()))
    vars(connecting)["Service"] = _SilentService
    commands.run(folder, words, output)


def _lie(standing: Standing | None) -> StandingReport:
    """Claim that the first message of the session is missing, and that party-1 owes it."""
    lie = {"known": True, "senders": ("party-1",), "kinds": ("x.y",), "dues": (0,)}
    return encode_standing(standing).model_copy(update=lie)


def run_lying(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `run_silently`, and blame party-1 when asked."""
    vars(node)["encode_standing"] = _lie
    run_silently(folder, words, output)


def run_once(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, which reports the first error."""
    asking.__dict__["REPEAT_PAUSES"] = ()
    commands.run(folder, words, output)


def run_later_version(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, with the greeting of a later version."""
    for module in (connection, handshake):
        module.__dict__["PROTOCOL_VERSION"] = LATER_VERSION
    commands.run(folder, words, output)


def run_later_messages(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, as if the messages of all systems had changed."""
    messages.__dict__["REPORTS_FORMAT"] += 1
    for name in BUILT_IN:
        find_system(name).messages_format += 1
    commands.run(folder, words, output)


class Diagnosed(Deployment):
    """A deployment with short limits, and a client whose errors are examined.

    Attributes:
        name: The party that is asked.
        client: The client's command.
    """

    def __init__(self, folder: Path, system: str) -> None:
        super().__init__(folder, system)
        self.name, client = (SERVERS | RINGS)[system]
        self.client = client.split()
        for path in folder.glob("*.toml"):
            if path.name not in {"roster.toml", "terms.toml"} and ".policy" not in path.suffixes:
                self.configure(path.stem, SERVER_LIMITS if system in SERVERS else RING_LIMITS)

    def all_ready(self) -> None:
        """Wait until all parties that were started are ready."""
        for name in self.running:
            self.wait_for(name, f"{name} is ready")

    def ask(self, *words: str, body: Body | None = None) -> Command:
        """Run the client, or another command."""
        return self.command(*(words or self.client), log="asked", body=body or run_once)

    def fail(self) -> str:
        """Run the client, require that it fails without labels, and return its error."""
        asked = self.ask()
        assert asked.wait(2 * SECONDS) == 1, asked.output
        assert "Traceback" not in asked.output
        return asked.output

    def fail_with(self, text: str, honest: tuple[str, ...] = ()) -> None:
        """Run the client until its error contains a text; no error blames an honest party."""
        errors = []
        for _ in range(ATTEMPTS):
            errors.append(self.fail())
            assert not any(f"blaming {name}" in errors[-1] for name in honest), errors
            if text in errors[-1]:
                return
        raise AssertionError(errors)

    def own_roster(self, name: str, change: Mapping[str, object]) -> None:
        """Give a party a roster in which its own entry is different."""
        tables = load_toml(self.folder / "roster.toml")
        for member in tables["members"]:
            if member["name"] == name:
                member.update(change)
        (self.folder / "own-roster.toml").write_text(tomli_w.dumps(tables))
        self.edit(f"{name}.toml", '"roster.toml"', '"own-roster.toml"')

    def other_terms(self, *names: str, **change: object) -> None:
        """Give some parties other terms."""
        terms = load_toml(self.folder / "terms.toml") | change
        (self.folder / "others.toml").write_text(tomli_w.dumps(terms))
        for name in names:
            self.edit(name, '"terms.toml"', '"others.toml"')


@pytest.fixture(params=["ring", pytest.param("votes", marks=pytest.mark.slow)])
def ring(request: pytest.FixtureRequest, tmp_path: Path, deployed: list[Deployment]) -> Diagnosed:
    """Write a ring or noisy votes, and end the processes started in it."""
    deployed.append(found := Diagnosed(tmp_path / "ring", request.param))
    return found


def new_key(folder: Path, name: str) -> Mapping[str, object]:
    """Give a party a new key, and return its roster entry."""
    identity = make_identity(name)
    (folder / f"{name}.key").write_bytes(write_identity(identity))
    return {"fingerprint": identity.fingerprint, "certificate": identity.certificate_pem}


def test_a_party_that_was_never_started_or_is_at_another_port(ring: Diagnosed) -> None:
    """The asked party answers at once that it is not ready; both name the missing party.

    They report the address at which no party listens.
    """
    port = Roster.load(ring.folder / "roster.toml").member("party-2").port
    reason = f"party-0 cannot reach party-2 at 127.0.0.1:{port}: nothing listens at its address"
    not_ready = "party-0 is not ready: it is waiting for party-2"
    ring.start("party-0", "party-1")
    ring.wait_for("party-0", reason)
    ring.wait_for("party-0", "is waiting for party-1")
    ring.fail_with(f"veilring: {not_ready}")
    ring.wait_for("party-0", f"for client failed: {not_ready}")
    ring.own_roster("party-2", {"port": reserve_ports()})
    ring.start("party-2")
    ring.wait_for("party-2", "party-2 is waiting for")
    ring.fail_with(f"veilring: {not_ready}")
    ring.kill("party-2")
    ring.edit("party-2.toml", '"own-roster.toml"', '"roster.toml"')
    ring.start("party-2")
    ring.all_ready()


@pytest.mark.slow
def test_a_party_that_hangs(ring: Diagnosed) -> None:
    """A stopped party does not answer the inquiry, and the others name it.

    The client does not reach the asked party if that is stopped, and names it.
    """
    ring.serve(*PARTIES)
    ring.running["party-2"].freeze()
    ring.fail_with("(PeerSilent, blaming party-2)", honest=("party-0", "party-1"))
    ring.wait_for("party-0", "failed: party-2 has not answered for 2 s")
    ring.wait_for("party-1", "(PeerSilent, blaming party-2)")
    ring.running["party-0"].freeze()
    error = ring.fail()
    assert error.startswith("veilring: no connection with party-0: it did not finish the handshake")


def test_a_party_that_falls_silent(ring: Diagnosed) -> None:
    """It answers the inquiry but not the protocol: it is named, or a suspect beside a peer."""
    ring.start("party-0", "party-1")
    ring.start("party-2", body=run_silently)
    ring.all_ready()
    said = re.compile(
        r"party-2 did not send \S+ to (\S+) when it was due(, or the report of \1 is false)?"
    )
    errors = []
    for _ in range(ATTEMPTS):
        errors.append(ring.fail())
        assert not re.search("blaming party-[01]", errors[-1])
        if found := said.search(ring.wait_for("party-0", "for client failed: ")):
            break
    else:
        raise AssertionError(errors)
    misses, is_hearsay = found.groups()
    assert (misses != "party-0") == bool(is_hearsay)
    expected = "and nobody can be blamed" if is_hearsay else "(SessionTimeout, blaming party-2)"
    assert any(expected in error for error in errors)
    ring.wait_for("party-1", expected)


def test_a_silent_party_that_blames_another(ring: Diagnosed) -> None:
    """A lie convicts no party: both are suspects, or their counts contradict each other."""
    ring.start("party-0", "party-1")
    ring.start("party-2", body=run_lying)
    ring.all_ready()
    ring.fail_with("and nobody can be blamed", honest=("party-0", "party-1"))
    log = ring.wait_for("party-0", "for client failed: ")
    lie = "party-1 did not send x.y to party-2 when it was due"
    assert log.count(lie) == log.count(f"{lie}, or the report of party-2 is false")


def test_a_party_with_a_key_that_its_roster_does_not_have(ring: Diagnosed) -> None:
    """It reports the mistake before waiting, and ends; the others wait for it by name."""
    new_key(ring.folder, "party-2")
    ring.start(*PARTIES)
    assert ring.running["party-2"].wait(SECONDS) == 2
    said = ring.log("party-2")
    assert "is not the roster's key for party-2, which is " in said
    assert "is waiting for" not in said
    ring.wait_for("party-0", "cannot reach party-2 at ")
    ring.fail_with("veilring: party-0 is not ready: it is waiting for party-2")


@pytest.mark.parametrize(("wrong", "asked"), [("party-2", "party-0"), ("party-0", "party-1")])
def test_a_party_with_a_key_that_the_others_do_not_know(
    ring: Diagnosed, wrong: str, asked: str
) -> None:
    """In either direction of dialling, the others wait for it by name, and logs give the reason."""
    ring.own_roster(wrong, new_key(ring.folder, wrong))
    ring.edit("client.toml", 'ask = "party-0"', f'ask = "{asked}"')
    ring.start(*PARTIES)
    log = ring.wait_for(asked, "its certificate is not valid under our roster")
    assert re.search(f"cannot reach {wrong} at|refused a connection: ", log)
    # It names the party that it waits for alone once the third one has come.
    wait_until(
        lambda: ring.fail().startswith(f"veilring: {asked} is not ready: it is waiting for {wrong}")
    )


def test_a_party_with_other_terms(ring: Diagnosed) -> None:
    """The difference is detected before any query, and errors show both values of each key."""
    protocol = load_toml(ring.folder / "terms.toml").get("protocol", {})
    key, there = ("radius", 0.5) if "radius" in protocol else ("k", 7)
    here = protocol.get(key, 5)
    ring.other_terms("party-2.toml", protocol=protocol | {key: there})
    ring.start(*PARTIES)
    differ = f"the terms differ: protocol.{key}: "
    ring.wait_for("party-2", f"{differ}{here} at party-0, {there} at party-2")
    ring.wait_for("party-0", f"{differ}{here} at party-0, {there} at party-2")
    ring.fail_with("veilring: party-0 is not ready: it is waiting for party-2")
    ring.edit("client.toml", '"terms.toml"', '"others.toml"')
    refused = f"veilring: no connection with party-0: it refused us: {differ}{there} at client"
    assert ring.fail().startswith(f"{refused}, {here} at party-0")


LATER, EARLIER = f"protocol version: {LATER_VERSION} at", f"{PROTOCOL_VERSION} at"
OLDER, NEWER = "{older} at", "{newer} at"
FORMAT, FORMATS = f" format: {OLDER}", f" format: {NEWER}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            run_later_version,
            {
                "party-0": "protocol version",
                "party-2": f"{LATER} party-1, {EARLIER} party-2; update veilring at party-2, ",
                "client": f"{LATER} client, {EARLIER} party-0; update veilring at party-0, ",
            },
        ),
        (
            run_later_messages,
            {
                "party-0": f"{FORMAT} party-0, {NEWER} party-1 (update veilring at party-0, ",
                "party-2": f"{FORMATS} party-1, {OLDER} party-2 (update veilring at party-2, ",
                "client": f"{FORMATS} client, {OLDER} party-0 (update veilring at party-0, ",
            },
        ),
    ],
)
def test_a_party_and_a_client_of_another_version(
    ring: Diagnosed, body: Body, said: Mapping[str, str]
) -> None:
    """All sides name the party that has to be updated, in either direction of dialling.

    Parties whose messages differ refuse each other at once; no honest one is blamed later.
    """
    number = PeerTerms.load(ring.folder / "terms.toml").protocol.messages_format
    said = {name: line.format(older=number, newer=number + 1) for name, line in said.items()}
    ring.start("party-0", "party-2")
    ring.start("party-1", body=body)
    for name in ("party-0", "party-2"):
        ring.wait_for(name, said[name])
        ring.wait_for("party-1", f"update veilring at {name}, which is older")
    asked = ring.ask(body=body)
    assert asked.wait(2 * SECONDS) == 1
    assert "it refused us: " in asked.output
    assert f"{said['client']}which is older" in asked.output


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path, deployed: list[Deployment]) -> Diagnosed:
    """Write the files of one server, and end its process."""
    deployed.append(found := Diagnosed(tmp_path / "files", request.param))
    return found


@pytest.mark.slow
def test_a_server_that_hangs_or_is_silent(server: Diagnosed) -> None:
    """A stopped server is named; about a busy server nothing more can be reported."""
    name = server.name
    server.serve(name, body=run_silently)
    server.fail_with(f"{name} aborted the session (SessionTimeout): ")
    assert "nobody can be blamed" in server.log("asked")
    server.wait_for(name, f"from {name}, which is computing")
    sessions = server.log(name).count("a session with")
    asked = server.ask()
    wait_until(lambda: server.log(name).count("a session with") > sessions)
    server.running[name].freeze()
    assert asked.wait(2 * SECONDS) == 1
    assert f"{name} has not answered for 1 s: stopped, cut off or busy" in asked.output


@pytest.mark.slow
@pytest.mark.parametrize("server", ["owner"], indirect=True)  # all clients connect alike
def test_a_server_that_is_not_there(server: Diagnosed) -> None:
    """The client retries for a while, then names the server and its unreachable address."""
    name = server.name
    assert f"no connection with {name}: nothing listens at its address" in server.fail()


@pytest.mark.parametrize("server", OWNER_FIRST, indirect=True)
def test_a_server_that_has_another_key_or_other_terms(server: Diagnosed) -> None:
    """The client learns the key of the terms that differs, and both of its values.

    It names the server and the wrong certificate found at its address.
    """
    name = server.name
    terms = load_toml(server.folder / "terms.toml")
    key, there = ("edition", "2") if "places" in terms else ("classes", ["a", "b", "c"])
    server.serve(name)
    if '"terms.toml"' in (server.folder / server.client[1]).read_text():
        server.other_terms(server.client[1], **{key: there})
        said = f"no connection with {name}: it refused us: the terms differ: {key}: "
        assert said in (error := server.fail()), error
        assert error.rstrip().endswith(f" at {name}")
    server.kill()
    server.own_roster(name, new_key(server.folder, name))
    server.serve(name)
    said = f"no connection with {name}: its certificate is not valid under our roster"
    assert said in server.fail()


@pytest.mark.parametrize("server", OWNER_FIRST, indirect=True)
@pytest.mark.parametrize("body", [run_later_version, run_later_messages])
def test_a_server_of_an_earlier_version(server: Diagnosed, body: Body) -> None:
    """Every client says which side has to be updated: also one that adds records."""
    name = server.name
    older = f" at {name}; update veilring at {name}, which is older"
    if body is run_later_messages:
        older = (
            f" format: [23] at [a-z0-9-]+, [12] at {name}"
            f" [(]update veilring at {name}, which is older[)]"
        )
    server.serve(name)
    commands = [server.client]
    if (server.folder / "registrar.toml").exists():
        commands.append(["records", "add", "registrar.toml", "records.csv"])
    for words in commands:
        asked = server.ask(*words, body=body)
        assert asked.wait(2 * SECONDS) == 1, asked.output
        assert re.search(older, asked.output), asked.output
        assert len(asked.output.splitlines()) == 1
    assert re.search(older, server.log(name))
