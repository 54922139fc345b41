"""From the terms of a collection to its survey: oracles, mean mechanisms and public steps."""

from collections.abc import Callable, Mapping
from typing import Final

from veilring.deployment.columns import FeatureTerms
from veilring.deployment.survey_section import SurveySection
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.steps import Bins, Ranges
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    FrequencySurvey,
    GaussianBayesSurvey,
    MeanSurvey,
    Survey,
)

_HALF: Final = 0.5

_Columns = tuple[FeatureTerms, ...]


def survey_of(section: SurveySection, features: _Columns, classes: tuple[str, ...]) -> Survey:
    """Return what is asked.

    Args:
        section: What is asked of a client.
        features: The columns.
        classes: The names of all classes; none where no class is asked for.

    Raises:
        InputError: If it cannot be made.
    """
    return _SURVEYS[section.kind](section, features, len(classes))


def _frequency(section: SurveySection, features: _Columns, _classes: int) -> Survey:
    return FrequencySurvey(section.oracle_for(domain_of(section, features[0])))


def _means(section: SurveySection, features: _Columns, _classes: int) -> Survey:
    ranges = ranges_of(features)
    means = make_means(section.approach, section.epsilon, len(ranges.lows))
    return MeanSurvey(means, (ranges,))


def _discrete(section: SurveySection, features: _Columns, classes: int) -> Survey:
    domains = [domain_of(section, feature) for feature in features]
    step = bins_of(section, features)
    return DiscreteBayesSurvey.of(domains, classes, section.oracle_for, (step,))


def _gaussian(section: SurveySection, features: _Columns, classes: int) -> Survey:
    ranges = ranges_of(features)
    means = make_means(section.approach, section.epsilon, len(ranges.lows), classes)
    return GaussianBayesSurvey(section.oracle_for(max(2, classes)), means, (ranges,))


_SURVEYS: Final[Mapping[str, Callable[[SurveySection, _Columns, int], Survey]]] = {
    "frequency": _frequency,
    "means": _means,
    "discrete-bayes": _discrete,
    "gaussian-bayes": _gaussian,
}


def domain_of(section: SurveySection, feature: FeatureTerms) -> int:
    """Return how many values a column has where values are asked for."""
    return len(feature.categories) or section.bins


def bins_of(section: SurveySection, features: _Columns) -> Bins:
    """Return the step that turns each column into numbers of values.

    A category's number is the middle of its bin, so that no rounding moves it to another.
    """
    lows = [-_HALF if each.categories else each.low for each in features]
    highs = [len(each.categories) - _HALF if each.categories else each.high for each in features]
    counts = tuple(domain_of(section, each) for each in features)
    return Bins(Ranges(tuple(lows), tuple(highs)), counts)


def ranges_of(features: _Columns) -> Ranges:
    """Return the step that scales columns, of which a category is several 0 and 1."""
    lows, highs = [], []
    for feature in features:
        lows += [0.0] * feature.width if feature.categories else [feature.low]
        highs += [1.0] * feature.width if feature.categories else [feature.high]
    return Ranges(tuple(lows), tuple(highs))
