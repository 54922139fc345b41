"""Parties in a ring on a simulated wide-area network."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from benchmarks.studies import Curve, Panel, Study, closed_form, require_sizes
from veilring import simulation
from veilring.config import Section, load_toml, require_key, scenario_error
from veilring.data.table import Rows
from veilring.errors import ScenarioError, SimulationError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import PARTIES_MIN, deal_ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.promise import Facts, Forecast
from veilring.protocols.ring.cost import Chain, knn_chain, knn_cost
from veilring.protocols.ring.roles import KNNAnswer, KNNParameters, private_knn
from veilring.protocols.ring.system import PrivateKNN
from veilring.randomness import Streams
from veilring.scenarios.batches import Progress
from veilring.scenarios.network import make_topology
from veilring.scenarios.schema import NetworkSection

WAN: Final = NetworkSection(
    latency={"distribution": "constant", "seconds": 0.05}, bandwidth_bytes_per_second=12.5e6
)
"""Twenty messages a second one after the other, and 100 Mbit/s a link."""

_ERROR: Final = 1e-6
_P0: Final = 1.0
_D: Final = 0.5


class _NetworkFile(Section):
    """A file with the table of a scenario that describes links.

    Attributes:
        network: As in a scenario.
    """

    network: NetworkSection


def make_network(
    path: Path | None, *, latency: float | None, bandwidth: float | None
) -> NetworkSection:
    """Return links that a file describes, or two numbers, or else those of `WAN`.

    Args:
        path: See `load_network`.
        latency: Of each message, in seconds.
        bandwidth: Of each link, in bytes a second.

    Raises:
        ScenarioError: If the file cannot be read, there are numbers beside it, or they do not fit.
    """
    if path is not None:
        numbers = {"--latency": latency, "--bandwidth": bandwidth}
        for name, value in numbers.items():
            require_key(value is None, name, value, "nothing, where there is a --network")
        return load_network(path)
    bytes_a_second = WAN.bandwidth_bytes_per_second if bandwidth is None else bandwidth
    require_key(bytes_a_second is None or bytes_a_second > 0, "--bandwidth", bandwidth, "above 0")
    table = WAN.latency if latency is None else {"distribution": "constant", "seconds": latency}
    return NetworkSection(latency=table, bandwidth_bytes_per_second=bytes_a_second)


def load_network(path: Path) -> NetworkSection:
    """Read the table `[network]` of a file, as scenarios have it.

    Raises:
        ScenarioError: If it cannot be read, or there is anything else in it.
    """
    try:
        content = load_toml(path)
        return _NetworkFile.model_validate(content).network
    except ValidationError as error:
        raise scenario_error(error, _NetworkFile) from None
    except (OSError, ValueError) as error:
        raise ScenarioError("--network", path, f"a file in TOML ({error})") from error


@dataclass(frozen=True, slots=True)
class Batch:
    """The queries, the parties' rows, and the links.

    Attributes:
        queries: The number of queries in a batch.
        features: The number of features of a row.
        classes: The number of classes.
        k: The number of neighbours that vote.
        rows: The number of rows of each party.
        network: The links.
        seed: The seed of the order, the rows, the parties' secrets and the links' draws.

    Raises:
        ScenarioError: If some parties have no link: the model has one distribution for all links.
    """

    queries: int = 100
    features: int = 8
    classes: int = 2
    k: int = 5
    rows: int = 4
    network: NetworkSection = field(default_factory=lambda: WAN)
    seed: int = 0

    def __post_init__(self) -> None:
        graph = self.network.graph
        require_key(graph == "complete", "network.graph", graph, "complete")

    def parameters(self) -> KNNParameters:
        """Return PP-kNN's, with rounds for a result that is exact but for one in a million."""
        system = PrivateKNN(k=self.k, P0=_P0, d=_D, error=_ERROR)
        return system.bind(Facts(PARTIES_MIN, self.features, self.classes))

    def forecast(self, parties: int) -> Forecast:
        """Return the closed form of the cost of a batch in a dealt order."""
        return knn_cost(parties, self.queries, self.parameters(), drawn=False)

    def chain(self, parties: int) -> Chain:
        """Return the longest chain of messages, as a closed form."""
        return knn_chain(parties, self.queries, self.parameters())

    def expected_seconds(self, parties: int) -> float:
        """Return the time of the chain with the expected latency of each hop.

        That is exact where latency is constant. Where it is random, parts that wait for each other
        wait for the slower one, and a batch takes longer.
        """
        names = _names(parties)
        topology = make_topology(self.network, names[:3])
        latency = topology.expected_seconds(names[0])(names[1])
        bandwidth = self.network.bandwidth_bytes_per_second or float("inf")
        return self.chain(parties).seconds(latency, bandwidth)


def simulate(batch: Batch, parties: int) -> Run[KNNAnswer]:
    """Run a batch on the simulated clock; the same again for the same arguments.

    The order is dealt, and its starter asks.

    Args:
        batch: What is asked.
        parties: n.

    Raises:
        SimulationError: If the run cost anything else than the closed form.
        ScenarioError: If the network does not fit.
    """
    names, streams = _names(parties), Streams(batch.seed)
    order = deal_ring(names, streams.generator("ring", parties))
    rng = streams.generator("rows", parties)
    own = [
        Rows(rng.random((batch.rows, batch.features)), rng.integers(batch.classes, size=batch.rows))
        for _ in names
    ]
    queries = rng.random((batch.queries, batch.features))
    topology = make_topology(batch.network, names)

    terms, runs = batch.parameters(), list[Run[KNNAnswer]]()

    async def main() -> None:
        # Not returned: at the end asyncio writes the whole result out, and throws it away.
        runtime = Simulated(topology)
        async with Cluster(names, runtime=runtime, own=own, seed=batch.seed) as cluster:
            runs.append(
                await cluster.run(
                    private_knn,
                    only={order.starter: {"queries": queries}},
                    client=order.starter,
                    parameters=terms,
                    ring=order,
                )
            )

    simulation.simulate(main())
    (run,) = runs
    forecast = batch.forecast(parties)
    if (run.cost.messages, run.cost.bytes, run.cost.rounds) != (*forecast.traffic, forecast.rounds):
        raise SimulationError(f"a batch of {parties} parties cost {run.cost}, not {forecast}")
    return run


def _names(parties: int) -> list[str]:
    return [f"party-{n}" for n in range(parties)]


QUICK: Final = (9, 32, 128, 512, 1_024)
FULL: Final = (9, 32, 128, 512, 2_048, 8_192, 32_768)
PARTIES_MAX: Final = 10**9  # no federation has as many: beyond it a model is asked nothing

_MODEL: Final = "times the longest chain"
_SECONDS: Final = Panel("parties", "simulated seconds per batch")


def largest(seconds: Callable[[int], float], within: float, least: int) -> int | None:
    """Return the most parties that label a batch within some seconds, by a model.

    Args:
        seconds: Of a batch, by the number of parties; it does not fall.
        within: The limit.
        least: The fewest parties that there can be.

    Returns:
        At most `PARTIES_MAX`; none if even the fewest take longer.
    """
    if seconds(least) > within:
        return None
    below, above = least, 2 * least
    while above < PARTIES_MAX and seconds(above) <= within:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if seconds(middle) <= within else (below, middle)
    return min(below, PARTIES_MAX)


def study_ring(
    batch: Batch,
    parties: Sequence[int] = QUICK,
    *,
    within: float = 60.0,
    tell: Progress | None = None,
) -> Study:
    """Simulate a batch for each number of parties.

    Args:
        batch: What is asked over which links.
        parties: Numbers of parties, ascending, each at least 3; at least two.
        within: In how many seconds a batch shall be labelled.
        tell: Told how far it is.

    Raises:
        InputError: If there are too few numbers or one is too small.
        ScenarioError: If the network does not fit.
    """
    # A model and a point to leave out.
    require_sizes(parties, 2, PARTIES_MIN, f"two or more from {PARTIES_MIN} up, ascending")
    points, beside = dict[float, float](), dict[str, list[float]]()
    for done, n in enumerate(parties):
        if tell is not None:
            tell(f"{n:,} parties", done, len(parties))
        run = simulate(batch, n)
        points[n] = run.seconds
        for what in ("rounds", "messages", "bytes"):
            beside.setdefault(what, []).append(getattr(run.cost, what))
    kept = {what: tuple(values) for what, values in beside.items()}
    basis = closed_form(_MODEL, lambda n: batch.expected_seconds(round(n)))
    curve = Curve.fitted("one ring", _SECONDS, points, basis, kept)
    most = largest(curve.fit, within, PARTIES_MIN)
    fits = f"not even {PARTIES_MIN} parties"
    if most is not None:
        fits = f"up to {most:,} parties, according to the model"
    finding = f"within {within:g} s: {fits}"
    title = "Cost of a batch of PP-kNN, by number of parties"
    setting = tuple(_setting(batch))
    return Study("ring", title, setting, simulated=True, curves=(curve,), findings=(finding,))


def _setting(batch: Batch) -> Iterator[str]:
    network, terms = batch.network, batch.parameters()
    yield f"{batch.queries} queries of {batch.features} features, k = {batch.k}, seed {batch.seed}"
    yield f"{terms.topk.rounds} rounds of PP-TopK"
    delay = ", ".join(
        str(value) if name == "distribution" else f"{name} {value}"
        for name, value in network.latency.items()
    )
    bandwidth = network.bandwidth_bytes_per_second
    limit = "no limit to bandwidth" if bandwidth is None else f"{bandwidth:,.0f} bytes/s per link"
    yield f"latency: {delay}; {limit}; computing takes no time"
    yield "messages, bytes and rounds are equal to the closed forms at each point"
