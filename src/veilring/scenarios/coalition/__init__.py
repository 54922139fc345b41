"""What a scenario's coalition finds by the attacks on the ring, held against the truth.

Only the runner of an experiment has all parties' rows and can say which findings are right. The
attacks themselves get no more than the coalition has: its members' views, rows and names, and what
is public.
"""

from veilring.scenarios.coalition.joint import find

__all__ = ("find",)
