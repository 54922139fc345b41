"""The worth of the rules behind `auto`: the accuracy under each, and under the rule before it.

The best constant in hindsight is chosen for each table, ε and batch length by the very labels that
it is judged by. It is not available in practice: it bounds the gain of any better rule. Rules that
were made on some tables are judged by others as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.samples import LARGE, TABLES, TEST_SHARE, at_hand, read_table
from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, Table, TrainTestSplit, scale_to_unit, split
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles import make_oracle
from veilring.protocols.ldp.algorithm.survey import DiscreteBayesSurvey, answer, tally_reports
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts
from veilring.protocols.radius.neighbourhood import public_radius
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import PARTIES, System

MADE_ON: Final = ("wine", "digits", "glass", "banana", "australian", "mushroom")
"""The tables that the rules for radius, τ and σ2 were made on; all others check them."""
BATCHES: Final = (20, 100)
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
DIABETES: Final = "diabetes"
"""scikit-learn's table of that name, in two classes: above its median, or not."""
TOLERATED: Final = 3
_K: Final = 20  # where k becomes radii
_LEAST_OF_A_BATCH: Final = 0.4  # a shorter one is no batch of its length

Chosen = Mapping[str, Any]
"""Parameters of a system."""


@dataclass(frozen=True, slots=True)
class Case:
    """A batch that is labelled."""

    part: TrainTestSplit
    queries: int
    epsilon: float
    seed: tuple[int, ...]

    @property
    def asked(self) -> Table:
        """The queries."""
        held_out = self.part.held_out
        return held_out.take(np.arange(min(self.queries, len(held_out))))

    @property
    def facts(self) -> Facts:
        """What is public."""
        train = self.part.train
        return Facts(
            parties=PARTIES,
            features=len(train.features),
            classes=len(train.features.classes),
            rows=len(train),
            queries=len(self.asked),
            schema=train.features,
        )


Labels = Callable[[Case, Sequence[Chosen]], list[Ints]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A default that is judged.

    Attributes:
        labels: Labels a batch with each of several choices.
        before: The choice that it replaced.
        constants: The candidates for the best constant.
        batches: The lengths of batches; none if the held-out rows were labelled all at once.
    """

    what: str
    labels: Labels
    before: Callable[[Facts], Chosen]
    constants: Callable[[Facts], Sequence[Chosen]]
    batches: tuple[int, ...] = BATCHES


def _by(kind: type[System], **fixed: object) -> Labels:
    """Return how a system labels a batch."""

    def labels(case: Case, choices: Sequence[Chosen]) -> list[Ints]:
        train, asked = case.part.train, case.asked
        parties = np.array_split(np.arange(len(train)), PARTIES)
        parts = {f"party-{n}": Rows(train.X[own], train.y[own]) for n, own in enumerate(parties)}
        found = []
        for chosen in choices:
            setup = kind(**{"epsilon": case.epsilon, **fixed, **chosen}).setup(parts, case.facts)
            found.append(setup.label(asked.X, np.random.default_rng(case.seed)))
        return found

    return labels


def _by_reports(case: Case, choices: Sequence[Chosen]) -> list[Ints]:
    """Label by naive Bayes of each choice, from the same reports."""
    train, asked, system = case.part.train, case.asked, LDPBayes(epsilon=case.epsilon)
    survey = system.bind(case.facts).survey
    rows: NDArray[Any] = train.X
    queries: NDArray[Any] = asked.X
    if train.features.is_categorical:
        domains = [len(each.values) for each in train.features.categories]
        make = make_oracle(system.oracle, case.epsilon)
        survey = DiscreteBayesSurvey.of(domains, len(train.features.classes), make)
        rows, queries = _numbered(train), _numbered(asked)
    said = answer(survey, rows, train.y, np.random.default_rng(case.seed)).reports
    tally = tally_reports(survey, said)
    return [
        LDPBayes(epsilon=case.epsilon, **chosen).learn(survey, tally).classify(queries)
        for chosen in choices
    ]


def _numbered(table: Table) -> Ints:
    """Return the number of each value of columns of categories, shape (rows, columns)."""
    blocks = [table.X[:, each.features].argmax(axis=1) for each in table.features.categories]
    return np.column_stack(blocks)


def _radii(facts: Facts) -> list[Chosen]:
    shares = (0.04, 0.07, 0.1, 0.13, 0.17, 0.2, 0.25, 0.33, 0.42, 0.55)
    return [{"radius": share * sqrt(facts.features)} for share in shares]


def _old_radius(facts: Facts) -> Chosen:
    rows = facts.rows or 1
    return {"radius": public_radius(facts.features, rows, categories=facts.categorical)}


def _of_filter(_facts: Facts) -> list[Chosen]:
    taus, sigmas = (0.5, 0.6, 0.7, 0.8, 0.9), (0.5, 1.0, 2.0)
    return [{"tau": tau, "sigma2": sigma} for tau in taus for sigma in sigmas]


def _shares(_facts: Facts) -> list[Chosen]:
    return [{"conversion_share": share} for share in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)]


def _smoothings(_facts: Facts) -> list[Chosen]:
    return [{"smoothing": smoothing} for smoothing in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)]


def _half(_facts: Facts) -> Chosen:
    return {"conversion_share": 0.5}


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "radius": Rule(
            "radius = auto, owner; before: by features and rows",
            _by(DataOwner),
            _old_radius,
            _radii,
        ),
        "radius-peers": Rule(
            f"radius = auto, {PARTIES} peers of whom {TOLERATED} may collude",
            _by(NoisyVotes, tolerated=TOLERATED),
            _old_radius,
            _radii,
        ),
        "prediction": Rule(
            "tau = auto and sigma2 = auto, Ind-KNN; before: 0.8 and 1.4",
            _by(IndKNN),
            lambda _facts: {"tau": 0.8, "sigma2": 1.4},
            _of_filter,
        ),
        "k": Rule(
            "k = auto, owner; before: 10",
            _by(DataOwner, k="auto"),
            lambda _facts: {"k": 10},
            lambda _facts: [{"k": k} for k in (5, 10, 20, 40, 80, 160)],
        ),
        "conversion": Rule(
            f"conversion_share, owner, k = {_K}; before: 0.5", _by(DataOwner, k=_K), _half, _shares
        ),
        "conversion-peers": Rule(
            f"conversion_share, peers, k = {_K}; before: 0.5",
            _by(NoisyVotes, k=_K, tolerated=TOLERATED),
            _half,
            _shares,
        ),
        "smoothing": Rule(
            "smoothing = auto and norm-sub, LDP naive Bayes; before: the paper's",
            _by_reports,
            lambda _facts: {"consistency": "paper"},
            _smoothings,
            batches=(),
        ),
    }
)


class Judged(NamedTuple):
    """The worth of a rule on a table: means over ε and lengths of batches, in per cent.

    Attributes:
        before: The accuracy under the choice that it replaced.
        best: The accuracy under the best constant in hindsight.
        error: The standard error of `rule`, over splits.
        gain: The gain of the rule over the choice that it replaced.
        gain_error: The standard error of the gain, over splits.
    """

    rule: float
    before: float
    best: float
    error: float
    gain: float
    gain_error: float


def tables_at_hand(data: Path | None) -> list[str]:
    """Return the names of the tables that can be read."""
    return [*at_hand(data), DIABETES]


def read(name: str, data: Path | None) -> Table:
    """Return a table, scaled by its own ranges.

    Raises:
        InputError: If it is unknown, or its file cannot be read.
    """
    if name != DIABETES:
        if name not in TABLES:
            raise InputError("--table", name, ", ".join((*TABLES, DIABETES)))
        return read_table(name, data)
    from sklearn.datasets import load_diabetes  # noqa: PLC0415  (only this table needs it)

    features, found = load_diabetes(return_X_y=True)
    names = tuple(f"x{place}" for place in range(features.shape[1]))
    above = (found > np.median(found)).astype(np.int64)
    return scale_to_unit(Table.of(name, features, above, names, ("low", "high")))


def judge(rule: Rule, table: Table, epsilons: Sequence[float], splits: int, seed: int) -> Judged:
    """Return the gain in accuracy of a rule on a table.

    Args:
        table: In [0, 1].
        epsilons: ε of a batch.
        splits: Into three quarters of rows and a quarter that is held out; half of them for a table
            of more than `LARGE` rows.
    """
    count = splits if len(table) <= LARGE else max(2, splits // 2)
    parts = [
        split(table, TEST_SHARE, np.random.default_rng([seed, number])) for number in range(count)
    ]
    held_out = len(parts[0].held_out)
    lengths = [size for size in rule.batches if held_out >= _LEAST_OF_A_BATCH * size] or [held_out]
    accuracies = np.array(
        [
            [_accuracies(rule, parts, size, epsilon, seed) for size in lengths]
            for epsilon in epsilons
        ]
    )  # shape (epsilons, lengths, splits, choices)
    best = accuracies[..., 2:].mean(axis=2).max(axis=-1).mean()
    by_split = accuracies.mean(axis=(0, 1))
    gains = by_split[:, 0] - by_split[:, 1]
    return Judged(
        float(by_split[:, 0].mean()),
        float(by_split[:, 1].mean()),
        float(best),
        _error(by_split[:, 0]),
        float(gains.mean()),
        _error(gains),
    )


def _accuracies(
    rule: Rule, parts: Sequence[TrainTestSplit], size: int, epsilon: float, seed: int
) -> list[list[float]]:
    """Return the accuracy in per cent of each split and choice: the rule, before, constants."""
    found = []
    for number, part in enumerate(parts):
        case = Case(part, size, epsilon, (seed, number, 1))
        choices = [{}, rule.before(case.facts), *rule.constants(case.facts)]
        truth = case.asked.y
        labels = rule.labels(case, choices)
        found.append([100 * float(np.mean(each == truth)) for each in labels])
    return found


def _error(values: Floats) -> float:
    return float(np.std(values, ddof=1) / sqrt(len(values)))


_WIDTH: Final = 15


def format_head(rule: Rule, epsilons: Sequence[float]) -> str:
    """Return the heading of a rule's lines."""
    sizes = ", ".join(map(str, rule.batches))
    batches = f"batches of {sizes}" if sizes else "all held-out rows"
    asked = f"{rule.what}; mean over ε = {', '.join(f'{each:g}' for each in epsilons)}, {batches}"
    names = ("rule", "before", "gain", "best constant")
    return f"{asked}\n{'':<{_WIDTH}}" + "".join(f"{name:<{_WIDTH}}" for name in names).rstrip()


def format_line(name: str, found: Sequence[Judged]) -> str:
    """Return the line of a table, or of the mean over several."""
    rule, before, best, error, gain, gain_error = np.array(found).T
    cells = (
        f"{rule.mean():.1f} ± {_of_mean(error):.1f}",
        f"{before.mean():.1f}",
        f"{gain.mean():+.1f} ± {_of_mean(gain_error):.1f}",
        f"{best.mean():.1f}",
    )
    return f"{name:<{_WIDTH}}" + "".join(f"{cell:<{_WIDTH}}" for cell in cells).rstrip()


def _of_mean(errors: Floats) -> float:
    """Return the standard error of a mean of independent numbers."""
    return float(np.linalg.norm(errors) / len(errors))
