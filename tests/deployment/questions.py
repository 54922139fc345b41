"""Questions of every kind, and the answers of people as a report."""

from typing import Any, Final

from veilring.deployment.surveys.questionnaire import Questionnaire

QUESTIONS: Final = """
title = "Travel to <work>"
about = "The town asks & plans."
bins = 5

[[questions]]
name = "travel"
text = "How do you travel?"
answers = ["On foot", "By bike", "By car"]

[[questions]]
name = "reasons"
text = "Why?"
kind = "multiple-choice"
answers = ["It is fast", "It is cheap", "It is clean"]
most = 2

[[questions]]
name = "student"
text = "Are you a student?"
kind = "yes-no"

[[questions]]
name = "distance"
text = "How far is it?"
kind = "number"
low = 0
high = 50
unit = "km"
"""
"""A file of questions: 3, 3, 2 and 5 possible answers, of which a person gives at most 5."""
ENTRIES: Final = 13
NORM: Final = 5
ONE: Final[dict[str, Any]] = {
    "title": "One",
    "questions": [{"name": "colour", "text": "Which?", "answers": ["red", "green", "blue"]}],
}


def asked(**given: Any) -> Questionnaire:
    """Return a questionnaire with one question, and other keys."""
    return Questionnaire.model_validate(ONE | given)
