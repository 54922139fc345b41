"""Files of small deployments on one machine, to try out `serve` and `ask`.

Each system has an `Example`: its fields are the options of `veilring deploy SYSTEM`, and its
docstring is the help of that command. One process has all rows of an example, so the ranges in the
terms are the table's own.
"""

from collections.abc import Mapping
from typing import Final

from veilring.deployment.examples.example import Example
from veilring.deployment.examples.surveys import (
    QuestionnaireExample,
    SurveyExample,
    VerifiedSumExample,
)
from veilring.deployment.examples.systems import OwnerExample, PlacesExample, PredictionExample

EXAMPLES: Final[Mapping[str, type[Example]]] = {
    "survey": SurveyExample,
    "owner": OwnerExample,
    "prediction": PredictionExample,
    "places": PlacesExample,
    "verified-sum": VerifiedSumExample,
    "questionnaire": QuestionnaireExample,
}
"""The examples by their names in `veilring deploy`. `write_peers` makes peers from a scenario
instead."""
