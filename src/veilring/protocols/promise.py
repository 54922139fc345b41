"""The public statements of a system: the facts it relies on, its guarantee, leakage and cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, expm1, inf
from typing import Final, NamedTuple, Self

from veilring.data.columns import Target
from veilring.data.table import Features
from veilring.errors import InputError
from veilring.nodes.journal import Cost, Traffic
from veilring.privacy.checks import require
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode


@dataclass(frozen=True, slots=True)
class Estimate:
    """A Monte Carlo estimate and its standard error."""

    value: float
    standard_error: float


class Measure(NamedTuple):
    """A share that measures the leakage of a run."""

    label: str
    meaning: str
    argument: str = ""
    """The argument for a value of 0, if it is not estimated."""


@dataclass(frozen=True, slots=True)
class Leakage:
    """The leakage of a run, from simulated runs on the same rows.

    Attributes:
        estimates: The measures of leakage about a party, beyond the result, by name.
        published: The measures of leakage by the published result, by name.
    """

    trials: int
    estimates: Mapping[str, Estimate]
    published: Mapping[str, Estimate] = field(default_factory=dict)


_UNITS: Final = ("rounds", "messages", "bytes")


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a run, before it is run.

    Attributes:
        rounds: The communication rounds.
        traffic: The messages and bytes of the protocol.
        setup: The messages and bytes before the first round.
        most: The maximum cost, if it depends on secret draws; the other numbers are then the
            minimum.
    """

    rounds: int
    traffic: Traffic
    setup: Traffic = field(default_factory=Traffic)
    most: "Forecast | None" = None

    @classmethod
    def measured(cls, cost: Cost) -> Self:
        """Return the cost of a run in the form of a forecast, with its rounds as measured."""
        return cls(cost.rounds_taken, Traffic(cost.messages, cost.bytes), cost.setup)

    def __add__(self, other: "Forecast") -> "Forecast":
        """Return the cost of two runs, one after the other."""
        traffic, setup = self.traffic.plus(other.traffic), self.setup.plus(other.setup)
        has_most = self.most is not None or other.most is not None
        most = (self.most or self) + (other.most or other) if has_most else None
        return Forecast(self.rounds + other.rounds, traffic, setup, most)

    def __str__(self) -> str:
        return describe_cost(_totals(self), _totals(self.most or self))


def describe_cost(least: Sequence[int], most: Sequence[int] | None = None) -> str:
    """Return rounds, messages and bytes in words.

    Args:
        most: The three numbers at most, if `least` has the minimum.
    """
    parts = (
        f"{low:,} {unit if low != 1 else unit.removesuffix('s')}"
        if low == high
        else f"{low:,} to {high:,} {unit}"
        for low, high, unit in zip(least, most or least, _UNITS, strict=True)
    )
    return ", ".join(parts)


def repeated(messages: int, message: Message) -> Traffic:
    """Return the traffic of the given number of messages of one size.

    The size of a message depends only on its shapes and on a few small numbers, so a message of
    zeros is enough.
    """
    return Traffic(messages, messages * frame_size(encode(bytes(SESSION_BYTES), message)))


def in_batches(cost: Callable[[int], Forecast], queries: int, size: int) -> Forecast:
    """Return the cost of queries asked in full batches of a size, and the rest in another batch."""
    sizes = batch_sizes(queries, size)
    costs = {count: cost(count) for count in set(sizes)}
    return total_cost(*(costs[count] for count in sizes))


def batch_sizes(queries: int, size: int) -> list[int]:
    """Return the number of queries of each batch: full batches, then the rest."""
    full, rest = divmod(queries, size)
    return [size] * full + [rest] * bool(rest)


def total_cost(*costs: Forecast) -> Forecast:
    """Return the total cost of runs that follow one another."""
    return sum(costs, start=Forecast(0, Traffic()))


def _totals(cost: Forecast) -> tuple[int, int, int]:
    return cost.rounds, *cost.traffic.plus(cost.setup)


SEED_TELLS: Final = "The noise was drawn from a seed; no ε holds against anyone who knows the seed."
"""The sentence of a note for an ε that would rest on seeded noise."""

DELTA_ROWS_MAX: Final = 0.1
"""A δ allows a mechanism that publishes each row with probability δ. Beyond this expected number of
published rows, the guarantee says little about some row."""

_WIDTH: Final = 14
_TOO_LARGE: Final = "δ is too large"
_SINGLE_ROWS: Final = ("one row", "one record")
_EXPONENT_MAX: Final = 700.0  # beyond it, any δ above 0 becomes 1, and the exponential overflows
_PLURALS: Final = {"batch": "batches", "query": "queries"}
_SUSPECTED: Final = {
    "one row": "a given row is among the data",
    "one record": "a given record is among the data",
    "any two rows": "the row of a client has some property",
    "any two queries": "a query has some property",
    "a person": "a given person is among the data",
}
"""The suspicion that an ε bounds, by the beginning of its adjacency."""
_PRIOR: Final = 0.1
# Odds above e^ε times c have a probability of at most δ / (1 - 1 / c): with c = 2, of 2 δ.
_DOUBLED: Final = 2.0
_ROWS_SHOWN: Final = 10
_SEMI_HONEST: Final = (
    "Semi-honest parties run the protocol unchanged, and try to learn what they can from what they"
    " see."
)
_QUERIES_ONLY: Final = "any two queries"
"""The adjacency of a guarantee for queries, where the rows are public."""
_NOT_COVERED: Final = (
    "Not covered are {facts}the times and sizes of messages, machines and keys that somebody else"
    " controls, and rows that a party invents."
)
_GROUPS: Final = "facts about a group that hold without any single row of it, "
_PUBLIC: Final = "Ranges, categories and classes are public, and must not be taken from rows."


def colluding(tolerated: int, parties: int) -> str:
    """Return the words of a threat model for a collusion threshold, the observer included."""
    if tolerated <= 1:
        return "no two of them collude"
    return f"at most {tolerated} of the {parties} collude"


def measure_of(delta: float) -> str:
    """Return the kind of a guarantee of differential privacy."""
    return "(ε, δ)-DP" if delta else "pure ε-DP"


def delta_warning(delta: float, rows: int) -> str:
    """Return a sentence on a δ that is too large for the number of rows, otherwise nothing."""
    if delta * rows <= DELTA_ROWS_MAX:
        return ""
    return (
        f"{_TOO_LARGE} for {rows:,} rows: publishing {delta * rows:.3g} rows as they are would"
        " satisfy it. Choose a δ well below one over the number of rows."
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """The public facts about the data and the parties.

    Attributes:
        parties: The number of parties that hold rows.
        features: The number of features of a row, each scaled into [0, 1] by public ranges.
        classes: The number of possible labels: of classes, or of the values of a target.
        rows: The total number of rows of all parties, if public.
        queries: The total number of queries, if known.
        schema: The public schema of the rows, if there is one.
    """

    parties: int
    features: int
    classes: int
    rows: int | None = None
    queries: int | None = None
    schema: Features | None = None

    @classmethod
    def of(
        cls,
        parties: int,
        features: int | Features,
        classes: int = 0,
        rows: int | None = None,
        queries: int | None = None,
    ) -> Self:
        """Return the facts about rows of a schema, which also has the classes, or of numbers."""
        if isinstance(features, Features):
            width, classes = len(features), features.label_count
            return cls(parties, width, classes, rows, queries, features)
        return cls(parties, features, classes, rows, queries)

    @property
    def target(self) -> Target | None:
        """The range of the label, if that is a number rather than a class."""
        return None if self.schema is None else self.schema.target

    @property
    def categorical(self) -> bool:
        """Whether all features come from categories."""
        return self.schema is not None and self.schema.is_categorical


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantee of a system: what is protected, from whom, and in which threat model.

    Two guarantees are comparable only if `protects`, `against`, `adjacency` and `unit` agree.

    Attributes:
        protects: The secrets that are protected.
        against: The parties and observers from whom they are protected.
        threat_model: The threat model.
        adjacency: The adjacency relation of ε; empty if no ε holds.
        epsilon: The bound ε; none if nothing bounds the leakage.
        delta: The δ; 0 for a pure guarantee.
        unit: The unit of ε: batch, report, stream or query, or several of them, such as `2
            batches`.
        measure: The kind of guarantee.
        learned: The information that all parties, or the client, learn by design.
        note: Limits and further facts.
    """

    protects: str
    against: str
    threat_model: str
    adjacency: str
    epsilon: float | None
    delta: float
    unit: str
    measure: str
    learned: str = ""
    note: str = ""

    @property
    def guarantee(self) -> str:
        """The bound in a few words."""
        if self.epsilon is None:
            return self.measure
        delta = f", δ = {self.delta:g}" if self.delta else ""
        each = "" if self.unit[:1].isdigit() else "each "
        return f"ε = {self.epsilon:.6g}{delta} for {each}{self.unit} ({self.measure})"

    @property
    def short(self) -> str:
        """The kind of bound in two or three words."""
        if self.epsilon is None:
            return self.measure
        return f"ε, δ = {self.delta:g} per {self.unit}" if self.delta else f"ε per {self.unit}"

    def paragraph(self, system: str, *, budget: float | None = None) -> str:
        """Return the guarantee as a paragraph for a data-protection assessment.

        It says what is protected, from whom, at which ε, for a row and for a person with several
        rows, under which assumptions, and what is not covered.

        Args:
            system: The name of the system.
            budget: The total ε that the ledger of each party allows, if there is one.
        """
        model, _, details = self.threat_model.partition(": ")
        learned = "; ".join(map(_learns, self.learned.split("; ")))
        said = [
            f"The system `{system}` protects {self.protects} from {self.against}.",
            *self._bounds(),
            f"The ledger of each party refuses a total ε above {budget:g}." if budget else "",
            f"The threat model is {model}{f' ({details})' if details else ''}.",
            _SEMI_HONEST if "semi-honest" in model else "",
            f"By design, {learned}." if learned else "",
            self.note,
            _NOT_COVERED.format(facts="" if self.adjacency == _QUERIES_ONLY else _GROUPS),
            "" if self.adjacency == _QUERIES_ONLY else _PUBLIC,
        ]
        return " ".join(filter(None, said))

    def _bounds(self) -> Iterator[str]:
        """Yield sentences on ε, on a suspicion about one row, and on a person with several."""
        if self.epsilon is None:
            yield f"Its guarantee is: {self.measure}."
            yield "Nothing bounds what its results reveal about a row or a person."
            return
        yield f"Its guarantee is differential privacy ({self.adjacency}): {self.guarantee}."
        each = self.unit if self.unit[:1].isdigit() else f"one {self.unit}"
        for adjacency, suspected in _SUSPECTED.items():
            if self.adjacency.startswith(adjacency):
                yield (
                    f"For example, {each} can raise an observer's certainty that {suspected} from"
                    f" {_PRIOR:.0%} to at most {self._certainty():.1%}{self._beyond()}."
                )
        is_of_rows = self.adjacency.startswith(_SINGLE_ROWS)
        one = self.adjacency.split()[1] if is_of_rows else ""
        about = f"on the same {one}s" if is_of_rows else "of the same person"
        if not self.unit[:1].isdigit():
            yield f"Each further {self.unit} {about} adds as much."
        if is_of_rows:
            yield (
                f"It is for one {one}, not for a person: a person with m {one}s has m·ε, such as"
                f" {self._in_numbers(_ROWS_SHOWN)} for {_ROWS_SHOWN} {one}s."
            )
            yield (
                f"The content of a {one} that is known to be among the data has"
                f" {self._in_numbers(2)}, as if it were removed and another one added."
            )

    def _in_numbers(self, rows: int) -> str:
        """Return ε and δ of several rows in words."""
        group = self.of_person(rows)
        return f"ε = {group.epsilon:g}" + (f", δ = {group.delta:.2g}" if group.delta else "")

    def _certainty(self, factor: float = 1.0) -> float:
        """Return the posterior of a suspicion, by odds that grow by e^ε times a factor."""
        odds = factor * exp(min(self.epsilon or 0.0, _EXPONENT_MAX)) * _PRIOR / (1 - _PRIOR)
        return ceil(1000 * odds / (1 + odds)) / 1000

    def _beyond(self) -> str:
        """Say how δ adds to the bound on a suspicion."""
        if not self.delta:
            return ""
        return (
            f", up to δ: it exceeds {self._certainty(_DOUBLED):.1%} with a probability of at most"
            " 2·δ"
        )

    def broken_by(self, told: Mapping[str, str]) -> "Promise":
        """Return the remaining guarantee if something reveals more than any ε allows.

        Args:
            told: The causes in a few words, each with a sentence that explains it; may be empty.
        """
        note = " ".join([self.note, *told.values()]).strip()
        if not told or self.epsilon in {None, inf}:
            return replace(self, note=note)
        measure = f"no ε: {' and '.join(told)}"
        return replace(self, epsilon=None, adjacency="", measure=measure, note=note)

    def of_person(self, rows: int) -> "Promise":
        """Return the guarantee for a person with several rows, by group privacy.

        ε becomes k·ε, and δ becomes (1 + e^ε + … + e^((k - 1)ε))·δ. Source: Vadhan, "The complexity
        of differential privacy" (2017), Lemma 2.2.

        Args:
            rows: k, the maximum number of rows of one person, at least 1.

        Raises:
            InputError: If there is no ε, its adjacency is not about single rows, or `rows` is below
                1.
        """
        if self.epsilon is None or not self.adjacency.startswith(_SINGLE_ROWS):
            raise InputError.because(
                f"rows of a person do not apply to this guarantee: {self.guarantee}", field="rows"
            )
        require(rows >= 1, "rows", rows, "a whole number of at least 1")
        epsilon = rows * self.epsilon
        # Divided by its largest term first, which alone may be too large for a float.
        growth = expm1(-epsilon) / expm1(-self.epsilon) if epsilon else rows
        growth *= exp(min((rows - 1) * self.epsilon, _EXPONENT_MAX)) if rows > 1 else 1.0
        adjacency = f"a person with up to {rows} rows added or removed"
        delta = min(1.0, growth * self.delta)
        return replace(self, epsilon=epsilon, delta=delta, adjacency=adjacency)

    def among(self, rows: int | None) -> "Promise":
        """Return the guarantee with a warning in its note if δ is too large for the number of rows.

        Args:
            rows: The number of rows, if it is public.
        """
        warning = delta_warning(self.delta, rows or 0)
        if not warning or _TOO_LARGE in self.note:
            return self
        return replace(self, note=f"{self.note} {warning}".strip())

    def __str__(self) -> str:
        lines = {
            "protects": self.protects,
            "against": self.against,
            "threat model": self.threat_model,
            "guarantee": self.guarantee,
            "adjacency": self.adjacency,
            "learned": self.learned,
            "note": self.note,
        }
        return "\n".join(f"{name:<{_WIDTH}}{text}" for name, text in lines.items() if text)


def _learns(part: str) -> str:
    """Return a part of `learned`, such as `all parties: the labels`, as a clause with a verb."""
    learner, colon, what = part.partition(": ")
    if not colon:
        return part
    return f"{learner} {'learn' if learner.endswith('s') else 'learns'} {what}"


@dataclass(frozen=True, slots=True)
class Spent:
    """The spent part of a guarantee.

    Attributes:
        epsilon: The bound on all answers so far together; none if there is no bound.
        delta: The δ.
        times: The number of units spent.
        unit: The unit of the guarantee.
    """

    epsilon: float | None
    delta: float
    times: int
    unit: str

    @property
    def what(self) -> str:
        """The units that were paid for, in a few words."""
        many = f"{self.times} {_PLURALS.get(self.unit, f'{self.unit}s')}"
        return f"for {f'one {self.unit}' if self.times == 1 else many}"

    def __str__(self) -> str:
        if self.epsilon is None:
            return "nothing: there is no ε"
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return f"ε = {self.epsilon:.6g}{delta} {self.what}"


def public_rows(rows: int | None, parameter: str) -> int:
    """Return the total number of rows, at least 1, as needed by a rule.

    Args:
        rows: The number, if it is public.
    """
    if rows is None:
        raise InputError.because(
            f'{parameter} = "auto" follows from the number of rows of all parties, which is not'
            " public here; give a number",
            field=parameter,
        )
    return max(1, rows)
