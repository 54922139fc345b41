"""How numbers are written."""

from math import floor, log10
from typing import Final

from veilring.scenarios.intervals import Interval

_SECOND: Final = 1.0
_MILLISECOND: Final = 1e-3


def percent(share: float) -> str:
    """Write a share."""
    return f"{share:.1%}"


def interval_text(interval: Interval) -> str:
    """Write the ends of an interval of a share."""
    return f"{100 * interval.low:.1f} to {percent(interval.high)}"


def in_bytes(size: int) -> str:
    """Write a number of bytes, in full."""
    return f"{size:,} B"


def in_seconds(seconds: float) -> str:
    """Write a time to the microsecond at best, in a unit that suits it."""
    if not seconds or abs(seconds) >= _SECOND:
        return f"{seconds:,.3f} s" if seconds else "0 s"
    return (
        f"{1000 * seconds:,.3f} ms" if abs(seconds) >= _MILLISECOND else f"{1e6 * seconds:.0f} µs"
    )


def shortened(name: str, letters: int) -> str:
    """Write a name in at most so many letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def ticks(span: float, count: int = 5) -> list[tuple[float, str]]:
    """Return about so many round instants from 0 to `span` seconds, and how each is written."""
    if span <= 0.0:
        return [(0.0, "0 s")]
    magnitude = 10.0 ** floor(log10(span / count))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude * count >= span)
    unit, scale = ("s", 1.0) if step * count >= _SECOND else ("ms", 1000.0)
    number = floor(span / step * (1 + 1e-9)) + 1
    return [(n * step, f"{n * step * scale:.6g} {unit}") for n in range(number)]
