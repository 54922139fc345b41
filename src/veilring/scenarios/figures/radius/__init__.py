"""Figures 7 to 15 of Gursoy et al., "Differentially private nearest neighbor classification", 2017.

`accuracy` measures figures 7 to 9 and 12 to 15, and `conversion` figures 10 and 11; `table` says
what each figure is and what the paper claims of it.
"""

from veilring.scenarios.figures.radius.table import FIGURES

__all__ = ("FIGURES",)
