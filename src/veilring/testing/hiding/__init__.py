"""Audits of what a coalition sees: does its view tell more than it may, and how much does it tell?

`assert_hides`
    Two worlds that the coalition may not tell apart: a test that fails if their views differ.
`compare_views`
    The same comparison, which returns its findings in either case.
`assert_simulatable`
    A simulator makes views of what the coalition may know: a test that fails if real ones differ.
`measure_leakage`
    How often the best of several attackers finds a secret.
"""

from veilring.testing.hiding.audit import (
    Audit,
    Ideal,
    SimulatedView,
    Telling,
    Verdict,
    assert_hides,
    assert_simulatable,
    compare_views,
)
from veilring.testing.hiding.leakage import Leakage, Success, measure_leakage
from veilring.testing.hiding.stripping import strip_masks
from veilring.testing.hiding.worlds import MemberView, Played, World, play_world

__all__ = (
    "Audit",
    "Ideal",
    "Leakage",
    "MemberView",
    "Played",
    "SimulatedView",
    "Success",
    "Telling",
    "Verdict",
    "World",
    "assert_hides",
    "assert_simulatable",
    "compare_views",
    "measure_leakage",
    "play_world",
    "strip_masks",
)
