"""`Cluster`: parties in memory, over TLS, as processes or simulated, with runs and retries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Generic, Self, TypeVar

from veilring.errors import ClusterError, InputError, PeerLost, RunFailed, SessionAborted
from veilring.nodes import RuntimeName, runtimes
from veilring.nodes.adversary import Adversary
from veilring.nodes.journal import Cost, Journal, Mark, Trace, total_cost
from veilring.nodes.party import Parties
from veilring.nodes.ring import PARTIES_MIN
from veilring.nodes.run import (
    Job,
    Outcome,
    Run,
    check_arguments,
    describe_failure,
    join_outcomes,
    mark_failure,
    refuse_options,
)
from veilring.nodes.runtimes import Memory, Runtime, Simulated
from veilring.nodes.runtimes.script import stop_if_imported
from veilring.randomness import Streams

__all__ = (
    "ATTEMPTS",
    "RUNTIMES",
    "Cluster",
    "Retried",
    "RuntimeName",
    "lost_parties",
    "run_with_retries",
)

_R = TypeVar("_R")
# Each attempt loses at least one party; a cluster that loses more than this has another problem.
ATTEMPTS: Final = 3

RUNTIMES: Final[Mapping[RuntimeName, Callable[[], Runtime]]] = {
    "memory": Memory,
    "tls": lambda: runtimes.Tls(),  # noqa: PLW0108  (it is imported when it is called)
    "processes": lambda: runtimes.Processes(),  # noqa: PLW0108  (likewise)
    "simulated": Simulated,
}
"""The runtimes by name, each with its default options."""


class Cluster:
    """A set of parties that run protocols together, any number concurrently, until it is left.

    ::

        async with Cluster(5, own=inputs) as cluster:
            run = await cluster.run(secure_sum, ring=ring, fixed=fixed, method=method)

    Args:
        parties: The names of the parties, or their number: `party-0`, `party-1`, …
        runtime: The runtime: a name, or a runtime of `veilring.nodes.runtimes` created with
            options.
        own: Each party's resident private data, in the same order. A role gets its party's.
        seed: The random seed, which makes every draw and transcript reproducible. By default all
            randomness is cryptographic.
    """

    def __init__(
        self,
        parties: int | Sequence[str],
        *,
        runtime: RuntimeName | Runtime = "memory",
        own: Sequence[object] | None = None,
        seed: int | None = None,
    ) -> None:
        stop_if_imported()
        names = [f"party-{n}" for n in range(parties)] if isinstance(parties, int) else parties
        self.parties = Parties(names)
        self._runtime = _runtime(runtime)
        self._resident = self._by_party(own)
        self._streams = Streams(seed)
        self._runs = count()
        self._started = False

    def _by_party(self, own: Sequence[object] | None) -> dict[str, object]:
        if own is None:
            return {}
        if len(own) != len(self.parties):
            raise InputError.because(
                f"there are {len(own)} items of own data for {len(self.parties)} parties",
                field="own",
            )
        return dict(zip(self.parties, own, strict=True))

    async def __aenter__(self) -> Self:
        try:
            await self._runtime.start(self.parties, self._resident, self._streams)
        except BaseException:
            await self._runtime.stop()
            raise
        self._started = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._started = False
        await self._runtime.stop()

    async def run(
        self,
        role: Callable[..., Awaitable[_R]],
        *,
        own: Sequence[object] | None = None,
        only: Mapping[str, Mapping[str, object]] | None = None,
        watch: Iterable[str] = (),
        among: Iterable[str] | None = None,
        seconds: float | None = None,
        trace: bool | Journal = False,
        adversaries: Mapping[str, Adversary] | None = None,
        **public: Any,
    ) -> Run[_R]:
        """Run a protocol once among all parties, or some of them.

        Args:
            role: The coroutine that each party plays: ``role(party, own, **public)``. Processes
                import it, so it must be defined at the top level of a module, or of the script,
                before its first cluster.
            own: Each party's private input for this run, instead of its resident data.
            only: Additional arguments of individual parties, by name.
            watch: The parties whose views to return: everything that an adversary there would see.
            among: The parties that take part, in any order; all by default.
            seconds: The time limit of the run; by default the runtime's.
            trace: Whether to record the times of messages. A journal receives them even if the run
                fails.
            adversaries: Adversaries by the party that each controls; each run gets fresh copies.
            **public: Keyword arguments of every party's role. A `ParamSpec` cannot describe them
                beside keyword options (PEP 612), so they are checked when the run starts.

        Raises:
            InputError: If the role does not take these arguments, or one of its arguments has the
                name of an option.
            RunFailed: If the run failed at any party. There is no partial result, unless the role
                continues without lost parties; see `Run.lost`.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        outcomes = await self.play(
            role,
            own=own,
            only=only,
            watch=watch,
            among=among,
            seconds=seconds,
            trace=trace,
            adversaries=adversaries,
            **public,
        )
        return join_outcomes(outcomes, clock() - started)

    async def play(  # noqa: PLR0913  (the options of a run)
        self,
        role: Callable[..., Awaitable[object]],
        *,
        own: Sequence[object] | None = None,
        only: Mapping[str, Mapping[str, object]] | None = None,
        watch: Iterable[str] = (),
        among: Iterable[str] | None = None,
        seconds: float | None = None,
        trace: bool | Journal = False,
        adversaries: Mapping[str, Adversary] | None = None,
        run_number: int | None = None,
        measured: bool = True,
        **public: Any,
    ) -> list[Outcome]:
        """Like `run`, but return each party's `Outcome`, whether a result or an error.

        Use it to inspect a failed run. Do not use the results of a run that failed at any party.

        Args:
            run_number: The number that seeds the run and names its session; by default, runs are
                counted from 0.
            measured: Whether to count messages and to hash channels, which takes time.
        """
        if not self._started:
            raise ClusterError("the cluster is not running: use it in `async with`")
        taking_part = self._among(among)
        only, watched, adversaries = only or {}, frozenset(watch), adversaries or {}
        for name in (*only, *watched, *adversaries):
            if name not in taking_part:
                raise InputError("party", name, f"one of {', '.join(taking_part)}")
        inputs = self._by_party(own)  # resident data stay with the party
        given = int(bool(inputs or self._resident))
        calls = [(*public, *more) for more in only.values()]
        if len(only) < len(taking_part):
            calls.insert(0, tuple(public))
        check_arguments(role, *dict.fromkeys(calls), given=given, by=Cluster.play)
        session = self._streams.token(
            "session", next(self._runs) if run_number is None else run_number
        )
        journal = trace if isinstance(trace, Journal) else None
        since = now = asyncio.get_running_loop().time()
        if journal is not None:
            since = journal.start(now)
            journal.note(
                Mark(now - since, name, f"adversary: {who.called or type(who).__name__}")
                for name, who in adversaries.items()
            )
        traces = {name: Trace(name, session.hex(), since) for name in taking_part if trace}
        jobs = {
            name: Job(
                role,
                session,
                taking_part,
                given=(inputs[name],) if inputs else (),
                public={**public, **only.get(name, {})},
                watched=name in watched,
                measured=measured,
                seconds=self._runtime.session_seconds if seconds is None else seconds,
                trace=traces.get(name),
                adversary=adversaries.get(name),
            )
            for name in taking_part
        }
        try:
            outcomes = await self._runtime.play(jobs)
            # a process fills a copy of its trace; otherwise these are the traces from above
            traces |= {done.party: done.trace for done in outcomes if done.trace is not None}
            if journal is not None:
                failed = (done for done in outcomes if done.error is not None)
                journal.marks += [mark_failure(done, since) for done in failed]
        finally:
            if journal is not None:
                journal.add(traces.values(), self._runtime.marks)
        return outcomes

    def _among(self, names: Iterable[str] | None) -> Parties:
        if names is None:
            return self.parties
        chosen = frozenset(names)
        for name in chosen:
            if name not in self.parties:
                raise InputError("among", name, f"some of {', '.join(self.parties)}")
        if len(chosen) == len(self.parties):
            return self.parties
        return Parties([name for name in self.parties if name in chosen])


def _runtime(runtime: RuntimeName | Runtime) -> Runtime:
    if isinstance(runtime, Runtime):
        return runtime
    if runtime not in RUNTIMES:
        raise InputError("runtime", runtime, ", ".join(RUNTIMES))
    return RUNTIMES[runtime]()


@dataclass(frozen=True, slots=True)
class Retried(Generic[_R]):
    """A run that succeeded, perhaps after retries.

    Attributes:
        run: The attempt that succeeded.
        without: The parties that were left out.
        wasted: The cost of each failed attempt. Failed attempts leak as well: every vector shows
            its receiver one more hop, with fresh noise over the same values.
        failed: The outcomes of each failed attempt, in the same order. Their views show what a
            coalition saw; do not use their results.
    """

    run: Run[_R]
    without: tuple[str, ...]
    wasted: tuple[Cost, ...]
    failed: tuple[tuple[Outcome, ...], ...] = ()


async def run_with_retries(
    cluster: Cluster,
    role: Callable[..., Awaitable[_R]],
    *,
    attempts: int = ATTEMPTS,
    among: Iterable[str] | None = None,
    for_those: Callable[[tuple[str, ...]], Mapping[str, Any]] | None = None,
    **options: Any,
) -> Retried[_R]:
    """Run a protocol, and repeat it in a new session without the parties that died.

    A new session has a new name, a new ring and fresh randomness: nothing of the failed one is
    reused. A party that broke the protocol is not left out silently, because people must judge
    that.

    Args:
        attempts: The maximum number of runs, at least 1.
        among: The parties that take part in the first attempt; all by default.
        for_those: Called before each attempt with its parties; returns more options, such as the
            client, which may depend on the remaining parties.
        **options: Options of `Cluster.run`, except `own`.

    Raises:
        RunFailed: If the last attempt failed, no party was found dead, or fewer than three are
            left. Its notes contain the reasons of the failed attempts before it.
    """
    chosen = frozenset(cluster.parties if among is None else among)
    alive = tuple(name for name in cluster.parties if name in chosen)
    wasted: list[Cost] = []
    reasons: list[str] = []
    failed: list[tuple[Outcome, ...]] = []
    clock = asyncio.get_running_loop().time
    refuse_options(role, run_with_retries)
    while True:
        started = clock()
        more = {} if for_those is None else for_those(alive)
        outcomes = await cluster.play(role, among=alive, **options, **more)
        try:
            run = join_outcomes(outcomes, clock() - started)
        except RunFailed as error:
            lost = lost_parties(outcomes)
            left = tuple(name for name in alive if name not in lost)
            wasted.append(total_cost(o.meter for o in outcomes if o.meter is not None))
            failed.append(tuple(outcomes))
            if not lost or len(left) < PARTIES_MIN or len(wasted) >= attempts:
                for reason in reasons:
                    error.add_note(reason)
                raise
            reasons.append(f"Attempt {len(wasted)} failed: {describe_failure(error)}.")
            alive = left
        else:
            gone = tuple(name for name in cluster.parties if name not in alive)
            return Retried(run, gone, tuple(wasted), tuple(failed))


def lost_parties(outcomes: Sequence[Outcome]) -> frozenset[str]:
    """Return the parties that the outcomes of a failed run name as lost."""
    named = (_lost(outcome.error) for outcome in outcomes)
    return frozenset(name for name in named if name)


def _lost(error: BaseException | None) -> str:
    match error:
        case PeerLost(peer=peer):
            return peer
        case SessionAborted(reason="PeerLost" | "PeerGivenUp" | "TooManyLost", culprit=culprit):
            return culprit
    return ""
