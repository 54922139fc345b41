"""The page in a real browser, on a screen and on a phone at once."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from veilring.scenarios.comparison import SystemComparison
from veilring.scenarios.comparison.page import render_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
BROWSER_SECONDS = 200
WIDTHS = (1280, 360)

# A frame may be as narrow as a phone, where a window is not. Both tell the page around them.
_FRAMES = """<!DOCTYPE html><script>
const found = [];
addEventListener("message", event => {
  found.push(event.data);
  document.body.dataset.found = JSON.stringify(found);
});
</script><body>"""
_FRAME = '<iframe src="page.html" style="border: 0; width: {width}px; height: 900px"></iframe>'
_MEASURE = """<script>
addEventListener("load", () => {
  const box = element => element.getBoundingClientRect();
  const texts = [...document.querySelectorAll("svg text")].filter(text => box(text).width);
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  parent.postMessage({
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - innerWidth,
    cut: box(document.querySelector("#lines-table")).right - innerWidth,
    pictures: [...document.querySelectorAll("svg[role=img]")]
      .filter(picture => box(picture).width > 300).length,
    smallest: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    overlapping: texts.flatMap((one, place) => texts.slice(place + 1)
      .filter(other => one.ownerSVGElement === other.ownerSVGElement)
      .filter(other => !apart(box(one), box(other)))
      .map(other => one.textContent + " | " + other.textContent)),
    outside: [...document.querySelectorAll(".point")].filter(p => box(p).right > innerWidth).length,
  }, "*");
});
</script></head>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on PATH")
def test_it_is_legible_on_a_screen_and_on_a_phone(
    comparison: SystemComparison, tmp_path: Path
) -> None:
    """Nothing is cut off, text is large enough and overlaps nothing, and all pictures are drawn."""
    page = render_page(comparison).replace("</head>", _MEASURE)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
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
            "--enable-logging=stderr",
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
    assert "CONSOLE" not in done.stderr
    said = re.search(r'data-found="([^"]*)"', done.stdout)
    assert said is not None
    found = {each["width"]: each for each in json.loads(unescape(said[1]))}
    assert set(found) == set(WIDTHS)
    for each in found.values():
        assert each["overflow"] <= 0
        assert each["cut"] <= 0
        assert each["pictures"] == 4
        assert each["smallest"] >= 12
        assert each["overlapping"] == []
        assert each["outside"] == 0
