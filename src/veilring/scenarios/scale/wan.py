"""One batch of PP-kNN on a simulated wide-area network: what it costs, takes, and should take."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from veilring import simulation
from veilring.config import Section, load_toml, require_key, scenario_error
from veilring.data.table import Rows
from veilring.errors import ScenarioError, SimulationError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.forecast import Forecast
from veilring.protocols.ring.algorithm.topk import nested_rounds_for, rounds_for
from veilring.protocols.ring.cost import Chain, knn_chain, knn_cost, nested_chain, nested_cost
from veilring.protocols.ring.nested import nest, nested_knn
from veilring.protocols.ring.roles import KNNAnswer, KNNParameters, private_knn
from veilring.randomness import Streams
from veilring.scenarios.network import make_topology
from veilring.scenarios.schema import NetworkSection

WAN: Final = NetworkSection(
    latency={"law": "constant", "seconds": 0.05}, bandwidth_bytes_per_second=12.5e6
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
    law = WAN.latency if latency is None else {"law": "constant", "seconds": latency}
    return NetworkSection(latency=law, bandwidth_bytes_per_second=bytes_a_second)


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
    """What is asked of whom, over which links.

    Attributes:
        queries: In a batch.
        features: Of a row.
        classes: Of a label.
        k: How many neighbours vote.
        rows: Of each party.
        network: The links.
        seed: Of the order, the rows, the parties' secrets and the links' draws.

    Raises:
        ScenarioError: If some parties have no link: one law for all is what is modelled.
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

    def parameters(self, groups: int = 0) -> KNNParameters:
        """Return PP-kNN's, with rounds for a result that is exact but for one in a million.

        Args:
            groups: Of rings of rings; 0 for one ring, as everywhere here.
        """
        if groups:
            rounds = nested_rounds_for(_ERROR, self.k, _P0, _D, groups)
        else:
            rounds = rounds_for(_ERROR, self.k, _P0, _D)
        return KNNParameters(self.features, self.classes, k=self.k, P0=_P0, d=_D, rounds=rounds)

    def forecast(self, parties: int, groups: int = 0) -> Forecast:
        """Return the closed form of what a batch costs whose order was dealt."""
        terms = self.parameters(groups)
        if groups:
            return nested_cost(parties, self.queries, terms, groups, drawn=False)
        return knn_cost(parties, self.queries, terms, drawn=False)

    def chain(self, parties: int, groups: int = 0) -> Chain:
        """Return the longest chain of messages, as a closed form."""
        terms = self.parameters(groups)
        if groups:
            return nested_chain(parties, self.queries, terms, groups)
        return knn_chain(parties, self.queries, terms)

    def expected_seconds(self, parties: int, groups: int = 0) -> float:
        """Return what the chain takes with the expected latency of each hop.

        That is exact where latency is constant. Where it is random, parts that wait for each other
        wait for the slower one, and a batch takes longer.
        """
        names = _names(parties)
        topology = make_topology(self.network, names[:3])
        latency = topology.expected_seconds(names[0])(names[1])
        bandwidth = self.network.bandwidth_bytes_per_second or float("inf")
        return self.chain(parties, groups).seconds(latency, bandwidth)


def simulate(batch: Batch, parties: int, groups: int = 0) -> Run[KNNAnswer]:
    """Run a batch on the simulated clock; the same again for the same arguments.

    The order is dealt, and its starter asks.

    Args:
        batch: What is asked.
        parties: n.
        groups: Of rings of rings; 0 for one ring.

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

    terms, runs = batch.parameters(groups), list[Run[KNNAnswer]]()
    way: dict[str, Any] = {"rings": nest(order, groups)} if groups else {"ring": order}

    async def main() -> None:
        # Not returned: at the end asyncio writes the whole result out, and throws it away.
        runtime = Simulated(topology)
        async with Cluster(names, runtime=runtime, own=own, seed=batch.seed) as cluster:
            runs.append(
                await cluster.run(
                    nested_knn if groups else private_knn,
                    only={order.starter: {"queries": queries}},
                    asker=order.starter,
                    parameters=terms,
                    **way,
                )
            )

    simulation.run(main())
    (run,) = runs
    forecast = batch.forecast(parties, groups)
    if (run.cost.messages, run.cost.bytes, run.cost.rounds) != (*forecast.traffic, forecast.rounds):
        raise SimulationError(f"a batch of {parties} parties cost {run.cost}, not {forecast}")
    return run


def _names(parties: int) -> list[str]:
    return [f"party-{n}" for n in range(parties)]
