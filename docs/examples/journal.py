"""The journal of a run that fails."""

import asyncio

from veilring import Cluster, Message, Party, RunFailed
from veilring.nodes.journal import Journal

PARTIES = ("ada", "bob", "cy")


class Word(Message, kind="example.word"):
    """A word for the next party."""

    text: str


async def say(party: Party) -> None:
    """Send a word to the next party; then one party fails, and the others wait for it."""
    here = PARTIES.index(party.me)
    party.round(1)
    await party.send(PARTIES[(here + 1) % len(PARTIES)], Word(text="hello"))
    await party.receive(Word, sender=PARTIES[here - 1])
    if party.me == "cy":
        raise ValueError
    await party.receive(Word, sender=PARTIES[here - 1])


async def main() -> Journal:
    """Run it, and return its journal."""
    journal = Journal()
    async with Cluster(PARTIES) as cluster:
        try:
            await cluster.run(say, trace=journal)
        except RunFailed as error:
            print("failed:", ", ".join(error.errors))
    return journal


if __name__ == "__main__":
    journal = asyncio.run(main())
    for message in journal.messages:
        print(message.sender, "to", message.receiver, message.kind, message.bytes, "bytes")
    for mark in journal.marks:
        print(mark.party, mark.what)
