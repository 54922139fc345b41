"""Uploads by the client for browsers and Node that others maintain, unchanged."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.browser import Browser, needs_browser
from tests.deployment.pages import BUNDLE, web_site
from tests.deployment.uploading import Serving, serving
from tests.npm import needs_npm, run_node
from tests.protocols.prio.reports import PRECISION, VDAFS

from veilring.protocols.prio.task import Task

KINDS: Final = {"sumvec": "sumVec"}
"""Its names of our kinds, where they differ."""
MANY: Final = 300
"""Of each kind: bytes that begin with a zero, as one in 256 does, occur in all with 99 %."""
AT_ONCE: Final = 20
UPLOAD: Final = """
const upload = async (Task, { task, measurements, atOnce, timestamp }) => {
  const client = new Task(task);
  const refused = [];
  const options = timestamp ? { timestamp: new Date(1000 * timestamp) } : undefined;
  const one = measurement => client.sendMeasurement(measurement, options)
    .catch(error => refused.push(`${error.shortType ?? error}`));
  for (let i = 0; i < measurements.length; i += atOnce)
    await Promise.all(measurements.slice(i, i + atOnce).map(one));
  return refused;
};
"""
"""A function that uploads measurements, and returns the refusals."""
PROGRAM: Final = f"""
import {{ readFileSync }} from "node:fs";
import {{ Task }} from "@divviup/dap";
{UPLOAD}
console.log(JSON.stringify(await upload(Task, JSON.parse(readFileSync(0)))));
"""
pytestmark = needs_npm


def measurements_of(kind: str, number: int) -> tuple[list[Any], list[int]]:
    """Return measurements of a kind, and their totals."""
    rng, vdaf = random.Random(number), VDAFS[kind]
    length, top = vdaf.length or 1, 1 << (vdaf.bits or 1)
    if kind == "count":
        bits = [rng.random() < 0.3 for _ in range(number)]
        return list(bits), [sum(bits)]
    if kind == "sum":
        numbers = [rng.randrange(top) for _ in range(number)]
        return list(numbers), [sum(numbers)]
    if kind == "histogram":
        buckets = [rng.randrange(length) for _ in range(number)]
        return list(buckets), np.bincount(buckets, minlength=length).tolist()
    rows = [[rng.randrange(top) for _ in range(length)] for _ in range(number)]
    return list(rows), np.sum(rows, axis=0).tolist()


def as_theirs(task: Task) -> dict[str, Any]:
    """Return a task as the package takes it."""
    vdaf = task.vdaf.parameters
    names = {"chunk_length": "chunkLength"}
    return {
        "type": KINDS.get(task.vdaf.kind, task.vdaf.kind),
        "id": task.name,
        "leader": task.leader.rstrip("/"),
        "helper": task.helper,
        "timePrecisionSeconds": task.time_precision,
        **{names.get(key, key): value for key, value in vdaf.items()},
    }


def order(site: Serving, measurements: Sequence[Any], timestamp: int = 0) -> dict[str, Any]:
    """Return the argument of `UPLOAD`."""
    task = as_theirs(site.parties.task)
    return {"task": task, "measurements": measurements, "atOnce": AT_ONCE, "timestamp": timestamp}


async def upload_from_node(
    kind: str, number: int, packages: Path, certificate: tuple[Path, Path]
) -> None:
    """Upload measurements from Node, and check their totals."""
    measurements, totals = measurements_of(kind, number)
    async with serving(VDAFS[kind], certificate=certificate, now=time.time) as site:
        given, trust = order(site, measurements), str(certificate[0])
        assert await run_node(packages, PROGRAM, given, NODE_EXTRA_CA_CERTS=trust) == []
        assert len(site.parties.stored()) == number
        assert site.parties.totals() == (totals, 0)


async def test_some_uploads_from_node(packages: Path, certificate: tuple[Path, Path]) -> None:
    """The package in Node uploads over HTTPS, and the totals are exact."""
    await upload_from_node("histogram", 5, packages, certificate)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VDAFS)
async def test_hundreds_of_uploads_from_node(
    kind: str, packages: Path, certificate: tuple[Path, Path]
) -> None:
    """The same with hundreds of measurements of each kind."""
    await upload_from_node(kind, MANY, packages, certificate)


async def test_the_package_understands_refusals(
    packages: Path, certificate: tuple[Path, Path]
) -> None:
    """A refusal is an error of the package's own class, with the type of the draft."""
    now = int(time.time())
    async with serving(certificate=certificate, now=time.time, closes=now + 9 * PRECISION) as site:
        for timestamp, expected in (
            (2 * PRECISION, "reportTooEarly"),
            (20 * PRECISION, "reportRejected"),
        ):
            given = order(site, [True], now + timestamp)
            refused = await run_node(
                packages, PROGRAM, given, NODE_EXTRA_CA_CERTS=str(certificate[0])
            )
            assert refused == [expected]
        assert site.parties.stored() == []


PAGE: Final = b"<!doctype html><script src=dap.js></script><link rel=icon href='data:,'>"


async def upload_from_page(
    kind: str, number: int, packages: Path, certificate: tuple[Path, Path], browser: Browser
) -> None:
    """Upload measurements from a page of another origin, and check their totals."""
    measurements, totals = measurements_of(kind, number)
    files = {"page.html": PAGE, "dap.js": (packages / BUNDLE).read_bytes()}
    async with (
        serving(VDAFS[kind], certificate=certificate, now=time.time) as site,
        web_site(files, certificate) as url,
    ):
        await asyncio.to_thread(browser.open, f"{url}page.html")
        given = order(site, measurements)
        call = f"return await upload(divviup.dap.Task, {json.dumps(given)});"
        script = f"(async () => {{ {UPLOAD} {call} }})()"
        assert await asyncio.to_thread(browser.evaluate, script) == []
        assert browser.complaints == []
        assert len(site.parties.stored()) == number
        assert site.parties.totals() == (totals, 0)


@needs_browser
@pytest.mark.parametrize(
    "kind",
    [
        "histogram",
        *(pytest.param(each, marks=pytest.mark.slow) for each in VDAFS if each != "histogram"),
    ],
)
async def test_some_uploads_from_a_page(
    kind: str, packages: Path, certificate: tuple[Path, Path], trusting: Browser
) -> None:
    """The package in a page of another origin uploads over HTTPS, and the totals are exact."""
    await upload_from_page(kind, 5, packages, certificate, trusting)


@needs_browser
@pytest.mark.slow
async def test_hundreds_of_uploads_from_a_page(
    packages: Path, certificate: tuple[Path, Path], trusting: Browser
) -> None:
    """The same with hundreds of measurements: a browser sends what Node does, in its own way."""
    await upload_from_page("histogram", MANY, packages, certificate, trusting)
