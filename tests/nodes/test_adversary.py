"""Adversaries: a party that plays its role with altered messages, on every runtime."""

from dataclasses import dataclass

import pytest
from tests.docs.test_gossip import Gossip
from tests.nodes.worlds import NAMES, Role
from tests.roles import Word, pass_on
from typing_extensions import override

from veilring.errors import Deadlock, InputError, ProtocolViolation, RunFailed, Tampered
from veilring.nodes.adversary import (
    Adversary,
    Alter,
    Delay,
    Drop,
    Forger,
    Lines,
    Reorder,
    Repeat,
    Replay,
    Silent,
    Substitute,
)
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.ring import RingReveal, draw_ring
from veilring.nodes.run import blamed_party
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

SIMULATED = ProtocolRunner("simulated")


class Deaf(Adversary):
    """An adversary that ignores its received messages."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        """Return other content than was received."""
        return Word(text=f"{sender} said nothing")


@dataclass
class Counting(Adversary):
    """An adversary that counts its messages in an attribute."""

    lines: int = 0

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        """Return the number of messages so far."""
        self.lines += 1
        return [(to, Word(text=str(self.lines)))]


def shout(message: Message) -> Message:
    """Return the message in capitals."""
    return Word(text=message.text.upper()) if isinstance(message, Word) else message


async def say_two(party: Party) -> list[str]:
    """Send two words to the next party and return the two received words."""
    here, n = party.parties.position(party.me), len(party.parties)
    before, words = party.parties[here - 1], list[str]()
    for number in (1, 2):
        party.round(number)
        await party.send(party.parties[(here + 1) % n], Word(text=f"{party.me} {number}"))
        words.append((await party.receive(Word, sender=before)).text)
    return words


def test_an_adversary_is_honest_by_default(run_protocol: ProtocolRunner) -> None:
    """Without a change of a message, result, cost and transcript are those of an honest run."""
    honest = run_protocol(pass_on, NAMES, own=NAMES)
    for adversary in (Adversary(), Drop((RingReveal,))):
        run = run_protocol(pass_on, NAMES, own=NAMES, adversaries={"bob": adversary})
        assert (run.results, run.cost) == (honest.results, honest.cost)
        assert run.transcript == honest.transcript


def test_an_adversary_alters_its_input_and_its_messages(run_everywhere: ProtocolRunner) -> None:
    """Its role is given its own input and altered messages; others get altered, fitting ones."""
    for adversary, heard, said in (
        (Substitute("eve"), "ada", "eve"),
        (Alter(shout), "ada", "BOB"),
        (Deaf(), "ada said nothing", "bob"),
    ):
        run = run_everywhere(
            pass_on, NAMES, own=NAMES, watch=["bob"], adversaries={"bob": adversary}
        )
        assert run.results == {"ada": "cy", "bob": heard, "cy": said}
        assert [seen.message for seen in run.views["bob"].sent] == [Word(text=said)]
    wrong = r"a 'test\.word' message where 'ring\.commit' was expected"
    with pytest.raises(RunFailed, match=wrong):
        run_everywhere(draw_ring, NAMES, adversaries={"bob": Deaf()})


async def test_each_run_starts_with_a_fresh_copy() -> None:
    """State that an adversary keeps in one run reaches neither the next run nor the template."""
    counting = Counting()
    async with Cluster(NAMES) as cluster:
        runs = [await cluster.run(say_two, adversaries={"bob": counting}) for _ in range(2)]
    assert [run.results["cy"] for run in runs] == [["1", "2"]] * 2
    assert counting.lines == 0


def test_unexpected_messages_name_their_sender(run_protocol: ProtocolRunner) -> None:
    """An unexpected, repeated or misplaced message names its sender."""
    for adversary in (Gossip(), Repeat(), Forger("ada")):
        with pytest.raises(RunFailed) as caught:
            run_protocol(draw_ring, NAMES, adversaries={"bob": adversary})
        assert _named(caught.value, "bob") == {"bob"}


def _named(failed: RunFailed, adversary: str) -> set[str]:
    errors = (error for name, error in failed.errors.items() if name != adversary)
    return {error.culprit for error in errors if isinstance(error, ProtocolViolation)}


@pytest.mark.parametrize(
    ("role", "adversary", "waits"),
    [
        (draw_ring, Drop(only=(RingReveal,)), r"ring\.reveal from bob"),
        (draw_ring, Drop((RingReveal,), first=1), r"ring\.reveal from bob"),
        (draw_ring, Silent(0), r"ring\.commit from bob"),
        (say_two, Silent(2), r"cy is waiting for test\.word from bob"),
    ],
    ids=["drop", "drop the first", "silent", "silent from its round on"],
)
def test_a_silent_party_is_named(role: Role, adversary: Adversary, waits: str) -> None:
    """A session with a silent party ends, limited or not; the error names party and message."""
    for limit in (None, 1.0):
        with pytest.raises(RunFailed, match=waits) as caught:
            SIMULATED(role, NAMES, adversaries={"bob": adversary}, seconds=limit)
        assert isinstance(caught.value.root, Deadlock)


def test_a_delay_takes_time_and_nothing_else() -> None:
    """Each message waits on the simulated clock, and exceeding a limit ends the run."""
    late = {"bob": Delay(3.0, only=(Word,))}
    run = SIMULATED(say_two, NAMES, adversaries=late, seconds=60.0)
    assert run.results["cy"] == ["bob 1", "bob 2"]
    assert run.seconds == 6.0
    with pytest.raises(RunFailed, match="not finished after 5 s"):
        SIMULATED(say_two, NAMES, adversaries=late, seconds=5.0)
    with pytest.raises(InputError, match="seconds is -1"):
        Delay(-1)


def test_an_adversary_reorders_and_replays_messages(run_protocol: ProtocolRunner) -> None:
    """The second message comes first, or that of another session, whose nonce fits nothing."""
    before = run_protocol(say_two, NAMES, watch=["ada"]).views["ada"]
    for adversary, heard in (
        (Reorder(), ["bob 2", "bob 1"]),
        (Replay(before.sent[:1]), ["ada 1", "bob 2"]),
    ):
        run = run_protocol(say_two, NAMES, adversaries={"bob": adversary})
        assert (run.results["cy"], run.results["ada"]) == (heard, ["cy 1", "cy 2"])
    old = run_protocol(draw_ring, NAMES, watch=["bob"], seed=1).views["bob"]
    with pytest.raises(RunFailed) as caught:
        run_protocol(draw_ring, NAMES, adversaries={"bob": Replay(old.sent)}, seed=2)
    assert _named(caught.value, "bob") == {"bob"}


async def accuse_twice(party: Party) -> None:
    """Accuse a peer, and then report a violation by another one."""
    if party.me == "bob":
        party.accuse(ProtocolViolation("ada", "said too little"))
        raise ProtocolViolation("cy", "said too much")
    await party.receive(Word, sender="bob")


async def test_a_role_that_ignored_a_violation_convicts_nobody() -> None:
    """Its later findings may be consequences of its own lie."""
    async with Cluster(NAMES) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(accuse_twice, adversaries={"bob": Adversary()})
    error = caught.value.errors["bob"]
    assert isinstance(error, Tampered)
    assert error.suspects == ("ada", "cy")
    assert not blamed_party(caught.value)
