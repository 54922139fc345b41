"""Findings of a coalition from the totals of rank search."""

import json
from pathlib import Path

import pytest
from tests.scenarios.reporting.pages import Page

from veilring.errors import ScenarioError
from veilring.nodes.journal import Journal
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.report import TotalsFindings
from veilring.scenarios.reporting import read_folder
from veilring.scenarios.reporting.folder import write_report
from veilring.scenarios.reporting.page import render

PARTIES = tuple(f"party-{n}" for n in range(5))
SETTINGS = ("parties.count=5", "data.queries=12", "protocol.batch=6", "protocol.name=rank-search")


def run(
    *members: str,
    runtime: str = "memory",
    adding: str = "all-to-all",
    journal: Journal | None = None,
) -> Report:
    """Run wine with a coalition, in two batches."""
    coalition = f"parties.coalition={json.dumps(members)}"
    scenario = load_scenario("wine", [*SETTINGS, coalition, f"protocol.sum={adding}"])
    return run_scenario(scenario, runtime=runtime, seed=5, journal=journal)


def findings(*members: str, runtime: str = "memory", adding: str = "all-to-all") -> TotalsFindings:
    """Return a coalition's findings."""
    found = run(*members, runtime=runtime, adding=adding).coalition
    assert isinstance(found, TotalsFindings)
    return found


@pytest.mark.parametrize("adding", ["all-to-all", "star"])
@pytest.mark.parametrize("members", [PARTIES[:1], PARTIES[2:3], PARTIES[1:4]])
def test_every_total_of_the_others_is_read_but_no_single_count(
    members: tuple[str, ...], adding: str
) -> None:
    """Up to n - 2 members, with or without the adder, read exact totals of the others only."""
    found = findings(*members, adding=adding)
    assert found.totals == found.right > 12 * 16
    assert found.alone == 0
    assert found.outside == 5 - len(members)
    assert found.guessed == pytest.approx(found.nearest / found.outside)


@pytest.mark.parametrize("adding", ["all-to-all", "star"])
@pytest.mark.parametrize("last", [0, 3])
def test_all_others_read_the_counts_of_the_last_party(last: int, adding: str) -> None:
    """Every opened total reveals one of its counts."""
    found = findings(*(name for n, name in enumerate(PARTIES) if n != last), adding=adding)
    assert found.alone == found.right == found.totals > 0
    assert found.guessed == found.nearest


@pytest.mark.parametrize("runtime", ["simulated", "processes"])
def test_findings_depend_on_the_run_not_the_runtime(runtime: str) -> None:
    """They are equal on every runtime for equal seeds."""
    members = PARTIES[1:3]
    assert findings(*members, runtime=runtime) == findings(*members)


def test_a_report_with_findings_survives_json_and_is_drawn(tmp_path: Path) -> None:
    """A report equals its copy read from JSON, and its page names no owner."""
    journal = Journal()
    report = run(*PARTIES[:2], journal=journal)
    assert Report.from_json(json.loads(json.dumps(report.as_json(), allow_nan=False))) == report
    write_report(report, journal, tmp_path)
    page = Page(render(read_folder(tmp_path)))
    told = {row[0]: row[1:] for row in page.tables["coalition-table"]}
    assert list(told) == ["coalition", "totals read", "counts exposed", "owners named"]
    assert told["counts exposed"][0].startswith("0 of ")
    assert "the view does not help" in told["owners named"][1]


def test_a_coalition_is_refused_if_counts_stay_shared() -> None:
    """No attack is known if only votes are revealed."""
    with pytest.raises(ScenarioError, match="no attack on the views"):
        run_scenario(
            load_scenario(
                "wine", [*SETTINGS, 'parties.coalition=["party-0"]', "protocol.reveal=votes"]
            ),
            runtime="memory",
            seed=5,
        )
