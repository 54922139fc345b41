"""Clusters: one interface to four places where parties can run."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.nodes.worlds import NAMES, Role
from tests.roles import (
    Word,
    fail,
    fail_unreadably,
    pass_array,
    pass_on,
    say_to_a_stranger,
    unreturnable,
)
from tests.simulation.running import simulated

from veilring.errors import (
    ClusterError,
    Deadlock,
    InputError,
    PeerGivenUp,
    PeerLost,
    ProtocolViolation,
    RunFailed,
    SessionAborted,
    SessionTimeout,
    VeilringError,
)
from veilring.nodes.adversary import Drop
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Seen, View
from veilring.nodes.party import Party, Standing
from veilring.nodes.ring import draw_ring
from veilring.nodes.run import Outcome, join_outcomes
from veilring.nodes.runtimes.simulated import SIMULATED_SECONDS
from veilring.testing import ProtocolRunner, assert_cost
from veilring.transport.frames import frame_size
from veilring.transport.handshake import ConnectionRefusal
from veilring.transport.links import Links
from veilring.transport.messages import encode
from veilring.transport.roster import Identity
from veilring.transport.tls import TlsEndpoint


def test_a_run_has_results_costs_and_views(run_everywhere: ProtocolRunner) -> None:
    """Resident data go to their party; messages count at the sender; watched parties have views."""
    own = {"ada": "a", "bob": "bb", "cy": "ccc"}
    run = run_everywhere(pass_on, NAMES, own=list(own.values()), watch=["bob"])
    assert run.results == {"ada": "ccc", "bob": "a", "cy": "bb"}
    sizes = {name: frame_size(encode(bytes(16), Word(text=text))) for name, text in own.items()}
    assert_cost(run, messages=3, bytes=sum(sizes.values()), rounds=1)
    assert {name: traffic.bytes for name, traffic in run.cost.by_party.items()} == sizes
    assert run.cost.by_kind["test.word"].messages == 3
    with pytest.raises(AssertionError, match=r"the run cost .*'messages': 3"):
        assert_cost(run, messages=4)
    with pytest.raises(InputError, match="at least one of messages, bytes, rounds"):
        assert_cost(run)
    received, sent = [Seen(1, "ada", Word(text="a"))], [Seen(1, "cy", Word(text="bb"))]
    assert run.views == {"bob": View("bob", received, sent)}
    assert run.trace == ()


def test_set_up_messages_are_asserted_separately(run_everywhere: ProtocolRunner) -> None:
    """Set-up messages are counted separately, and a failed assertion shows both counts."""
    run = run_everywhere(draw_ring, NAMES)
    setup = run.cost.setup
    assert setup.messages == 3 * 2 * 2  # each commits and reveals to all others
    assert_cost(run, messages=0, bytes=0, setup_messages=12, setup_bytes=setup.bytes)
    with pytest.raises(AssertionError, match=r"set-up: Traffic\(messages=12, bytes="):
        assert_cost(run, messages=12)
    with pytest.raises(AssertionError, match=f"'setup_bytes': {setup.bytes}"):
        assert_cost(run, setup_bytes=setup.bytes + 1)


def test_a_failure_anywhere_is_a_failure_everywhere(run_everywhere: ProtocolRunner) -> None:
    """The error is the one closest to the cause, with file, line and function, and no value."""
    with pytest.raises(RunFailed, match="bob: ValueError: bob had a bad day") as caught:
        run_everywhere(fail, NAMES, who="bob")
    errors = caught.value.errors
    assert isinstance(errors["bob"], ValueError)
    assert isinstance(errors["cy"], SessionAborted)
    assert errors["cy"].by == "bob"
    line = fail.__code__.co_firstlineno + 3
    place = f"{fail.__code__.co_filename}:{line}, in fail"
    assert caught.value.root.__notes__ == [f"raised by bob at\n  {place}"]


async def test_a_cluster_runs_many_sessions_at_once() -> None:
    """One cluster runs any number of sessions concurrently, even after a failure."""
    async with Cluster(3, own=list("abc")) as cluster:
        runs = await asyncio.gather(*(cluster.run(pass_on) for _ in range(20)))
        assert {run.result for run in runs} == {"c"}
        assert len({run.transcript for run in runs}) == 20  # no session has another's name
        with pytest.raises(RunFailed):
            await cluster.run(_fail_with_own, who="party-1")
        assert (await cluster.run(pass_on, own=list("xyz"))).result == "z"


async def _fail_with_own(party: Party, _own: str, *, who: str) -> None:
    await fail(party, who=who)


async def test_an_argument_can_be_for_one_party_only() -> None:
    """A keyword argument for one party is given to that party only."""

    async def tell(party: Party, *, secret: str = "") -> str:
        await pass_on(party)
        return secret

    async with Cluster(3) as cluster:
        run = await cluster.run(tell, only={"party-1": {"secret": "s"}})
    assert run.results == {"party-0": "", "party-1": "s", "party-2": ""}


def test_sending_to_a_stranger_lists_the_peers(run_everywhere: ProtocolRunner) -> None:
    """A wrong name is refused on every runtime with the argument and the names to choose from."""
    with pytest.raises(RunFailed, match=r"to is 'dan'; allowed: a peer of \w+: .*(bob|cy)"):
        run_everywhere(say_to_a_stranger, NAMES)


async def test_the_fixture_needs_a_plain_function() -> None:
    """In an `async def` test, the error names the remedy."""
    for runtime in ("memory", "simulated"):
        with pytest.raises(ClusterError, match="write the test as `def`"):
            ProtocolRunner(runtime)(pass_on, 3)


async def wait_for_the_next(party: Party) -> None:
    """Wait for a message that will never come."""
    here = party.parties.position(party.me)
    await party.receive(Word, sender=party.parties[(here + 1) % 3])


async def sleep_on(_party: Party) -> None:
    """Sleep without end."""
    while True:  # noqa: ASYNC110  (the mistake)
        await asyncio.sleep(100)


async def retry(party: Party) -> None:
    """Swallow the error of a session that has failed."""
    if party.me == "party-1":
        raise ValueError("a bad day")
    while True:
        try:
            await party.receive(Word, sender="party-1")
        except SessionAborted:
            await asyncio.sleep(1)


ALL_WAIT = (
    r"^every party is waiting.*party-0 is waiting for test\.word from party-1.*"
    r"nobody can be blamed: the order.*due=ROUND"
)
NOBODY = "party-1 is waiting for no message"


@pytest.mark.parametrize(
    ("role", "limit", "root", "seconds", "says"),
    [
        (wait_for_the_next, None, Deadlock, 0.0, ALL_WAIT),
        (wait_for_the_next, 5.0, Deadlock, 0.0, ALL_WAIT),
        (lambda _: asyncio.Event().wait(), None, Deadlock, 0.0, NOBODY),
        (sleep_on, None, SessionTimeout, SIMULATED_SECONDS, "not finished after"),
        (sleep_on, 250.0, SessionTimeout, 250.0, "not finished after 250 s"),
        (retry, 9.5, ValueError, 9.5, "a bad day"),
    ],
)
@simulated
async def test_on_the_simulated_clock_every_run_ends(
    role: Role, limit: float | None, root: type[Exception], seconds: float, says: str
) -> None:
    """A deadlock ends at once and names the waits; any other role ends at its limit."""
    async with Cluster(3, runtime="simulated") as cluster:
        with pytest.raises(RunFailed, match=f"(?s){says}") as caught:
            await cluster.run(role, seconds=limit)
        assert asyncio.get_running_loop().time() == seconds
    assert isinstance(caught.value.root, root)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parties": ["a", "a", "b"]}, "a party is named twice"),
        ({"parties": 3, "own": [1, 2]}, "2 items of own data for 3 parties"),
        ({"parties": 3, "runtime": "cloud"}, "runtime is 'cloud'; allowed: memory, tls"),
        ({"parties": 3, "seed": -1}, "seed is -1"),
    ],
)
def test_a_cluster_refuses_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    """A mistake is reported before any party starts."""
    with pytest.raises(InputError, match=message):
        Cluster(**arguments)


async def test_a_cluster_refuses_runs_that_it_cannot_play() -> None:
    """A run needs a running cluster, known parties and the clock of its runtime."""
    cluster = Cluster(3)
    with pytest.raises(ClusterError, match="not running"):
        await cluster.run(pass_on)
    async with cluster:
        for strange in ({"watch": ["dan"]}, {"adversaries": {"dan": Drop()}}):
            with pytest.raises(InputError, match="party is 'dan'"):
                await cluster.run(pass_on, **strange)
    with pytest.raises(ClusterError, match=r"veilring\.simulation\.simulate"):
        await Cluster(3, runtime="simulated").__aenter__()


async def test_unseeded_runs_differ() -> None:
    """Runs without a seed, of one cluster and of other seeds draw fresh randomness."""

    async def draw(party: Party) -> float:
        await asyncio.sleep(0)
        return float(party.rng.random())

    async with Cluster(3) as one, Cluster(3) as other:
        draws = [*(await one.run(draw)).results.values(), *(await other.run(draw)).results.values()]
    assert len(set(draws)) == 6
    async with Cluster(3, seed=0) as seeded, Cluster(3, seed=1) as other:
        again = [(await each.run(draw)).results for each in (seeded, seeded, other)]
    assert again[0] != again[1]  # another run of the same cluster draws again
    assert again[0] != again[2]


async def test_unpicklable_roles_and_results_are_reported() -> None:
    """A role or result that cannot be pickled is named, and the cluster stays usable."""

    class Mute(Drop):
        pass

    async def local(party: Party) -> None:
        await pass_on(party)

    async with Cluster(3, runtime="processes") as cluster:
        with pytest.raises(ClusterError, match="cannot run in another process"):
            await cluster.run(local)
        with pytest.raises(ClusterError, match=r"and adversary, .*move it to the top level of a"):
            await cluster.run(pass_on, adversaries={"party-1": Mute()})
        with pytest.raises(RunFailed, match="cannot be sent to another process"):
            await cluster.run(unreturnable)
        with pytest.raises(RunFailed, match="cannot be unpickled here"):
            await cluster.run(fail_unreadably)
        assert (await cluster.run(pass_on)).result == "party-2"


async def test_large_inputs_and_results_cross_processes() -> None:
    """Arrays larger than a frame reach a process and return from it: they are not messages."""
    big = [np.full(300_000, float(n)) for n in range(3)]
    async with Cluster(3, runtime="processes", own=big) as cluster:
        run = await cluster.run(pass_array)
    assert [float(result.sum()) for result in run.results.values()] == [0.0, 3e5, 6e5]


def outcome(
    party: str, error: VeilringError | None = None, without: tuple[str, ...] | None = ()
) -> Outcome:
    """Return an outcome of a role that tolerates losses, or does not."""
    standing = Standing(party, without=without)
    channels = {(party, peer): f"{party} to {peer}" for peer in NAMES if peer != party}
    result = None if error else f"of {party}"
    return Outcome(party, result, error, channels=channels, standing=standing)


def test_a_run_of_tolerant_parties_goes_on_without_lost_ones() -> None:
    """A crashed party, noticed or not, and one that all gave up are lost; their runs succeed."""
    for error, missed in (
        (PeerLost("cy"), ("cy",)),
        (PeerLost("cy"), ()),
        (PeerGivenUp("ada"), ("cy",)),
        (SessionAborted("ada", "TooManyLost"), ("cy",)),
    ):
        found = [outcome("ada", None, missed), outcome("bob"), outcome("cy", error)]
        run = join_outcomes(found, 0)
        assert (run.results, run.lost) == ({"ada": "of ada", "bob": "of bob"}, ("cy",))
        assert set(run.channels) == {("ada", "bob"), ("bob", "ada")}


def test_any_other_error_fails_the_run() -> None:
    """A party without tolerance, an unexpected loss, a violation and no result each fail it."""
    crashed = outcome("cy", PeerLost("cy"))
    for outcomes in (
        [outcome("ada", None, None), outcome("bob"), crashed],
        [outcome("ada", None, None), outcome("bob", None, None), crashed],
        [outcome("ada"), outcome("bob"), outcome("cy", PeerLost("bob"))],
        [outcome("ada", None, ("cy",)), outcome("cy", ProtocolViolation("bob", "lied"))],
        [outcome("ada", PeerLost("cy")), crashed],
    ):
        with pytest.raises(RunFailed):
            join_outcomes(outcomes, 0)


async def test_a_connection_may_break_while_others_still_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster over TLS starts nevertheless: the two parties connect again."""
    start, objection = TlsEndpoint.start, Links.objection
    broken = asyncio.Event()

    def late(self: Links, peer: str, *given: Any) -> ConnectionRefusal | None:
        if (self.me, peer) == ("ada", "cy") and not broken.is_set():
            return ConnectionRefusal("not yet", again=True)
        return objection(self, peer, *given)

    async def breaking(identity: Identity, *args: Any, **options: Any) -> TlsEndpoint:
        endpoint = await start(identity, *args, **options)
        if endpoint.name == "bob" and not broken.is_set():
            broken.set()
            vars(vars(endpoint)["_links"].connection_to("ada"))["_transport"].abort()
        return endpoint

    monkeypatch.setattr(Links, "objection", late)
    monkeypatch.setattr(TlsEndpoint, "start", breaking)
    async with Cluster(NAMES, runtime="tls", own=NAMES) as cluster:
        assert broken.is_set()
        assert (await cluster.run(pass_on)).results == {"ada": "cy", "bob": "ada", "cy": "bob"}
