"""TCP over simulated links: closed forms, published formulas, and times of a kernel's TCP."""

import asyncio
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest
from benchmarks.tcp import Case, over_model
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment
from tests.simulation.running import simulated

from veilring.errors import InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Link,
    LinkModel,
    Routes,
    SimulatedEndpoint,
    SimulatedNetwork,
    Tcp,
    Topology,
    running_environment,
)
from veilring.simulation.links import Condition, LinkConditions
from veilring.simulation.tcp import (
    INITIAL_SEGMENTS,
    LOSS_MAX,
    TIMEOUT_MAX_SECONDS,
    TIMEOUT_MIN_SECONDS,
)

MSS = 1448
DELAY = 0.05
ROUND_TRIP = 2 * DELAY
TIMEOUT = ROUND_TRIP + TIMEOUT_MIN_SECONDS


FIXED = partial(np.random.default_rng, 1)


class Fates:
    """A stream that loses chosen segments, in the order of their transmissions."""

    def __init__(self, fates: str) -> None:
        self._draws: Iterator[float] = chain((float(fate != "x") for fate in fates), repeat(1.0))

    def random(self, count: int) -> Any:
        """Return a draw for each segment."""
        return np.array([next(self._draws) for _ in range(count)])


class Sender:
    """A sender of messages over one link with TCP."""

    def __init__(
        self,
        tcp: Tcp,
        *,
        bandwidth: float = math.inf,
        stream: Callable[[], Any] = FIXED,
        conditions: LinkConditions | None = None,
        delay: float = DELAY,
    ) -> None:
        self.environment = Environment()
        model = LinkModel(Constant(delay), bandwidth_bytes_per_second=bandwidth, tcp=tcp)
        self.link = Link(self.environment, model, stream, conditions)

    def send(self, *sizes: int) -> list[float]:
        """Send messages at once; return the seconds until each arrives."""
        arrived = list[float]()
        start = self.environment.now
        for size in sizes:
            arrival = self.link.send(size)
            arrival.callbacks.append(lambda _: arrived.append(self.environment.now - start))
        self.environment.run(arrival)
        return arrived

    def seconds(self, segments: int) -> float:
        """Send a message; return the seconds until it arrives."""
        return self.send(segments * MSS)[0]

    def rest(self, seconds: float) -> None:
        """Send nothing for a while."""
        self.environment.run(self.environment.timeout(seconds))


def losing(fates: str) -> Sender:
    """Return a sender that loses the segments marked `x`."""
    return Sender(Tcp(LOSS_MAX), stream=lambda: Fates(fates))


@pytest.mark.parametrize("segments", [1, 2, 9, 10, 11, 30, 31, 70, 71, 150, 151, 700])
def test_slow_start_has_a_closed_form(segments: int) -> None:
    """Without loss, the number of round trips is logarithmic (Cardwell et al. 2000)."""
    rounds = math.ceil(math.log2(segments / INITIAL_SEGMENTS + 1))
    assert Sender(Tcp()).seconds(segments) == pytest.approx((rounds - 0.5) * ROUND_TRIP)


@given(st.integers(1, 30), st.integers(1, 400))
def test_a_full_window_leaves_in_each_round_trip(window: int, segments: int) -> None:
    """The receiver's window limits the rate to window / round trip, after slow start."""
    room, rounds, left = min(window, INITIAL_SEGMENTS), 1, segments
    while left > room:
        left, rounds, room = left - room, rounds + 1, min(2 * room, window)
    sender = Sender(Tcp(window_bytes=window * MSS + MSS // 2))
    assert sender.seconds(segments) == pytest.approx((rounds - 0.5) * ROUND_TRIP)


@pytest.mark.parametrize("segments", [1, 25, 400])
def test_a_slow_link_is_used_all_the_time(segments: int) -> None:
    """Where the first window takes a round trip to depart, the time is that of the bytes."""
    bandwidth = INITIAL_SEGMENTS * MSS / ROUND_TRIP
    expected = segments * MSS / bandwidth + DELAY
    # The first acknowledgement comes a segment's departure later than the line is free.
    most = expected + math.ceil(segments / INITIAL_SEGMENTS) * MSS / bandwidth
    assert expected <= Sender(Tcp(), bandwidth=bandwidth).seconds(segments) <= most
    assert Sender(Tcp(), bandwidth=bandwidth / 2).seconds(segments) == pytest.approx(
        2 * (expected - DELAY) + DELAY
    )


def arrivals(
    sends: Sequence[tuple[float, int]], tcp: Tcp | None, bandwidth: float
) -> list[tuple[float, int]]:
    """Send messages after pauses; return the time and the number of each that arrives."""
    environment, arrived = Environment(), list[tuple[float, int]]()
    model = LinkModel(Constant(DELAY), Constant(0.0), bandwidth, tcp)
    link = Link(environment, model, FIXED)
    for number, (pause, size) in enumerate(sends):
        environment.run(environment.timeout(pause))
        arrival = link.send(size, number)
        arrival.callbacks.append(lambda event: arrived.append((environment.now, event.value)))
    environment.run()
    return arrived


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30_000)), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.01, 0.3]),
    st.sampled_from([math.inf, 1e4, 1e6]),
)
def test_messages_stay_in_order_and_are_never_early(
    sends: list[tuple[float, int]], loss: float, bandwidth: float
) -> None:
    """Each message arrives once, in order, and no earlier than without TCP."""
    without, over = (arrivals(sends, tcp, bandwidth) for tcp in (None, Tcp(loss)))
    assert [number for _, number in over] == list(range(len(sends)))
    assert all(late >= early - 1e-9 for (early, _), (late, _) in zip(without, over, strict=True))


LATE = ROUND_TRIP / 4


@pytest.mark.parametrize(
    ("fates", "segments", "waits"),
    [
        ("x", 10, ROUND_TRIP),
        ("xx", 10, ROUND_TRIP),
        ("x", 4, ROUND_TRIP),
        ("x", 3, ROUND_TRIP + LATE),
        ("x........x", 10, 2 * ROUND_TRIP),
        ("xxxxxxxx", 9, ROUND_TRIP + LATE),
        ("x.........x", 10, ROUND_TRIP + TIMEOUT),
        (".x", 2, ROUND_TRIP + TIMEOUT),
        (".xx", 3, ROUND_TRIP + 2 * ROUND_TRIP + ROUND_TRIP),
        ("x", 1, TIMEOUT),
        ("xx", 1, 2 * TIMEOUT),
        ("xxx", 1, 4 * TIMEOUT),
        ("xxxx", 1, 8 * TIMEOUT),
        ("xx", 2, 2 * ROUND_TRIP + ROUND_TRIP),
        ("xxx", 2, 2 * ROUND_TRIP + TIMEOUT + ROUND_TRIP),
    ],
)
def test_lost_segments_have_a_closed_form(fates: str, segments: int, waits: float) -> None:
    """Later segments reveal a loss; otherwise a probe, and timeouts that double, repair it."""
    assert losing(fates).seconds(segments) == pytest.approx(DELAY + waits)


def test_timeouts_stop_doubling() -> None:
    """The longest timeout is two minutes."""
    waits = [TIMEOUT, *(min(TIMEOUT * 2**n, TIMEOUT_MAX_SECONDS) for n in range(12))]
    assert losing("x" * len(waits)).seconds(1) == pytest.approx(DELAY + sum(waits))


def rounds(sender: Sender, segments: int) -> int:
    """Send a message that loses nothing; return its round trips."""
    return round(sender.seconds(segments) / ROUND_TRIP + 0.5)


@pytest.mark.parametrize(
    ("fates", "segments", "window"),
    [("", 10, 20), ("x", 10, 5), ("xx", 10, 5), ("....x.x", 10, 5), ("x", 1, 5), ("xx", 1, 2)],
)
def test_a_loss_halves_the_window_and_a_timeout_collapses_it(
    fates: str, segments: int, window: int
) -> None:
    """The next message finds the window doubled, half of it, or that of one acknowledgement."""
    for size in (window, window + 1):
        sender = losing(fates)
        sender.seconds(segments)
        sender.rest(DELAY)
        assert rounds(sender, size) == 1 + (size > window), size


def test_the_window_grows_by_one_segment_after_a_loss() -> None:
    """After slow start ended with a loss, each round trip with a full window adds a segment."""
    sender = losing("x")
    sender.seconds(INITIAL_SEGMENTS)
    sender.rest(DELAY)
    for window in range(5, 12):
        assert rounds(sender, window) == 1
        sender.rest(DELAY)
    assert rounds(sender, 12 + 13 + 1) == 3


def test_an_idle_connection_loses_its_window() -> None:
    """The window is halved for each timeout without traffic, down to the initial one (RFC 5681)."""
    for idle, window in ((ROUND_TRIP, 80), (TIMEOUT, 80), (1.5 * TIMEOUT, 40), (9 * TIMEOUT, 10)):
        for size in (window, window + 1):
            sender = Sender(Tcp())
            assert rounds(sender, 70) == 3
            sender.rest(idle - DELAY)
            assert rounds(sender, size) == 1 + (size > window), idle


def test_small_messages_share_segments_only_while_they_wait() -> None:
    """Ten leave at once, one segment each; the others wait for the window, and leave together."""
    first, last = [DELAY] * INITIAL_SEGMENTS, [DELAY + ROUND_TRIP] * 90
    assert Sender(Tcp()).send(*[50] * 100) == pytest.approx(first + last)
    assert Sender(Tcp()).send(*[MSS] * 31)[-2:] == pytest.approx([3 * DELAY, 5 * DELAY])


def test_a_stall_holds_all_segments_back() -> None:
    """Segments that meet a stalled link wait for its end, and the others for acknowledgements."""
    for start, expected in ((0.5 * DELAY, 10 + 2 * DELAY), (0.0, 10 + 3 * DELAY)):
        stall = LinkConditions((Condition(start, 10.0, 0, stalled=True),), set())
        assert Sender(Tcp(), conditions=stall).seconds(20) == pytest.approx(expected)


def test_acknowledgements_take_the_way_back() -> None:
    """On a graph with other delays each way, a round trip is the sum of both."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edge("a", "b", latency_seconds=1)
    graph.add_edge("b", "a", latency_seconds=5)
    environment = Environment()
    routes = Routes(environment, Topology(LinkModel(tcp=Tcp()), graph), Streams(1).generator)
    environment.run(routes.send("a", "b", 11 * MSS))
    assert environment.now == 1 + 5 + 1


def test_an_edge_has_its_own_loss() -> None:
    """Attributes of an edge override the default's TCP, or add one."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", loss=0.25)
    graph.add_edge("b", "c", tcp=Tcp(0.5))
    graph.add_edge("c", "a")
    for default, other in ((Tcp(0.1, 100, 200), Tcp(0.25, 100, 200)), (None, Tcp(0.25))):
        topology = Topology(LinkModel(tcp=default), graph)
        found = [topology.model(*pair).tcp for pair in ("ab", "bc", "ca")]
        assert found == [other, Tcp(0.5), default]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Tcp(loss=-0.1), "loss"),
        (lambda: Tcp(loss=0.6), "loss"),
        (lambda: Tcp(loss=math.nan), "loss"),
        (lambda: Tcp(mss_bytes=0), "mss_bytes"),
        (lambda: Tcp(window_bytes=1000), "window_bytes"),
        (lambda: Topology(graph=nx.Graph([("a", "b", {"loss": 2})])), "edges[a, b].loss"),
        (lambda: Topology(graph=nx.Graph([("a", "b", {"loss": "1"})])), "edges[a, b].loss"),
        (lambda: Topology(graph=nx.Graph([("a", "b", {"tcp": 1})])), "edges[a, b].tcp"),
    ],
)
def test_wrong_properties_are_refused(make: Callable[[], object], field: str) -> None:
    """Properties out of range are refused by name."""
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field


def network(fates: str) -> SimulatedNetwork:
    """Return two parties; segments from alice are lost as given."""
    model = LinkModel(Constant(DELAY), tcp=Tcp(LOSS_MAX))
    made = SimulatedNetwork(("alice", "bob"), Streams(1), topology=Topology(model))
    streams = {("link", "alice", "bob"): Fates(fates)}
    made.routes = Routes(
        running_environment(),
        Topology(model),
        lambda *name: cast(Any, streams.get(name, Fates(""))),
    )
    return made


@simulated
async def test_a_message_that_waits_for_a_timer_is_lost_in_a_crash() -> None:
    """Nobody sends its segment again; the news of the loss is on time."""
    parties = network(".x")
    alice, bob = parties.endpoint("alice"), parties.endpoint("bob")
    await alice.send("bob", b"first")
    await alice.send("bob", b"second")
    await asyncio.sleep(0.5 * TIMEOUT)
    alice.end(orderly=False)
    assert await bob.receive() == ("alice", b"first")
    with pytest.raises(PeerLost):
        await bob.receive()
    assert asyncio.get_running_loop().time() == pytest.approx(0.5 * TIMEOUT + DELAY)


@simulated
async def test_a_new_connection_starts_slowly() -> None:
    """After a reset, a message needs the round trips of the first one again."""
    parties = network("")
    alice, bob = parties.endpoint("alice"), parties.endpoint("bob")
    clock, seconds = asyncio.get_running_loop().time, list[float]()
    for is_new in (True, False, True):
        if is_new and seconds:
            parties.break_connection("alice", "bob")
            parties.break_connection("bob", "alice")
            parties.mend_connection("alice", "bob")
        start = clock()
        await alice.send("bob", bytes(30 * MSS - 100))
        while not isinstance(await receive(bob), bytes):
            pass
        seconds.append(clock() - start)
        await asyncio.sleep(DELAY)
    assert seconds == pytest.approx([3 * DELAY, DELAY, 3 * DELAY])


async def receive(endpoint: SimulatedEndpoint) -> bytes | PeerLost:
    """Receive a frame, or the news of a loss."""
    try:
        return (await endpoint.receive())[1]
    except PeerLost as lost:
        return lost


def goodput(loss: float, round_trip: float, segments: int, seeds: int) -> float:
    """Return the bytes per second of long messages, each on a connection of its own."""
    streams = (partial(np.random.default_rng, seed) for seed in range(seeds))
    senders = (Sender(Tcp(loss), stream=each, delay=round_trip / 2) for each in streams)
    return segments * MSS / statistics.mean(sender.seconds(segments) for sender in senders)


def mathis(loss: float, round_trip: float) -> float:
    """Return the rate without timers: Mathis et al. (1997), equation 3, C for periodic loss."""
    return MSS / round_trip * math.sqrt(1.5 / loss)


def padhye(loss: float, round_trip: float) -> float:
    """Return the rate with timers: Padhye et al. (1998), equation 30, one segment an ACK."""
    timers = min(1.0, 3 * math.sqrt(3 * loss / 8)) * loss * (1 + 32 * loss**2)
    timeout = round_trip + TIMEOUT_MIN_SECONDS
    return MSS / (round_trip * math.sqrt(2 * loss / 3) + timeout * timers)


# The constant of Mathis is 1.22 for periodic losses and 1.31 for independent ones (their section
# 2), and long messages begin with a slow start: together 15 %. The streams are fixed.
ABOVE_MATHIS = 1.15


@pytest.mark.parametrize(
    ("loss", "round_trip"),
    [
        (0.01, 0.1),
        *(
            pytest.param(loss, round_trip, marks=pytest.mark.slow)
            for loss in (0.003, 0.01, 0.03, 0.1)
            for round_trip in (0.02, 0.1, 0.3)
        ),
    ],
)
def test_goodput_lies_between_published_formulas(loss: float, round_trip: float) -> None:
    """It is at least that of a sender that needs timers, and at most that of one without."""
    found = goodput(loss, round_trip, segments=round(60 / loss), seeds=30)
    assert padhye(loss, round_trip) <= found <= ABOVE_MATHIS * mathis(loss, round_trip)
    if loss <= 0.01:
        assert found == pytest.approx(mathis(loss, round_trip), rel=ABOVE_MATHIS - 1)


# Mean seconds of messages over the Reno of Linux 6.18, as `python -m benchmarks --only tcp` found
# them, with their standard errors.
KERNEL = {
    Case(0.0, 0.05, 1, 1, 1): (0.0508, 0.0001),
    Case(0.0, 0.05, 30, 1, 1): (0.1531, 0.0002),
    Case(0.0, 0.05, 200, 1, 1): (0.4637, 0.0001),
    Case(0.0, 0.05, 800, 1, 1, window=44): (1.977, 0.003),
    Case(0.01, 0.05, 3000, 1, 10): (21.62, 1.0),
    Case(0.01, 0.1, 1500, 1, 10): (20.29, 0.77),
    Case(0.03, 0.05, 1500, 1, 10): (21.77, 0.43),
    Case(0.1, 0.05, 500, 1, 10): (15.31, 0.23),
    Case(0.05, 0.05, 1, 100, 10): (0.0684, 0.001),
    Case(0.05, 0.05, 3, 100, 10): (0.097, 0.0014),
    Case(0.05, 0.05, 10, 60, 10): (0.2282, 0.0023),
    Case(0.05, 0.05, 100, 10, 10): (1.987, 0.026),
}
NEAR = 0.08
"""The share by which the model and a kernel may differ, beside four standard errors of a mean."""


@pytest.mark.slow
@pytest.mark.parametrize(("case", "measured"), KERNEL.items())
def test_times_are_those_of_a_kernel(case: Case, measured: tuple[float, float]) -> None:
    """The mean times of messages are within 8 % of those of a kernel's TCP."""
    seconds, error = measured
    model = over_model(case)
    errors = 4 * math.hypot(error, statistics.stdev(model) / math.sqrt(len(model)))
    assert abs(statistics.mean(model) - seconds) <= NEAR * seconds + errors
