"""Comparison of all applicable systems on the same splits: accuracy, privacy and cost.

`question` defines the inputs and the shared rows, and `contenders` the systems and the `baselines`
of other libraries that apply to them. `marks` scores all of them on a split, `playing` plays a
batch of each system, and `tuning` searches the best parameters in hindsight, which are marked as
not private. `comparing` does all of that. `results` collects it and makes the `lines` of it,
`decision` contains what follows from them, and `page` renders both.
"""

from veilring.scenarios.comparison.comparing import compare
from veilring.scenarios.comparison.contenders import find_contenders
from veilring.scenarios.comparison.marks import Right, mark

__all__ = ("Right", "compare", "find_contenders", "mark")
