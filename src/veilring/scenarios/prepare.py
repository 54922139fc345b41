"""Preparing a scenario: its inputs are made and checked before any party starts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.config import as_scenario_errors, make_kind, require_key, require_key_that
from veilring.data.sources import load
from veilring.data.table import Rows, Table, partition, scale_to_unit, split
from veilring.errors import InputError, ScenarioError
from veilring.nodes.adversary import Adversary
from veilring.protocols.promise import Facts
from veilring.protocols.system import Setup
from veilring.randomness import Streams
from veilring.scenarios.parts import own_rows, pool, require_parties, with_numbers
from veilring.scenarios.schema import DataSection, PartitionSection, Scenario
from veilring.transport.roster import check_name

if TYPE_CHECKING:
    from veilring.simulation.faults import Fault


_QUERIES_AT_ONCE: Final = 4096  # between two reports of progress


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """The inputs of a run.

    Attributes:
        reference: The labels of a classifier that has all rows in one place, shape (held-out
            rows,).
        coalition: The semi-honest parties that collude, in the order of the parties.
    """

    setup: Setup
    pooled: Table
    held_out: Table
    reference: Ints
    adversaries: Mapping[str, Adversary]
    coalition: tuple[str, ...] = ()
    faults: "tuple[Fault, ...]" = ()

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of all parties that take part."""
        return self.setup.parties


def prepare(
    scenario: Scenario, streams: Streams, tell: Callable[[str, int, int], None] | None = None
) -> Prepared:
    """Load, split, scale and partition a scenario's data.

    The features are scaled by the given ranges, or by those of the whole table, held-out rows
    included, which count as public.

    Args:
        tell: A callback with the current step, the amount done, and the total amount.
    """
    from veilring.scenarios.network import make_faults  # noqa: PLC0415  (`load_rows` needs no clock)

    parties = scenario.parties.all
    with as_scenario_errors({"name": "parties.names"}, "parties"):
        for party in parties:
            check_name(party)
    loaded = load_rows(scenario.data)
    require_parties(loaded, len(parties), "parties.count")
    table = with_numbers(scale_to_unit(loaded), parties)
    with as_scenario_errors({"table": "data.source"}, "data"):
        train, held_out = split(table, scenario.data.test_share, streams.generator("split"))
    if scenario.data.queries != "all":
        held_out = held_out.take(np.arange(min(scenario.data.queries, len(held_out))))
    adversaries = _adversaries(scenario)
    parts = dict(zip(parties, _deal(scenario.partition, train, len(parties), streams), strict=True))
    facts = Facts.of(len(parties), loaded.features, rows=len(train), queries=len(held_out))
    with as_scenario_errors({"parties": "parties.count"}, "protocol"):
        setup = scenario.protocol.setup(parts, facts)
    coalition, faults = _coalition(scenario), make_faults(scenario, setup.parties, streams)
    # Meanwhile what processes are forked from warms up, and SciPy's import does not count as the
    # protocol's time where the parties live in this process.
    reference = _reference(setup, held_out.X, tell)
    return Prepared(setup, train, held_out, reference, adversaries, coalition, faults)


def _reference(setup: Setup, queries: Floats, tell: Callable[[str, int, int], None] | None) -> Ints:
    """Label queries with all rows in one place; of many queries and rows, this takes minutes."""
    labels = list[Ints]()
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        if tell is not None and len(queries) > _QUERIES_AT_ONCE:
            tell("Labelling with all rows in one place", start, len(queries))
        labels.append(setup.reference(queries[start : start + _QUERIES_AT_ONCE]))
    return np.concatenate(labels)


def _adversaries(scenario: Scenario) -> dict[str, Adversary]:
    parties, made = scenario.parties.all, {}
    kinds = scenario.protocol.adversaries()
    for party, table in scenario.adversaries.items():
        key = f"adversaries.{party}"
        require_key(party in parties, key, table, f"one of the parties {', '.join(parties)}")
        require_key_that(
            bool(kinds), "adversaries", f"{scenario.protocol.name} has no built-in adversaries"
        )
        made[party] = make_kind(key, "kind", table, kinds)
        made[party].called = table["kind"]
    return made


def _coalition(scenario: Scenario) -> tuple[str, ...]:
    key, parties, members = "parties.coalition", scenario.parties.all, scenario.parties.coalition
    system = scenario.protocol
    require_key_that(
        not members or system.findings is not None,
        key,
        f"there is no attack on the views of {system.name}; leave the coalition out",
    )
    for member in members:
        require_key(member in parties, key, member, f"some of the parties {', '.join(parties)}")
        require_key_that(
            member not in scenario.adversaries,
            key,
            f"{member} is malicious, as set in `adversaries`; name parties that follow the"
            " protocol",
        )
    distinct = len(set(members)) == len(members) < len(parties)
    require_key_that(distinct, key, "name each party once, and not all of them")
    return tuple(party for party in parties if party in members)


_KEYS: Final = {
    "source": "data.source",
    "label": "data.label",
    "separator": "data.separator",
    "schema": "data.schema_file",
    "reading": "data.reading_file",
}
"""The key of a scenario for each argument of `load`."""


def load_rows(data: DataSection) -> Table:
    """Load the data set of a scenario, or the files of all its parties as one table."""
    if data.others:
        with_schema = bool(data.schema_file)
        require_key_that(with_schema, "data.others", "the files of parties need a schema_file")
        return pool(list(map(load_rows, data.files)))
    source = data.source
    try:
        return load(source, **data.columns)
    except InputError as error:
        if error.field in _KEYS:
            raise ScenarioError.of(error, _KEYS[error.field]) from error
        of_schema = isinstance(error, ScenarioError)  # a mistake in one of its keys
        key = "data.schema_file" if of_schema else "data.source"
        raise ScenarioError.because(str(error), field=key) from error


def _deal(
    section: PartitionSection, train: Table, parties: int, streams: Streams
) -> tuple[Rows, ...]:
    dealt: Sequence[Ints] | None = own_rows(train, parties)
    if dealt is None:
        with as_scenario_errors({}, "partition"):
            dealt = partition(
                train.y,
                parties,
                streams.generator("partition"),
                kind=section.kind,
                alpha=section.alpha,
                sizes=section.sizes,
            )
    return tuple(Rows(train.X[rows], train.y[rows]) for rows in dealt)
