"""Audits of a coalition's view: whether it reveals more than it may, and how much.

`assert_hides`
    A test with two worlds that the coalition must not distinguish; it fails if their views differ.
`compare_views`
    The same comparison, which returns its findings in either case.
`assert_simulatable`
    A test that fails if real views differ from those that a simulator makes of permitted data.
`measure_leakage`
    How often the best of several attackers finds a secret.
"""

from veilring.testing.hiding.audit import (
    Audit,
    Difference,
    Ideal,
    Leakage,
    SimulatedView,
    Success,
    Verdict,
    assert_hides,
    assert_simulatable,
    compare_views,
    measure_leakage,
)
from veilring.testing.hiding.worlds import MemberView, Played, World, play_world, strip_masks

__all__ = (
    "Audit",
    "Difference",
    "Ideal",
    "Leakage",
    "MemberView",
    "Played",
    "SimulatedView",
    "Success",
    "Verdict",
    "World",
    "assert_hides",
    "assert_simulatable",
    "compare_views",
    "measure_leakage",
    "play_world",
    "strip_masks",
)
