"""From a scenario to what its parties are given; all of it is checked before any party starts."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.config import as_scenario_errors, make_kind, require_key
from veilring.data import Table, load_table, partition, scale_to_unit, split
from veilring.errors import InputError, ScenarioError
from veilring.nodes.adversary import Adversary
from veilring.protocols.ring import KNNParameters, SumMethod, pooled_knn, rounds_for
from veilring.protocols.ring.adversaries import ADVERSARIES
from veilring.protocols.rows import Rows
from veilring.randomness import Streams
from veilring.scenarios.faults import make_faults
from veilring.scenarios.schema import DataSection, PartitionSection, ProtocolSection, Scenario
from veilring.simulation.faults import Fault
from veilring.transport.identity import check_name

KNN_KEYS: Final = {"sum.name": "protocol.sum", "sum.cycles": "protocol.cycles"}
"""Where the code below has another name for a key of `protocol`."""


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """All that a run needs.

    Attributes:
        parties: Their names.
        rows: What each party holds, in the same order.
        pooled: All their rows together, which nobody has in a deployment.
        held_out: The rows to label.
        parameters: The protocol's, public.
        reference: What the same classifier answers when all rows are in one place, shape
            (held-out rows,).
        adversaries: Who controls a party, by its name.
        coalition: The semi-honest parties that pool what they see, in the order of the parties.
        faults: What goes wrong on the simulated clock.
    """

    parties: tuple[str, ...]
    rows: tuple[Rows, ...]
    pooled: Table
    held_out: Table
    parameters: KNNParameters
    reference: NDArray[np.int64]
    adversaries: Mapping[str, Adversary]
    coalition: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def batches(self, limit: int) -> list[NDArray[np.float64]]:
        """Return the queries in batches of at most `limit` and of what fits a message."""
        size = min(limit, self.parameters.queries_max)
        queries = self.held_out.features
        return [queries[first : first + size] for first in range(0, len(queries), size)]


def prepare(scenario: Scenario, streams: Streams) -> Prepared:
    """Load, split, scale and deal a scenario's data.

    The features are scaled by the bounds of the whole table, held-out rows included: they count as
    public schema.

    Args:
        scenario: What is run.
        streams: Where the experiment's own choices come from: the split and the partition.

    Raises:
        ScenarioError: If the data or the protocol cannot be as the scenario says.
    """
    parties = scenario.parties.all
    with as_scenario_errors({"name": "parties.names"}, "parties"):
        for party in parties:
            check_name(party)
    table = scale_to_unit(load_rows(scenario.data))
    with as_scenario_errors({"table": "data.source"}, "data"):
        train, held_out = split(table, scenario.data.test_share, streams.generator("split"))
    if scenario.data.queries != "all":
        held_out = held_out.take(np.arange(min(scenario.data.queries, len(held_out))))
    k = scenario.protocol.k
    require_key(k <= len(train), "protocol.k", k, f"at most {len(train)}, the rows of all parties")
    with as_scenario_errors({**KNN_KEYS, "parties": "parties.count"}, "protocol"):
        features, classes = len(table.feature_names), len(table.class_names)
        parameters = knn_parameters(scenario.protocol, features, classes)
        parameters.sum.check(len(parties))
    adversaries = _adversaries(scenario)
    rows = _deal(scenario.partition, train, len(parties), streams)
    coalition, faults = _coalition(scenario), make_faults(scenario, streams)
    reference = _reference(train, held_out, parameters)
    return Prepared(
        parties,
        rows,
        train,
        held_out,
        parameters,
        reference,
        adversaries,
        coalition,
        faults,
    )


def _adversaries(scenario: Scenario) -> dict[str, Adversary]:
    parties, made = scenario.parties.all, {}
    for party, table in scenario.adversaries.items():
        key = f"adversaries.{party}"
        require_key(party in parties, key, table, f"one of the parties {', '.join(parties)}")
        made[party] = make_kind(key, "kind", table, ADVERSARIES)
        made[party].called = table["kind"]
    return made


def _coalition(scenario: Scenario) -> tuple[str, ...]:
    key, parties, members = "parties.coalition", scenario.parties.all, scenario.parties.coalition
    for member in members:
        require_key(member in parties, key, member, f"some of the parties {', '.join(parties)}")
        honest = "parties that follow the protocol: no malicious ones of `adversaries`"
        require_key(member not in scenario.adversaries, key, member, honest)
    distinct = len(set(members)) == len(members) < len(parties)
    require_key(distinct, key, list(members), "each party once, and not all of them")
    return tuple(party for party in parties if party in members)


def _reference(train: Table, held_out: Table, parameters: KNNParameters) -> NDArray[np.int64]:
    """Label the held-out rows before any party starts.

    Meanwhile what processes are forked from warms up, and SciPy's import does not count as the
    protocol's time where the parties live in this process.
    """
    return _label(held_out.features, train.features, train.labels, parameters)


def reference_among(
    prepared: Prepared, queries: NDArray[np.float64], parties: Container[str]
) -> NDArray[np.int64]:
    """Return what the classifier answers when the rows of some parties are in one place.

    Args:
        prepared: Who holds what.
        queries: Shape (Q, features).
        parties: Whose rows count.
    """
    held = zip(prepared.parties, prepared.rows, strict=True)
    rows = [own for party, own in held if party in parties]
    features = np.concatenate([own.features for own in rows])
    labels = np.concatenate([own.labels for own in rows])
    return _label(queries, features, labels, prepared.parameters)


def _label(
    queries: NDArray[np.float64],
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    parameters: KNNParameters,
) -> NDArray[np.int64]:
    """Label queries by rows in one place."""
    return pooled_knn(
        queries, features, labels, parameters.classes, parameters.k, parameters.weights
    )


def load_rows(data: DataSection) -> Table:
    """Load the data set of a scenario.

    Raises:
        ScenarioError: If there is none, or it is not a table for classification.
    """
    source = data.source
    try:
        return load_table(source, label=data.label or None, separator=data.separator)
    except InputError as error:
        if error.field in {"label", "separator"}:
            raise ScenarioError(f"data.{error.field}", error.value, error.allowed) from error
        found = source if error.field == "source" else f"{source}: {error.field} is {error.value}"
        raise ScenarioError("data.source", found, error.allowed) from error


def knn_parameters(protocol: ProtocolSection, features: int, classes: int) -> KNNParameters:
    """Return the protocol's public parameters for a schema of so many features and classes.

    Raises:
        InputError: If the protocol cannot be as the section says.
    """
    auto = protocol.rounds == "auto"
    return KNNParameters(
        features=features,
        classes=classes,
        k=protocol.k,
        P0=protocol.P0,
        d=protocol.d,
        rounds=rounds_for(protocol.error, protocol.k, protocol.P0, protocol.d)
        if auto
        else int(protocol.rounds),
        delta=protocol.delta,
        weights=protocol.weights,
        sum=SumMethod(protocol.sum, protocol.cycles),
    )


def _deal(
    section: PartitionSection, train: Table, parties: int, streams: Streams
) -> tuple[Rows, ...]:
    with as_scenario_errors({}, "partition"):
        dealt = partition(
            train.labels,
            parties,
            streams.generator("partition"),
            kind=section.kind,
            alpha=section.alpha,
            sizes=section.sizes,
        )
    return tuple(Rows(train.features[rows], train.labels[rows]) for rows in dealt)
