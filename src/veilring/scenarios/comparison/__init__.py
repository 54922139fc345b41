"""All applicable systems on the same splits of the same data: accuracy, privacy and cost.

`question` is what is asked, `splits` are the rows that all share, `evaluation` says how often a
system is right on a split, `running` gives the lines and `choosing` a recommendation, which
`comparison` holds and `page` shows. `tuning` searches parameters, for `veilring tune` too.
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
    make_question,
    read_network,
)
from veilring.scenarios.comparison.running import compare
from veilring.scenarios.comparison.splits import TableFacts
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
