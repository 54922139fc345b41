"""The page on which people answer the question of a verified sum."""

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.browser import Browser, needs_browser
from tests.deployment.pages import BUNDLE, web_site
from tests.deployment.uploading import Serving, serving
from tests.npm import needs_npm
from tests.protocols.prio.reports import VDAFS

from veilring.deployment.examples import RESPOND
from veilring.errors import StoreFailed
from veilring.protocols.prio import uploads
from veilring.protocols.prio.store import Added, Upload
from veilring.protocols.prio.task import Vdaf

PAGE: Final = RESPOND.read_text(encoding="utf-8")
CHECKS: Final = Vdaf(kind="sumvec", bits=1, length=3, chunk_length=2)
STATUS: Final = "document.getElementById('status').textContent"
SEND: Final = """new Promise(resolve => {
  const status = document.getElementById("status"), button = document.getElementById("send");
  new MutationObserver(() => status.textContent.match(/arrived|confirmed/) && resolve())
    .observe(status, { childList: true });
  button.click();
})"""
"""Send the answer, and wait for its end."""


def fill(*values: object) -> str:
    """Return the script that fills the fields in their order; a chosen one gets true."""
    return f"""{list(values)!r}.forEach((value, place) => {{
      const field = document.getElementsByName("answer")[place];
      if (field.type === "number") field.value = value; else field.checked = value === 1;
    }})"""


def test_the_page_allows_its_own_script_only() -> None:
    """The policy of the page has the hashes of its script and of its style."""
    for kind in ("script", "style"):
        (inner,) = re.findall(rf"<{kind}>(.*?)</{kind}>", PAGE, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{kind}-src 'self' 'sha256-{digest}'" in PAGE.replace(
            "style-src 'sha256", "style-src 'self' 'sha256"
        )


@asynccontextmanager
async def asked(
    vdaf: Vdaf, packages: Path, certificate: tuple[Path, Path], browser: Browser, **given: Any
) -> AsyncIterator[tuple[Serving, str]]:
    """Open the page of a task; yield its aggregators and its address."""
    async with serving(vdaf, certificate=certificate, now=time.time, **given) as site:
        files = {
            "respond.html": PAGE.encode(),
            "task.json": site.parties.task.encoded,
            "dap.js": (packages / BUNDLE).read_bytes(),
        }
        async with web_site(files, certificate) as url:
            await show(browser, f"{url}respond.html")
            yield site, f"{url}respond.html"


async def show(browser: Browser, url: str) -> None:
    """Open a page, and wait until its question is there."""
    await asyncio.to_thread(browser.open, url)
    loaded = f"""new Promise(resolve => {{
      const look = () => {STATUS}.includes("loading") ? setTimeout(look, 5) : resolve();
      look();
    }})"""
    await run(browser, loaded)


async def run(browser: Browser, script: str) -> Any:
    """Return the value of a script."""
    return await asyncio.to_thread(browser.evaluate, script)


@needs_npm
@needs_browser
@pytest.mark.parametrize(
    "case",
    [
        (VDAFS["count"], (1, 0), [1]),
        (VDAFS["count"], (0, 1), [0]),
        (VDAFS["sum"], (200,), [200]),
        (VDAFS["sumvec"], (1, 2, 3, 4, 15), [1, 2, 3, 4, 15]),
        (VDAFS["histogram"], (0, 0, 0, 1), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        (CHECKS, (1, 0, 1), [1, 0, 1]),
    ],
)
async def test_an_answer_arrives(
    case: tuple[Vdaf, Sequence[int], list[int]],
    packages: Path,
    certificate: tuple[Path, Path],
    trusting: Browser,
) -> None:
    """The page asks for a measurement of each kind, and uploads it once."""
    vdaf, values, totals = case
    terms = {"question": "What?", "answers": [f"answer {number}" for number in range(10)]}
    async with asked(vdaf, packages, certificate, trusting, terms=terms, epsilon=1.0) as (
        site,
        url,
    ):
        assert await run(trusting, "document.title") == "What?"
        assert "(ε = 1)" in await run(trusting, "document.getElementById('promise').textContent")
        await run(trusting, fill(*values))
        await run(trusting, SEND)
        assert "arrived" in await run(trusting, STATUS)
        assert site.parties.totals() == (totals, 0)
        assert trusting.complaints == []
        await show(trusting, url)
        assert "already" in await run(trusting, STATUS)
        assert await run(trusting, "document.getElementById('form').hidden")


@needs_npm
@needs_browser
async def test_an_answer_is_sent_again(
    packages: Path,
    certificate: tuple[Path, Path],
    trusting: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report that was not confirmed is sent again unchanged, and counts once."""
    monkeypatch.setattr(uploads, "STORE_PAUSE_SECONDS", 0.0)
    sent = list[Upload]()

    def add(group: Sequence[Upload]) -> Sequence[Added]:
        sent.extend(group)
        if len(sent) == 1:
            raise StoreFailed("full")
        return ["stored"] * len(group)

    async with asked(VDAFS["count"], packages, certificate, trusting, add=add):
        await run(trusting, fill(1))
        await run(trusting, SEND)
        assert "Send it again" in await run(trusting, STATUS)
        await run(trusting, SEND)
        assert "arrived" in await run(trusting, STATUS)
    assert sent == [sent[0]] * 2
