"""Coroutines of tests that run in the simulation."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from veilring.simulation import simulate

_P = ParamSpec("_P")


def simulated(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Run a test in the simulation."""

    @functools.wraps(test)
    def run(*args: _P.args, **named: _P.kwargs) -> None:
        simulate(test(*args, **named))

    return run
