"""Deployed parties that compute the statistics of a plan: results, charges and refusals."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.ports import reserve_ports
from numpy.testing import assert_array_equal
from tests.deployment.commands import PARTIES, SECONDS, Deployment
from tests.deployment.members import all_served
from tests.deployment.test_peers import die_before_it_is_kept
from tests.protocols.statistics.tables import Part, draw_part, pooled

from veilring.deployment.duties import load_config_of, perform
from veilring.deployment.examples.folder import write_folder
from veilring.deployment.peers import MemberConfig, serve_member
from veilring.deployment.statistics import AskedStatistics, StatisticsTerms
from veilring.errors import (
    BudgetExhausted,
    HandshakeError,
    InputError,
    ScenarioError,
    SessionAborted,
)

PRICE = 2.0
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "high": 120.0, "edges": [0.0, 18.0, 40.0, 65.0, 120.0]},
    {"name": "site", "categories": ["north", "east", "south", "west"]},
]
STATISTICS: list[dict[str, Any]] = [
    {"kind": "mean", "column": "age"},
    {"kind": "histogram", "by": "site"},
    {"kind": "quantiles", "column": "age", "at": [0.0, 0.5]},
]
PARTS = [draw_part(rows, np.random.default_rng(rows)) for rows in (40, 3, 37)]
AGES = pooled(PARTS)["age"]
serve = partial(all_served, kind=StatisticsTerms)


def write_rows(part: Part, path: Path) -> None:
    """Write the columns of a party."""
    lines = [",".join(map(str, row)) for row in zip(part["age"], part["site"], strict=True)]
    path.write_text("\n".join(["age,site", *lines, ""]), encoding="utf-8")


def written(folder: Path, **options: Any) -> Deployment:
    """Write the files of three parties and a client."""
    tables = {"columns": COLUMNS, "statistics": STATISTICS, **options}
    terms = StatisticsTerms.of(**tables).checked(len(PARTIES))
    configs: dict[str, dict[str, object]] = {
        name: {"role": "member", "rows": f"{name}.csv"} for name in PARTIES
    }
    configs["client"] = {"role": "client", "ask": PARTIES[0]}
    named = zip(PARTIES, PARTS, strict=True)
    files = {f"{name}.csv": partial(write_rows, part) for name, part in named}
    write_folder(
        folder, terms, configs, files, port=reserve_ports(len(PARTIES)), listening=len(PARTIES)
    )
    return Deployment(folder)


async def asked(folder: Path) -> AskedStatistics:
    """Ask as the client does."""
    found: AskedStatistics = await perform(folder / "client.toml", "statistics")
    return found


async def test_running_parties_compute_a_plan_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are those of all rows, and any member sends the same without another sum."""
    folder = written(tmp_path / "exact").folder
    config = folder / "client.toml"
    async with serve(folder) as served:
        first = await asked(folder)
        assert first.results[0] == AGES.mean()
        assert first.results[1].sum() == len(AGES)
        assert_array_equal(first.results[2], [AGES.min(), np.sort(AGES)[39]])
        assert first.promise.epsilon is None
        config.write_text(config.read_text().replace(PARTIES[0], PARTIES[2]))
        monkeypatch.setattr("veilring.protocols.peers.PeerMember.play", None)
        assert repr((await asked(folder)).results) == repr(first.results)
        assert served.spent() == [0.0] * 3


async def test_members_pay_once_for_an_edition(tmp_path: Path) -> None:
    """An ε is charged once; that of changed rows is another charge, which a budget refuses."""
    plan = written(tmp_path / "noisy", epsilon=PRICE, budget=1.5 * PRICE)
    async with serve(plan.folder) as served:
        first = await asked(plan.folder)
        assert repr(await asked(plan.folder)) == repr(first)
        assert first.results[0] != AGES.mean()
        assert served.spent() == [PRICE] * 3
    plan.configure("terms", 'edition = "2"')
    async with serve(plan.folder) as served:
        with pytest.raises(BudgetExhausted):
            await asked(plan.folder)
        assert served.spent() == [PRICE] * 3


async def test_a_policy_counts_a_plan_as_one_query(tmp_path: Path) -> None:
    """Results that are stored count no more, and those of changed rows are another query."""
    plan = written(tmp_path / "noisy", epsilon=PRICE, budget=3 * PRICE)
    policy = f'systems = ["statistics"]\nqueries_total = 1\nepsilon = {PRICE}'
    (plan.folder / "own.toml").write_text(policy)
    async with serve(plan.folder):  # a policy may come later
        pass
    plan.configure("party-1", 'policy = "own.toml"')
    async with serve(plan.folder) as served:
        first = await asked(plan.folder)
        assert repr(await asked(plan.folder)) == repr(first)
        assert plan.usage("party-1") == (1, PRICE)
    plan.configure("terms", 'edition = "2"')
    async with serve(plan.folder) as served:
        with pytest.raises(SessionAborted, match=r"PolicyRefused.amount, blaming party-1"):
            await asked(plan.folder)
        assert served.spent() == [PRICE] * 3


async def test_a_limit_of_epsilon_refuses_an_exact_plan(tmp_path: Path) -> None:
    """The party does not start, because no ε bounds exact results."""
    plan = written(tmp_path / "exact")
    (plan.folder / "own.toml").write_text("epsilon_total = 9.0")
    plan.configure("party-1", 'policy = "own.toml"')
    config = load_config_of(plan.folder / "party-1.toml", MemberConfig, "this")
    with pytest.raises(ScenarioError, match="no ε bounds statistics; the policy limits ε"):
        await serve_member(config, kind=StatisticsTerms)


async def test_clients_learn_no_small_count(tmp_path: Path) -> None:
    """A client receives no count that `small` hides, and no totals of a search."""
    folder = written(tmp_path / "small", small=38).folder
    terms = StatisticsTerms.load(folder / "terms.toml", 3)
    async with serve(folder) as served:
        found = await asked(folder)
        kept = await served.members[PARTIES[0]].ask()
    plan = terms.bind(3)
    assert len(kept) == plan.size
    shown = plan.unpack(kept)
    counts = shown[1][0].astype(float)
    assert not ((counts > 0) & (counts < 38)).any()
    assert np.isnan(counts).any()
    assert_array_equal(np.isnan(found.results[2]), [True, False])
    assert shown[2].shape == (1, 2)


async def test_other_terms_and_queries_are_refused(tmp_path: Path) -> None:
    """The client names the key that differs, and that these parties label nothing."""
    plan = written(tmp_path / "plan")
    async with serve(plan.folder):
        plan.configure("terms", "person_rows = 2")
        with pytest.raises(HandshakeError, match="person_rows: 2 at client, 1 at party-0"):
            await asked(plan.folder)
        with pytest.raises(ScenarioError, match="role client of statistics does not support"):
            await perform(plan.folder / "client.toml", "ask", plan.folder / "party-0.csv")


@pytest.mark.parametrize(
    ("row", "option", "message"),
    [
        ("130,north", "", "'age' has values outside of its range"),
        ("13,nirth", "", "line 2"),
        ("13,north", "budget = 3.0", "spends no epsilon"),
        ("13,north", "epsilon = 3.0", "set the total"),
        ("13,north", "delta = 2.0", "delta"),
    ],
)
async def test_a_member_does_not_start_with_wrong_rows_or_terms(
    tmp_path: Path, row: str, option: str, message: str
) -> None:
    """So no refusal of a request depends on rows."""
    plan = written(tmp_path / "plan")
    config = load_config_of(plan.folder / "party-1.toml", MemberConfig, "this")
    (plan.folder / "party-1.csv").write_text(f"age,site\n{row}\n")
    plan.configure("terms", option)
    with pytest.raises(InputError, match=message):
        await serve_member(config, kind=StatisticsTerms)


@pytest.mark.slow
def test_a_party_killed_before_storing_results_gets_them_from_the_others(tmp_path: Path) -> None:
    """Processes over TLS: a killed member has paid once and pays no more, and neither do others."""
    plan = written(tmp_path / "plan", epsilon=PRICE, budget=2 * PRICE)
    try:
        plan.start(PARTIES[0], body=die_before_it_is_kept)
        plan.serve(*PARTIES[1:])
        plan.wait_for(PARTIES[0], "is ready")
        plan.call("stats", "client.toml", code=1)
        assert plan.running[PARTIES[0]].wait(SECONDS) == -signal.SIGKILL
        plan.serve(PARTIES[0])
        found = json.loads(plan.call("stats", "client.toml", "--json").stdout)
        assert [each["statistic"] for each in found["results"]] == [
            "mean age",
            "histogram site",
            "quantiles age",
        ]
        assert found["promise"]["epsilon"] == PRICE
        assert plan.call("stats", "client.toml").stdout.startswith("mean age\n")
        assert [plan.totals(name).spent for name in PARTIES] == [PRICE] * 3
        plan.end_in_order()
    finally:
        plan.kill()
