"""The results of all jobs of a comparison, and its lines, which show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from veilring.measures import NUMBERS
from veilring.protocols.promise import Facts, Promise
from veilring.scenarios.comparison.baselines import Baseline
from veilring.scenarios.comparison.contenders import Contender
from veilring.scenarios.comparison.lines import (
    HINDSIGHT,
    MAJORITY,
    POOLED,
    Key,
    Left,
    Limits,
    Line,
    parameters_text,
)
from veilring.scenarios.comparison.marks import Marked, Marks
from veilring.scenarios.comparison.playing import BatchPlayed
from veilring.scenarios.comparison.question import Question, TableFacts
from veilring.scenarios.comparison.tuning import (
    Hindsight,
    Interval,
    SystemAt,
    over_splits,
    score_over_splits,
)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all jobs, by the number of a split or by a contender."""

    marks: dict[int, Marked] = field(default_factory=dict)
    played: dict[Key, BatchPlayed] = field(default_factory=dict)
    hindsight: dict[Key, Hindsight] = field(default_factory=dict)
    quiet: dict[Key, Hindsight] = field(default_factory=dict)

    def of(self, key: Key) -> list[Marks]:
        """Return the marks of a line on each split."""
        return [self.marks[number].marks[key] for number in sorted(self.marks)]

    @property
    def failed(self) -> Mapping[Key, Left]:
        """The baselines that failed on a split."""
        splits = (self.marks[number].failed for number in sorted(self.marks, reverse=True))
        return {key: left for failed in splits for key, left in failed.items()}


def make_lines(
    question: Question,
    facts: TableFacts,
    public: Facts,
    contenders: Sequence[Contender],
    results: Results,
) -> tuple[Line, ...]:
    """Return the lines: the baselines, and each contender followed by its line in hindsight."""
    lines = [
        _baseline(POOLED, f"pooled {question.k}-NN", facts, results),
        _baseline(MAJORITY, facts.wording.baseline, facts, results),
    ]
    for each in contenders:
        marks = results.of(each.key)
        figures = _figures(marks, facts)
        if isinstance(each, Baseline):
            lines.append(_of_baseline(each, figures))
            continue
        promise = each.system.promise_about(public)
        line = _of_system(each, promise, figures, question, results.played.get(each.key))
        if each.key in results.hindsight:
            found, quiet = results.hindsight[each.key], results.quiet[each.key]
            marks = marks[: question.splits]
            as_ruled = (mark.own for mark in marks[len(found.accuracies) :])
            found = found._replace(accuracies=(*found.accuracies, *as_ruled))
            limits = _limits(marks, found, quiet, facts)
            lines.append(replace(line, limits=limits))
            lines.append(_best_line(line, marks, found, facts))
        else:
            lines.append(line)
    return tuple(lines)


def _baseline(key: str, name: str, facts: TableFacts, results: Results) -> Line:
    """Return the line of a baseline, which nobody plays and which protects nothing."""
    marks = results.of((key, "", None))
    return Line(
        system=key,
        name=name,
        epsilon=None,
        trusted=True,
        trust="one place",
        guarantee="none",
        **_figures(marks, facts),
    )


def _of_system(
    contender: SystemAt,
    promise: Promise,
    figures: Mapping[str, Any],
    question: Question,
    played: BatchPlayed | None,
) -> Line:
    system, parties = contender.system, question.parties
    return Line(
        system=system.name,
        form=contender.form,
        name=contender.title,
        epsilon=contender.key[-1],
        trusted=system.has_owner,
        trust=system.trust.format(
            parties=parties,
            honest=parties - question.colluding,
            outside=parties - system.pooling(parties),
        ),
        guarantee=promise.short,
        lasting=system.is_lasting,
        privacy=promise,
        leakage=played.leakage if played and promise.epsilon is None else None,
        cost=played and played.cost,
        **figures,
    )


def _of_baseline(baseline: Baseline, figures: Mapping[str, Any]) -> Line:
    return Line(
        system=baseline.name,
        name=baseline.title,
        epsilon=baseline.epsilon,
        trusted=True,
        trust="an owner",
        guarantee=baseline.promise.short,
        lasting=True,
        privacy=baseline.promise,
        **figures,
    )


def _best_line(line: Line, marks: Sequence[Marks], found: Hindsight, facts: TableFacts) -> Line:
    """Return the line of the best parameters in hindsight: these depend on the rows."""
    pairs = zip(marks, found.accuracies, strict=True)
    best = [replace(mark, own=own, measures={}) for mark, own in pairs]
    return Line(
        system=f"{line.system}{HINDSIGHT}",
        form=line.form,
        name=f"{line.name}, in hindsight",
        epsilon=line.epsilon,
        trusted=line.trusted,
        trust=line.trust,
        guarantee=f"not private: {parameters_text(found.parameters) or 'same as the rule'}",
        **_figures(best, facts),
    )


def _limits(
    marks: Sequence[Marks], found: Hindsight, quiet: Hindsight, facts: TableFacts
) -> Limits:
    """Divide the loss of a line to the pooled classifier, split by split."""
    overlap = marks[0].queries / facts.train
    pairs = zip(marks, found.accuracies, quiet.accuracies, strict=True)
    shares = [(best - mark.own, still - best, mark.pooled - still) for mark, best, still in pairs]
    rule, noise, method = (over_splits(each, overlap) for each in zip(*shares, strict=True))
    return Limits(dict(found.parameters), rule, noise, method)


def _figures(marks: Sequence[Marks], facts: TableFacts) -> dict[str, Any]:
    """Return the accuracy figures of a line, named like its fields."""
    queries = marks[0].queries
    overlap = queries / facts.train
    own = tuple(mark.own for mark in marks)
    losses = tuple(mark.pooled - mark.own for mark in marks)
    gains = tuple(mark.own - mark.majority for mark in marks)
    return {
        "queries": queries,
        "overlap": overlap,
        "accuracies": own,
        "losses": losses,
        "gains": gains,
        "accuracy": score_over_splits(own, facts, queries),
        "loss": over_splits(losses, overlap),
        "gain": over_splits(gains, overlap),
        "measures": {
            name: _possible(name, over_splits([mark.measures[name] for mark in marks], overlap))
            for name in NUMBERS
            if all(name in mark.measures for mark in marks)
        },
    }


def _possible(name: str, interval: Interval) -> Interval:
    """Return the possible part of an interval: only a calibration may be negative."""
    least = -1.0 if name == "calibration" else 0.0
    return interval._replace(low=max(least, interval.low), high=min(1.0, interval.high))
