"""How far each system grows: curves measured to what fits, and models that extrapolate them.

`ring` is simulated and can be repeated to the last digit; `serve`, `collect` and `records` say what
this machine did. `fits` and `curves` are the models and how far they are off, `writing` and
`pictures` are what is printed, kept and drawn.
"""

from veilring.scenarios.scale.curves import Curve, Panel, Study
from veilring.scenarios.scale.fits import Basis, Fit, Term, fit

__all__ = ("Basis", "Curve", "Fit", "Panel", "Study", "Term", "fit")
