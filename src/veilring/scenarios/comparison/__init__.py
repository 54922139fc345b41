"""All applicable systems on the same splits of the same data: accuracy, privacy and cost.

`question` is what is asked, `rules` and `systems` say how each system is set up, `running` gives a
`Comparison`, and `choosing` makes one sentence of its lines. `words` and `page` show it.
"""

from veilring.scenarios.comparison.comparison import Choice, Comparison, Facts, Left, Line
from veilring.scenarios.comparison.playing import Played
from veilring.scenarios.comparison.question import Question, make_question, read_network
from veilring.scenarios.comparison.running import compare
from veilring.scenarios.intervals import Interval

__all__ = (
    "Choice",
    "Comparison",
    "Facts",
    "Interval",
    "Left",
    "Line",
    "Played",
    "Question",
    "compare",
    "make_question",
    "read_network",
)
