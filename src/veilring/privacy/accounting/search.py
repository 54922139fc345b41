"""Where a monotone condition begins or ceases to hold, to the last bit and on the safe side."""

from collections.abc import Callable

from veilring.errors import InputError


def least(holds: Callable[[float], bool]) -> float:
    """Return the least positive number for which the condition holds, given that it then stays so.

    What is returned fulfils the condition; the float before it does not.

    Raises:
        InputError: If no float fulfils it, or all do.
    """
    good = _walk(holds, 1.0, 2.0)
    return _bisect(holds, good, _walk(_opposite(holds), good, 0.5))


def greatest(holds: Callable[[float], bool]) -> float:
    """Return the greatest number for which the condition holds, given that it does below that.

    What is returned fulfils the condition; the float after it does not.

    Raises:
        InputError: If no float fulfils it, or all do.
    """
    good = _walk(holds, 1.0, 0.5)
    return _bisect(holds, good, _walk(_opposite(holds), good, 2.0))


def _walk(holds: Callable[[float], bool], start: float, factor: float) -> float:
    """Multiply until the condition holds."""
    x = start
    while not holds(x):
        x *= factor
        if x in {0.0, float("inf")}:
            raise InputError("target", "out of reach", "what some positive finite number gives")
    return x


def _opposite(holds: Callable[[float], bool]) -> Callable[[float], bool]:
    return lambda x: not holds(x)


def _bisect(holds: Callable[[float], bool], good: float, bad: float) -> float:
    """Narrow down to two neighbouring floats and return the good one."""
    while (middle := good + (bad - good) / 2) not in {good, bad}:
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
