"""Declarative experiments: their schema, the built-in library, and the runner."""

from typing import TYPE_CHECKING, Any

from veilring.scenarios.schema import (
    Scenario,
    load_scenario,
    make_scenario,
    scenario_names,
    scenario_text,
)

if TYPE_CHECKING:
    from veilring.scenarios.report import Report
    from veilring.scenarios.runner import run_scenario

__all__ = (
    "Report",
    "Scenario",
    "load_scenario",
    "make_scenario",
    "run_scenario",
    "scenario_names",
    "scenario_text",
)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    """Import the runner on first use: it needs SciPy, and listing scenarios does not."""
    if name in {"Report", "run_scenario"}:
        from veilring.scenarios import runner  # noqa: PLC0415  (the reason of this function)

        return getattr(runner, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
