"""The simulated links of a scenario, and the faults that strike them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, make_dataclass
from pathlib import Path
from typing import Any, Final

from veilring.config import as_scenario_errors, make_kind, make_table, require_key, require_key_that
from veilring.errors import ScenarioError
from veilring.extras import name_missing_extras
from veilring.randomness import Streams
from veilring.scenarios.schema import Experiment, NetworkSection
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    LogNormal,
    Normal,
    Tcp,
    Topology,
    Uniform,
)
from veilring.simulation.faults import FAULT_KINDS, Fault, FaultClass, FaultKind, draw_faults
from veilring.simulation.links import DelayDistribution

with name_missing_extras():
    import networkx as nx

_DISTRIBUTIONS: Final[Mapping[str, type[DelayDistribution]]] = {
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
GRAPHML: Final = ".graphml"
"""The suffix of a file with a graph."""


def make_topology(network: NetworkSection, parties: Sequence[str]) -> Topology:
    """Return the links between the parties.

    In a GraphML file the nodes are the names of parties, and edges may have the attributes
    `latency_seconds`, `jitter_seconds`, `bandwidth_bytes_per_second` and `loss`; missing attributes
    are taken from the scenario.
    """
    model = make_links(network)
    with as_scenario_errors({"graph": "network.graph"}, "network.graph"):
        topology = Topology(model, _graph(network.graph, parties))
        topology.check_connects(parties)
    return topology


def make_links(network: NetworkSection) -> LinkModel:
    """Return the properties of all links for which the graph sets none."""
    limit, tcp = network.bandwidth_bytes_per_second, network.tcp
    return LinkModel(
        make_kind("network.latency", "distribution", network.latency, _DISTRIBUTIONS),
        make_kind("network.jitter", "distribution", network.jitter, _DISTRIBUTIONS),
        math.inf if limit is None else limit,
        None if tcp is None else make_table("network.tcp", tcp, Tcp),
    )


def links_table(links: LinkModel) -> dict[str, object]:
    """Return the keys of `network` from which `make_links` makes these links."""
    limit = links.bandwidth_bytes_per_second
    return {
        "latency": _distribution_table(links.latency),
        "jitter": _distribution_table(links.jitter),
        "bandwidth_bytes_per_second": None if limit == math.inf else limit,
        "tcp": None if links.tcp is None else asdict(links.tcp),
    }


def _distribution_table(distribution: DelayDistribution) -> dict[str, object]:
    name = next(name for name, made in _DISTRIBUTIONS.items() if type(distribution) is made)
    return {"distribution": name, **asdict(distribution)}  # type: ignore[call-overload]  # each is a dataclass


def _graph(kind: str, parties: Sequence[str]) -> "nx.Graph[str] | None":
    if kind == "complete":
        return None
    if kind in _GRAPHS:
        return _GRAPHS[kind](parties)
    allowed = f"complete, {', '.join(_GRAPHS)}, or a path to a {GRAPHML}"
    require_key(kind.endswith(GRAPHML), "network.graph", kind, allowed)
    try:
        graph: nx.Graph[str] = nx.read_graphml(Path(kind))
    except (OSError, SyntaxError, nx.NetworkXError) as error:
        allowed = f"a file in GraphML that can be read ({error})"
        raise ScenarioError("network.graph", kind, allowed) from error
    return graph


def _table_of(kind: FaultKind) -> type:
    """Return a dataclass with the keys that describe a kind of fault in a scenario."""
    names = [(key, tuple[str, ...] if key == "parties" else str) for key in kind.keys]
    numbers = ["start_seconds", *(["end_seconds"] if kind.ends else [])]
    numbers += [kind.strength.key] if kind.strength else []
    return make_dataclass("FaultTable", [*names, *((key, float) for key in numbers)])


_KINDS: Final = {name: _table_of(kind) for name, kind in FAULT_KINDS.items()}


def make_faults(
    scenario: Experiment, parties: tuple[str, ...], streams: Streams
) -> tuple[Fault, ...]:
    """Return the fault schedule of a scenario: its own faults, and those drawn from the seed."""
    runtime = scenario.network.runtime
    made = [_make(f"faults[{n}]", table, parties) for n, table in enumerate(scenario.faults)]
    seconds = scenario.run.fault_seconds
    for key, given in (("faults", made and f"{len(made)} of them"), ("run.fault_seconds", seconds)):
        require_key_that(
            runtime == "simulated" or not given,
            key,
            f'faults need network.runtime = "simulated"; it is "{runtime}"',
        )
    if seconds is not None:
        made += draw_faults(parties, seconds, streams.generator("faults"))
    return tuple(made)


def _make(key: str, table: Mapping[str, Any], parties: tuple[str, ...]) -> Fault:
    given = vars(make_kind(key, "kind", table, _KINDS))
    name: FaultClass = table["kind"]
    kind = FAULT_KINDS[name]
    start, end = given["start_seconds"], given.get("end_seconds", math.inf)
    allowed = "a finite number of at least 0"
    require_key(0 <= start < math.inf, f"{key}.start_seconds", start, allowed)
    if kind.ends:
        allowed = f"a finite number above start_seconds, {start:g}"
        require_key(start < end < math.inf, f"{key}.end_seconds", end, allowed)
    strength = 0.0
    if kind.strength is not None:
        strength, least = given[kind.strength.key], kind.strength.least
        allowed = f"a finite number {f'of at least {least:g}' if least else 'above 0'}"
        fits = strength > 0 and least <= strength < math.inf
        require_key(fits, f"{key}.{kind.strength.key}", strength, allowed)
    struck = list[str]()
    for role in kind.keys:
        is_side = role == "parties"
        for party in given[role] if is_side else [given[role]]:
            left = [each for each in parties if each not in struck]
            allowed = f"one of the parties {', '.join(left)}"
            require_key(party in left, f"{key}.{role}", party, allowed)
            struck.append(party)
        proper = not is_side or 0 < len(struck) < len(parties)
        require_key(proper, f"{key}.{role}", struck, "at least one party, and not all of them")
    return Fault(name, start, end, tuple(struck), strength)


def fault_table(fault: Fault) -> dict[str, object]:
    """Return the table of `faults` from which `make_faults` makes this fault."""
    kind = FAULT_KINDS[fault.kind]
    struck = [fault.parties] if kind.keys == ("parties",) else fault.parties
    table: dict[str, object] = {"kind": fault.kind, "start_seconds": fault.start}
    table |= dict(zip(kind.keys, struck, strict=True))
    table |= {"end_seconds": fault.end} if kind.ends else {}
    return table | ({kind.strength.key: fault.strength} if kind.strength else {})
