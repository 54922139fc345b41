"""Uploads by the client for browsers and Node that others maintain, unchanged."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from aiohttp import web
from tests.browser import Browser, needs_browser, open_browser
from tests.deployment.uploading import Serving, serving, write_certificate
from tests.npm import install, needs_npm, run_node
from tests.protocols.prio.reports import PRECISION, VDAFS

from veilring.deployment.upload import load_certificate
from veilring.protocols.prio.task import Task
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK

PACKAGE: Final = "@divviup/dap@0.9.1"
KINDS: Final = {"sumvec": "sumVec"}
"""Its names of our kinds, where they differ."""
MANY: Final = 1000
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


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the package is installed."""
    return install(tmp_path_factory.mktemp("npm"), PACKAGE)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the paths of a certificate and its key."""
    return write_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser that accepts any certificate."""
    profile = tmp_path_factory.mktemp("browser")
    with open_browser(profile, "--ignore-certificate-errors") as browser:
        yield browser


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


@pytest.mark.parametrize("kind", VDAFS)
async def test_some_uploads_from_node(
    kind: str, packages: Path, certificate: tuple[Path, Path]
) -> None:
    """The package in Node uploads over HTTPS, and the totals are exact."""
    await upload_from_node(kind, 5, packages, certificate)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VDAFS)
async def test_a_thousand_uploads_from_node(
    kind: str, packages: Path, certificate: tuple[Path, Path]
) -> None:
    """The same with a thousand measurements."""
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


@asynccontextmanager
async def page(packages: Path, certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    """Serve a page that loads the package's bundle, over HTTPS; yield its address."""
    bundle = (packages / "node_modules/@divviup/dap/dist/browser.js").read_text(encoding="utf-8")
    files = {
        "/": (
            "text/html",
            "<!doctype html><script src='/dap.js'></script><link rel=icon href='data:,'>",
        ),
        "/dap.js": ("text/javascript", bundle),
    }

    async def answer(request: web.BaseRequest) -> web.Response:
        kind, text = files[request.path]
        response = web.Response(text=text, content_type=kind, charset="utf-8")
        response.force_close()
        return response

    sock, handlers = bind(LOOPBACK, 0), web.Server(answer)
    server = await asyncio.get_running_loop().create_server(
        handlers, sock=sock, ssl=load_certificate(*certificate)
    )
    async with server:
        yield f"https://{LOOPBACK}:{sock.getsockname()[1]}/"
    for each in handlers.connections:  # that the browser has opened without need
        if each.transport is not None:
            each.transport.abort()
    await asyncio.sleep(0)


async def upload_from_page(
    kind: str, number: int, packages: Path, certificate: tuple[Path, Path], browser: Browser
) -> None:
    """Upload measurements from a page of another origin, and check their totals."""
    measurements, totals = measurements_of(kind, number)
    async with (
        serving(VDAFS[kind], certificate=certificate, now=time.time) as site,
        page(packages, certificate) as url,
    ):
        await asyncio.to_thread(browser.open, url)
        given = order(site, measurements)
        call = f"return await upload(divviup.dap.Task, {json.dumps(given)});"
        script = f"(async () => {{ {UPLOAD} {call} }})()"
        assert await asyncio.to_thread(browser.evaluate, script) == []
        assert browser.complaints == []
        assert len(site.parties.stored()) == number
        assert site.parties.totals() == (totals, 0)


@needs_browser
@pytest.mark.parametrize("kind", VDAFS)
async def test_some_uploads_from_a_page(
    kind: str, packages: Path, certificate: tuple[Path, Path], trusting: Browser
) -> None:
    """The package in a page of another origin uploads over HTTPS, and the totals are exact."""
    await upload_from_page(kind, 5, packages, certificate, trusting)


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("kind", VDAFS)
async def test_a_thousand_uploads_from_a_page(
    kind: str, packages: Path, certificate: tuple[Path, Path], trusting: Browser
) -> None:
    """The same with a thousand measurements."""
    await upload_from_page(kind, MANY, packages, certificate, trusting)
