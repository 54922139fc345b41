"""Figures 6.2 to 6.31 of "Differentially private tree-based nearest neighbours".

`points` are the data, `ways` are what is compared, `accuracy` measures one way at one point, and
`table` says what each figure is and what the thesis claims of it. `where` draws a map of where a
query may have been.
"""

from veilring.scenarios.figures.treewalk.table import FIGURES

__all__ = ("FIGURES",)
