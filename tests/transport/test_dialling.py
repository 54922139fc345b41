"""Redialling of unreachable peers, on the simulated clock."""

import asyncio
from functools import cached_property
from itertools import islice, pairwise

import numpy as np
from typing_extensions import override

from veilring.randomness import Streams
from veilring.simulation import simulate
from veilring.transport.handshake import ConnectionRefusal
from veilring.transport.pacing import DIAL_PAUSE_FIRST_SECONDS, DIAL_PAUSE_MAX_SECONDS, dial_pauses
from veilring.transport.roster import Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint

ATTEMPTS = 12
CLIENT, SERVER = make_identity("client"), make_identity("server")
ROSTER = Roster((Member.of(SERVER, LOOPBACK, 1), Member.of(CLIENT, kind="client")))
LONGEST = [
    min(DIAL_PAUSE_FIRST_SECONDS * 2**attempt, DIAL_PAUSE_MAX_SECONDS)
    for attempt in range(ATTEMPTS - 1)
]
"""The pauses without jitter."""


class Refused(TlsEndpoint):
    """A client that is refused each time, or reaches the server once and loses it."""

    reached: int | None = None

    @cached_property
    def times(self) -> list[float]:
        """The times of its dials."""
        return []

    @cached_property
    def enough(self) -> asyncio.Event:
        """Set once it has dialled `ATTEMPTS` times."""
        return asyncio.Event()

    @override
    async def _dial(self, name: str) -> ConnectionRefusal | None:
        self.times.append(asyncio.get_running_loop().time())
        if len(self.times) == ATTEMPTS:
            self.enough.set()
            await asyncio.Event().wait()
        reached = len(self.times) == self.reached
        return None if reached else ConnectionRefusal("nobody listens", again=True)


def dialled(seed: int, kind: type[Refused] = Refused) -> list[float]:
    """Return the times at which a client dials."""

    async def main() -> list[float]:
        client = await kind.start(CLIENT, ROSTER, timeout=None, streams=Streams(seed))
        await client.enough.wait()
        await client.close()
        return client.times

    return simulate(main())


def test_pauses_double_up_to_a_limit_with_jitter() -> None:
    """Each pause is between half of the pause without jitter and the whole of it."""
    pauses = np.diff(dialled(1))
    longest = np.array(LONGEST)
    assert np.all((longest / 2 <= pauses) & (pauses <= longest))
    assert len(set((pauses / longest).tolist())) == len(pauses)


def test_the_times_follow_from_the_seed() -> None:
    """Equal seeds dial at equal times; other seeds share only the first time."""
    first, again, other = (dialled(seed) for seed in (1, 1, 2))
    assert first == again
    assert set(first) & set(other) == {0.0}


def test_pauses_begin_small_again_after_a_connection() -> None:
    """A peer that was reached and lost is dialled at once, and then after the first pause."""

    class Lost(Refused):
        reached = 8

    times = dialled(1, Lost)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[6] >= DIAL_PAUSE_MAX_SECONDS / 2
    assert pauses[7] == 0.0
    assert DIAL_PAUSE_FIRST_SECONDS / 2 <= pauses[8] <= DIAL_PAUSE_FIRST_SECONDS


def test_two_members_of_one_seed_do_not_dial_in_step() -> None:
    """Pauses also depend on the names of a member and its peer."""
    streams = Streams(1)
    ann, bob = (
        list(islice(dial_pauses(streams.generator("dial", name, "server")), ATTEMPTS))
        for name in ("ann", "bob")
    )
    assert not set(ann) & set(bob)
