"""Deployed aggregators of a verified sum, with clients over HTTP and a collector."""

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deployment import prio_crashes, prio_weather
from tests.deployment.commands import Deploy, Deployment, wait_until
from tests.deployment.prio_crashes import AGGREGATORS
from tests.protocols.prio.reporting import make_task

from veilring.deployment.surveys.aggregators import VerifiedSumTerms
from veilring.deployment.surveys.upload_client import open_uploader
from veilring.errors import ScenarioError
from veilring.protocols.prio.sealing import add_key
from veilring.protocols.prio.task import Task, Vdaf
from veilring.randomness import Streams

PRICE = 40.0  # so large that noise moves a total once in e**40 times


def upload(deployed: Deployment, *values: int) -> None:
    """Report some values."""
    task = Task.decode((deployed.folder / "task.json").read_bytes())

    async def report() -> None:
        generator = Streams().generator("clients")
        async with open_uploader(task) as uploader:
            for value in values:
                await uploader.report(value, now=time.time(), generator=generator)

    asyncio.run(report())


def collected(deployed: Deployment, *options: str) -> dict[str, Any]:
    """Return the collector's result."""
    done = deployed.call("estimate", "collector.toml", "--json", *options)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def totals_of(deployed: Deployment, batches: int) -> list[list[int]]:
    """Return the totals, once there is this number of batches."""
    wait_until(lambda: len(collected(deployed)["batches"]) == batches)
    return [each["totals"] for each in collected(deployed)["batches"]]


@pytest.mark.parametrize(
    ("edit", "failed", "said"),
    [
        (("leader.toml", '"leader"', '"helper"'), "roles", "this key is of leader"),
        (("terms.toml", '"prio"', '"prio"\nhelper = "leader"'), "terms", "three different names"),
        (("terms.toml", '"prio"', '"prio"\ncollector = "eve"'), "roles", "eve"),
        (("terms.toml", "chunk_length = 2", ""), "terms", "chunk_length"),
        (("leader.toml", "leader.hpke", "none.hpke"), "keys", "a file of keys"),
        (("terms.toml", "minimum = 20", "minimum = 21"), "state", "another task"),
        (("terms.toml", "epsilon = 1.0", ""), "promise", "so that no budget limits them"),
        (("terms.toml", "epsilon = 1.0", ""), "policy", "no ε bounds prio"),
    ],
)
def test_mistakes_are_found_before_a_start(
    deploy: Deploy, edit: tuple[str, str, str], failed: str, said: str
) -> None:
    """A mistake in the terms or a configuration is named by `veilring check`."""
    deployed = deploy("sum")
    deployed.edit(*edit)
    done = deployed.call("check", "leader.toml", "--json", code=2)
    checks = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
    assert checks[failed]["outcome"] == "failed"
    assert said in checks[failed]["found"]


@pytest.mark.parametrize(
    ("vdaf", "minimum", "said"),
    [
        (Vdaf(kind="sumvec64", length=1, bits=40, chunk_length=6, proofs=2), 1 << 23, "minimum"),
        (Vdaf(kind="histogram", length=200_000, chunk_length=100_000), 9, "chunk_length"),
    ],
)
def test_terms_that_would_fail_later_are_refused(vdaf: Vdaf, minimum: int, said: str) -> None:
    """Terms whose totals may be ambiguous, or whose proofs fit no frame, are refused."""
    with pytest.raises(ScenarioError, match=f"task.{said}: "):
        VerifiedSumTerms(task=make_task(vdaf, minimum=minimum)).checked()


@pytest.mark.slow
def test_a_deployed_sum_counts_and_remembers(deploy: Deploy) -> None:
    """Batches are closed and opened at their price once, even after kills in between."""
    deployed = deploy("sum", "--minimum=3", f"--epsilon={PRICE}")
    deployed.start("leader")
    deployed.wait_for("leader", "answers clients")
    deployed.start("helper")
    deployed.wait_for("helper", "is ready")
    upload(deployed, 0, 1, 1)
    assert totals_of(deployed, 1) == [[1, 2, 0]]
    for name in AGGREGATORS:
        add_key(deployed.folder / f"{name}.hpke", time.time())
        os.kill(deployed.running[name].pid, signal.SIGHUP)
        deployed.wait_for(name, "the keys for clients are other ones")
    upload(deployed, 2, 2, 0, 1)
    deployed.kill()
    deployed.serve(*AGGREGATORS)
    assert totals_of(deployed, 2) == [[1, 2, 0], [1, 0, 2]]
    found = collected(deployed, "--confidence=0.5")
    assert (found["confidence"], found["epsilon"]) == (0.5, PRICE)
    shown = deployed.call("estimate", "collector.toml").stdout
    assert "setosa" in shown
    assert [deployed.totals(name).spent for name in AGGREGATORS] == [2 * PRICE] * 2
    for name in AGGREGATORS:
        said = deployed.call("status", f"{name}.toml").stdout
        assert f"{name} is ready" in said
        assert re.search(r"reports +not verified 0, verified 1, in batches 6, refused 0", said)
        charged = [each for each in deployed.trail(name, "admitted") if each["charged"]]
        assert len(charged) == 2
    deployed.end_in_order()


@pytest.mark.slow
def test_a_policy_and_a_budget_refuse_totals(deploy: Deploy) -> None:
    """Totals are refused by either aggregator's own policy or budget, and nothing is opened."""
    deployed = deploy("sum", "--minimum=1", f"--epsilon={PRICE}", f"--budget={PRICE}")
    deployed.edit("helper.policy.toml", '    "collector",\n', "")
    deployed.serve(*AGGREGATORS)
    upload(deployed, 0)
    refused = deployed.call("estimate", "collector.toml", code=1)
    assert "helper" in refused.stderr
    assert "policy" in refused.stderr
    deployed.edit("helper.policy.toml", "clients = [\n]\n", "")
    deployed.kill("helper")
    deployed.serve("helper")
    assert totals_of(deployed, 1) == [[1, 0, 0]]
    upload(deployed, 1)
    deployed.wait_for("leader", "batch 1 of 1 reports is closed")
    refused = deployed.call("estimate", "collector.toml", code=1)
    assert "is exhausted" in refused.stderr
    assert [deployed.totals(name).spent for name in AGGREGATORS] == [PRICE] * 2


@pytest.mark.slow
def test_kills_count_each_report_once(tmp_path: Path) -> None:
    """After any kill, each acknowledged report is in one batch at both, opened for one price."""
    seen = asyncio.run(prio_crashes.crash_rounds(tmp_path / "deployed", 4, seed=7))
    assert seen.batches >= 1
    assert seen.interrupted >= 1


@pytest.mark.slow
def test_bad_networks_count_each_report_once(tmp_path: Path) -> None:
    """Between aggregators that lose each other, each report counts once, and no total changes."""
    seen = asyncio.run(prio_weather.weather_rounds(tmp_path / "deployed", 1, seed=7))
    assert seen.batches >= 1
