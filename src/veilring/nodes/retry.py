"""Running again without the parties that died."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from veilring.errors import PeerLost, RunFailed, SessionAborted
from veilring.measure import Cost, total_cost
from veilring.nodes.cluster import Cluster
from veilring.nodes.play import Outcome
from veilring.nodes.ring import PARTIES_MIN
from veilring.nodes.run import Run, join_outcomes

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
        failed: What came of each failed attempt at each party, in the same order. Its views tell
            what a coalition saw of it; its results are not to be used.
    """

    run: Run[R]
    without: tuple[str, ...]
    wasted: tuple[Cost, ...]
    failed: tuple[tuple[Outcome, ...], ...] = ()


async def run_with_retries(
    cluster: Cluster,
    role: Callable[..., Awaitable[R]],
    *,
    attempts: int = ATTEMPTS,
    among: Iterable[str] | None = None,
    for_those: Callable[[tuple[str, ...]], Mapping[str, Any]] | None = None,
    **options: Any,  # noqa: ANN401 (those of `Cluster.run`)
) -> Retried[R]:
    """Run a protocol, and again without the parties that died, each time in a new session.

    A new session has a new name, a new ring and fresh randomness: nothing of the failed one is used
    again. A party that broke the protocol is not left out silently: that is for people to judge.

    Args:
        cluster: Where to run; its resident data are used.
        role: As for `Cluster.run`.
        attempts: How many runs at most, at least 1.
        among: The parties that take part in the first attempt; all unless given.
        for_those: Called before each attempt with those that take part in it; returns more options,
            such as who is asked, which may depend on who is left.
        **options: As for `Cluster.run`, but for `own`.

    Raises:
        RunFailed: If the last attempt failed, nobody was found dead, or fewer than three are left.
    """
    chosen = frozenset(cluster.parties if among is None else among)
    alive = tuple(name for name in cluster.parties if name in chosen)
    wasted: list[Cost] = []
    failed: list[tuple[Outcome, ...]] = []
    clock = asyncio.get_running_loop().time
    while True:
        started = clock()
        more = {} if for_those is None else for_those(alive)
        outcomes = await cluster.play(role, among=alive, **options, **more)
        try:
            run = join_outcomes(outcomes, clock() - started)
        except RunFailed:
            lost = lost_parties(outcomes)
            left = tuple(name for name in alive if name not in lost)
            wasted.append(total_cost(o.meter for o in outcomes if o.meter is not None))
            failed.append(tuple(outcomes))
            if not lost or len(left) < PARTIES_MIN or len(wasted) >= attempts:
                raise
            alive = left
        else:
            gone = tuple(name for name in cluster.parties if name not in alive)
            return Retried(run, gone, tuple(wasted), tuple(failed))


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
