"""The inputs of a comparison, and its rows: reading, scaling, and the splits that systems share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field, ValidationError

from veilring.arrays import Floats, Ints
from veilring.config import Section, read_tables, require_key, scenario_error, unknown_key
from veilring.data.cells import Separator
from veilring.data.sources import load
from veilring.data.table import TEST_SHARE, Ranges, Rows, Table, partition, scale_to_unit, split
from veilring.errors import InputError, ScenarioError
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.promise import Facts
from veilring.protocols.radius.messages import REQUEST_EPSILON_MAX
from veilring.protocols.registry import find_system, system_names
from veilring.protocols.system import NEIGHBOURS, PARTIES
from veilring.randomness import Streams
from veilring.scenarios.network import GRAPHML
from veilring.scenarios.parts import own_rows, pool, require_parties
from veilring.scenarios.schema import NetworkSection, load_scenario

# The noise of a batch grows with the queries whose neighbourhoods overlap: small tables cannot
# answer many more than this.
QUERIES_DEFAULT: Final = 20
# In noisy votes each party sends to every other party three times a batch: with this many parties
# that makes 30,000 messages, which are played in seconds.
PARTIES_MAX: Final = 100
# Divided among the queries of the largest batch, this is still more than the smallest ε tabulated
# for noise shares (`veilring.privacy.divisible`).
EPSILON_MIN: Final = 0.05
# Ind-KNN declares the length of its stream; a shorter stream leaves no budget for a vote.
QUERIES_MIN: Final = 4
# No data owner answers more at once (`veilring.protocols.radius.messages`).
QUERIES_MAX: Final = 1000
# One split has no standard error; more than this add nothing, because they overlap.
SPLITS_MIN: Final = 2
SPLITS_MAX: Final = 100
# The first splits, which also are those of the search in hindsight.
SPLITS_DEFAULT: Final = 20
# While a line that would be preferred is open, as many are added again, up to this number: further
# ones rarely decide.
SPLITS_REFINED: Final = 60
# Two points of accuracy are about what another draw of the rows would change.
TOLERANCE: Final = 0.02
# More would count a line as equal to the best one that is wrong for every second query.
TOLERANCE_MAX: Final = 0.5
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
        splits_max: The number up to which repetitions are added while the decision is open; the
            same as `splits` if that is given.
        tolerance: The loss of accuracy to the best line that still counts as equal.
        queries: The maximum number of held-out rows in one batch, under one ε.
        k: The number of neighbours that vote in systems without an ε: pooled, and in the ring.
        tolerated: For noisy votes, the number of parties that may collude or add no noise, the
            observer included, before ε rises. The minimum is one, because each party knows its own
            share.
        partition: How rows are divided among the parties.
        settings: Values of tunable parameters, by name, for every system that has the parameter;
            the others follow from public rules.
        schema_file: A TOML file with the public schema of the columns, as in terms; by default the
            table has its columns as they are, and its extremes as ranges.
        reading_file: A TOML file with the particulars of the file, by which the schema can read it.
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
    separator: Separator = ","
    parties: int = Field(PARTIES, ge=PARTIES_MIN, le=PARTIES_MAX)
    epsilon: Annotated[
        tuple[_Epsilon, ...], Field(strict=False, min_length=1, max_length=EPSILONS_MAX)
    ] = Field(
        (0.5, 1.0, 2.0),
        description=f"up to {EPSILONS_MAX} numbers from {EPSILON_MIN:g} to {REQUEST_EPSILON_MAX:g},"
        " such as 0.5,1,2",
    )
    network: NetworkSection
    splits: int = Field(SPLITS_DEFAULT, ge=SPLITS_MIN, le=SPLITS_MAX)
    splits_max: int = Field(SPLITS_REFINED, ge=SPLITS_MIN, le=SPLITS_MAX)
    tolerance: float = Field(TOLERANCE, gt=0.0, le=TOLERANCE_MAX)
    queries: int = Field(QUERIES_DEFAULT, ge=QUERIES_MIN, le=QUERIES_MAX)
    k: int = Field(NEIGHBOURS, ge=1)
    tolerated: int | None = Field(
        None, ge=1, description="a whole number of at least 1; leave it out for less than half"
    )
    partition: Literal["iid", "dirichlet", "by-label"] = "iid"
    settings: dict[str, Setting] = Field(
        default_factory=dict, description="values of tunable parameters, such as radius and tau"
    )
    schema_file: str = Field("", description="a path to a .toml, or nothing")
    reading_file: str = Field("", description="a path to a .toml, or nothing")
    terms: str = Field("", description="a path to a .toml, or nothing")
    hindsight: bool = True
    seed: int = Field(0, ge=0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties."""
        return tuple(f"party-{number}" for number in range(self.parties))

    @property
    def colluding(self) -> int:
        """The number of parties that may collude: less than half by default."""
        return (self.parties - 1) // 2 if self.tolerated is None else self.tolerated

    @property
    def columns(self) -> dict[str, Any]:
        """How a file is read, as arguments of `veilring.data.sources.load`."""
        agreed = read_tables(Path(self.terms), "terms") if self.terms else {}
        of_terms = self.terms if agreed.get("features") and _is_file(self) else ""
        return {
            "label": self.label or None,
            "separator": self.separator,
            "schema": self.schema_file or of_terms or None,
            "reading": self.reading_file or None,
        }


def make_question(
    fields: Mapping[str, Any], network: "NetworkSection | Mapping[str, Any] | None" = None
) -> Question:
    """Check the inputs as far as they do not depend on the data.

    Args:
        fields: The fields of `Question` except the network; `None` stands for the default.
        network: The result of `read_network`; the default network unless given.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if "splits" in given:
        given.setdefault("splits_max", given["splits"])
    if network is None:  # the links of the built-in scenarios: the median one-way latency is 20 ms
        network = load_scenario("wine").network.model_copy(update={_RUNTIME: "simulated"})
    try:
        question = Question.model_validate({**given, "network": network})
    except ValidationError as error:
        raise scenario_error(error, Question) from None
    systems = map(find_system, system_names())
    known = sorted({name for system in systems for name in system.tunable()})
    settings = values_in_terms(question.terms, known) | question.settings
    for name, value in question.settings.items():
        require_key(name in known, name, value, f"nothing; the parameters are {', '.join(known)}")
    ascending = tuple(sorted(set(question.epsilon)))
    return question.model_copy(update={"epsilon": ascending, "settings": settings})


Asked: TypeAlias = Question | Table | Sequence[Table] | str | Path
"""A question, or the data of one: a data set, a table, or the table of each party."""


def find_question(data: Asked, fields: Mapping[str, Any]) -> tuple[Question, Table | None]:
    """Return a question about data, with the table if there is one.

    Args:
        fields: The fields of a new question.
    """
    if isinstance(data, Question):
        if fields:
            name = next(iter(fields))
            raise InputError.because(
                f"the question already has {name}; change it there", field=name
            )
        return data, None
    if isinstance(data, str | Path):
        return make_question({"data": str(data), **fields}), None
    table = data if isinstance(data, Table) else pool(data)
    parties = {} if isinstance(data, Table) else {"parties": len(data)}
    return make_question({"data": table.name, **parties, **fields}), table


def values_in_terms(terms: str, known: Collection[str]) -> dict[str, Any]:
    """Return the known parameters in the tables of a file of terms; none without a file."""
    tables = read_tables(Path(terms), "terms").values() if terms else ()
    return {
        name: value
        for table in tables
        if isinstance(table, dict)
        for name, value in table.items()
        if name in known
    }


def read_network(path: Path) -> dict[str, Any]:
    """Read a file with the keys of a scenario's `[network]` table, except for the runtime.

    The keys may be in that table or at the top level. A relative path of a graph is relative to the
    file.
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


def require_rows(question: Question, train: int, held_out: int) -> None:
    """Refuse a question that does not fit the data."""
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
    allowed = f"at most {others}, or no party would be left to protect"
    require_key(question.colluding <= others, "tolerated", question.colluding, allowed)


_OWN_BOUNDS: Final = (
    "the smallest and the largest value of each column of the file, held-out rows included, in"
    " place of public ranges. They are not public: scaling by the extremes of private rows reveals"
    " them. In production, use ranges that are known without the rows, such as those of a form"
    " or a sensor"
)
_BUILTIN_BOUNDS: Final = (
    "the smallest and the largest value of each feature of the whole table, held-out rows included;"
    " the table is public, and so are they. Private rows need ranges that are known without them"
)
_GIVEN_BOUNDS: Final = (
    "the given ones; they reveal nothing about the rows, unless somebody looked at the"
    " rows to choose them"
)
_FILES: Final = {".csv", ".parquet", ".npz"}
# More batches make intervals narrower, until the overlap of the splits dominates.
BATCHES_MAX: Final = 10


class Wording(NamedTuple):
    """The words for the score of a comparison.

    Attributes:
        score: The name of the score.
        scored: The score of a line in a clause.
        baseline: The baseline that needs no features.
        reaches: The score of the baseline in a clause.
        constant: The remedy if no system can be above the baseline.
    """

    score: str
    scored: str
    baseline: str
    reaches: str
    constant: str


OF_CLASSES: Final = Wording(
    "accuracy",
    "{share} of the queries are labelled correctly",
    "majority class",
    "is right for {share} of the queries",
    "All queries have the same class; rows of other classes are needed",
)
OF_NUMBERS: Final = Wording(
    "R²",
    "R² is {share}",
    "mean of all rows",
    "has an R² of {share}",
    "All numbers to predict are equal; rows with other numbers are needed",
)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The public facts about the data.

    Attributes:
        classes: The number of possible labels: of classes, or of the values of a target.
        target: The label in words if it is a number; empty for classes.
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
    target: str = ""

    @property
    def wording(self) -> Wording:
        """The words for the score by which systems are compared."""
        return OF_NUMBERS if self.target else OF_CLASSES


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DealtSplit:
    """One split, with the features scaled into [0, 1] by public ranges."""

    number: int
    train: Table
    held_out: Table
    parts: Mapping[str, Rows]

    def credits(self, labels: Ints) -> Floats:
        """Return the credit of each label of the first held-out rows; their mean is the score.

        It is 1 for the right class and 0 for any other. For numbers it is 1 - e²/s², by the error e
        and the variance s² of all held-out rows, so that the mean is R², which may be negative.
        """
        truth = self.held_out.y
        errors = (labels - truth[: len(labels)]).astype(np.float64)
        spread = 0.0 if self.train.features.target is None else float(truth.var())
        return 1.0 - errors**2 / spread if spread else (errors == 0).astype(np.float64)

    def batches(self, size: int) -> list[Table]:
        """Return held-out rows in equal batches; each batch is asked once, among fresh parties.

        Rows that would make a smaller batch are not asked, nor those beyond `BATCHES_MAX` batches.
        With fewer rows than `size`, all are one batch.
        """
        size = min(size, len(self.held_out))
        count = min(BATCHES_MAX, len(self.held_out) // size)
        return [
            self.held_out.take(np.arange(number * size, (number + 1) * size))
            for number in range(count)
        ]

    @property
    def facts(self) -> Facts:
        """Return the public facts, except for the number of queries."""
        return Facts.of(len(self.parts), self.train.features, rows=len(self.train))


def load_facts(question: Question, given: Table | None = None) -> tuple[Table, TableFacts]:
    """Load a table, scaled into [0, 1], with its public facts."""
    table, bounds = _load(question) if given is None else (scale_to_unit(given), _GIVEN_BOUNDS)
    require_parties(table, question.parties, "parties")
    first = draw_split(table, question, 0)
    held_out = len(table) - len(first.train)
    require_rows(question, len(first.train), held_out)
    batches = first.batches(question.queries)
    facts = TableFacts(
        name=Path(question.data).stem if _is_file(question) else question.data,
        rows=len(table),
        features=len(table.features),
        classes=len(table.features.classes),
        categorical=table.features.is_categorical,
        train=len(first.train),
        held_out=held_out,
        queries=len(batches[0]),
        batches=len(batches),
        bounds=bounds,
        target="" if table.features.target is None else str(table.features.target),
    )
    return table, facts


def _is_file(question: Question) -> bool:
    return Path(question.data).suffix.lower() in _FILES


def _load(question: Question) -> tuple[Table, str]:
    """Return a table, scaled into [0, 1], and the origin of its ranges."""
    agreed = read_tables(Path(question.terms), "terms") if question.terms else {}
    try:
        table = load(question.data, **question.columns)
    except InputError as error:
        if error.field != "source":
            raise
        raise InputError.of(error, "data") from error
    if agreed.get("dimensions"):
        return scale_to_unit(table, _about_origin(table, agreed)), _GIVEN_BOUNDS
    if question.columns["schema"]:
        return scale_to_unit(table), _GIVEN_BOUNDS
    return scale_to_unit(table), _OWN_BOUNDS if _is_file(question) else _BUILTIN_BOUNDS


def _about_origin(table: Table, agreed: Mapping[str, Any]) -> Ranges:
    """Return equal ranges around the origin of embeddings, which preserve directions from it."""
    count = len(table.features)
    origin = np.array(agreed.get("origin") or np.zeros(count), np.float64)
    if origin.shape != (count,):
        raise InputError.because(
            f"the origin has {len(origin)} numbers; it must have {count}, as the rows have",
            field="terms",
        )
    reach = float(np.abs(table.X - origin).max()) or 1.0
    return Ranges(tuple((origin - reach).tolist()), tuple((origin + reach).tolist()))


def draw_split(table: Table, question: Question, number: int) -> DealtSplit:
    """Return one of the splits, each from a random stream of its own.

    Each party has its own rows of a pooled table; those of another table are dealt.

    Args:
        table: All rows, scaled into [0, 1].
    """
    streams = Streams(question.seed)
    train, held_out = split(table, TEST_SHARE, streams.generator("split", number))
    dealt = own_rows(train, question.parties)
    if dealt is None:
        rng = streams.generator("partition", number)
        dealt = partition(train.y, question.parties, rng, kind=question.partition)
    parts = {
        name: Rows(train.X[rows], train.y[rows])
        for name, rows in zip(question.names, dealt, strict=True)
    }
    return DealtSplit(number, train, held_out, parts)
