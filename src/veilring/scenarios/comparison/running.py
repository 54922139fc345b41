"""Running a comparison: every system on the same splits, one batch of each played for real.

Parameters follow from public numbers alone: trying some on private rows and keeping the best
reveals something of the rows that no account knows of. The rules are the same for all data.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from veilring import simulation
from veilring.data.table import Table
from veilring.errors import UnforeseenCost
from veilring.nodes.cost import Traffic
from veilring.nodes.runtimes import Memory, Simulated
from veilring.protocols.forecast import Forecast
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.prediction.algorithm.filter import SIGMA2_RULE
from veilring.protocols.prediction.algorithm.kernels import TAU_RULE, tau_share
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.radius.system import RADIUS_RULE, radius_share
from veilring.protocols.registry import find_system, system_names
from veilring.protocols.ring.algorithm.classify import pooled_knn
from veilring.protocols.system import SERVER, Facts, Leakage, Setup, System
from veilring.randomness import Streams
from veilring.scenarios.batches import Conditions, Labelled, Progress
from veilring.scenarios.comparison.comparison import (
    MAJORITY,
    POOLED,
    Left,
    Line,
    Played,
    SystemComparison,
    choose,
)
from veilring.scenarios.comparison.question import (
    DealtSplit,
    Question,
    TableFacts,
    draw_splits,
    load_facts,
)
from veilring.scenarios.intervals import Interval, over_splits, share_over_splits
from veilring.scenarios.network import make_topology
from veilring.scenarios.reporting.folder import versions_used
from veilring.scenarios.runner import play_queries
from veilring.simulation import Topology

_TRIALS: Final = 5_000  # of measured leakage: as many as a scenario's report has by default


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
    splits: Sequence[DealtSplit]
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


def compare(question: Question, *, progress: Progress | None = None) -> SystemComparison:
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
    lines, kinds = _baselines(common), [find_system(name) for name in system_names()]
    systems = [each for kind in kinds if kind.hides_rows for each in _asked_of(kind, question)]
    for done, system in enumerate(systems):
        if progress is not None:
            progress(system.title, done, len(systems))
        lines.append(_line(system, common))
    return SystemComparison(
        question=question,
        facts=facts,
        lines=tuple(lines),
        choice=choose(lines),
        left_out=tuple(
            Left(kind.title, f"it hides a query, and no rows: {kind.summary.removesuffix('.')}")
            for kind in kinds
            if not kind.hides_rows
        ),
        rules=rules_said(facts, question.k),
        versions=versions_used(),
    )


def rules_said(facts: TableFacts, k: int) -> tuple[tuple[str, str], ...]:
    """Return each rule in words, with its value for this table.

    Args:
        facts: What is public about it.
        k: As it was asked for.
    """
    features, rows, stream, bayes = facts.features, facts.train, IndKNN(), LDPBayes()
    value = radius_share(features, rows, 1.0)
    numbers = f"f = {features} features and n = {rows} rows"
    votes = "a radius within which this share of all pairs of a batch's queries lie:"
    tau = f"this share of all pairs of queries reach τ: {TAU_RULE}"
    cosine = f"{tau} = {tau_share(features, rows, 1.0):.3g} at ε = 1; σ2 = {SIGMA2_RULE}"
    oracle = "the best frequency oracle for each" if bayes.oracle == "auto" else bayes.oracle
    return (
        (
            "ranges",
            "features go into [0, 1] by public ranges; what lies outside is moved to an end",
        ),
        (
            "pooled kNN, rank search and PP-kNN",
            f"k = {k}, as asked; PP-kNN is exact but for one query in 10⁶",
        ),
        ("r-N and noisy votes", f"{votes} {RADIUS_RULE} = {value:.3g} at ε = 1 for {numbers}"),
        ("LDP naive Bayes", f"{bayes.bins} equal parts of each range; {oracle}"),
        ("Ind-KNN", f"cosine about the middle of the ranges; {cosine} for streams of T, a batch"),
        ("δ", f"{stream.delta:g}, where a promise has one"),
    )


def _asked_of(kind: type[System], question: Question) -> Iterator[System]:
    """Yield a system with the parameters of the question: once, or at each ε."""
    for epsilon in question.epsilon if kind.is_bounded() else (None,):
        yield kind.suited(epsilon=epsilon, k=question.k, tolerated=question.colluding)


def _pooled(split: DealtSplit, k: int) -> float:
    train, classes = split.train, len(split.train.features.classes)
    return split.accuracy(
        pooled_knn(asked.X, train.X, train.y, classes, k) for asked in split.batches
    )


def _majority(split: DealtSplit) -> float:
    most = np.bincount(split.train.y).argmax()
    return split.accuracy(np.full(len(asked), most) for asked in split.batches)


def _baselines(common: _Common) -> list[Line]:
    """Return what the systems are compared with: nobody plays these, and nothing is protected."""
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

    setup: Setup
    asked: Table
    labels: NDArray[np.int64]


def _line(system: System, common: _Common) -> Line:
    question, splits = common.question, common.splits
    answered = [list(_answer(system, question, split)) for split in splits]
    accuracies = tuple(
        split.accuracy(each.labels for each in batches)
        for split, batches in zip(splits, answered, strict=True)
    )
    setup, asked, _ = answered[0][0]
    promise = system.promise(parties=question.parties)
    return Line(
        system=system.name,
        name=system.title,
        epsilon=getattr(system, "epsilon", None),
        trusted=system.has_owner,
        trust=system.trust.format(
            parties=question.parties, honest=question.parties - question.colluding
        ),
        guarantee=promise.short,
        privacy=promise,
        leakage=_leakage(setup, asked, question) if promise.epsilon is None else None,
        cost=_play(setup, asked, common.topology, question.seed),
        **common.figures(accuracies),
    )


def _answer(system: System, question: Question, split: DealtSplit) -> Iterator[_Answered]:
    """Ask each batch of fresh parties, so that each is under the whole of its ε."""
    streams, epsilon = Streams(question.seed), getattr(system, "epsilon", None)
    features = split.train.features
    for number, asked in enumerate(split.batches):
        facts = Facts(
            parties=question.parties,
            features=len(features),
            classes=len(features.classes),
            rows=len(split.train),
            queries=len(asked),
            schema=features,
        )
        setup = system.setup(split.parts, facts)
        name = ("comparison", system.name, str(epsilon), split.number, number)
        rng = streams.generator(*name)
        labels = [setup.label(part, rng) for part in setup.batches(asked.X)]
        yield _Answered(setup, asked, np.concatenate(labels))


def _leakage(setup: Setup, asked: Table, question: Question) -> Leakage | None:
    """Return what was measured to leak in the first split, of a system that no ε bounds."""
    rng = Streams(question.seed).generator("comparison", "leakage")
    return setup.leakage(asked.X, _TRIALS, rng)


def _play(setup: Setup, asked: Table, topology: Topology, seed: int) -> Played:
    """Play a batch in the simulation and in memory, and compare its cost with the closed form.

    Raises:
        RunFailed: If a party failed.
        UnforeseenCost: If a play cost anything else than the closed form says.
    """
    label = partial(play_queries, setup, asked.X, seed=seed, conditions=Conditions())
    simulated = simulation.simulate(label(Simulated(topology)))
    here = asyncio.run(label(Memory()))
    forecast = _require_forecast(simulated)
    _require_forecast(here)
    return Played(
        forecast.rounds,
        *forecast.traffic,
        *forecast.setup,
        simulated_seconds=sum(batch.seconds for batch in simulated.batches),
        seconds=sum(batch.seconds for batch in here.batches),
    )


def _require_forecast(labelled: Labelled) -> Forecast:
    """Return the cost of all batches, if each is as its closed form says."""
    total = Forecast(0, Traffic())
    for batch in labelled.batches:
        cost, forecast = batch.run.cost, batch.forecast
        found = Forecast(cost.rounds, Traffic(cost.messages, cost.bytes), cost.setup)
        if found != forecast:
            raise UnforeseenCost(forecast, found)
        traffic, setup = total.traffic.plus(found.traffic), total.setup.plus(found.setup)
        total = Forecast(total.rounds + found.rounds, traffic, setup)
    return total
