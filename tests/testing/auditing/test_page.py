"""The page of an audit: it has all claims, and fits a screen and a phone."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from veilring.errors import InputError
from veilring.testing.auditing import Audit, Claim, Verdict
from veilring.testing.auditing.findings import outcome, render_page, require_fresh, write_audit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
BROWSER_SECONDS = 200
WIDTHS = (1280, 390)
LONG = "a finding about message 3 from party-1 to party-0 (planted.counts), words: entry 0 " * 4

CLAIMS = tuple(
    Claim(verdict.name, f"Promise <{verdict}>.", verdict, LONG, "A single byte.", (LONG, "0"))
    for verdict in Verdict
)
AUDIT = Audit("majority", "Majority", {"mistake": "leak"}, 7, True, 1e-6, CLAIMS, 12.0)

# A frame may be as narrow as a phone, where a window is not. Both tell the page around them.
_FRAMES = """<!DOCTYPE html><script>
const found = [];
addEventListener("message", event => {
  found.push(event.data);
  document.body.dataset.found = JSON.stringify(found);
});
</script><body>"""
_FRAME = '<iframe src="audit.html" style="border: 0; width: {width}px; height: 900px"></iframe>'
_MEASURE = """<script>
addEventListener("load", () => {
  const box = element => element.getBoundingClientRect();
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const [promise, finding] = document.querySelectorAll(".claim > div");
  parent.postMessage({
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - innerWidth,
    beside: box(finding).left >= box(promise).right,
    below: box(finding).top >= box(promise).bottom,
  }, "*");
});
</script></head>"""


def test_the_page_has_every_claim_with_its_verdict() -> None:
    """Each claim is a section with its promise and its finding, escaped."""
    page = render_page(AUDIT)
    assert page.count('<section class="claim"') == len(CLAIMS)
    for claim in CLAIMS:
        assert f"Promise &lt;{claim.verdict}&gt;." in page
    assert 'mistake = "leak"' in unescape(page)
    assert outcome(AUDIT) == "1 of 6 claims is contradicted: CONTRADICTED."


def test_a_folder_has_the_page_the_numbers_and_the_worlds(tmp_path: Path) -> None:
    """The page links files that reproduce a finding, and nothing is overwritten."""
    claim = Claim("faults", "", Verdict.CONTRADICTED, "wrong", files={"faults.toml": "a = 1\n"})
    found = Audit("majority", "Majority", {}, 7, True, 1e-6, (claim,), 12.0)
    write_audit(found, tmp_path / "out")
    assert 'href="faults.toml"' in (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "faults.toml").read_text(encoding="utf-8") == "a = 1\n"
    numbers = json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8"))
    assert numbers["system"] == "majority"
    assert [(each["claim"], each["verdict"]) for each in numbers["claims"]] == [
        ("faults", "contradicted")
    ]
    with pytest.raises(InputError, match="nothing is overwritten"):
        require_fresh(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on PATH")
def test_the_page_fits_a_screen_and_a_phone(tmp_path: Path) -> None:
    """Promise and finding are side by side on a screen, stacked on a phone, and not cut off."""
    page = render_page(AUDIT).replace("</head>", _MEASURE)
    (tmp_path / "audit.html").write_text(page, encoding="utf-8")
    frames = tmp_path / "frames.html"
    both = "".join(_FRAME.format(width=width) for width in WIDTHS)
    frames.write_text(_FRAMES + both, encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1800,1000",
            "--virtual-time-budget=5000",
            "--dump-dom",
            frames.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=BROWSER_SECONDS,
        check=True,
    )
    said = re.search(r'data-found="([^"]*)"', done.stdout)
    assert said is not None
    found = {each["width"]: each for each in json.loads(unescape(said[1]))}
    assert set(found) == set(WIDTHS)
    assert all(each["overflow"] <= 0 for each in found.values())
    wide, narrow = (found[width] for width in WIDTHS)
    assert wide["beside"]
    assert narrow["below"]
