"""From the terms of a collection to its survey: oracles, mean mechanisms and public steps."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from veilring.deployment.columns import FeatureTerms
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.steps import Bins, Ranges
from veilring.protocols.ldp.algorithm.survey import Survey
from veilring.protocols.ldp.algorithm.surveys import (
    DiscreteBayesSurvey,
    FrequencySurvey,
    GaussianBayesSurvey,
    MeanSurvey,
)

if TYPE_CHECKING:
    from veilring.deployment.survey_terms import SurveyTerms

__all__ = ("bins_of", "domain_of", "ranges_of", "survey_of")

_HALF: Final = 0.5


def survey_of(terms: "SurveyTerms") -> Survey:
    """Return what is asked.

    Raises:
        InputError: If it cannot be made.
    """
    return _SURVEYS[terms.survey.kind](terms)


def _frequency(terms: "SurveyTerms") -> Survey:
    return FrequencySurvey(terms.survey.oracle_for(domain_of(terms, terms.features[0])))


def _means(terms: "SurveyTerms") -> Survey:
    ranges = ranges_of(terms)
    means = make_means(terms.survey.approach, terms.survey.epsilon, len(ranges.lows))
    return MeanSurvey(means, (ranges,))


def _discrete(terms: "SurveyTerms") -> Survey:
    domains = [domain_of(terms, feature) for feature in terms.features]
    step = bins_of(terms, terms.features)
    make = terms.survey.oracle_for
    return DiscreteBayesSurvey.of(domains, len(terms.classes), make, (step,))


def _gaussian(terms: "SurveyTerms") -> Survey:
    ranges, classes = ranges_of(terms), len(terms.classes)
    section = terms.survey
    means = make_means(section.approach, section.epsilon, len(ranges.lows), classes)
    return GaussianBayesSurvey(section.oracle_for(max(2, classes)), means, (ranges,))


_SURVEYS: Final[Mapping[str, Callable[["SurveyTerms"], Survey]]] = {
    "frequency": _frequency,
    "means": _means,
    "discrete-bayes": _discrete,
    "gaussian-bayes": _gaussian,
}


def domain_of(terms: "SurveyTerms", feature: FeatureTerms) -> int:
    """Return how many values a column has where values are asked for."""
    return len(feature.categories) or terms.survey.bins


def bins_of(terms: "SurveyTerms", features: tuple[FeatureTerms, ...]) -> Bins:
    """Return the step that turns each column into numbers of values.

    A category's number is the middle of its bin, so that no rounding moves it to another.
    """
    lows = [-_HALF if each.categories else each.low for each in features]
    highs = [len(each.categories) - _HALF if each.categories else each.high for each in features]
    counts = tuple(domain_of(terms, each) for each in features)
    return Bins(Ranges(tuple(lows), tuple(highs)), counts)


def ranges_of(terms: "SurveyTerms") -> Ranges:
    """Return the step that scales columns, of which a category is several 0 and 1."""
    lows, highs = [], []
    for feature in terms.features:
        lows += [0.0] * feature.width if feature.categories else [feature.low]
        highs += [1.0] * feature.width if feature.categories else [feature.high]
    return Ranges(tuple(lows), tuple(highs))
