"""Scenarios: their tables and keys, the built-in ones, files, and command-line overrides.

A scenario is about a system with data, or about a role with inputs. Both kinds share the network,
the run, adversaries, faults and explored worlds.

The description of a field lists its allowed values, as errors show them.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self, cast

import tomli_w
from pydantic import Field, ValidationError
from typing_extensions import override

from veilring.config import (
    Section,
    did_you_mean,
    parse_toml,
    parse_value,
    read_tables,
    require_key,
    require_key_that,
    scenario_error,
    set_key,
)
from veilring.data.cells import Separator, Words
from veilring.data.sources import BUILTIN
from veilring.data.table import ALPHA_MAX, ALPHA_MIN, TEST_SHARE, PartitionKind
from veilring.errors import ScenarioError
from veilring.nodes import RuntimeName
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.registry import PROTOCOL_DEFAULT, Protocol, default_system, model_naming
from veilring.protocols.system import PARTIES

ROLE_PARTIES_MIN: Final = 2
"""The smallest number of parties of a role: one party alone has no peer."""

_Whole = Annotated[int, Field(ge=1)]


class DataSection(Section):
    """The data set, and the rows held out for labelling.

    Attributes:
        source: A data set: see `veilring.data.sources.load`. In a scenario file, a relative path is
            relative to that file.
        others: The files of the other parties, under the schema of `schema_file`: `source` is then
            that of the first party, and each party has the rows of its own file.
        other_readings: The `reading_file` of each of the others, or nothing; none if all files are
            read alike.
        label: For a CSV file: the column with the label of each row; the last one if empty.
        separator: For a CSV file: the separator between cells.
        schema_file: A TOML file with the public schema of a CSV or Parquet file: columns and
            classes as in terms; by default its columns as they are, and the extremes of the table
            as ranges. In a scenario file, a relative path is relative to that file.
        reading_file: A TOML file with the particulars of such a file, by which the schema can read
            it: see `veilring.data.cells.Reading`. A relative path is as for `schema_file`.
        test_share: The share of the rows to hold out.
        queries: The maximum number of held-out rows to label.
    """

    renamed = MappingProxyType({"ranges": "schema_file"})

    source: str = Field(
        description="wine, breast-cancer, digits, iris, openml:NAME, or a path to a .csv, a"
        " .parquet or an .npz"
    )
    others: Words = Field((), description="a list of paths to .csv or .parquet files, or none")
    other_readings: Words = Field((), description="a list of paths to .toml or empty texts")
    label: str = Field("", description="the header of a column, or nothing for the last one")
    separator: Separator = ","
    schema_file: str = Field("", description="a path to a .toml, or nothing")
    reading_file: str = Field("", description="a path to a .toml, or nothing")
    test_share: float = Field(TEST_SHARE, gt=0, lt=1)
    queries: _Whole | Literal["all"] = "all"

    @property
    def files(self) -> "tuple[DataSection, ...]":
        """The section of each party's file; this one if there are no others."""
        if self.other_readings:
            fits = len(self.other_readings) == len(self.others)
            message = f"give a reading, or an empty text, for each of {len(self.others)} others"
            require_key_that(fits, "data.other_readings", message)
        readings = self.other_readings or (self.reading_file,) * len(self.others)
        each = zip((self.source, *self.others), (self.reading_file, *readings), strict=True)
        alone = {"others": (), "other_readings": ()}
        return tuple(
            self.model_copy(update={"source": source, "reading_file": reading, **alone})
            for source, reading in each
        )

    @property
    def columns(self) -> dict[str, Any]:
        """How a file is read, as arguments of `veilring.data.sources.load`."""
        return {
            "label": self.label or None,
            "separator": self.separator,
            "schema": self.schema_file or None,
            "reading": self.reading_file or None,
        }


class PartitionSection(Section):
    """The partition of the other rows among the parties: see `veilring.data.table`.

    Attributes:
        kind: The method of the partition.
        alpha: For `dirichlet`: the smaller the value, the more uneven.
        sizes: For `sizes`: the number of rows of each party.
    """

    kind: PartitionKind = "iid"
    alpha: float = Field(1.0, ge=ALPHA_MIN, le=ALPHA_MAX)
    sizes: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] = Field(
        (), description="a list of whole numbers of at least 0, one for each party"
    )


class PartiesSection(Section):
    """The parties, by number or by name, and the coalition.

    Attributes:
        count: The number of parties, named `party-0`, `party-1` and so on.
        names: The names of the parties, instead of a count.
        coalition: Parties that follow the protocol but pool their views. The known attacks on these
            are run and compared with the truth.
    """

    count: int | None = Field(
        None,
        ge=PARTIES_MIN,
        description=f"a whole number of at least {PARTIES_MIN}: of two parties, each learns the"
        " other's part from the total. Use an owner (protocol.trusted = true) or ldp-bayes instead",
    )
    names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description=f"a list of at least {PARTIES_MIN} different names, or none"
    )
    coalition: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description="a list of names of parties, or none"
    )

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all parties."""
        return self.names or tuple(f"party-{n}" for n in range(self.count or PARTIES))


class NetworkSection(Section):
    """The runtime of the parties, and their simulated links.

    Attributes:
        runtime: `processes` and `tls` use real sockets; `memory` and `simulated` do not.
        latency: A distribution of durations, such as
            `{ distribution = "constant", seconds = 0.02 }`.
        jitter: A distribution of durations that are added to the latency.
        bandwidth_bytes_per_second: The bandwidth of each link in each direction; by default
            unlimited.
        tcp: The `loss` of segments, `mss_bytes` and `window_bytes` of TCP; by default it costs no
            time.
        graph: The pairs of parties with a link; messages between others are forwarded.
        compute: The simulated time that a role takes, in seconds for each message that it sends or
            receives, or as it is measured here.
    """

    runtime: RuntimeName = "processes"
    latency: dict[str, Any] = Field(
        {"distribution": "constant", "seconds": 0.0},
        description='a distribution, such as { distribution = "constant", seconds = 0.02 }',
    )
    jitter: dict[str, Any] = Field(
        {"distribution": "constant", "seconds": 0.0},
        description=(
            'a distribution, such as { distribution = "exponential", mean_seconds = 0.002 }'
        ),
    )
    bandwidth_bytes_per_second: float | None = Field(
        None, gt=0, description="a number above 0; leave it out for no limit"
    )
    tcp: dict[str, Any] | None = Field(
        None, description="a table, such as { loss = 0.01 }; leave it out for none"
    )
    graph: str = Field(
        "complete", description="complete, cycle, path, star, or a path to a .graphml"
    )
    compute: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["measured"] = Field(
        0.0, description='seconds of at least 0, or "measured"'
    )


class RoleRunSection(Section):
    """The seed of the run, and its retries.

    Attributes:
        seed: For experiments: makes every draw reproducible, including the parties' secrets.
        retries: The number of retries of a batch, or of a role's run, without lost parties; with 0,
            a lost party ends the run.
        session_seconds: The time limit of one attempt; by default the runtime's.
        fault_seconds: In the simulation, the time from the start within which faults of all
            classes, drawn from the seed, strike; by default no faults are drawn.
    """

    seed: int | None = Field(None, ge=0)
    retries: int = Field(0, ge=0)
    session_seconds: float | None = Field(
        None, gt=0, description="a number above 0; leave it out for the runtime's own"
    )
    fault_seconds: float | None = Field(
        None, gt=0, description="a number above 0; leave it out for no drawn faults"
    )


class RunSection(RoleRunSection):
    """The seed of the run, its retries, and the estimates made with it.

    Attributes:
        leakage_trials: The number of simulated runs for the estimate of leakage per hop; 0 for
            none. A coalition simulates at most this number.
    """

    leakage_trials: Annotated[int, Field(ge=2)] | Literal[0] = 5000


class WorldRun(Section):
    """One run in a world.

    Attributes:
        number: The number from which its randomness is derived.
        start_seconds: The start, or later if the previous run has not ended.
    """

    number: int = Field(ge=0)
    start_seconds: float = Field(ge=0)


class WorldSection(Section):
    """A world with faults that `veilring explore` found, to be replayed and judged again.

    Attributes:
        seed: The seed of everything drawn in the world.
        order: The seed of the order in which ready tasks take turns; by default tasks run in the
            order in which they became ready.
        runs: The runs, one after the other.
    """

    seed: int = Field(ge=0)
    order: int | None = Field(
        None, ge=0, description="a whole number of at least 0; leave it out for the usual order"
    )
    runs: Annotated[tuple[WorldRun, ...], Field(strict=False, min_length=1)] = Field(
        description="a list of tables, such as { number = 0, start_seconds = 0.0 }"
    )


class Experiment(Section):
    """The part that all scenarios have: the machine that runs the parties, and its faults.

    Attributes:
        name: The name of the scenario; by default that of its file.
        description: A one-line description.
        network: The runtime and the links.
        run: The seed, the retries and the estimates.
        adversaries: The malicious parties and their behaviour: see
            `veilring.protocols.ring.adversaries`.
        faults: The faults of the simulation: see `veilring.scenarios.network`.
        world: The runs of an explored world, instead of a single run.
    """

    name: str = Field("scenario", description="a name")
    description: str = Field("", description="one line of text")
    network: NetworkSection = NetworkSection()
    run: RoleRunSection = RoleRunSection()
    adversaries: dict[str, dict[str, Any]] = Field(
        {}, description='a table for each malicious party, such as { kind = "inflate-topk" }'
    )
    faults: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = Field(
        (),
        description='a list of tables, such as { kind = "crash", party = "party-1",'
        " start_seconds = 1.0 }",
    )
    world: WorldSection | None = Field(
        None, description="a table with a seed and runs; `veilring explore --shrink` writes it"
    )

    def with_tables(self, **tables: Any) -> Self:
        """Return the scenario with other keys in some of its tables, checked again."""
        whole = self.model_dump()
        for name, given in tables.items():
            old = whole[name]
            whole[name] = {**old, **given} if isinstance(old, dict) else given
        return cast("Self", make_experiment(whole))

    def to_toml(self) -> str:
        """Return the file, with the keys whose values differ from the defaults."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_defaults=True, exclude_none=True))


class Scenario(Experiment):
    """The complete description of an experiment with a system.

    Attributes:
        data: The data set.
        partition: The partition of the rows.
        parties: The participants.
        protocol: The system and its parameters.
    """

    data: DataSection
    partition: PartitionSection = PartitionSection()
    parties: PartiesSection = PartiesSection()
    protocol: Protocol = Field(default_factory=default_system)
    run: RunSection = RunSection()

    @override
    def to_toml(self) -> str:
        tables = self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        name = {"name": self.protocol.name}
        return tomli_w.dumps(tables | {"protocol": name | tables.get("protocol", {})})


class RolePartiesSection(Section):
    """The parties of a role: all that have inputs, or some of them.

    Attributes:
        count: The number of parties that take part, the first of those with inputs.
        names: The names of the parties that take part, instead of a count.
    """

    count: int | None = Field(None, ge=ROLE_PARTIES_MIN)
    names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description=f"a list of at least {ROLE_PARTIES_MIN} different names, or none"
    )

    @property
    def all(self) -> tuple[str, ...]:
        """The names; `find_role` fills them in."""
        return self.names


class RoleScenario(Experiment):
    """The complete description of an experiment with a role: see `veilring.scenarios.roles`.

    Attributes:
        role: The role, as `module:NAME`: a coroutine function, or an object with inputs, such as
            `RoleClaims`. Modules in the current directory are found as well.
        inputs: The input of each party, instead of the object's: a table by their names, or a list
            for `party-0`, `party-1` and so on.
        public: The public arguments of the role, instead of the object's.
        parties: The participants.
        adversaries: The malicious parties; `kind` is the `module:NAME` of a subclass of
            `Adversary`, and the other keys are its fields.
    """

    role: str = Field(description="module:NAME")
    inputs: dict[str, Any] | list[Any] = Field(
        {}, description="a table with a value for each party, or a list"
    )
    public: dict[str, Any] = Field({}, description="a table of public arguments")
    parties: RolePartiesSection = RolePartiesSection()


_SUFFIX: Final = ".toml"
_TABLES: Final = (".csv", ".parquet", ".npz")
_FOR_TABLES: Final = "wine"  # the scenario whose settings are used for a table given by its path
_ROLE: Final = "role"
_NEEDS_SYSTEM: Final = "this scenario is about a role; give the scenario of a system"
_OF_SYSTEMS: Final = ("protocol", "data", "partition")  # the tables that a role does not have
_LIBRARY: Final = resources.files("veilring.scenarios") / "library"
# keys that may contain a path, with the endings of such a path
_PATHS: Final = {
    ("data", "source"): (".csv", ".parquet"),
    ("data", "others"): (".csv", ".parquet"),
    ("data", "schema_file"): (".toml",),
    ("data", "reading_file"): (".toml",),
    ("data", "other_readings"): (".toml",),
    ("network", "graph"): (".graphml",),
}


def scenario_names() -> tuple[str, ...]:
    """Return the names of the built-in scenarios."""
    files = (Path(entry.name) for entry in _LIBRARY.iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == _SUFFIX))


def scenario_text(name: str) -> str:
    """Return the file of a built-in scenario."""
    names = scenario_names()
    require_key(name in names, "scenario", name, ", ".join(names))
    return (_LIBRARY / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def names_object(name: str) -> bool:
    """Return whether a name has the form `module:NAME`, which no scenario or file has."""
    module, colon, attribute = name.partition(":")
    return bool(module and colon) and attribute.isidentifier()


def load_scenario(name_or_path: str, overrides: Sequence[str] = ()) -> Scenario:
    """Load the scenario of a system and check it; see `load_experiment`."""
    loaded = load_experiment(name_or_path, overrides)
    if not isinstance(loaded, Scenario):
        raise ScenarioError.because(_NEEDS_SYSTEM, field=_ROLE)
    return loaded


def load_experiment(name_or_path: str, overrides: Sequence[str] = ()) -> Scenario | RoleScenario:
    """Load the scenario of a system or of a role, and check it.

    Args:
        name_or_path: A built-in scenario, or a path that ends in `.toml`. Relative paths of data
            and graphs in that file are relative to it. Another built-in table, such as `iris`, and
            a path that ends in `.csv`, `.parquet` or `.npz` are run with the settings of the
            built-in `wine`. `module:NAME` is the scenario of that role, with the defaults of all
            other keys.
        overrides: Keys to set instead of the file's, each as `table.key=value`. The value is read
            as TOML, or as a string if it is not TOML. Paths are relative to the current directory.

    Raises:
        ScenarioError: With all mistakes of the scenario, one on each line: the key, its value, and
            the allowed values.
    """
    name = name_or_path if names_object(name_or_path) else Path(name_or_path).stem
    if name_or_path.endswith(_SUFFIX):
        path = Path(name_or_path)
        raw = read_tables(path, "scenario")
        _resolve_paths(raw, path.parent)
    elif name_or_path in scenario_names():
        raw = parse_toml(scenario_text(name_or_path))
    elif name_or_path.endswith(_TABLES) or name_or_path in BUILTIN:
        raw = parse_toml(scenario_text(_FOR_TABLES))
        raw = {**raw, "data": {"source": name_or_path}, "description": ""}
    elif names_object(name_or_path):
        raw = {_ROLE: name_or_path}
    else:
        names = sorted({*scenario_names(), *BUILTIN})
        hint = did_you_mean(name_or_path, names)
        allowed = f"{', '.join(names)}, or a path to a {', '.join((_SUFFIX, *_TABLES))}{hint}"
        raise ScenarioError("scenario", name_or_path, allowed)
    if any(each.partition("=")[0].strip() == "parties.names" for each in overrides):
        _forget_count(raw)
    for each in overrides:
        _set(raw, each)
    return make_experiment({"name": name, **raw})


def make_experiment(tables: Mapping[str, Any]) -> Scenario | RoleScenario:
    """Validate the content of a scenario file, which names a system or a role."""
    if _ROLE not in tables:
        return make_scenario(tables)
    for key in _OF_SYSTEMS:
        require_key_that(
            key not in tables,
            key,
            f"set either `{_ROLE}` or `{key}`, not both: a role has no data set and is no system",
        )
    try:
        scenario = RoleScenario.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, RoleScenario) from None
    require_key(names_object(scenario.role), _ROLE, scenario.role, "module:NAME")
    _check_names(scenario, ROLE_PARTIES_MIN)
    return scenario


def make_scenario(tables: Mapping[str, Any]) -> Scenario:
    """Validate the content of the scenario file of a system."""
    require_key_that(_ROLE not in tables, _ROLE, _NEEDS_SYSTEM)
    model = model_naming(Scenario, tables)
    try:
        checked = model.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, model) from None
    scenario = Scenario.model_construct(**dict(checked))
    _check_names(scenario, PARTIES_MIN)
    _check_sizes(scenario)
    return scenario


def _check_names(scenario: Scenario | RoleScenario, least: int) -> None:
    names, count = scenario.parties.names, scenario.parties.count
    require_key_that(
        not names or count is None,
        "parties.count",
        "set either parties.count or parties.names, not both",
    )
    field = type(scenario.parties).model_fields["names"]
    distinct = len(set(names)) == len(names) and (not names or len(names) >= least)
    require_key(distinct, "parties.names", list(names), field.description or "")


def _check_sizes(scenario: Scenario) -> None:
    sizes, parties = scenario.partition.sizes, len(scenario.parties.all)
    if scenario.partition.kind == "sizes":
        require_key_that(
            len(sizes) == parties,
            "partition.sizes",
            f"there are {len(sizes)} sizes for {parties} parties",
        )
    else:
        require_key_that(
            not sizes,
            "partition.sizes",
            f'sizes need partition.kind = "sizes"; it is "{scenario.partition.kind}"',
        )


def _resolve_paths(raw: dict[str, Any], folder: Path) -> None:
    for (table, key), endings in _PATHS.items():
        section = raw.get(table)
        given = section.get(key) if isinstance(section, dict) else None
        if isinstance(given, str) and given.endswith(endings):
            raw[table] = {**raw[table], key: str(folder / given)}
        if isinstance(given, list):
            raw[table] = {**raw[table], key: [str(folder / str(each)) for each in given]}


def _forget_count(raw: dict[str, Any]) -> None:
    """Drop the file's number of parties if names are set, which determine it."""
    section = raw.get("parties")
    if isinstance(section, dict):
        raw["parties"] = {key: value for key, value in section.items() if key != "count"}


def _forget_protocol(raw: dict[str, Any], name: object) -> None:
    """Drop the file's parameters of another system."""
    section = raw.get("protocol", {})
    if isinstance(section, dict) and section.get("name", PROTOCOL_DEFAULT) != name:
        raw["protocol"] = {}


def _set(raw: dict[str, Any], override: str) -> None:
    key, _, text = override.partition("=")
    if key.strip() == "protocol.name":
        _forget_protocol(raw, parse_value(text.strip()))
    set_key(raw, override)
