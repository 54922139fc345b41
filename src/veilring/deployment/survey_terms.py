"""The terms of a collection: which question of which columns, at which epsilon, until when."""

import datetime as dt
import json
from functools import cached_property
from pathlib import Path

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from veilring.config import Section, read_toml
from veilring.data.csv import read_cells
from veilring.deployment.columns import (
    FEATURES_ALLOWED,
    Cells,
    Features,
    FeatureTerms,
    Words,
    check_features,
    read_categories,
    read_labels,
    read_numbers,
    require_different,
)
from veilring.deployment.survey_making import bins_of, survey_of
from veilring.deployment.survey_section import SurveySection
from veilring.errors import InputError, ProtocolViolation, ScenarioError
from veilring.protocols.ldp.algorithm.planner import ORACLES
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.task import Task


class SurveyTerms(Section):
    """What is collected, and how a row is read.

    Attributes:
        survey: What is asked.
        classes: The names of all classes; none for `frequency` and `means`.
        features: All columns but the label.
    """

    survey: SurveySection
    classes: Words = Field((), description="a list of different names of classes")
    features: Features = Field(description=FEATURES_ALLOWED)

    @cached_property
    def task(self) -> Task:
        """The task that an aggregator publishes.

        Raises:
            InputError: If the survey cannot be made.
        """
        closes = self.survey.closes
        return Task(
            terms=self.model_dump(mode="json"),
            survey=survey_of(self.survey, self.features, self.classes),
            minimum=self.survey.minimum,
            closes=None if closes is None else closes.timestamp(),
        )

    def read_clients(self, path: Path) -> ClientPool:
        """Read the rows of as many clients: all columns of the terms, and the label as the last.

        Raises:
            InputError: If a column is missing or a cell does not fit; it names both.
        """
        return self.clients_of(path, read_cells(path))

    def clients_of(self, path: Path, cells: Cells) -> ClientPool:
        """Return clients from the cells of a file that was read; as `read_clients`."""
        rows = np.hstack([self._encode(path, feature, cells) for feature in self.features])
        if not self.classes:
            return ClientPool(rows, np.zeros(len(rows), dtype=np.int64))
        return ClientPool(rows, read_labels(path, cells, self.classes))

    def _encode(
        self, path: Path, feature: FeatureTerms, cells: Cells
    ) -> NDArray[np.float64] | NDArray[np.int64]:
        if not feature.categories:
            numbers = read_numbers(path, feature, cells)[:, None]
            return bins_of(self.survey, (feature,))(numbers) if self.is_frequency else numbers
        places = read_categories(path, feature, cells)
        return np.eye(feature.width)[places] if self.is_numeric else places[:, None]

    @property
    def is_frequency(self) -> bool:
        """Whether there is one column, whose values are counted."""
        return self.survey.kind == "frequency"

    @property
    def is_numeric(self) -> bool:
        """Whether columns are numbers, and a category several 0 and 1."""
        return self.survey.kind in {"means", "gaussian-bayes"}

    def to_toml(self) -> str:
        """Return the text of the file."""
        return tomli_w.dumps(self.model_dump(exclude_defaults=True))


def load_survey_terms(path: Path) -> SurveyTerms:
    """Read a file of terms and check it.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    terms = read_toml(path, SurveyTerms)
    check_survey_terms(terms)
    return terms


def check_survey_terms(terms: SurveyTerms) -> None:
    """Refuse terms of which no survey can be made.

    Raises:
        ScenarioError: It names the key, its value and what is allowed.
    """
    section = terms.survey
    if section.oracle not in {"auto", *ORACLES}:
        raise ScenarioError("survey.oracle", section.oracle, f"auto, {', '.join(ORACLES)}")
    require_different("classes", terms.classes)
    check_features(terms.features)
    wants_classes = section.kind in {"discrete-bayes", "gaussian-bayes"}
    if wants_classes and len(terms.classes) < 2:  # noqa: PLR2004  (one class needs no model)
        raise ScenarioError("classes", list(terms.classes), f"two or more for {section.kind}")
    if not wants_classes and terms.classes:
        raise ScenarioError("classes", list(terms.classes), f"none for {section.kind}")
    if terms.is_frequency and len(terms.features) > 1:
        raise ScenarioError("features", f"{len(terms.features)} columns", "one for frequency")
    for feature in terms.features:
        if len(feature.categories) == 1 and not terms.is_numeric:
            key = f"features.{feature.name}.categories"
            raise ScenarioError(key, list(feature.categories), "two or more")
    try:
        _ = terms.task
    except InputError as error:
        raise ScenarioError(f"survey.{error.field}", error.value, error.allowed) from error


def read_published(encoded: bytes, collector: str) -> SurveyTerms:
    """Read a task that a collector published, and make it again from its terms.

    Args:
        encoded: What it published.
        collector: Who.

    Raises:
        ProtocolViolation: If its terms do not give exactly the numbers that it claims.
    """
    try:
        terms = SurveyTerms.model_validate_json(json.dumps(json.loads(encoded)["terms"]))
        check_survey_terms(terms)
    except (ValidationError, ValueError, LookupError, TypeError, RecursionError) as error:
        reason = f"published a task that cannot be read ({type(error).__name__})"
        raise ProtocolViolation(collector, reason) from None
    if terms.task.encoded != encoded:
        raise ProtocolViolation(collector, "published numbers that its own terms do not give")
    return terms


def closing_time(terms: SurveyTerms) -> str:
    """Say when a collection closes, for a person."""
    closes = terms.survey.closes
    return f"closes {closes.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC" if closes else "never closes"
