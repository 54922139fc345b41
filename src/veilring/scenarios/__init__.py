"""Declarative experiments: their schema, the built-in library, and the runner."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from veilring.scenarios.schema import (
    RoleScenario,
    Scenario,
    load_experiment,
    load_scenario,
    make_scenario,
    scenario_names,
    scenario_text,
)

if TYPE_CHECKING:
    from veilring.scenarios import stats
    from veilring.scenarios.report import Report, RoleReport
    from veilring.scenarios.roles import run_role
    from veilring.scenarios.runner import run_scenario

__all__ = (
    "Report",
    "RoleReport",
    "RoleScenario",
    "Scenario",
    "load_experiment",
    "load_scenario",
    "make_scenario",
    "run_role",
    "run_scenario",
    "scenario_names",
    "scenario_text",
    "stats",
)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    """Import the runner on first use: it needs SciPy, and listing scenarios does not."""
    if name == "stats":
        return import_module(f"{__name__}.stats")
    if name in __all__:
        from veilring.scenarios import report, roles, runner  # noqa: PLC0415  (the reason of this function)

        home = {"run_role": roles, "run_scenario": runner}.get(name, report)
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
