"""All applicable systems on the same splits of the same data: accuracy, privacy and cost.

`question` is what is asked, `running` gives the lines, and `comparison` has them with a rule of
choice. `page` shows them.
"""

from veilring.scenarios.comparison.comparison import Choice, Left, Line, Played, SystemComparison
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
    "Line",
    "Played",
    "Question",
    "SystemComparison",
    "TableFacts",
    "compare",
    "make_question",
    "read_network",
)
