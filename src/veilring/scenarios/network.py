"""The links of a scenario, for the simulated clock."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import networkx as nx

from veilring.config import as_scenario_errors, make_kind, require_key
from veilring.errors import ScenarioError
from veilring.scenarios.schema import NetworkSection
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    LogNormal,
    Normal,
    Topology,
    Uniform,
)
from veilring.simulation.links import DelayLaw

_LAWS: Final[Mapping[str, type[DelayLaw]]] = {
    "constant": Constant,
    "uniform": Uniform,
    "normal": Normal,
    "lognormal": LogNormal,
    "exponential": Exponential,
}
_GRAPHS: Final[Mapping[str, Callable[[Sequence[str]], "nx.Graph[str]"]]] = {
    "cycle": nx.cycle_graph,
    "path": nx.path_graph,
    "star": nx.star_graph,
}
_GRAPHML: Final = ".graphml"


def make_topology(network: NetworkSection, parties: Sequence[str]) -> Topology:
    """Return the links between the parties.

    In a GraphML file nodes are the parties' names, and edges may have the attributes
    `latency_seconds`, `jitter_seconds` and `bandwidth_bytes_per_second`; what they lack is the
    scenario's.

    Raises:
        ScenarioError: If a law or the graph is not one, or leaves a party without a way to another.
    """
    limit = network.bandwidth_bytes_per_second
    model = LinkModel(
        make_kind("network.latency", "law", network.latency, _LAWS),
        make_kind("network.jitter", "law", network.jitter, _LAWS),
        *(() if limit is None else (limit,)),
    )
    with as_scenario_errors({"graph": "network.graph"}, "network.graph"):
        topology = Topology(model, _graph(network.graph, parties))
        topology.check_connects(parties)
    return topology


def _graph(kind: str, parties: Sequence[str]) -> "nx.Graph[str] | None":
    if kind == "complete":
        return None
    if kind in _GRAPHS:
        return _GRAPHS[kind](parties)
    allowed = f"complete, {', '.join(_GRAPHS)}, or a path to a {_GRAPHML}"
    require_key(kind.endswith(_GRAPHML), "network.graph", kind, allowed)
    try:
        graph: nx.Graph[str] = nx.read_graphml(Path(kind))
    except (OSError, SyntaxError, nx.NetworkXError) as error:
        allowed = f"a file in GraphML that can be read ({error})"
        raise ScenarioError("network.graph", kind, allowed) from error
    return graph
