"""The built site in a browser: every page, on a screen and a phone, light and dark."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.browser import PHONE, SCREEN, Browser, needs_browser

from veilring import __version__

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "_build" / "html"
# Pages that Sphinx makes itself; nobody reads the index of all names as a text.
MADE = {"genindex.html", "py-modindex.html", "search.html"}
SEARCH_SECONDS = 30
# Letters on paper: the least contrast that WCAG 2.2 allows for large ones.
CONTRAST_MIN = 3.0

pytestmark = [needs_browser, pytest.mark.docs, pytest.mark.slow]

_MEASURE = """(() => {
  const box = element => element.getBoundingClientRect();
  const article = document.querySelector("article");
  const channels = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(part => Number(part) / 255);
  const linear = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = colour => channels(colour).map(linear)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const style = element => getComputedStyle(element);
  const colours = [style(article).color, style(document.body).backgroundColor];
  const [ink, paper] = colours.map(light).sort((a, b) => b - a);
  const inScroll = element => element !== null
    && (["auto", "scroll"].includes(style(element).overflowX) || inScroll(element.parentElement));
  return {
    overflow: document.documentElement.scrollWidth - innerWidth,
    cut: [...article.querySelectorAll("p, li, h1, h2, h3, dt, dd, img, pre, .table-wrapper")]
      .filter(element => box(element).right > innerWidth + 1 && !inScroll(element.parentElement))
      .map(element => element.textContent.slice(0, 60)),
    stuck: [...article.querySelectorAll("pre")]
      .filter(pre => pre.scrollWidth > pre.clientWidth + 1
        && !["auto", "scroll"].includes(getComputedStyle(pre).overflowX)).length,
    missing: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
    bright: [...article.querySelectorAll("img[src$='.svg']")]
      .filter(image => getComputedStyle(image).filter === "none").length,
    contrast: (ink + 0.05) / (paper + 0.05),
  };
})()"""


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder of the site, after Sphinx has built the changed pages."""
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-b", "html", "docs", str(SITE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return SITE


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [SCREEN, PHONE])
def test_every_page_fits(site: Path, browser: Browser, width: int, colours: str) -> None:
    """No page is wider than its window, code scrolls, and pictures suit the colour scheme."""
    pages = sorted(path for path in site.rglob("*.html") if path.name not in MADE)
    assert len(pages) > 40
    wrong = {}
    for page in pages:
        browser.open(page, width=width, colours="dark" if colours == "dark" else "light")
        found = browser.evaluate(_MEASURE)
        faults = {name: found[name] for name in ("cut", "stuck", "missing") if found[name]}
        if found["overflow"] > 0:
            faults["overflow"] = found["overflow"]
        if colours == "dark" and found["bright"]:
            faults["bright"] = found["bright"]
        if found["contrast"] < CONTRAST_MIN:
            faults["contrast"] = found["contrast"]
        if faults:
            wrong[page.relative_to(site).as_posix()] = faults
    assert wrong == {}


def test_the_search_finds_pages_without_a_server(site: Path, browser: Browser) -> None:
    """The search of a site opened as files finds a word of the reference."""
    browser.open(f"{(site / 'search.html').as_uri()}?q=masked_sum")
    found = browser.evaluate(f"""new Promise(done => {{
      const results = () => document.querySelectorAll("#search-results .search li").length;
      const timer = setInterval(() => results() && (clearInterval(timer), done(results())), 100);
      setTimeout(() => done(results()), {1000 * SEARCH_SECONDS});
    }})""")
    assert found > 0


def test_the_title_names_the_version(site: Path, browser: Browser) -> None:
    """The title of each page shows the release that it describes."""
    browser.open(site / "quickstart.html")
    assert browser.evaluate("document.title").endswith(f"veilring {__version__}")
