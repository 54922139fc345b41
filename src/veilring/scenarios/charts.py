"""How all plots look, and that equal plots are equal files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

DOTS_AN_INCH: Final = 160
FORMATS: Final = ("png", "svg")
"""Suffixes of files that plots are written to."""


class Style(NamedTuple):
    """How one curve is told from the others."""

    color: str
    marker: str
    line: str


# Okabe and Ito's palette, which people with any colour vision can tell apart; markers and dashes
# say the same in print without colour.
STYLES: Final = (
    Style("#0072B2", "o", "-"),
    Style("#D55E00", "s", "--"),
    Style("#009E73", "^", "-."),
    Style("#CC79A7", "D", ":"),
    Style("#E69F00", "v", "-"),
    Style("#56B4E9", "P", "--"),
    Style("#000000", "X", ":"),
    Style("#999999", "*", "-."),
)

SETTINGS: "Final[dict[RcKeyType, Any]]" = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "svg.hashsalt": "veilring",  # equal figures give equal files
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
}


def metadata(path: Path) -> dict[str, str | None]:
    """Return what is written beside a plot: no date, since equal figures give equal files."""
    return {"Date": None} if path.suffix == ".svg" else {}
