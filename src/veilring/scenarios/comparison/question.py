"""What a comparison is asked, and the splits of the data that all systems are asked on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from veilring.config import Section, load_toml, require_key, scenario_error, unknown_key
from veilring.data.csv import SEPARATORS_ALLOWED, Separator
from veilring.data.sources import load
from veilring.data.table import Rows, Table, partition, scale_to_unit, split
from veilring.errors import InputError, ScenarioError
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.radius.rules import REQUEST_EPSILON_MAX
from veilring.protocols.system import PARTIES
from veilring.randomness import Streams
from veilring.scenarios.schema import NetworkSection, load_scenario

# The noise of a batch grows with the queries whose neighbourhoods overlap: small tables have
# nothing left to say to many more than this.
QUERIES_DEFAULT: Final = 20
# In the votes with noise each party sends to each other three times a batch: these are 30,000
# messages, which are played in seconds.
PARTIES_MAX: Final = 100
# Divided among the queries of the largest batch, it is still more than the noise of the parties'
# shares is tabled for (`veilring.privacy.polya`).
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
        data: A data set: see `veilring.data.sources.load`.
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
        raise unknown_key(f"{_TABLE}.{_RUNTIME}", known)
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
        raise ScenarioError.because(
            f"{question.data} has {train + held_out} rows; at least {QUERIES_MIN} must be "
            "left to hold out",
            field="data",
        )
    others = question.parties - 1
    allowed = f"at most {others}, or nobody would be left to protect"
    require_key(question.colluding <= others, "tolerated", question.colluding, allowed)


TEST_SHARE: Final = 0.25
"""The share of rows that is held out of each split."""
_OWN_BOUNDS: Final = (
    "the least and the greatest value of each column of the file, held-out rows included: they"
    " stand in for public ranges. They are none: who scales by the extremes of private rows shows"
    " these. In production take ranges that are known without the rows, such as those of a form"
    " or a sensor"
)
_BUILTIN_BOUNDS: Final = (
    "the least and the greatest value of each feature of the whole table, held-out rows included;"
    " it is public, and so are they. Private rows need ranges that are known without them"
)
_FILES: Final = {".csv", ".npz"}
# More batches make intervals narrower, which the overlap of the splits soon puts an end to.
BATCHES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is public about the data.

    Attributes:
        name: Where they came from.
        rows: How many there are.
        features: Of each.
        classes: How many there are.
        categorical: Whether all columns are categories.
        train: The rows that the parties hold together in each split.
        held_out: The rows that they do not.
        queries: How many of those make a batch.
        batches: How many batches are asked in each split, each of fresh parties.
        bounds: Where the features' ranges came from, and what that means.
    """

    name: str
    rows: int
    features: int
    classes: int
    categorical: bool
    train: int
    held_out: int
    queries: int
    batches: int
    bounds: str


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DealtSplit:
    """One split, the features scaled into [0, 1] by public ranges.

    Attributes:
        number: Which, from 0.
        train: What the parties hold together.
        batches: Held-out rows, in batches that are each asked once, of fresh parties.
        parts: The rows that each party holds, by its name.
    """

    number: int
    train: Table
    batches: tuple[Table, ...]
    parts: Mapping[str, Rows]

    @property
    def queries(self) -> int:
        """How many are asked in all batches."""
        return sum(map(len, self.batches))

    @property
    def overlap(self) -> float:
        """The queries over the training rows: what intervals are corrected by."""
        return self.queries / len(self.train)

    def accuracy(self, labels: Iterable[NDArray[np.int64]]) -> float:
        """Return the share of queries whose label, given batch by batch, is their true class."""
        truth = [asked.y for asked in self.batches]
        return float((np.concatenate([*labels]) == np.concatenate(truth)).mean())


def load_facts(question: Question) -> tuple[Table, TableFacts]:
    """Load a table, scaled into [0, 1], with what is public about it.

    Raises:
        InputError: If there is no such data set, or it has too few rows for the question.
    """
    try:
        loaded = load(question.data, label=question.label or None, separator=question.separator)
    except InputError as error:
        if error.field != "source":
            raise
        raise InputError.of(error, "data") from error
    table = scale_to_unit(loaded)
    first = next(draw_splits(table, question))
    held_out = len(table) - len(first.train)
    require_rows(question, len(first.train), held_out)
    from_file = Path(question.data).suffix.lower() in _FILES
    facts = TableFacts(
        name=Path(question.data).stem if from_file else question.data,
        rows=len(table),
        features=len(table.features),
        classes=len(table.features.classes),
        categorical=table.features.is_categorical,
        train=len(first.train),
        held_out=held_out,
        queries=len(first.batches[0]),
        batches=len(first.batches),
        bounds=_OWN_BOUNDS if from_file else _BUILTIN_BOUNDS,
    )
    return table, facts


def draw_splits(table: Table, question: Question) -> Iterator[DealtSplit]:
    """Yield the splits, each from a stream of its own."""
    streams = Streams(question.seed)
    for number in range(question.splits):
        train, held_out = split(table, TEST_SHARE, streams.generator("split", number))
        dealt = partition(
            train.y,
            question.parties,
            streams.generator("partition", number),
            kind=question.partition,
        )
        parts = {
            name: Rows(train.X[rows], train.y[rows])
            for name, rows in zip(question.names, dealt, strict=True)
        }
        yield DealtSplit(number, train, tuple(_batches(held_out, question.queries)), parts)


def _batches(held_out: Table, queries: int) -> Iterator[Table]:
    """Yield equal batches; rows that would make a smaller one are not asked."""
    size = min(queries, len(held_out))
    for number in range(min(BATCHES_MAX, len(held_out) // size)):
        yield held_out.take(np.arange(number * size, (number + 1) * size))
