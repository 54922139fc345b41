"""The accuracy of a system on one split, its interval over splits, and the search for parameters.

A search uses public rows, or hindsight to measure a rule's loss. Each parameter in turn is set to
the best of its values, until the result no longer improves. Parameters look too good on the splits
that chose them, so each half of the splits chooses for the other half, and the accuracy reported is
the one there.

Labels come from `Setup.score`: the vectorised steps that parties run, without their messages.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import tomli_w

from veilring.arrays import Floats, Ints
from veilring.data.table import Table
from veilring.errors import InputError
from veilring.measures import CONFIDENCE
from veilring.privacy.bounds import proportion_bounds
from veilring.protocols.promise import Facts
from veilring.protocols.registry import find_system
from veilring.protocols.system import Scored, Setup, System
from veilring.randomness import Streams
from veilring.scenarios.comparison.question import (
    DealtSplit,
    Question,
    TableFacts,
    draw_split,
    load_facts,
    values_in_terms,
)
from veilring.scenarios.runner import Progress, ignore_progress
from veilring.scenarios.sweep.engine import Engine, each_done

INTERVAL: Final = (
    "the mean over the splits with a 95% interval of Student's t distribution. Its variance is s²"
    " (1/J + q/n), for J splits with q queries and n training rows (the corrected resampled t of "
    "Nadeau and Bengio, 2003). Splits of one table share most of their rows, so that without the "
    "second term intervals would be too narrow. If the splits happen to agree, the interval of an "
    "accuracy reaches as far as the exact (Clopper-Pearson) interval of the same number of "
    "independent queries."
)
"""A description of the intervals."""


class Interval(NamedTuple):
    """A mean over splits with its confidence interval."""

    mean: float
    low: float
    high: float


def reach_over_splits(values: Floats, overlap: Floats | float, below: float) -> Floats:
    """Return the reach of corrected resampled t intervals around the means over the last axis.

    Source: Nadeau and Bengio, "Inference for the generalization error", Machine Learning 52 (2003),
    Section 3: the variance `s² (1/J + n2/n1)` accounts for the overlap of the splits.

    Args:
        values: One value per split, at least two.
        overlap: The number of queries of a split divided by that of its training rows, `n2/n1`.
        below: The probability that the upper end of an interval is above.
    """
    from scipy.special import stdtrit

    splits = values.shape[-1]
    quantile = float(stdtrit(splits - 1, below))
    return np.asarray(quantile * values.std(axis=-1, ddof=1) * np.sqrt(1 / splits + overlap))


def over_splits(values: Sequence[float], overlap: float) -> Interval:
    """Return the mean of one number per split with its interval: see `reach_over_splits`."""
    mean = float(np.mean(values))
    reach = float(reach_over_splits(np.array(values), overlap, (1 + CONFIDENCE) / 2))
    return Interval(mean, mean - reach, mean + reach)


def score_over_splits(scores: Sequence[float], facts: TableFacts, queries: int) -> Interval:
    """Return the mean of the scores of equally many queries with its interval: see `INTERVAL`."""
    mean, low, high = over_splits(scores, queries / facts.train)
    if facts.target:
        return Interval(mean, low, min(1.0, high))
    asked = queries * len(scores)
    exact = proportion_bounds(np.array(round(mean * asked)), asked, (1 - CONFIDENCE) / 2)
    least, most = float(exact.low), float(exact.high)
    return Interval(mean, max(0.0, min(low, least)), min(1.0, max(high, most)))


@dataclass(frozen=True, slots=True)
class SystemAt:
    """A system with its parameters."""

    system: System
    form: str = ""

    @property
    def key(self) -> tuple[str, str, float | None]:
        """The name, the form and the ε."""
        return self.system.name, self.form, getattr(self.system, "epsilon", None)

    @property
    def title(self) -> str:
        """The title of the system, with the form."""
        return f"{self.system.title}, {self.form}" if self.form else self.system.title

    @property
    def asks_all(self) -> bool:
        """Whether all held-out rows are queried, because further queries cost no privacy."""
        return self.system.is_lasting or not self.system.is_bounded()

    def repeats(self, other: "SystemAt", public: Facts) -> bool:
        """Return whether another form has the same ε and, by public facts, the same guarantee."""
        (name, _, epsilon), (other_name, _, other_epsilon) = self.key, other.key
        if (name, epsilon) != (other_name, other_epsilon):
            return False
        return self.system.promise_about(public) == other.system.promise_about(public)

    def score(self, split: DealtSplit, question: Question) -> Scored:
        """Label batch by batch, each under the whole ε of the system.

        Args:
            question: The number of queries of a batch, and the seed of all noise. Other parameters
                of the same system meet the same noise.
        """
        streams, (system, form, epsilon) = Streams(question.seed), self.key
        name = ("comparison", system, form, str(epsilon), split.number)
        asked = [split.held_out] if self.asks_all else split.batches(question.queries)
        setup, said = self.set_up(split, len(asked[0])), list[Scored]()
        for number, batch in enumerate(asked):
            rng = streams.generator(*name, number)
            said += [setup.score(part, rng) for part in setup.batches(batch.X)]
        return Scored.together(said)

    def label(self, split: DealtSplit, question: Question) -> Ints:
        """Label as `score` does."""
        return self.score(split, question).labels

    def accuracy(self, split: DealtSplit, question: Question) -> float:
        """Return the mean credit of `label`: the accuracy, or R² for numbers."""
        return float(split.credits(self.label(split, question)).mean())

    def set_up(self, split: DealtSplit, queries: int) -> Setup:
        """Give the rows of a split to parties that will be asked the given number of queries."""
        return self.system.setup(split.parts, replace(split.facts, queries=queries))


_SWEEPS_MAX: Final = 3  # over all parameters; a third pass has never changed anything
Parameters = Mapping[str, object]
Measure = Callable[[Sequence[System]], Iterable["Floats | None"]]
"""Returns the accuracies of each system, shape (splits,); none if it does not fit the rows."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A system with one choice of its parameters."""

    parameters: Parameters
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean accuracy."""
        return float(np.mean(self.accuracies))


@dataclass(slots=True)
class Search:
    """A search over the tunable parameters of a system; each choice is measured once."""

    system: System
    facts: Facts
    measure: Measure
    fixed: frozenset[str] = frozenset()
    _found: dict[tuple[tuple[str, object], ...], Floats | None] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, tuple[object, ...]]:
        """The candidate values of each parameter."""
        return {
            name: tuple(each.values(self.facts))
            for name, each in self.system.tunable().items()
            if name not in self.fixed
        }

    @property
    def tried(self) -> list[Tried]:
        """All choices that fit the rows, the best first."""
        found = (
            Tried(dict(key), tuple(scores.tolist()))
            for key, scores in self._found.items()
            if scores is not None
        )
        return sorted(found, key=lambda each: -each.mean)

    def best(self, splits: Sequence[int] | None = None) -> Tried:
        """Return the best choice on the given splits; on all by default."""
        chosen: Parameters = {}
        self._measure([chosen])
        if not self._scores(chosen, splits).size:
            raise InputError.because(
                f"{self.system.name} with these parameters does not fit the rows", field="protocol"
            )
        for _ in range(_SWEEPS_MAX):
            before = chosen
            for name, values in self.values.items():
                chosen = self._along(name, values, chosen, splits)
            if chosen == before:
                break
        return Tried(chosen, tuple(self._scores(chosen, None).tolist()))

    def honest(self) -> tuple[float, ...]:
        """Return the accuracy in each split of the choice made by the other half of the splits."""
        count = len(self.best().accuracies)
        halves = range(0, count, 2), range(1, count, 2)
        scores = np.empty(count)
        for chosen_on, reported in (halves, halves[::-1]):
            others = np.array(self.best(list(chosen_on)).accuracies)
            scores[list(reported)] = others[list(reported)]
        return tuple(scores.tolist())

    def _along(
        self, name: str, values: Iterable[object], chosen: Parameters, splits: Sequence[int] | None
    ) -> Parameters:
        """Return the best choice that differs in at most one parameter.

        Another value is chosen only if it is better by more than the standard error of the
        difference over the splits: the best of many equal values is merely lucky.
        """
        current = chosen.get(name, getattr(self.system, name))
        choices = [self._with(chosen, name, value) for value in values if value != current]
        self._measure(choices)
        own = self._scores(chosen, splits)
        best, most = chosen, own
        for choice in choices:
            scores = self._scores(choice, splits)
            if scores.size and scores.mean() > most.mean() and _is_better(scores - own):
                best, most = choice, scores
        return best

    def _with(self, chosen: Parameters, name: str, value: object) -> Parameters:
        """Return a choice with another value; a value equal to the system's own is omitted."""
        others = {other: each for other, each in chosen.items() if other != name}
        return others if value == getattr(self.system, name) else {**others, name: value}

    def _measure(self, choices: Sequence[Parameters]) -> None:
        new = list[tuple[tuple[tuple[str, object], ...], System]]()
        for choice in choices:
            key = _key(choice)
            if key in self._found or any(key == other for other, _ in new):
                continue
            try:
                new.append((key, self.system.replaced(**choice)))
            except InputError:  # the values of two parameters are incompatible
                self._found[key] = None
        measured = self.measure([system for _, system in new])
        self._found.update(zip((key for key, _ in new), measured, strict=True))

    def _scores(self, choice: Parameters, splits: Sequence[int] | None) -> Floats:
        """Return the scores of a measured choice; empty if it does not fit the rows."""
        scores = self._found[_key(choice)]
        if scores is None:
            return np.empty(0)
        return scores if splits is None else scores[list(splits)]


# A search tries some twenty choices of parameters on each of them.
_HINDSIGHT_SPLITS: Final = 8


class Hindsight(NamedTuple):
    """The best parameters in hindsight, and their accuracy on each split."""

    parameters: Mapping[str, object]
    accuracies: tuple[float, ...]


def search_in_hindsight(
    contender: SystemAt, table: Table, question: Question, *, is_line: bool
) -> Hindsight:
    """Return the best parameters, and their accuracy on splits not used to choose them."""
    splits = [draw_split(table, question, each) for each in range(question.splits)]
    searched, others = splits[:_HINDSIGHT_SPLITS], splits[_HINDSIGHT_SPLITS:]

    def accuracies(system: System, splits: Sequence[DealtSplit]) -> list[float]:
        at = SystemAt(system, contender.form)
        return [at.accuracy(split, question) for split in splits]

    def measure(systems: Sequence[System]) -> Iterator[Floats | None]:
        for system in systems:
            try:
                yield np.array(accuracies(system, searched))
            except InputError:  # not for these rows
                yield None

    fixed = frozenset(question.settings)
    search = Search(contender.system, splits[0].facts, measure, fixed)
    best, honest = search.best(), search.honest()
    if not best.parameters and is_line:
        return Hindsight({}, honest)  # on the others it is the line itself
    system = contender.system.replaced(**best.parameters)
    shares = (*honest, *accuracies(system, others))
    return Hindsight(best.parameters, shares)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning a system on public rows.

    Attributes:
        accuracy: The accuracy of the best choice, on splits not used to choose it; R² for numbers.
        score: The name of that score.
    """

    system: System
    parameters: Parameters
    accuracy: Interval
    before: Interval
    score: str
    tried: Sequence[Tried]
    rows: int
    queries: int
    splits: int

    @property
    def toml(self) -> str:
        """The table `protocol` of a scenario or of terms, with all values that are not defaults."""
        differing = self.system.model_dump(mode="json", exclude_defaults=True)
        return tomli_w.dumps({"protocol": {"name": self.system.name, **differing}})

    def as_json(self) -> dict[str, Any]:
        """Return everything as values that JSON can express."""
        return {
            "system": self.system.name,
            "epsilon": getattr(self.system, "epsilon", None),
            "parameters": dict(self.parameters),
            "accuracy": self.accuracy.mean,
            "low": self.accuracy.low,
            "high": self.accuracy.high,
            "before": self.before._asdict(),
            "protocol": self.system.model_dump(mode="json"),
            "rows": self.rows,
            "queries": self.queries,
            "splits": self.splits,
            "tried": [
                {"parameters": dict(each.parameters), "accuracy": each.mean} for each in self.tried
            ],
        }


def tune(
    name: str,
    question: Question,
    fixed: Mapping[str, Any] = MappingProxyType({}),
    *,
    table: Table | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Search the tunable parameters of a system on public rows.

    Args:
        table: The rows, instead of those that the question names; its ranges count as public.
        workers: The number of processes; by default one per core.
    """
    kind = find_system(name)
    rows, facts = load_facts(question, table)
    given = kind.suited(epsilon=None, k=question.k, tolerated=question.colluding)
    agreed = values_in_terms(question.terms, kind.model_fields.keys() - {"name"})
    system = given.replaced(**agreed, **fixed)
    split = draw_split(rows, question, 0)
    queries = len(SystemAt(system).label(split, question))  # refuses parameters that do not fit
    measured, tell = 0, progress or ignore_progress

    def measure(systems: Sequence[System]) -> list["Floats | None"]:
        nonlocal measured
        jobs = [
            (place, number, each, rows, question)
            for place, each in enumerate(systems)
            for number in range(question.splits)
        ]
        scores = np.full((len(systems), question.splits), np.nan)
        with each_done(_score, jobs, Engine(workers=workers)) as results:
            for place, number, share in results:
                scores[place, number] = share
        measured += len(systems)
        tell("Choices of parameters", measured, max(measured, total))
        return [None if np.isnan(each).any() else each for each in scores]

    search = Search(system, split.facts, measure, frozenset(fixed))
    if not search.values:
        raise InputError.because(
            f"{name} has no parameter left to tune; its tunable parameters are"
            f" {', '.join(kind.tunable()) or 'none'}",
            field="protocol",
        )
    total = 1 + sum(map(len, search.values.values()))
    best = search.best()
    before = next(each for each in search.tried if not each.parameters)
    return Tuned(
        system=system.replaced(**best.parameters),
        parameters=best.parameters,
        accuracy=score_over_splits(search.honest(), facts, queries),
        before=score_over_splits(before.accuracies, facts, queries),
        score=facts.wording.score,
        tried=search.tried,
        rows=facts.train,
        queries=queries,
        splits=question.splits,
    )


def _score(job: tuple[int, int, System, Table, Question]) -> tuple[int, int, float]:
    """Return the accuracy of a system on a split; none if it does not fit the rows."""
    place, number, system, rows, question = job
    split = draw_split(rows, question, number)
    try:
        return place, number, SystemAt(system).accuracy(split, question)
    except InputError:
        return place, number, float("nan")


def _key(choice: Parameters) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(choice.items()))


def _is_better(differences: Floats) -> bool:
    error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return bool(differences.mean() > error)
