"""Echo, broadcast and a counter, which call each other again until an answer arrives, and checks.

They are the first workloads of Maelstrom (https://github.com/jepsen-io/maelstrom), as roles.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from veilring import Message, Party, broadcast
from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.party import broadcast_to_rest
from veilring.testing.exploring import explore
from veilring.testing.histories import (
    Model,
    Operation,
    Unknown,
    check_agreement,
    check_exactly_once,
    check_linearizable,
    operation,
    recorded,
)

PATIENCE_SECONDS: Final = 0.5
"""The time after which a call is repeated: a link that is cut delivers both copies later."""
WORDS: Final[Mapping[str, Sequence[str]]] = {
    "ada": ["a1", "a2"],
    "ben": ["b1"],
    "cy": ["c1", "c2"],
    "dee": ["d1"],
}
NUMBERS: Final[Mapping[str, Sequence[int]]] = {
    "ada": [1, 2],
    "ben": [4],
    "cy": [8, 16],
    "dee": [32],
}
_GONE: Final = (PeerLost, SessionAborted)


class Call(Message, kind="services.call"):
    """Asks a peer for an answer."""

    number: int
    body: str


class Answer(Message, kind="services.answer"):
    """The answer to a call, which has the same number."""

    number: int
    body: str


class Finished(Message, kind="services.finished"):
    """Says that its sender calls this peer no more."""


class Node:
    """A party that calls its peers, and answers their calls meanwhile.

    Args:
        answer: Returns the answer to a call of a peer.
        matches: Whether it looks which call an answer belongs to; otherwise to the latest.

    Attributes:
        finished: The peers that will not call any more.
    """

    def __init__(
        self, party: Party, answer: Callable[[str, Call], str], *, matches: bool = True
    ) -> None:
        self.party, self.finished = party, set[str]()
        self._answer, self._matches = answer, matches
        self._calls, self._answers = 0, dict[int, str]()
        party.round(1)
        party.leave_unread()

    async def call(self, peer: str, body: str) -> str:
        """Call a peer, again after some time, until it answers."""
        self._calls += 1
        number = self._calls
        while number not in self._answers:
            await self.party.send(peer, Call(number=number, body=body))
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.wait(number)
        return self._answers[number]

    async def wait(self, number: int, senders: Collection[str] | None = None) -> str:
        """Answer calls until an answer is here, and return it."""
        while number not in self._answers:
            await self.take(senders)
        return self._answers[number]

    async def take(self, senders: Collection[str] | None = None) -> None:
        """Receive the next message of some peers, by default of all, and answer a call."""
        kinds = (Call, Answer, Finished)
        sender, message = await self.party.receive_any(kinds, senders=senders)
        match message:
            case Call():
                answer = Answer(number=message.number, body=self._answer(sender, message))
                with suppress(*_GONE):
                    await self.party.send(sender, answer)
            case Answer():
                self._answers[message.number if self._matches else self._calls] = message.body
            case Finished():
                self.finished.add(sender)


async def echo(party: Party, own: Sequence[str], *, matches: bool = True) -> int:
    """Have every peer repeat each word, and return the number of words."""
    node = Node(party, lambda _, call: call.body, matches=matches)
    for word in own:
        for peer in party.peers:
            async with operation(party, "echo", word) as op:
                op.result = await node.call(peer, word)
    await broadcast(party, Finished())
    while len(node.finished) < len(party.peers):
        await node.take()
    return len(own)


def repeats(_inputs: Mapping[str, object], _results: Mapping[str, object]) -> None:
    """Require that each call has its own answer."""
    for each in recorded().operations:
        assert not each.has_returned or each.result == each.argument, f"wrong answer: {each}"  # noqa: S101  (how a test speaks)


async def spread(party: Party, own: Sequence[str], *, remembers: bool = True) -> list[str]:
    """Give all words to all parties along a tree, and return those of this party in order.

    Args:
        remembers: Whether a party knows the words that it has; otherwise a repeated one is new.
    """
    here, delivered, left = party.parties.position(party.me), list[str](), list[tuple[str, str]]()
    places = ((here - 1) // 2, 2 * here + 1, 2 * here + 2)
    near = {party.parties[place] for place in places if 0 <= place < len(party.parties)}

    def deliver(sender: str, word: str) -> str:
        if not (remembers and word in delivered):
            delivered.append(word)
            left.extend((peer, word) for peer in sorted(near - {sender}))
        return ""

    node, told = Node(party, lambda sender, call: deliver(sender, call.body)), set[str]()
    for word in own:
        async with operation(party, "spread", word):
            deliver(party.me, word)
    while not told == near == node.finished:
        while left:
            await node.call(*left.pop(0))
        # Nothing more comes from the other side of a party when all its other neighbours finished.
        for peer in sorted(near - told):
            if node.finished >= near - {peer}:
                told.add(peer)
                await party.send(peer, Finished())
        if not told == near == node.finished:
            await node.take()
    return delivered


def reaches_all(_inputs: Mapping[str, object], results: Mapping[str, Sequence[str]]) -> None:
    """Require that each word of anybody reaches everybody who finishes, once."""
    words = recorded()
    attempted, acknowledged = words.attempted("spread"), words.acknowledged("spread")
    check_exactly_once(results, acknowledged=acknowledged, attempted=attempted)


async def count(party: Party, own: Sequence[int], *, remembers: bool = True) -> int:
    """Add numbers at the first party, and return the total, also without clients that are lost.

    Args:
        remembers: Whether the first party knows the calls that it has answered.
    """
    party.tolerate_losses()
    server, answered, total = party.parties[0], dict[tuple[str, int], str](), 0

    def add(sender: str, call: Call) -> str:
        nonlocal total
        if not (remembers and (sender, call.number) in answered):
            total += int(call.body)
            answered[sender, call.number] = str(total)
        return answered[sender, call.number]

    node = Node(party, add)
    for place, number in enumerate(own):
        async with operation(party, "add", number) as op:
            local = Call(number=place, body=str(number))
            asks = party.me != server
            op.result = int(await node.call(server, str(number)) if asks else add(server, local))
    async with operation(party, "read") as op:
        if party.me == server:
            with suppress(*_GONE):
                while waiting := set(party.peers) - node.finished:
                    await node.take(waiting)
            await broadcast_to_rest(party, Answer(number=0, body=str(total)))
        else:
            await party.send(server, Finished())
            total = int(await node.wait(0, [server]))
        op.result = total
    return total


def _counted(total: int, each: Operation) -> Iterable[int]:
    after = total + (each.argument or 0)
    return (after,) if isinstance(each.result, Unknown) or each.result == after else ()


COUNTER: Final = Model(
    0, _counted, lambda operations: ([each] for each in operations if each.kind == "read")
)
"""A number to which `add` adds and that `read` reads; both return it."""


def counts_once(_inputs: Mapping[str, object], results: Mapping[str, int]) -> None:
    """Require one total: at least what was acknowledged, at most what was attempted."""
    check_agreement(results)
    added = recorded()
    least, most = sum(added.acknowledged("add")), sum(added.attempted("add"))
    for party, total in results.items():
        assert least <= total <= most, f"{party} counts {total}, not {least} to {most}"  # noqa: S101  (how a test speaks)
    check_linearizable(added, COUNTER)


def main() -> None:
    """Explore each service, and a version with a mistake."""
    for role, inputs, invariant, mistake in (
        (echo, WORDS, repeats, "matches"),
        (spread, WORDS, reaches_all, "remembers"),
        (count, NUMBERS, counts_once, "remembers"),
    ):
        right = explore(role, inputs, invariant=invariant, seeds=10)
        broken: dict[str, Any] = {mistake: False}
        wrong = explore(role, inputs, invariant=invariant, seeds=10, **broken)
        print(f"{role.__name__}: {len(right.failures)} of {right.seeds} worlds went wrong")
        print(f"    without {mistake}: {len(wrong.failures)}, such as {wrong.smallest()}")


if __name__ == "__main__":
    main()
