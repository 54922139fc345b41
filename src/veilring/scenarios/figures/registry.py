"""All figures that can be reproduced, by their names: `family/figure-n`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from veilring.errors import InputError
from veilring.scenarios.figures import ldp, prediction, radius, ring, treewalk
from veilring.scenarios.figures.model import Figure

# A family of protocols adds its own here.
_FAMILIES: Final = (
    ring.FIGURES,
    ldp.FIGURES,
    radius.FIGURES,
    prediction.FIGURES,
    treewalk.FIGURES,
)

FIGURES: Final[Mapping[str, Figure]] = MappingProxyType(
    {figure.name: figure for family in _FAMILIES for figure in family}
)
"""By name."""


def find_figure(name: str) -> Figure:
    """Return a figure.

    Raises:
        InputError: If there is none of that name.
    """
    if name not in FIGURES:
        raise InputError("figure", name, ", ".join(FIGURES))
    return FIGURES[name]
