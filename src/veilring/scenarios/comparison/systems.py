"""The systems that are compared: one entry each. A new system is a new entry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table
from veilring.data.table import Rows
from veilring.estimators import (
    IndKNNClassifier,
    LDPNaiveBayes,
    NoisyVotesClassifier,
    OwnerRadiusClassifier,
    PrivateKNNClassifier,
)
from veilring.estimators.base import PrivateClassifier
from veilring.protocols.prediction.algorithm.features import quantise
from veilring.protocols.prediction.algorithm.kernels import Kernel
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.rules import ServerRules
from veilring.scenarios.comparison import stages
from veilring.scenarios.comparison.comparison import Left
from veilring.scenarios.comparison.question import QUERIES_MIN, Question
from veilring.scenarios.comparison.rules import (
    BINS,
    CENTRE,
    DELTA,
    SIGMA2,
    TAU,
    public_radius,
)
from veilring.scenarios.comparison.splits import Split
from veilring.scenarios.comparison.stages import Stage

_UNIT: Final = (0.0, 1.0)  # features are scaled by their public ranges before anything else


@dataclass(frozen=True, slots=True)
class Case:
    """A system at one ε that is asked one batch.

    Attributes:
        question: What was asked.
        split: The rows.
        asked: The batch.
        epsilon: None for a system that has none.
        rng: The randomness of all parties.
    """

    question: Question
    split: Split
    asked: Table
    epsilon: float | None
    rng: Generator

    @property
    def bound(self) -> float:
        """The ε of a system that has one."""
        if self.epsilon is None:
            raise AssertionError("a system with an ε was given none")
        return self.epsilon


@dataclass(frozen=True, slots=True)
class System:
    """One entry.

    Attributes:
        key: Of the system.
        name: What it is called.
        bounded: Whether an ε bounds what it tells.
        trusted: Whether one party has to be trusted with all rows.
        trust: Who is trusted, in a few words that may hold `{parties}` and `{honest}`.
        make: Makes its estimator.
        stage: Makes a batch for its networked roles, of an estimator that has answered the same.
        guarantee: What is promised, in a few words.
    """

    key: str
    name: str
    bounded: bool
    trusted: bool
    trust: str
    make: Callable[[Case], PrivateClassifier]
    stage: Callable[[Case, Any], Stage]
    guarantee: str

    def trusts(self, question: Question) -> str:
        """Say who is trusted, with so many parties as there are."""
        parties = question.parties
        return self.trust.format(parties=parties, honest=parties - question.colluding)


def _ring(case: Case) -> PrivateClassifier:
    asked = case.question
    return PrivateKNNClassifier(
        asked.parties, asked.k, partition=asked.partition, ranges=_UNIT, random_state=case.rng
    )


def _ring_stage(case: Case, fitted: PrivateKNNClassifier) -> Stage:
    return stages.ring(held(case, fitted), case.asked.X, fitted.parameters_)


def _votes(case: Case) -> PrivateClassifier:
    asked = case.question
    return NoisyVotesClassifier(
        asked.parties,
        case.bound,
        r=_radius(case),
        tolerated=asked.colluding,
        partition=asked.partition,
        ranges=_UNIT,
        random_state=case.rng,
    )


def _votes_stage(case: Case, fitted: NoisyVotesClassifier) -> Stage:
    return stages.votes(held(case, fitted), case.asked.X, fitted.parameters_)


def _local(case: Case) -> PrivateClassifier:
    return LDPNaiveBayes(case.bound, oracle="oue", bins=BINS, ranges=_UNIT, random_state=case.rng)


def _local_stage(case: Case, fitted: LDPNaiveBayes) -> Stage:
    return stages.collection(held(case, fitted), fitted.survey_)


def _owner(case: Case) -> PrivateClassifier:
    return OwnerRadiusClassifier(case.bound, _radius(case), ranges=_UNIT, random_state=case.rng)


def _owner_stage(case: Case, fitted: OwnerRadiusClassifier) -> Stage:
    queries = case.asked.X
    radii = np.full(len(queries), float(fitted.r))
    return stages.owner(_together(case, fitted), queries, radii, fitted.rules_)


def _stream(case: Case) -> PrivateClassifier:
    return IndKNNClassifier(
        case.bound, DELTA, sigma2=SIGMA2, tau=TAU, ranges=_UNIT, random_state=case.rng
    )


def _stream_stage(case: Case, fitted: IndKNNClassifier) -> Stage:
    rows, queries = _together(case, fitted), case.asked.X
    rules = ServerRules(
        features=queries.shape[1],
        classes=len(fitted.classes_),
        queries=max(QUERIES_MIN, len(queries)),
        epsilon=case.bound,
        delta=DELTA,
        kernel=Kernel(tau=TAU),
        sigma2=SIGMA2,
    )
    ids = [f"row-{number}" for number in range(len(rows))]
    records = LabelledRecords.of(ids, _directions(rows.features), rows.labels)
    return stages.stream(records, _directions(queries), rules)


def _radius(case: Case) -> float:
    train = case.split.train
    features, categories = train.X.shape[1], train.features.is_categorical
    return public_radius(features, len(train), categories=categories)


def _directions(features: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return directions from the middle of the ranges; what lies there is given the diagonal's."""
    away = features - CENTRE
    away[~away.any(axis=1)] = 1.0
    return quantise(away)


def _together(case: Case, fitted: PrivateClassifier) -> Rows:
    """Return all training rows, with their classes as the estimator numbers them."""
    train = case.split.train
    return Rows(train.X, np.searchsorted(fitted.classes_, train.y))


def held(case: Case, fitted: PrivateClassifier) -> dict[str, Rows]:
    """Return the rows of each party."""
    rows = _together(case, fitted)
    return {
        party: Rows(rows.features[part], rows.labels[part])
        for party, part in case.split.parts.items()
    }


SYSTEMS: Final = (
    System(
        key="pp-knn",
        name="PP-kNN",
        bounded=False,
        trusted=False,
        trust="all {parties}",
        make=_ring,
        stage=_ring_stage,
        guarantee="no ε: its leak is measured",
    ),
    System(
        key="noisy-votes",
        name="noisy votes",
        bounded=True,
        trusted=False,
        trust="{honest} of {parties}",
        make=_votes,
        stage=_votes_stage,
        guarantee="ε a batch",
    ),
    System(
        key="ldp-naive-bayes",
        name="LDP naive Bayes",
        bounded=True,
        trusted=False,
        trust="nobody",
        make=_local,
        stage=_local_stage,
        guarantee="ε a report",
    ),
    System(
        key="owner-radius",
        name="r-N, owner",
        bounded=True,
        trusted=True,
        trust="an owner",
        make=_owner,
        stage=_owner_stage,
        guarantee="ε a batch",
    ),
    System(
        key="ind-knn",
        name="Ind-KNN, server",
        bounded=True,
        trusted=True,
        trust="a server",
        make=_stream,
        stage=_stream_stage,
        guarantee=f"ε, δ = {DELTA:g} a stream",
    ),
)

LEFT_OUT: Final = (
    Left(
        "tree walk",
        "it hides the query of a seeker from a server whose places are public: of rows that are"
        " private it hides nothing, so that there is no line for it here",
    ),
)
