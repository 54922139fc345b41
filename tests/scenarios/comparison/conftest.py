"""A quick comparison: few queries, two splits, two values of ε."""

import pytest

from veilring.scenarios.comparison import Question, SystemComparison, compare, make_question

ASKED = {"data": "iris", "parties": 4, "epsilon": (1.0, 2.0), "splits": 2, "queries": 5, "seed": 3}


@pytest.fixture(scope="session")
def question() -> Question:
    """Return the question."""
    return make_question(ASKED)


@pytest.fixture(scope="session")
def comparison(question: Question) -> SystemComparison:
    """Return the comparison."""
    return compare(question, workers=1)
