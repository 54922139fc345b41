"""Figures 2 to 4 of Yilmaz, Al-Rubaie and Chang, "LDP naive Bayes classification", 2019.

`by_oracle` measures figure 2 and `by_reduction` the others, both as `learning` says; `table` says
what each figure is and what the paper claims of it, as `evidence` takes it.
"""

from veilring.scenarios.figures.ldp.table import FIGURES

__all__ = ("FIGURES",)
