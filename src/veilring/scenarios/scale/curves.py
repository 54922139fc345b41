"""Curves of growth and studies of them: what was measured, and what the models make of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from veilring.scenarios.scale.fits import Basis, Fit, fit


@dataclass(frozen=True, slots=True)
class Panel:
    """What a curve is over, and what of.

    Attributes:
        x: Such as `parties`.
        y: Such as `seconds a batch`.
        is_closed: Whether there is nothing to ask for beyond what was measured.
    """

    x: str
    y: str
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve.

    Attributes:
        name: What it is a curve of, such as `one ring`.
        panel: Its axes; curves of one panel are drawn together.
        x: Where was measured, ascending.
        y: What was measured there.
        fit: The model.
        beside: Other numbers that belong to each point, by name.
    """

    name: str
    panel: Panel
    x: tuple[float, ...]
    y: tuple[float, ...]
    fit: Fit
    beside: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def fitted(
        cls,
        name: str,
        panel: Panel,
        points: Mapping[float, float],
        basis: Basis,
        beside: Mapping[str, tuple[float, ...]] | None = None,
    ) -> "Curve":
        """Return the curve of measured points with its model.

        Raises:
            InputError: As `fit`.
        """
        x, y = tuple(points), tuple(points.values())
        return cls(name, panel, x, y, fit(basis, x, y), beside or {})


@dataclass(frozen=True, slots=True)
class Study:
    """All curves of one system.

    Attributes:
        name: Of the command, such as `ring`.
        title: What is shown.
        setting: All that is fixed, one item a line.
        simulated: Whether the same seed gives the same numbers again, to the last digit. If not,
            they are this machine's.
        curves: Those that were measured.
        findings: What the models say, one sentence a line.
    """

    name: str
    title: str
    setting: tuple[str, ...]
    simulated: bool
    curves: tuple[Curve, ...]
    findings: tuple[str, ...] = ()
