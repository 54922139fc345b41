"""Playing one party's part in one run, with everything measured: the same on every runtime."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from veilring.measure import Meter, Tap, Trace, Transcript, View
from veilring.nodes.adversary import Adversary, corrupt
from veilring.nodes.blame import Standing
from veilring.nodes.limit import SESSION_SECONDS
from veilring.nodes.node import Node
from veilring.nodes.party import Parties


@dataclass(frozen=True, slots=True, repr=False)
class Job:
    """What one party is asked to run.

    Attributes:
        role: The coroutine function that plays the part.
        session: The public name of the run.
        parties: Who takes part.
        given: What the role gets after the party: the party's private input, if there is one.
        public: What the role gets by name.
        watched: Whether the party's view is kept.
        seconds: The limit on the run, or none.
        trace: Where to record which messages pass when, if anywhere.
        adversary: Who controls the party, if anybody does.
    """

    role: Callable[..., Awaitable[Any]]
    session: bytes
    parties: Parties
    given: tuple[object, ...] = ()
    public: Mapping[str, object] = field(default_factory=dict)
    watched: bool = False
    seconds: float | None = SESSION_SECONDS
    trace: Trace | None = None
    adversary: Adversary | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job at one party.

    Attributes:
        party: Whose outcome it is.
        result: What the role returned, if it did.
        error: What ended it otherwise.
        meter: What the party sent.
        channels: The hashes of the party's channels; an adversary's word on them does not count.
        view: All that the party saw, if it was watched.
        trace: Which messages passed when, if that was recorded.
        ended: When, in seconds on the clock of the event loop.
        standing: Where the party stood when its session ended.
    """

    party: str
    result: Any = None
    error: BaseException | None = None
    meter: Meter | None = None
    channels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    view: View | None = None
    trace: Trace | None = None
    ended: float | None = None
    standing: Standing | None = None


async def play(node: Node, job: Job) -> Outcome:
    """Play a job at a node; whatever goes wrong is the outcome's error, never raised."""
    clock = asyncio.get_running_loop().time
    meter, transcript = Meter(node.name), Transcript(node.name)
    view = View(node.name) if job.watched else None
    taps: list[Tap] = [meter, transcript]
    if view is not None:
        taps.append(view)
    if job.trace is not None:
        taps.append(job.trace.tap(clock))
    result, failure = None, None
    try:
        result = await node.run(
            job.role if job.adversary is None else corrupt(job.role, job.adversary),
            job.session,
            job.parties,
            *job.given,
            taps=taps,
            seconds=job.seconds,
            **job.public,
        )
    except Exception as error:  # noqa: BLE001 (whatever a role raises is the outcome, and is raised again by the cluster)
        failure = error
    digests = transcript.digests() if job.adversary is None else {}
    return Outcome(
        node.name,
        result,
        failure,
        meter,
        digests,
        view,
        job.trace,
        ended=clock(),
        standing=node.standings().get(job.session),
    )
