"""The figures of Zhu, Zhao, Guo and Wang, "Private prediction strikes back", UAI 2023.

`dealt` splits a table, `methods` has Ind-KNN and its rivals, each tuned on validation queries,
`accuracy` and `cost` measure, and `table` says what each figure is and what the paper claims of it.
"""

from veilring.scenarios.figures.prediction.table import FIGURES

__all__ = ("FIGURES",)
"""All of them."""
