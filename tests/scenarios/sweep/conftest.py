"""The results of a sweep, computed once."""

from pathlib import Path

import pytest
from tests.scenarios.sweep.plans import IN_PROCESS, PLAN

from veilring.scenarios.sweep import run_sweep


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a sweep in one process, which no test may change."""
    out = tmp_path_factory.mktemp("alone") / "out.parquet"
    run_sweep(PLAN, out, engine=IN_PROCESS)
    return out
