"""All applicable systems on the same splits of the same data: accuracy, privacy and cost.

`question` is what is asked, `running` gives a `Comparison`, and `choosing` makes one sentence of
its lines. `words` and `page` show it.
"""

from veilring.scenarios.comparison.comparison import Choice, Comparison, Left, Line, Played
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
    "Comparison",
    "Interval",
    "Left",
    "Line",
    "Played",
    "Question",
    "TableFacts",
    "compare",
    "make_question",
    "read_network",
)
