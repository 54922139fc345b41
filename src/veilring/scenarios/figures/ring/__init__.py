"""Figures 2 to 6 of Xiong, Chitti and Liu, "Mining multiple private databases", SAC 2007.

`accuracy` measures figures 2 to 5 and `leakage` figure 6; `table` says what each figure is and what
the paper claims of it.
"""

from veilring.scenarios.figures.ring.table import FIGURES

__all__ = ("FIGURES",)
