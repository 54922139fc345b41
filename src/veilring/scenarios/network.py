"""The simulated links of a scenario, and the faults that strike them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from veilring.config import as_scenario_errors, make_kind, require_key, require_key_that
from veilring.errors import InputError, ScenarioError
from veilring.extras import name_missing_extras
from veilring.randomness import Streams
from veilring.scenarios.schema import NetworkSection, Scenario
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    LogNormal,
    Normal,
    Topology,
    Uniform,
)
from veilring.simulation.faults import Fault, FaultClass, draw_faults
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
    `latency_seconds`, `jitter_seconds` and `bandwidth_bytes_per_second`; missing attributes are
    taken from the scenario.
    """
    model = make_links(network)
    with as_scenario_errors({"graph": "network.graph"}, "network.graph"):
        topology = Topology(model, _graph(network.graph, parties))
        topology.check_connects(parties)
    return topology


def make_links(network: NetworkSection) -> LinkModel:
    """Return the properties of all links for which the graph sets none."""
    limit = network.bandwidth_bytes_per_second
    return LinkModel(
        make_kind("network.latency", "distribution", network.latency, _DISTRIBUTIONS),
        make_kind("network.jitter", "distribution", network.jitter, _DISTRIBUTIONS),
        *(() if limit is None else (limit,)),
    )


def links_table(links: LinkModel) -> dict[str, object]:
    """Return the keys of `network` from which `make_links` makes these links."""
    limit = links.bandwidth_bytes_per_second
    return {
        "latency": _distribution_table(links.latency),
        "jitter": _distribution_table(links.jitter),
        "bandwidth_bytes_per_second": None if limit == math.inf else limit,
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


@dataclass(frozen=True, kw_only=True)
class _Struck:
    """The base of faults; times are simulated seconds from the start of the parties."""

    start_seconds: float

    def __post_init__(self) -> None:
        """Refuse invalid values that do not depend on the parties."""
        given = asdict(self)
        start, end = self.start_seconds, given.get("end_seconds")
        _require(0 <= start < math.inf, "start_seconds", start, "a finite number of at least 0")
        after = end is None or start < end < math.inf
        _require(after, "end_seconds", end, f"a finite number above start_seconds, {start:g}")
        for key in given.keys() & {"extra_seconds", "times"}:
            _require(0 < given[key] < math.inf, key, given[key], "a finite number above 0")
        if {"source", "times"} <= given.keys():  # a link never carries more than without a fault
            _require(given["times"] >= 1, "times", given["times"], "a finite number of at least 1")


_TYPES: Final = MappingProxyType(
    {
        **dict.fromkeys(("party", "other", "source", "target"), str),
        "parties": tuple[str, ...],
        **dict.fromkeys(("end_seconds", "extra_seconds", "times"), float),
    }
)
_PARTY: Final = ("party", "end_seconds")
_LINK: Final = ("source", "target", "end_seconds")
"""All messages of one party to another."""
_CONNECTION: Final = ("party", "other", "end_seconds")
"""Both ends of a connection: `party` notices the fault first."""
_KEYS: Final[Mapping[FaultClass, tuple[str, ...]]] = {
    "stall": _LINK,
    "delay": (*_LINK, "extra_seconds"),
    "jitter": (*_LINK, "extra_seconds"),
    "squeeze": (*_LINK, "times"),
    "halves": ("parties", "end_seconds"),
    "isolation": _PARTY,
    "one-way": _PARTY,
    "reset": _CONNECTION,
    "half-open": _CONNECTION,
    "crash": ("party",),
    "restart": _PARTY,
    "amnesia": _PARTY,
    "pause": _PARTY,
    "slow": (*_PARTY, "extra_seconds"),
    "skew": (*_PARTY, "times"),
}
_KINDS: Final[Mapping[str, type[_Struck]]] = {
    kind: make_dataclass(
        kind, [(key, _TYPES[key]) for key in keys], bases=(_Struck,), frozen=True, kw_only=True
    )
    for kind, keys in _KEYS.items()
}


def make_faults(
    scenario: Scenario, parties: tuple[str, ...], streams: Streams
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
    given = asdict(make_kind(key, "kind", table, _KINDS))
    struck: list[str] = []
    for name in ("party", "other", "source", "target"):
        if name in given:
            _require_party(f"{key}.{name}", given[name], parties, struck)
            struck.append(given[name])
    for member in given.get("parties", ()):
        _require_party(f"{key}.parties", member, parties, struck)
        struck.append(member)
    if "parties" in given:
        proper = 0 < len(struck) < len(parties)
        require_key(proper, f"{key}.parties", struck, "at least one party, and not all of them")
    strength = given.get("extra_seconds", given.get("times", 0.0))
    end = given.get("end_seconds", math.inf)
    return Fault(table["kind"], given["start_seconds"], end, tuple(struck), strength)


def fault_table(fault: Fault) -> dict[str, object]:
    """Return the table of `faults` from which `make_faults` makes this fault."""
    keys = _KEYS[fault.kind]
    ends = [key for key in ("party", "other", "source", "target") if key in keys]
    table: dict[str, object] = {"kind": fault.kind, "start_seconds": fault.start}
    table |= (
        {"parties": fault.parties}
        if "parties" in keys
        else dict(zip(ends, fault.parties, strict=True))
    )
    strengths = [key for key in ("extra_seconds", "times") if key in keys]
    lasting = {"end_seconds": fault.end} if "end_seconds" in keys else {}
    return table | lasting | dict.fromkeys(strengths, fault.strength)


def _require_party(key: str, name: object, parties: tuple[str, ...], others: list[str]) -> None:
    left = [party for party in parties if party not in others]
    require_key(name in left, key, name, f"one of the parties {', '.join(left)}")


def _require(fulfilled: bool, field: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not fulfilled:
        raise InputError(field, value, allowed)
