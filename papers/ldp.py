"""Figures 2 to 4 of Yilmaz, Al-Rubaie and Chang, "LDP naive Bayes classification", 2019.

Given in the paper: 100 random splits, 80 % of the rows to learn from; the five oracles, theta =
0.25; two bins for the Australian data set; one feature for its PCA and DCA; epsilon up to 5. Chosen
here:

- the values of epsilon, and the floor of variances;
- direct encoding for the class of Gaussian naive Bayes;
- a third of the clients each for class, features and squares;
- projections from public rows;
- the bounds that make "close" and "nearly" testable.

In figure 2 a client answers one question, so it spends epsilon, as in the paper's Section 3.1. The
numbers of its Section 4.1 are not reached in that way; they are if every client answers all `n + 1`
questions, each at epsilon. So both are measured.

In figures 3 and 4 a tenth of the training rows is public: the projections and the ranges of new
features come from these, whose owners are not asked. All other training rows are clients, in every
series.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator

from papers.claims import Claim, CurveKey, above
from papers.evidence import heights, in_measure, leads, near, ratios, since, up_to
from papers.figure import (
    MAJORITY_CLASS,
    Axis,
    Figure,
    HoldOut,
    Observe,
    cited,
    draw_hold_out,
    points_at,
)
from papers.means import APPROACHES, Approach, make_means
from papers.oracles import SummedHistogram, SymmetricUnary, ThresholdedHistogram
from veilring.arrays import Floats, Ints
from veilring.data.table import Ranges, Table, split
from veilring.protocols.ldp.algorithm.bayes import (
    VARIANCE_FLOOR,
    DiscreteBayes,
    learn_discrete,
    learn_gaussian,
)
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle, PlainOracle
from veilring.protocols.ldp.algorithm.steps import (
    Bins,
    LinearProjection,
    Scaling,
    discriminant_components,
    principal_components,
)
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    Survey,
    Tally,
    answer,
    census,
    tally_reports,
)

PLAIN: Final = "no noise"
ONE_QUESTION: Final = "one question a client"
ALL_QUESTIONS: Final = "all questions a client"
ALL_FEATURES: Final = "all features"
PCA: Final = "PCA to 1"
DCA: Final = "DCA to 1"
NUMBER_BINS: Final = 4  # of columns of numbers, which the paper's tables of figure 2 have not
_PAPER: Final = (
    'Yilmaz, Al-Rubaie and Chang, "Locally differentially private naive Bayes classification", 2019'
)
_TEST_SHARE: Final = 0.2
_THETA: Final = 0.25  # the paper's, of THE
_BINS: Final = 2  # the paper's for the Australian data set
_PUBLIC_SHARE: Final = 0.1
_ORIGIN: Final = "a tenth of the training rows, whose owners are not asked"
_KINDS: Final[Mapping[str, Callable[[int, float], FrequencyOracle]]] = {
    "DE": DirectEncoding,
    "SUE": SymmetricUnary,
    "OUE": OptimisedUnary,
    "SHE": SummedHistogram,
    "THE": lambda domain, epsilon: ThresholdedHistogram(domain, epsilon, _THETA),
}
PAPER_ORACLES: Final = tuple(_KINDS)
"""The paper's five."""


def _asked(survey: Survey, rows: Floats | Ints, labels: Ints, rng: Generator) -> Tally:
    """Return the tally of one answer per client, or of all answers if there is no noise."""
    if survey.exact_epsilon == inf:
        return census(survey, rows, labels, rng)
    return tally_reports(survey, answer(survey, rows, labels, rng).reports)


def _learn_discrete(
    rows: Ints,
    labels: Ints,
    sizes: tuple[tuple[int, ...], int],
    *,
    oracle: str,
    epsilon: float,
    rng: Generator,
    all_questions: bool = False,
) -> DiscreteBayes:
    """Return discrete naive Bayes, learned from clients.

    Args:
        rows: Numbered values.
        labels: The class of each client.
        sizes: The number of values of each column, and the number of classes.
        oracle: The name of one of `PAPER_ORACLES`.
        epsilon: The ε of each client; infinite for no noise.
        rng: The clients' randomness.
        all_questions: Whether each client answers every question, and spends epsilon for each. This
            option exists only to explain the paper's numbers.
    """
    survey = _discrete_survey(*sizes, oracle, epsilon)
    if not all_questions:
        return learn_discrete(survey, _asked(survey, rows, labels, rng))
    values, classes = survey.validated(rows, labels)
    reports = [
        question.perturb(survey.encode(values, classes, number), rng)
        for number, question in enumerate(survey.questions)
    ]
    return learn_discrete(survey, tally_reports(survey, reports))


@cache  # the tables of some oracles take longer to compute than the draws
def _discrete_survey(
    domains: tuple[int, ...], classes: int, oracle: str, epsilon: float
) -> DiscreteBayesSurvey:
    if epsilon == inf:
        return DiscreteBayesSurvey.of(domains, classes, PlainOracle)
    kind = _KINDS[oracle]
    return DiscreteBayesSurvey.of(domains, classes, lambda domain: kind(domain, epsilon))


@cache
def _gaussian_survey(
    approach: Approach, epsilon: float, features: int, classes: int
) -> GaussianBayesSurvey:
    domain = max(2, classes)
    oracle = PlainOracle(domain) if epsilon == inf else DirectEncoding(domain, epsilon)
    return GaussianBayesSurvey(oracle, make_means(approach, epsilon, features, classes))


class NumberedValues(NamedTuple):
    """Rows of values that are numbered from 0.

    Attributes:
        rows: The numbered values, shape (rows, columns), with categories first.
        domains: The number of values of each column.
    """

    rows: Ints
    domains: tuple[int, ...]


def number_values(table: Table, bins: int) -> NumberedValues:
    """Return each category by its number, and each number by its bin.

    Args:
        table: The table, scaled into [0, 1].
        bins: The number of bins of equal width for a column of numbers.
    """
    is_number = np.ones(table.X.shape[1], dtype=np.bool_)
    columns = []
    for each in table.features.categories:
        is_number[each.features] = False
        columns.append(table.X[:, each.features].argmax(axis=1))
    numbers = int(is_number.sum())
    binned = Bins(Ranges.unit(numbers), (bins,) * numbers)(table.X[:, is_number])
    domains = (*(len(each.values) for each in table.features.categories), *((bins,) * numbers))
    return NumberedValues(np.column_stack((*columns, binned)), domains)


def _accuracy_by_oracle(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure all oracles at each epsilon, and both baselines, on one split."""
    both = draw_hold_out(table, _TEST_SHARE, rng)
    values, queries = (number_values(each, NUMBER_BINS) for each in both)
    sizes = values.domains, len(table.features.classes)

    def measured(oracle: str, epsilon: float, *, all_questions: bool = False) -> float:
        model = _learn_discrete(
            values.rows,
            both.train.y,
            sizes,
            oracle=oracle,
            epsilon=epsilon,
            rng=rng,
            all_questions=all_questions,
        )
        return both.accuracy(model.classify(queries.rows))

    flat = {PLAIN: measured(PLAIN, inf), MAJORITY_CLASS: both.majority()}
    curves: dict[CurveKey, Sequence[float]] = {}
    for measure in (ONE_QUESTION, ALL_QUESTIONS):
        for oracle in PAPER_ORACLES:
            curves[CurveKey(measure, oracle)] = [
                measured(oracle, epsilon, all_questions=measure == ALL_QUESTIONS) for epsilon in x
            ]
        curves |= {CurveKey(measure, series): [level] * len(x) for series, level in flat.items()}
    return curves


class _Reduced(NamedTuple):
    """Clients and queries with new features, and the public ranges of these."""

    clients: Floats
    labels: Ints
    queries: Floats
    ranges: Ranges
    classes: int


_Learn = Callable[[_Reduced, float, Generator], Ints]
"""A function that learns from clients at an epsilon and returns the labels of the queries."""


def _accuracy_by_reduction(measures: Mapping[str, _Learn]) -> Observe:
    """Return a function that measures classifiers at each epsilon, with all features and one.

    Args:
        measures: The classifiers by their names.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        train, held_out = draw_hold_out(table, _TEST_SHARE, rng)
        clients, public = split(train, _PUBLIC_SHARE, rng)
        both, reduced = HoldOut(clients, held_out), _reduced(clients, public, held_out)
        curves: dict[CurveKey, Sequence[float]] = {}
        for name, learn in measures.items():
            for series, each in reduced.items():
                found = [both.accuracy(learn(each, epsilon, rng)) for epsilon in x]
                curves[CurveKey(name, series)] = found
            plain = both.accuracy(learn(reduced[ALL_FEATURES], inf, rng))
            curves[CurveKey(name, PLAIN)] = [plain] * len(x)
            curves[CurveKey(name, MAJORITY_CLASS)] = [both.majority()] * len(x)
        return curves

    return observe


def _by_bins(oracle: str) -> _Learn:
    """Return a learner of discrete naive Bayes with bins of equal width, by an oracle."""

    def learn(reduced: _Reduced, epsilon: float, rng: Generator) -> Ints:
        counts = (_BINS,) * len(reduced.ranges)
        bins = Bins(reduced.ranges, counts)
        rows, sizes = bins(reduced.clients), (counts, reduced.classes)
        model = _learn_discrete(
            rows, reduced.labels, sizes, oracle=oracle, epsilon=epsilon, rng=rng
        )
        return model.classify(bins(reduced.queries))

    return learn


def _by_moments(approach: Approach) -> _Learn:
    """Return a learner of Gaussian naive Bayes, by one of the paper's three approaches."""

    def learn(reduced: _Reduced, epsilon: float, rng: Generator) -> Ints:
        scaled = Scaling(reduced.ranges)
        survey = _gaussian_survey(approach, epsilon, len(reduced.ranges), reduced.classes)
        said = _asked(survey, scaled(reduced.clients), reduced.labels, rng)
        return learn_gaussian(survey, said).classify(scaled(reduced.queries))

    return learn


def _reduced(clients: Table, public: Table, held_out: Table) -> dict[str, _Reduced]:
    features, classes = public.X, len(public.features.classes)
    projections: dict[str, LinearProjection] = {
        PCA: principal_components(features, 1, origin=_ORIGIN),
        DCA: discriminant_components(features, public.y, 1, origin=_ORIGIN),
    }
    unit = Ranges.unit(features.shape[1])
    same = _Reduced(clients.X, clients.y, held_out.X, unit, classes)
    made = {ALL_FEATURES: same}
    for name, project in projections.items():
        rows, queries = project(clients.X), project(held_out.X)
        ranges = Ranges.of(project(features))
        made[name] = _Reduced(rows, clients.y, queries, ranges, classes)
    return made


_EPSILONS: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
_GRID: Final = points_at(_EPSILONS, (0.5, 1.0, 2.0, 5.0))
_SMALL: Final = 1.0  # epsilon up to here is small
_LARGE: Final = 2.0  # the paper has: above 2
_CLOSE: Final = 0.95  # of the accuracy without noise
_NEARLY_90: Final = 0.85
_X: Final = Axis("epsilon", is_log=True)
_REDUCED: Final = (
    f"{_BINS} bins; chosen: projections and their ranges from a public tenth of the training rows"
)
_DISCRETE: Final = {f"bins, {oracle}": oracle for oracle in ("DE", "OUE")}
_GAUSSIAN: Final = {
    f"Gaussian, approach {number}": approach for number, approach in enumerate(APPROACHES, start=1)
}
_FIRST, *_OTHERS = _GAUSSIAN
_BINS_DE: Final = "bins, DE"


def _of_oracles(measure: str) -> tuple[Claim, ...]:
    """Return the claims about figure 2, for a test on one of its two measures."""
    but_she = [name for name in PAPER_ORACLES if name != "SHE"]
    but_de = [name for name in PAPER_ORACLES if name != "DE"]
    return (
        above(
            "SHE has the worst accuracy in all data sets",
            f"{measure}: accuracy of each other minus that of SHE, at every epsilon,",
            0.0,
            leads(in_measure(measure, *((other, "SHE") for other in but_she)), x="epsilon"),
        ),
        above(
            "DE is best for small epsilon where domains are small (Car, Chess)",
            f"{measure}: accuracy of DE minus each other's, at every epsilon up to 1,",
            0.0,
            leads(
                in_measure(measure, *(("DE", other) for other in but_de)),
                at=up_to(_SMALL),
                x="epsilon",
            ),
            ("Car", "Chess", "kr-vs-kp"),
        ),
        above(
            "above epsilon = 2 it is very close to the accuracy without noise",
            f"{measure}: accuracy of all but SHE relative to that, from epsilon = 2 on,",
            _CLOSE,
            ratios(measure, *but_she, over=PLAIN, at=since(_LARGE), x="epsilon"),
        ),
        above(
            "at epsilon = 0.5 all but SHE are nearly 90 % accurate (Mushroom)",
            f"{measure}: accuracy at epsilon = 0.5, of all but SHE,",
            _NEARLY_90,
            heights(measure, *but_she, at=near(0.5)),
            ("Mushroom",),
        ),
    )


LDP_FIGURES: Final = (
    Figure(
        name="ldp/figure-2",
        title="Accuracy of LDP naive Bayes with discrete features, by oracle",
        source=cited(_PAPER, "2", "4.1"),
        setting=(
            f"negative counts become 1, theta = {_THETA}; chosen: {NUMBER_BINS} bins of numbers"
        ),
        x=_X,
        measures={
            ONE_QUESTION: Axis(f"{ONE_QUESTION}: accuracy"),
            ALL_QUESTIONS: Axis(f"{ALL_QUESTIONS}: accuracy"),
        },
        grid=_GRID,
        observe=_accuracy_by_oracle,
        claims=(*_of_oracles(ONE_QUESTION), *_of_oracles(ALL_QUESTIONS)),
    ),
    Figure(
        name="ldp/figure-3",
        title="Accuracy of LDP naive Bayes with bins, with all features and with one",
        source=cited(_PAPER, "3", "4.2"),
        setting=_REDUCED,
        x=_X,
        measures={name: Axis(f"{name}: accuracy") for name in _DISCRETE},
        grid=_GRID,
        observe=_accuracy_by_reduction(
            {name: _by_bins(oracle) for name, oracle in _DISCRETE.items()}
        ),
        claims=(
            above(
                "DCA provides the best accuracy",
                "accuracy with DCA minus all features' and PCA's, at every epsilon,",
                0.0,
                leads(
                    [
                        (CurveKey(name, DCA), CurveKey(name, other))
                        for name in _DISCRETE
                        for other in (ALL_FEATURES, PCA)
                    ],
                    x="epsilon",
                ),
            ),
            above(
                "with DCA it is very close to the accuracy without noise from epsilon = 2 on",
                "accuracy with DCA and DE relative to all features' plain one, from 2 on,",
                _CLOSE,
                ratios(_BINS_DE, DCA, over=PLAIN, at=since(_LARGE), x="epsilon"),
            ),
        ),
    ),
    Figure(
        name="ldp/figure-4",
        title="Accuracy of LDP Gaussian naive Bayes, with all features and with one, and of bins",
        source=cited(_PAPER, "4", "4.2"),
        setting=f"{_REDUCED}; variances at least {VARIANCE_FLOOR:g} in [-1, 1]",
        x=_X,
        measures={name: Axis(f"{name}: accuracy") for name in (*_GAUSSIAN, _BINS_DE)},
        grid=_GRID,
        observe=_accuracy_by_reduction(
            {
                **{name: _by_moments(approach) for name, approach in _GAUSSIAN.items()},
                _BINS_DE: _by_bins("DE"),
            }
        ),
        claims=(
            above(
                "DCA or PCA always performs better than the original features",
                "accuracy with one feature minus that with all, at every epsilon,",
                0.0,
                leads(
                    [
                        (CurveKey(name, reduced), CurveKey(name, ALL_FEATURES))
                        for name in _GAUSSIAN
                        for reduced in (PCA, DCA)
                    ],
                    x="epsilon",
                ),
            ),
            above(
                "approach 1 is the worst of the three with the original features",
                "accuracy of approaches 2 and 3 minus that of 1, at every epsilon,",
                0.0,
                leads(
                    [
                        (CurveKey(name, ALL_FEATURES), CurveKey(_FIRST, ALL_FEATURES))
                        for name in _OTHERS
                    ],
                    x="epsilon",
                ),
            ),
            above(
                "discretisation is more accurate than Gaussian naive Bayes",
                "accuracy of bins minus each approach's, at every epsilon,",
                0.0,
                leads(
                    [
                        (CurveKey(_BINS_DE, series), CurveKey(name, series))
                        for name in _GAUSSIAN
                        for series in (ALL_FEATURES, PCA, DCA)
                    ],
                    x="epsilon",
                ),
            ),
        ),
    ),
)
"""In the order of the paper."""
