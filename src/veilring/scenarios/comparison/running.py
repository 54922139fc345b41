"""Running a comparison: every system on the same splits, one batch of each played for real."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from veilring.estimators import PrivacyLeakWarning, PrivateKNNClassifier
from veilring.estimators.base import PrivateClassifier
from veilring.protocols.ring import pooled_knn
from veilring.protocols.system import Leakage
from veilring.randomness import Streams
from veilring.scenarios.comparison.choosing import choose
from veilring.scenarios.comparison.comparison import MAJORITY, POOLED, Comparison, Line
from veilring.scenarios.comparison.leaking import measure_leakage
from veilring.scenarios.comparison.playing import play
from veilring.scenarios.comparison.question import Question
from veilring.scenarios.comparison.rules import rules_said
from veilring.scenarios.comparison.splits import Split, draw_splits, load_facts
from veilring.scenarios.comparison.stages import SERVER
from veilring.scenarios.comparison.systems import LEFT_OUT, SYSTEMS, Case, System, held
from veilring.scenarios.intervals import Interval, over_splits, share_over_splits
from veilring.scenarios.labelling import Progress
from veilring.scenarios.network import make_topology
from veilring.scenarios.reporting.folder import versions_used
from veilring.simulation import Topology


class _Figures(TypedDict):
    """What a line says of accuracy, named as its fields are."""

    accuracies: tuple[float, ...]
    accuracy: Interval
    loss: Interval
    gain: Interval


@dataclass(frozen=True, slots=True)
class _Common:
    """What all lines have in common.

    Attributes:
        question: What is asked.
        splits: The same for all.
        topology: The links.
        pooled: The pooled classifier's accuracy in each split.
        majority: The same of the most frequent class.
    """

    question: Question
    splits: Sequence[Split]
    topology: Topology
    pooled: tuple[float, ...]
    majority: tuple[float, ...]

    def figures(self, accuracies: tuple[float, ...]) -> _Figures:
        """Return what a line says of accuracy."""
        overlap, queries = self.splits[0].overlap, self.splits[0].queries
        loss = [most - mine for most, mine in zip(self.pooled, accuracies, strict=True)]
        gain = [mine - least for mine, least in zip(accuracies, self.majority, strict=True)]
        return {
            "accuracies": accuracies,
            "accuracy": share_over_splits(accuracies, overlap, queries),
            "loss": over_splits(loss, overlap),
            "gain": over_splits(gain, overlap),
        }


def compare(question: Question, *, progress: Progress | None = None) -> Comparison:
    """Put every applicable system on the same splits of the same data. No event loop may run.

    Args:
        question: What is asked.
        progress: Told how far it is.

    Raises:
        InputError: If the data, or the network, are not as the question needs them.
        RunFailed: If a batch that was played failed at any party.
        UnforeseenCost: If one cost anything else than its closed form says.
    """
    table, facts = load_facts(question)
    # Checked before anything takes long.
    topology = make_topology(question.network, (SERVER, *question.names))
    splits = list(draw_splits(table, question))
    pooled = tuple(_pooled(split, question.k) for split in splits)
    common = _Common(question, splits, topology, pooled, tuple(map(_majority, splits)))
    lines = _baselines(common)
    rows = [(s, e) for s in SYSTEMS for e in (question.epsilon if s.bounded else (None,))]
    for done, (system, epsilon) in enumerate(rows):
        if progress is not None:
            progress(system.name, done, len(rows))
        lines.append(_line(system, epsilon, common))
    return Comparison(
        question=question,
        facts=facts,
        lines=tuple(lines),
        choice=choose(lines),
        left_out=LEFT_OUT,
        rules=rules_said(facts, question.k),
        versions=versions_used(),
    )


def _pooled(split: Split, k: int) -> float:
    train, classes = split.train, len(split.train.features.classes)
    return split.accuracy(
        pooled_knn(asked.X, train.X, train.y, classes, k) for asked in split.batches
    )


def _majority(split: Split) -> float:
    most = np.bincount(split.train.y).argmax()
    return split.accuracy(np.full(len(asked), most) for asked in split.batches)


def _baselines(common: _Common) -> list[Line]:
    """Return what the systems are held against: nobody plays these, and nothing is protected."""
    k = common.question.k
    return [
        Line(
            system=key,
            name=name,
            epsilon=None,
            trusted=True,
            trust="one place",
            guarantee="none",
            **common.figures(accuracies),
        )
        for key, name, accuracies in (
            (POOLED, f"pooled {k}-NN", common.pooled),
            (MAJORITY, "majority class", common.majority),
        )
    ]


class _Answered(NamedTuple):
    """A batch that was answered."""

    case: Case
    fitted: PrivateClassifier
    labels: NDArray[np.int64]


def _line(system: System, epsilon: float | None, common: _Common) -> Line:
    question, splits = common.question, common.splits
    answered = [_ask(system, epsilon, question, split) for split in splits]
    accuracies = tuple(
        split.accuracy(each.labels for each in batches)
        for split, batches in zip(splits, answered, strict=True)
    )
    case, fitted, _ = answered[0][0]
    return Line(
        system=system.key,
        name=system.name,
        epsilon=epsilon,
        trusted=system.trusted,
        trust=system.trusts(question),
        guarantee=system.guarantee,
        privacy=fitted.deployment_privacy_,
        leakage=_leakage(case, fitted),
        cost=play(system.stage(case, fitted), common.topology, question.seed),
        **common.figures(accuracies),
    )


def _ask(
    system: System, epsilon: float | None, question: Question, split: Split
) -> list[_Answered]:
    """Ask each batch of fresh parties, so that each is under the whole of its ε."""
    streams, train, answered = Streams(question.seed), split.train, []
    for number, asked in enumerate(split.batches):
        name = ("comparison", system.key, str(epsilon), split.number, number)
        case = Case(question, split, asked, epsilon, streams.generator(*name))
        with warnings.catch_warnings():
            # The comparison says once of every seeded ε that it holds in a deployment.
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            fitted = system.make(case).fit(train.X, train.y)
        answered.append(_Answered(case, fitted, fitted.predict(asked.X)))
    return answered


def _leakage(case: Case, fitted: PrivateClassifier) -> Leakage | None:
    """Return what was measured to leak in the first split, of the system that no ε bounds."""
    if not isinstance(fitted, PrivateKNNClassifier):
        return None
    rng = Streams(case.question.seed).generator("comparison", "leakage")
    parts = held(case, fitted).values()
    return measure_leakage(parts, case.asked.X, fitted.parameters_, rng)
