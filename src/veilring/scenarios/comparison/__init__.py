"""Comparison of all applicable systems on the same splits: accuracy, privacy and cost.

`question` defines the inputs and the shared rows, `running` plays all systems on them, and
`comparison` contains the lines and the recommendation. `page` renders it. `tuning` computes the
accuracy on a split and searches parameters, for `veilring tune` too.
"""

from veilring.scenarios.comparison.comparison import Choice, Line, SystemComparison
from veilring.scenarios.comparison.question import Question, make_question, read_network
from veilring.scenarios.comparison.running import compare

__all__ = (
    "Choice",
    "Line",
    "Question",
    "SystemComparison",
    "compare",
    "make_question",
    "read_network",
)
