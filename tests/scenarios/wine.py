"""One run of the wine scenario on each runtime, computed once."""

from functools import cache

from veilring.scenarios import Report, load_scenario, run_scenario


@cache
def wine_report(runtime: str) -> Report:
    """Return the report of a run of five parties with seed 11."""
    overrides = ["parties.count=5", "protocol.batch=20", "run.leakage_trials=200"]
    return run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=11)


def untimed(report: Report) -> dict[str, object]:
    """Return the parts that do not depend on the place and time of the run."""
    depends = {"runtime", "seconds", "start_seconds", "simulated_seconds", "settings"}
    return {name: value for name, value in report.as_json().items() if name not in depends}
