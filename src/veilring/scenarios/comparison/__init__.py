"""Comparison of all applicable systems on the same splits: accuracy, privacy and cost.

`question` defines the inputs, `splits` the shared rows, `evaluation` the accuracy on a split,
`running` the lines of the result, and `choosing` the recommendation. `comparison` contains the
result and `page` renders it. `tuning` searches parameters, for `veilring tune` too.
"""

from veilring.scenarios.comparison.comparison import (
    Choice,
    Left,
    Limits,
    Line,
    Played,
    SystemComparison,
)
from veilring.scenarios.comparison.question import (
    Question,
    TableFacts,
    make_question,
    read_network,
)
from veilring.scenarios.comparison.running import compare
from veilring.scenarios.intervals import Interval

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
