"""The figures of the papers, measured again: each with its claims, and whether they hold.

`registry` knows every figure by its name, `model` is what a figure is, `claims` how a claim is
tested, `measure` how it is measured, `plots` and `write` what comes of it. A family of protocols
brings a package with its figures: `ring` has those of PP-kNN.
"""

from veilring.scenarios.figures.claims import Claim, Verdict, judge
from veilring.scenarios.figures.measure import measure
from veilring.scenarios.figures.measured import Measured
from veilring.scenarios.figures.model import Figure
from veilring.scenarios.figures.registry import FIGURES, find_figure
from veilring.scenarios.figures.reproduce import Reproduction, reproduce

__all__ = (
    "FIGURES",
    "Claim",
    "Figure",
    "Measured",
    "Reproduction",
    "Verdict",
    "find_figure",
    "judge",
    "measure",
    "reproduce",
)
