"""Comparison of all applicable systems on the same splits: accuracy, privacy and cost.

`question` defines the inputs and the shared rows, `running` plays all systems on them, and
`comparison` contains the lines and the recommendation. `page` renders it. `tuning` computes the
accuracy on a split and searches parameters, for `veilring tune` too.
"""

from veilring.scenarios.comparison.comparison import (
    Choice,
    Left,
    Limits,
    Line,
    Played,
    SystemComparison,
)
from veilring.scenarios.comparison.question import Question, TableFacts, make_question, read_network
from veilring.scenarios.comparison.running import compare
from veilring.scenarios.comparison.tuning import Interval

__all__ = (
    "Choice",
    "Interval",
    "Left",
    "Limits",
    "Line",
    "Played",
    "Question",
    "SystemComparison",
    "TableFacts",
    "compare",
    "make_question",
    "read_network",
)
