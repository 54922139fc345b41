"""Running again without the parties that died."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from veilring.errors import PeerLost, RunFailed, SessionAborted
from veilring.measure import Cost, total_cost
from veilring.nodes.cluster import Cluster
from veilring.nodes.play import Outcome
from veilring.nodes.ring import PARTIES_MIN
from veilring.nodes.run import Run, join_outcomes

__all__ = ("ATTEMPTS", "Retried", "lost_parties", "run_with_retries")

R = TypeVar("R")

# Each attempt loses at least one party; a cluster that loses more than this has another problem.
ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Retried(Generic[R]):
    """A run that succeeded, perhaps not at once.

    Attributes:
        run: The attempt that succeeded.
        without: The parties that it did without.
        wasted: What each failed attempt cost. Its messages were seen, too: every vector in it shows
            its receiver one more hop, with fresh noise over the same values.
    """

    run: Run[R]
    without: tuple[str, ...]
    wasted: tuple[Cost, ...]


async def run_with_retries(
    cluster: Cluster,
    role: Callable[..., Awaitable[R]],
    *,
    attempts: int = ATTEMPTS,
    **options: Any,  # noqa: ANN401 (those of `Cluster.run`)
) -> Retried[R]:
    """Run a protocol, and again without the parties that died, each time in a new session.

    A new session has a new name, a new ring and fresh randomness: nothing of the failed one is used
    again. A party that broke the protocol is not left out silently: that is for people to judge.

    Args:
        cluster: Where to run; its resident data are used.
        role: As for `Cluster.run`.
        attempts: How many runs at most, at least 1.
        **options: As for `Cluster.run`, but for `own` and `among`.

    Raises:
        RunFailed: If the last attempt failed, nobody was found dead, or fewer than three are left.
    """
    alive = tuple(cluster.parties)
    wasted: list[Cost] = []
    clock = asyncio.get_running_loop().time
    while True:
        started = clock()
        outcomes = await cluster.play(role, among=alive, **options)
        try:
            run = join_outcomes(outcomes, clock() - started)
        except RunFailed:
            lost = lost_parties(outcomes)
            left = tuple(name for name in alive if name not in lost)
            wasted.append(total_cost(o.meter for o in outcomes if o.meter is not None))
            if not lost or len(left) < PARTIES_MIN or len(wasted) >= attempts:
                raise
            alive = left
        else:
            gone = tuple(name for name in cluster.parties if name not in alive)
            return Retried(run, gone, tuple(wasted))


def lost_parties(outcomes: Sequence[Outcome]) -> frozenset[str]:
    """Return whom the outcomes of a failed run name as lost."""
    named = (_lost(outcome.error) for outcome in outcomes)
    return frozenset(name for name in named if name)


def _lost(error: BaseException | None) -> str:
    match error:
        case PeerLost(peer=peer):
            return peer
        case SessionAborted(reason="PeerLost", culprit=culprit):
            return culprit
    return ""
