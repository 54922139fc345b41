"""What a comparison is asked: whose data, how many parties, which privacy, over which network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from veilring.config import Section, load_toml, require_key, scenario_error, unknown_key
from veilring.data.csv import SEPARATORS_ALLOWED, Separator
from veilring.errors import InputError, ScenarioError
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.radius.rules import REQUEST_EPSILON_MAX
from veilring.protocols.system import PARTIES
from veilring.scenarios.load import load_scenario
from veilring.scenarios.schema import NetworkSection

# The noise of a batch grows with the queries whose neighbourhoods overlap: small tables have
# nothing left to say to many more than this.
QUERIES_DEFAULT: Final = 20
# In the votes with noise each party sends to each other three times a batch: these are 30,000
# messages, which are played in seconds.
PARTIES_MAX: Final = 100
# Divided among the queries of the largest batch, it is still more than the noise of the parties'
# shares is tabled for (`veilring.privacy.noise`).
EPSILON_MIN: Final = 0.05
# Ind-KNN declares its stream, and one shorter than this leaves nothing for a vote.
QUERIES_MIN: Final = 4
# More is answered by no data owner at once (`veilring.protocols.radius.rules`).
QUERIES_MAX: Final = 1000
# With one split there is no standard error; more than this add nothing, since they overlap.
SPLITS_MIN: Final = 2
SPLITS_MAX: Final = 100
# A figure of more is read by nobody, and each takes as long as the others.
EPSILONS_MAX: Final = 12

_TABLE: Final = "network"
_RUNTIME: Final = "runtime"
_GRAPHML: Final = ".graphml"

_Epsilon = Annotated[float, Field(ge=EPSILON_MIN, le=REQUEST_EPSILON_MAX)]


class Question(Section):
    """All that a comparison is asked; everything in its answer follows from this, but seconds.

    Attributes:
        data: A data set: see `veilring.data.load`.
        label: In a CSV file: the column with the class of each row; the last one if empty.
        separator: In a CSV file: what stands between the cells of a line.
        parties: Among how many parties the rows are dealt.
        epsilon: The values at which systems with an ε are tried.
        network: The links between the parties and, where there is one, the server.
        splits: How often the data are split anew.
        queries: At most how many held-out rows are asked as one batch, under one ε.
        k: How many nearest rows vote where there is no ε: pooled, and in the ring.
        tolerated: In the votes with noise, how many parties may pool what they see, or add no
            noise, whoever looks among them, without that ε rises. One is the least: each knows its
            own share.
        partition: How rows are dealt to the parties.
        seed: Of all that is random.
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
        5,
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
    k: int = Field(5, ge=1, description="a whole number of at least 1")
    tolerated: int | None = Field(
        None, ge=1, description="a whole number of at least 1; leave it out for less than half"
    )
    partition: Literal["iid", "dirichlet", "by-label"] = Field(
        "iid", description="iid, dirichlet or by-label"
    )
    seed: int = Field(0, ge=0, description="a whole number of at least 0")

    @property
    def names(self) -> tuple[str, ...]:
        """What the parties are called."""
        return tuple(f"party-{number}" for number in range(self.parties))

    @property
    def colluding(self) -> int:
        """How many parties may pool what they see: less than half unless asked for."""
        return (self.parties - 1) // 2 if self.tolerated is None else self.tolerated


def make_question(
    fields: Mapping[str, Any], network: "NetworkSection | Mapping[str, Any] | None" = None
) -> Question:
    """Check what is asked, as far as that does not depend on the data.

    Args:
        fields: Those of `Question` but the network; what is `None` is left to its default.
        network: As `read_network` gives it; the default one unless given.

    Raises:
        ScenarioError: With all mistakes: the field, its value, and what is allowed.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    links = default_network() if network is None else network
    try:
        question = Question.model_validate({**given, "network": links})
    except ValidationError as error:
        raise scenario_error(error, Question) from None
    ascending = tuple(sorted(set(question.epsilon)))
    return question.model_copy(update={"epsilon": ascending})


def default_network() -> NetworkSection:
    """Return the links of the built-in scenarios: one way takes 20 ms in the median."""
    network = load_scenario("wine").network
    return network.model_copy(update={_RUNTIME: "simulated"})


def read_network(path: Path) -> dict[str, Any]:
    """Read a file with the keys of a scenario's `[network]` table, but for the runtime.

    They may stand in that table or without a heading. A relative path of a graph is relative to the
    file.

    Raises:
        InputError: If it cannot be read or is not TOML.
        ScenarioError: If it names a runtime: batches are played in memory and on the simulated
            clock.
    """
    try:
        raw = load_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--network", path, f"a file in UTF-8 that can be read ({error})") from None
    except ValueError as error:
        raise InputError("--network", path, f"a file in TOML ({error})") from None
    if set(raw) == {_TABLE} and isinstance(raw[_TABLE], dict):
        raw = raw[_TABLE]
    if _RUNTIME in raw:
        known = (name for name in NetworkSection.model_fields if name != _RUNTIME)
        raise unknown_key(f"{_TABLE}.{_RUNTIME}", raw[_RUNTIME], known)
    graph = raw.get("graph")
    if isinstance(graph, str) and graph.endswith(_GRAPHML):
        raw["graph"] = str(path.parent / graph)
    return {**raw, _RUNTIME: "simulated"}


def require_rows(question: Question, train: int, held_out: int) -> None:
    """Refuse what does not fit the data.

    Args:
        question: What is asked.
        train: The rows of all parties together.
        held_out: How many rows could be asked.

    Raises:
        ScenarioError: If there are more parties or more neighbours than rows, or too few queries.
    """
    most = f"at most {train}, the rows of all parties together"
    require_key(question.parties <= train, "parties", question.parties, most)
    require_key(question.k <= train, "k", question.k, most)
    if held_out < QUERIES_MIN:
        allowed = f"a table of which at least {QUERIES_MIN} rows can be held out"
        raise ScenarioError("data", f"{question.data}, of {train + held_out} rows", allowed)
    others = question.parties - 1
    allowed = f"at most {others}, or nobody would be left to protect"
    require_key(question.colluding <= others, "tolerated", question.colluding, allowed)
