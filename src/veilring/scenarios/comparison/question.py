"""The inputs of a comparison."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from veilring.config import (
    Section,
    read_tables,
    require_key,
    scenario_error,
    unknown_key,
)
from veilring.data.csv import SEPARATORS_ALLOWED, Separator
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.radius.rules import REQUEST_EPSILON_MAX
from veilring.protocols.registry import find_system, system_names
from veilring.protocols.system import NEIGHBOURS, PARTIES
from veilring.scenarios.network import GRAPHML
from veilring.scenarios.schema import NetworkSection, load_scenario

# The noise of a batch grows with the queries whose neighbourhoods overlap: small tables cannot
# answer many more than this.
QUERIES_DEFAULT: Final = 20
# In noisy votes each party sends to every other party three times a batch: with this many parties
# that makes 30,000 messages, which are played in seconds.
PARTIES_MAX: Final = 100
# Divided among the queries of the largest batch, this is still more than the smallest ε tabulated
# for noise shares (`veilring.privacy.polya`).
EPSILON_MIN: Final = 0.05
# Ind-KNN declares the length of its stream; a shorter stream leaves no budget for a vote.
QUERIES_MIN: Final = 4
# No data owner answers more at once (`veilring.protocols.radius.rules`).
QUERIES_MAX: Final = 1000
# One split has no standard error; more than this add nothing, because they overlap.
SPLITS_MIN: Final = 2
SPLITS_MAX: Final = 100
# With five splits, another seed often gave another recommendation; with twenty, hardly ever.
SPLITS_DEFAULT: Final = 20
# A chart of more is unreadable, and each takes as long as the others.
EPSILONS_MAX: Final = 12

_TABLE: Final = "network"
_RUNTIME: Final = "runtime"

Setting = int | float | str | bool
"""The value of a parameter."""
_Epsilon = Annotated[float, Field(ge=EPSILON_MIN, le=REQUEST_EPSILON_MAX)]


class Question(Section):
    """The inputs of a comparison, which determine its results except for times.

    Attributes:
        data: A data set: see `veilring.data.sources.load`.
        label: For a CSV file: the column with the class of each row; the last one if empty.
        separator: For a CSV file: the separator between cells.
        parties: The number of parties that hold the rows.
        epsilon: The values of ε for systems that have one.
        network: The links between the parties and the server, if there is one.
        splits: The number of repetitions, each with its own split, partition and noise.
        queries: The maximum number of held-out rows in one batch, under one ε.
        k: The number of neighbours that vote in systems without an ε: pooled, and in the ring.
        tolerated: For noisy votes, the number of parties that may collude or add no noise, the
            observer included, before ε rises. The minimum is one, because each party knows its own
            share.
        partition: How rows are divided among the parties.
        settings: Values of tunable parameters, by name, for every system that has the parameter;
            the others follow from public rules.
        ranges: A TOML file with the public ranges of the columns, under `features` as in terms; by
            default the extremes of the table are used.
        terms: A file of terms, which defines the schema; its tunable parameters are used as
            settings unless given.
        hindsight: Whether to search for the best parameters in hindsight, to measure the loss
            from the rules.
        seed: The random seed.
    """

    data: str = Field(
        description="wine, breast-cancer, digits, iris, openml:NAME, or a path to a .csv or .npz"
    )
    label: str = Field("", description="the header of a column, or nothing for the last one")
    separator: Separator = Field(",", description=SEPARATORS_ALLOWED)
    parties: int = Field(
        PARTIES,
        ge=PARTIES_MIN,
        le=PARTIES_MAX,
        description=f"a whole number from {PARTIES_MIN} to {PARTIES_MAX}",
    )
    epsilon: Annotated[
        tuple[_Epsilon, ...], Field(strict=False, min_length=1, max_length=EPSILONS_MAX)
    ] = Field(
        (0.5, 1.0, 2.0),
        description=f"up to {EPSILONS_MAX} numbers from {EPSILON_MIN:g} to {REQUEST_EPSILON_MAX:g},"
        " such as 0.5,1,2",
    )
    network: NetworkSection
    splits: int = Field(
        SPLITS_DEFAULT,
        ge=SPLITS_MIN,
        le=SPLITS_MAX,
        description=f"a whole number from {SPLITS_MIN} to {SPLITS_MAX}",
    )
    queries: int = Field(
        QUERIES_DEFAULT,
        ge=QUERIES_MIN,
        le=QUERIES_MAX,
        description=f"a whole number from {QUERIES_MIN} to {QUERIES_MAX}",
    )
    k: int = Field(NEIGHBOURS, ge=1, description="a whole number of at least 1")
    tolerated: int | None = Field(
        None, ge=1, description="a whole number of at least 1; leave it out for less than half"
    )
    partition: Literal["iid", "dirichlet", "by-label"] = Field(
        "iid", description="iid, dirichlet or by-label"
    )
    settings: dict[str, Setting] = Field(
        default_factory=dict, description="values of tunable parameters, such as radius and tau"
    )
    ranges: str = Field("", description="a path to a .toml, or nothing")
    terms: str = Field("", description="a path to a .toml, or nothing")
    hindsight: bool = Field(default=True, description="true or false")
    seed: int = Field(0, ge=0, description="a whole number of at least 0")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties."""
        return tuple(f"party-{number}" for number in range(self.parties))

    @property
    def colluding(self) -> int:
        """The number of parties that may collude: less than half by default."""
        return (self.parties - 1) // 2 if self.tolerated is None else self.tolerated


def make_question(
    fields: Mapping[str, Any], network: "NetworkSection | Mapping[str, Any] | None" = None
) -> Question:
    """Check the inputs as far as they do not depend on the data.

    Args:
        fields: The fields of `Question` except the network; `None` stands for the default.
        network: The result of `read_network`; the default network unless given.

    Raises:
        ScenarioError: With all mistakes: the field, its value, and the allowed values.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    links = default_network() if network is None else network
    try:
        question = Question.model_validate({**given, "network": links})
    except ValidationError as error:
        raise scenario_error(error, Question) from None
    settings = _terms_settings(question.terms) | question.settings
    _require_tunable(question.settings)
    ascending = tuple(sorted(set(question.epsilon)))
    return question.model_copy(update={"epsilon": ascending, "settings": settings})


def _tunable() -> set[str]:
    """Return the parameters by which any system can be tuned."""
    systems = map(find_system, system_names())
    return {name for system in systems for name in system.tunable()}


def _terms_settings(terms: str) -> dict[str, Setting]:
    """Return the tunable parameters in the tables of a file of terms."""
    if not terms:
        return {}
    known, found = _tunable(), dict[str, Setting]()
    for table in read_tables(Path(terms), "terms").values():
        if isinstance(table, dict):
            found |= {name: value for name, value in table.items() if name in known}
    return found


def _require_tunable(settings: Mapping[str, Setting]) -> None:
    """Refuse parameters that no system can be tuned by.

    Raises:
        ScenarioError: Naming the parameter and the valid ones.
    """
    known = sorted(_tunable())
    for name, value in settings.items():
        require_key(name in known, name, value, f"nothing; the parameters are {', '.join(known)}")


def default_network() -> NetworkSection:
    """Return the links of the built-in scenarios: the median one-way latency is 20 ms."""
    network = load_scenario("wine").network
    return network.model_copy(update={_RUNTIME: "simulated"})


def read_network(path: Path) -> dict[str, Any]:
    """Read a file with the keys of a scenario's `[network]` table, except for the runtime.

    The keys may be in that table or at the top level. A relative path of a graph is relative to the
    file.

    Raises:
        ScenarioError: If it cannot be read or is not TOML, or names a runtime: batches are played
            in memory and in the simulation.
    """
    raw = read_tables(path, "--network")
    if set(raw) == {_TABLE} and isinstance(raw[_TABLE], dict):
        raw = raw[_TABLE]
    if _RUNTIME in raw:
        known = (name for name in NetworkSection.model_fields if name != _RUNTIME)
        raise unknown_key(f"{_TABLE}.{_RUNTIME}", known)
    graph = raw.get("graph")
    if isinstance(graph, str) and graph.endswith(GRAPHML):
        raw["graph"] = str(path.parent / graph)
    return {**raw, _RUNTIME: "simulated"}
