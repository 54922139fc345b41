"""The page in a real browser: nothing overlaps, nothing is cut off, nothing is complained about."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from veilring.scenarios.reporting import read_folder
from veilring.scenarios.reporting.page import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
BROWSER_SECONDS = 200

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on PATH")

# A window is never as narrow as a phone, and a frame is; what it finds is said by the page around
# it, where --dump-dom shows it.
_FRAME = """<!DOCTYPE html><script>
addEventListener("message", event => document.body.dataset.found = event.data);
</script><body><iframe src="page.html" style="border: 0; width: WIDTHpx; height: 900px"></iframe>
"""

# The page itself has no script. This one measures it.
_MEASURE = """<script>
addEventListener("load", () => {
  const box = element => element.getBoundingClientRect();
  const texts = [...document.querySelectorAll("svg text")].filter(text => box(text).width);
  const overlap = (one, other) => {
    const [a, b] = [box(one), box(other)];
    return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3
      && b.top < a.bottom - 3;
  };
  const plot = document.querySelector("svg[aria-labelledby^=spacetime]");
  const names = [...plot.querySelectorAll("text:has(title)")];
  const found = {
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - innerWidth,
    empty: [...document.querySelectorAll("svg[role=img]")]
      .filter(svg => box(svg).width < 300 || box(svg).height < 50).length,
    pictures: document.querySelectorAll("svg[role=img]").length,
    smallest: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    overlapping: texts.flatMap((text, place) => texts.slice(place + 1)
      .filter(other => text.ownerSVGElement === other.ownerSVGElement && overlap(text, other))
      .map(other => text.textContent + " | " + other.textContent)),
    names: names.length,
    room: Math.min(...names.map(name =>
      box(plot.querySelector(".lane")).left - box(name).right)),
    lines: plot.querySelectorAll(".arrow").length,
    cut: [...document.querySelectorAll(".lines")]
      .filter(table => box(table).right > innerWidth).length,
    corrupt: plot.querySelectorAll(".corrupt-name").length,
    gone: plot.querySelectorAll(".lane.gone").length,
    colours: new Set([...plot.querySelectorAll(".arrow")]
      .map(line => getComputedStyle(line).stroke)).size,
    paper: getComputedStyle(document.body).backgroundColor,
  };
  parent.postMessage(JSON.stringify(found), "*");
});
</script></head>"""


def _measure(folder: Path, profile: Path, width: int, *options: str) -> tuple[dict[str, Any], str]:
    """Return what the script found on a page, and what the browser said."""
    assert CHROMIUM is not None
    html = render(read_folder(folder)).replace("</head>", _MEASURE)
    (profile / "page.html").write_text(html, encoding="utf-8")
    frame = profile / "frame.html"
    frame.write_text(_FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--hide-scrollbars",
            f"--user-data-dir={profile / 'profile'}",
            "--window-size=1400,1000",
            *options,
            "--virtual-time-budget=5000",
            "--dump-dom",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=BROWSER_SECONDS,
        check=True,
    )
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None
    return json.loads(unescape(found[1])), done.stderr


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 360])
@pytest.mark.parametrize(
    "name",
    [
        "finished",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("crashed", "recovered")),
    ],
)
def test_a_page_is_legible_on_a_screen_and_on_a_phone(
    name: str, width: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """At either width all charts are drawn, and text is large enough and overlaps nothing."""
    folder: Path = request.getfixturevalue(name)
    found, said = _measure(folder, tmp_path, width)
    assert "CONSOLE" not in said
    assert found["width"] == width
    assert found["overflow"] <= 0
    assert found["pictures"] == (4 if name == "crashed" else 6)
    assert found["empty"] == 0
    assert found["smallest"] >= 12
    assert found["overlapping"] == []
    assert found["names"] == 12
    assert found["room"] >= 0
    assert found["cut"] == 0
    assert found["corrupt"] == {"finished": 0, "crashed": 2, "recovered": 4}[name]
    assert found["gone"] == (0 if name == "finished" else 1)
    run = read_folder(folder)
    assert found["lines"] == len(run.messages)
    assert found["colours"] == min(6, len({message.kind for message in run.messages}))


@pytest.mark.slow
def test_a_dark_screen_gets_a_dark_page(finished: Path, tmp_path: Path) -> None:
    """The colours follow what the reader's system prefers."""
    light, _ = _measure(finished, tmp_path, 1280)
    dark, _ = _measure(finished, tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert light["paper"] == "rgb(255, 255, 255)"
    assert dark["paper"] == "rgb(20, 23, 27)"
